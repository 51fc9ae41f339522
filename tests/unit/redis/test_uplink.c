// The link in good times: coming up in every way, batches, forgotten scripts, closing at any time.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/redis/script.h"
#include "tests/unit/redis/fake.h"
#include "tests/unit/redis/rig.h"
#include "tests/unit/redis/suites.h"

static struct server server;
static struct rig rig;

static void setup(void)
{
    server_start(&server, true, NULL);
    rig_init(&rig, &server);
}

static void teardown(void)
{
    rig_close(&rig);
    server_stop(&server);
}

START_TEST(test_up_by_path)
{
    rig_open_up(&rig);
    ck_assert_int_eq(rig.downs, 0);
    ck_assert_str_eq(rig.role, "master");
    ck_assert_str_eq(rig.policy, "noeviction");
    ck_assert(rig.version[0] >= '1' && rig.version[0] <= '9');
    ck_assert(!rig.may_evict);
}
END_TEST

START_TEST(test_up_by_address)
{
    rig_use_tcp(&rig, "127.0.0.1", server.port);
    rig_open_up(&rig);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig.downs, 0);
}
END_TEST

// The name may stand for an IPv6 address too, at which nobody listens: the next one is tried.
START_TEST(test_up_by_name)
{
    rig_use_tcp(&rig, "localhost", server.port);
    rig_open_up(&rig);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig.downs, 0);
}
END_TEST

START_TEST(test_name_unknown)
{
    rig_use_tcp(&rig, "nobody.invalid", server.port);
    rig_open(&rig);
    rig_await_down(&rig, 2);
    ck_assert_int_eq(rig.ups, 0);
}
END_TEST

static void options_refused(void)
{
    struct uplink *uplink;

    ck_assert_int_eq(uplink_new(&rig.loop, &rig.options, &uplink), -EINVAL);
}

START_TEST(test_bad_options)
{
    static char path[200];
    struct uplink_options good = rig.options;

    memset(path, 'x', 108);
    rig.options.address.path = path;
    options_refused();
    rig.options.address.path = "";
    options_refused();
    rig_use_tcp(&rig, "bad name", 6379);
    options_refused();
    rig_use_tcp(&rig, "localhost", 0);
    options_refused();
    rig_use_tcp(&rig, "localhost", 65536);
    options_refused();
    rig_use_tcp(&rig, NULL, 6379);
    options_refused();
    rig.options = good;
    rig.options.host = "a:b";
    options_refused();
    rig.options = good;
    rig.options.address.database = -1;
    options_refused();
    rig.options = good;
    rig.options.connect_timeout_ms = 0;
    options_refused();
}
END_TEST

START_TEST(test_named_connection)
{
    redisReply *reply;

    rig_open_up(&rig);
    reply = server_command(&server, "CLIENT LIST");
    ck_assert_ptr_nonnull(strstr(reply->str, "name=lockbrokerd-" RIG_HOST " "));
    freeReplyObject(reply);
}
END_TEST

static long long calls_of(const char *command)
{
    redisReply *reply = server_command(&server, "INFO commandstats");
    char name[64];
    const char *at;
    long long calls = 0;

    (void)snprintf(name, sizeof(name), "cmdstat_%s:calls=", command);
    at = strstr(reply->str, name);
    if (at)
        calls = strtoll(at + strlen(name), NULL, 10);
    freeReplyObject(reply);
    return calls;
}

#define MANY 1000

static char many_keys[MANY][16];

static void many_submit(enum backend_op_kind kind, int64_t ttl_ms)
{
    for (uint64_t i = 0; i < MANY; i++) {
        (void)snprintf(many_keys[i], sizeof(many_keys[i]), "key%d", (int)i);
        (void)rig_submit(&rig, kind, many_keys[i], i + 1, ttl_ms, 0);
    }
    rig_flush(&rig);
    rig_await_ended(&rig);
    for (uint64_t i = 0; i < MANY; i++)
        ck_assert_int_eq(rig_outcome(&rig, rig.ops_count - i)->result, RESULT_OK);
}

START_TEST(test_many_renewals_in_few_calls)
{
    struct uplink_figures figures;
    long long calls;

    rig_open_up(&rig);
    many_submit(BACKEND_ACQUIRE, 60000);
    ck_assert_int_eq(server_number(&server, "DBSIZE"), MANY + 1);
    calls = calls_of("evalsha");
    many_submit(BACKEND_RENEW, 600000);
    ck_assert_int_eq(calls_of("evalsha") - calls, MANY / 100);
    uplink_get_figures(rig.uplink, &figures);
    ck_assert_int_eq(figures.renewal_calls, MANY / 100);
    ck_assert_int_eq(figures.commands, MANY + MANY / 100);
    ck_assert_int_gt(server_number(&server, "PTTL lock:key0"), 60000);
    ck_assert_int_gt(server_number(&server, "PTTL lock:key999"), 60000);
    many_submit(BACKEND_RELEASE, 0);
    ck_assert_int_eq(server_number(&server, "DBSIZE"), 1);
}
END_TEST

START_TEST(test_nothing_before_flush)
{
    uint64_t op;

    rig_open_up(&rig);
    op = rig_submit(&rig, BACKEND_ACQUIRE, "a", 1, 60000, 0);
    for (int i = 0; i < 5; i++)
        (void)uv_run(&rig.loop, UV_RUN_ONCE);
    ck_assert_uint_eq(rig.ended, 0);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 0);
    rig_flush(&rig);
    rig_await_ended(&rig);
    ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_OK);
}
END_TEST

START_TEST(test_release_follows_acquire_and_renewal)
{
    uint64_t acquire, renew, release;

    rig_open_up(&rig);
    acquire = rig_submit(&rig, BACKEND_ACQUIRE, "a", 1, 60000, 0);
    release = rig_submit(&rig, BACKEND_RELEASE, "a", 1, 0, 0);
    rig_flush(&rig);
    rig_await_ended(&rig);
    ck_assert_int_eq(rig_outcome(&rig, acquire)->result, RESULT_OK);
    ck_assert_int_eq(rig_outcome(&rig, release)->result, RESULT_OK);
    ck_assert_int_eq(rig_acquire(&rig, "b", 2, 60000)->result, RESULT_OK);
    renew = rig_submit(&rig, BACKEND_RENEW, "b", 2, 60000, 0);
    release = rig_submit(&rig, BACKEND_RELEASE, "b", 2, 0, 0);
    rig_flush(&rig);
    rig_await_ended(&rig);
    ck_assert_int_eq(rig_outcome(&rig, renew)->result, RESULT_OK);
    ck_assert_int_eq(rig_outcome(&rig, release)->result, RESULT_OK);
}
END_TEST

START_TEST(test_forgotten_scripts)
{
    rig_open_up(&rig);
    server_run(&server, "SCRIPT FLUSH");
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    server_run(&server, "SCRIPT FLUSH");
    ck_assert_int_eq(rig_renew(&rig, "a", 1, 90000)->result, RESULT_OK);
    ck_assert_int_gt(server_number(&server, "PTTL lock:a"), 60000);
    server_run(&server, "SCRIPT FLUSH");
    ck_assert_int_eq(rig_query(&rig, "a")->holder.kind, HOLDER_LOCAL);
    server_run(&server, "SCRIPT FLUSH");
    ck_assert_int_eq(rig_release(&rig, "a", 1)->result, RESULT_OK);
    server_run(&server, "SET lock:b stranger");
    server_run(&server, "SCRIPT FLUSH");
    ck_assert_int_eq(rig_break(&rig, "b")->holder.kind, HOLDER_FOREIGN);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a lock:b"), 0);
    ck_assert_int_eq(rig.downs, 0);
}
END_TEST

START_TEST(test_forgotten_scripts_keep_their_order)
{
    uint64_t acquire, release;

    rig_open_up(&rig);
    server_run(&server, "SCRIPT FLUSH");
    acquire = rig_submit(&rig, BACKEND_ACQUIRE, "a", 1, 60000, 0);
    rig_flush(&rig);
    release = rig_submit(&rig, BACKEND_RELEASE, "a", 1, 0, 0);
    rig_flush(&rig);
    rig_await_ended(&rig);
    ck_assert_int_eq(rig_outcome(&rig, acquire)->result, RESULT_NOT_SENT);
    ck_assert_int_eq(rig_outcome(&rig, release)->result, RESULT_GONE);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 0);
}
END_TEST

// Another broker may have brought back one script and not the other: the release then overtakes.
START_TEST(test_forgotten_acquire_is_not_sent_after_its_release)
{
    uint64_t acquire, other, release;

    rig_open_up(&rig);
    server_run(&server, "SCRIPT FLUSH");
    freeReplyObject(server_command(&server, "SCRIPT LOAD %s", script_text(BACKEND_RELEASE)));
    acquire = rig_submit(&rig, BACKEND_ACQUIRE, "a", 1, 60000, 0);
    other = rig_submit(&rig, BACKEND_ACQUIRE, "b", 2, 60000, 0);
    release = rig_submit(&rig, BACKEND_RELEASE, "a", 1, 0, 0);
    rig_flush(&rig);
    rig_await_ended(&rig);
    ck_assert_int_eq(rig_outcome(&rig, acquire)->result, RESULT_NOT_SENT);
    ck_assert_int_eq(rig_outcome(&rig, other)->result, RESULT_OK);
    ck_assert_int_eq(rig_outcome(&rig, release)->result, RESULT_GONE);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 0);
}
END_TEST

START_TEST(test_forgotten_batch)
{
    rig_open_up(&rig);
    many_submit(BACKEND_ACQUIRE, 60000);
    server_run(&server, "SCRIPT FLUSH");
    many_submit(BACKEND_RENEW, 600000);
    ck_assert_int_gt(server_number(&server, "PTTL lock:key0"), 60000);
    ck_assert_int_gt(server_number(&server, "PTTL lock:key999"), 60000);
}
END_TEST

START_TEST(test_user_and_database_on_every_connection)
{
    server_run(&server, "ACL SETUSER broker on >secret ~* +@all");
    rig.options.address.user = "broker";
    rig.options.address.password = "secret";
    rig.options.address.database = 5;
    rig_open_up(&rig);
    for (int i = 1; i <= 3; i++) {
        char key[16];

        (void)snprintf(key, sizeof(key), "key%d", i);
        ck_assert_int_eq(rig_acquire(&rig, key, (uint64_t)i, 60000)->result, RESULT_OK);
        ck_assert_int_eq(server_number(&server, "DBSIZE"), 0);
        ck_assert_int_eq(server_number(&server, "CLIENT KILL USER broker"), 1);
        rig_await_up(&rig, i + 1);
    }
    ck_assert_int_eq(rig.downs, 3);
    ck_assert_int_eq(rig_query(&rig, "key1")->holder.kind, HOLDER_LOCAL);
}
END_TEST

START_TEST(test_password_alone)
{
    rig.options.address.password = "secret";
    rig_open(&rig);
    rig_await_down(&rig, 2);
    ck_assert_int_eq(rig.ups, 0);
    server_run(&server, "CONFIG SET requirepass secret");
    rig_await_up(&rig, 1);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
}
END_TEST

START_TEST(test_least_rights)
{
    server_run(&server, "ACL SETUSER broker on >secret resetkeys ~lock:* ~lockbroker:meta:* -@all "
                        "+auth +select +client|setname +info +script|load +eval +evalsha "
                        "+get +mget +set +del +pttl +pexpire +type +time");
    rig.options.address.user = "broker";
    rig.options.address.password = "secret";
    rig_open_up(&rig);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 90000)->result, RESULT_OK);
    ck_assert_int_eq(rig_acquire(&rig, "a", 2, 60000)->result, RESULT_BUSY);
    ck_assert_int_eq(rig_renew(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_renew(&rig, "none", 1, 60000)->result, RESULT_GONE);
    ck_assert_int_eq(rig_query(&rig, "a")->holder.kind, HOLDER_LOCAL);
    ck_assert_int_eq(rig_release(&rig, "a", 1)->result, RESULT_OK);
    ck_assert_int_eq(rig_acquire(&rig, "a", 3, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_break(&rig, "a")->holder.kind, HOLDER_LOCAL);
    rig.loss_ttl_ms = 30000;
    rig.saw_epoch = true;
    rig.not_after_ms = LB_INTEGER_MAX;
    ck_assert_int_eq(rig_acquire(&rig, "a", 4, 60000)->result, RESULT_QUARANTINED);
    ck_assert(rig_run(&rig, BACKEND_RENEW, "a", 4, 60000, 5)->was_missing);
    ck_assert_int_eq(rig_break(&rig, "a")->holder.kind, HOLDER_LOCAL);
}
END_TEST

START_TEST(test_close_before_open)
{
    ck_assert_int_eq(uplink_new(&rig.loop, &rig.options, &rig.uplink), 0);
}
END_TEST

START_TEST(test_close_at_any_turn)
{
    static const char *const hosts[] = {NULL, "127.0.0.1", "localhost"};

    for (size_t i = 0; i < 3; i++) {
        for (int turns = 0; turns < 12; turns++) {
            rig_close(&rig);
            rig_init(&rig, &server);
            if (hosts[i])
                rig_use_tcp(&rig, hosts[i], server.port);
            rig_open(&rig);
            for (int turn = 0; turn < turns; turn++)
                (void)uv_run(&rig.loop, UV_RUN_NOWAIT);
        }
    }
}
END_TEST

START_TEST(test_close_with_operations_under_way)
{
    rig_open_up(&rig);
    (void)rig_submit(&rig, BACKEND_ACQUIRE, "a", 1, 60000, 0);
    (void)rig_submit(&rig, BACKEND_RENEW, "b", 2, 60000, 0);
    rig_flush(&rig);
    (void)rig_submit(&rig, BACKEND_ACQUIRE, "c", 3, 60000, 0);
    (void)rig_submit(&rig, BACKEND_RENEW, "d", 4, 60000, 0);
    uplink_close(rig.uplink);
    rig.uplink = NULL;
    for (int i = 0; i < 20; i++)
        (void)uv_run(&rig.loop, UV_RUN_ONCE);
    ck_assert_uint_eq(rig.ended, 0);
    ck_assert_int_eq(rig.downs, 0);
}
END_TEST

Suite *uplink_suite(void)
{
    Suite *suite = suite_create("redis/uplink");
    TCase *tcase = tcase_create("real redis");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_up_by_path);
    tcase_add_test(tcase, test_up_by_address);
    tcase_add_test(tcase, test_up_by_name);
    tcase_add_test(tcase, test_name_unknown);
    tcase_add_test(tcase, test_bad_options);
    tcase_add_test(tcase, test_named_connection);
    tcase_add_test(tcase, test_many_renewals_in_few_calls);
    tcase_add_test(tcase, test_nothing_before_flush);
    tcase_add_test(tcase, test_release_follows_acquire_and_renewal);
    tcase_add_test(tcase, test_forgotten_scripts);
    tcase_add_test(tcase, test_forgotten_scripts_keep_their_order);
    tcase_add_test(tcase, test_forgotten_acquire_is_not_sent_after_its_release);
    tcase_add_test(tcase, test_forgotten_batch);
    tcase_add_test(tcase, test_user_and_database_on_every_connection);
    tcase_add_test(tcase, test_password_alone);
    tcase_add_test(tcase, test_least_rights);
    tcase_add_test(tcase, test_close_before_open);
    tcase_add_test(tcase, test_close_at_any_turn);
    tcase_add_test(tcase, test_close_with_operations_under_way);
    suite_add_tcase(suite, tcase);
    return suite;
}
