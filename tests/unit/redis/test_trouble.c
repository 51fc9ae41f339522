// The link in bad times: a Redis that is stopped, killed, a replica, out of memory, or no Redis.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/redis/backoff.h"
#include "tests/unit/redis/fake.h"
#include "tests/unit/redis/rig.h"
#include "tests/unit/redis/suites.h"

// The answer to a release that deleted the key.
#define RELEASED "*3\r\n:1700000000000\r\n:1\r\n:0\r\n"

static struct server server;
static struct fake fake;
static struct rig rig;

static void setup(void)
{
    server_start(&server, false, NULL);
    rig_init(&rig, &server);
}

static void teardown(void)
{
    rig_close(&rig);
    server_stop(&server);
}

START_TEST(test_timeout)
{
    struct uplink_figures figures;
    uint64_t renew, acquire, late;

    rig_open_up(&rig);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 600000)->result, RESULT_OK);
    rig.timeout_ms = 300;
    server_pause(&server);
    renew = rig_submit(&rig, BACKEND_RENEW, "a", 1, 600000, 0);
    acquire = rig_submit(&rig, BACKEND_ACQUIRE, "b", 2, 600000, 0);
    rig_flush(&rig);
    late = rig_submit(&rig, BACKEND_QUERY, "a", 0, 0, 0);
    rig_await_ended(&rig);
    ck_assert_int_eq(rig_outcome(&rig, renew)->result, RESULT_UNKNOWN);
    ck_assert_int_gt(rig_outcome(&rig, renew)->sent_ms, 0);
    ck_assert_int_eq(rig_outcome(&rig, acquire)->result, RESULT_UNKNOWN);
    ck_assert_int_eq(rig_outcome(&rig, late)->result, RESULT_NOT_SENT);
    ck_assert_int_eq(rig_outcome(&rig, late)->sent_ms, LB_NONE);
    ck_assert_int_ge(rig.downs, 1);
    ck_assert_int_ge(clock_now_ms() - rig_outcome(&rig, renew)->sent_ms, 300);
    uplink_get_figures(rig.uplink, &figures);
    ck_assert_int_eq(figures.command_timeouts, 1);
    server_resume(&server);
    rig_await_up(&rig, 2);
    ck_assert_int_eq(rig_acquire(&rig, "c", 3, 600000)->result, RESULT_OK);
}
END_TEST

// A later command with less time than the one before it.
START_TEST(test_shortest_timeout_counts)
{
    uint64_t patient, hasty;

    rig_open_up(&rig);
    server_pause(&server);
    patient = rig_submit(&rig, BACKEND_QUERY, "a", 0, 0, 0);
    rig_flush(&rig);
    rig.timeout_ms = 200;
    hasty = rig_submit(&rig, BACKEND_QUERY, "b", 0, 0, 0);
    rig_flush(&rig);
    rig_await_ended(&rig);
    ck_assert_int_lt(clock_now_ms() - rig_outcome(&rig, hasty)->sent_ms, RIG_TIMEOUT_MS);
    ck_assert_int_eq(rig_outcome(&rig, patient)->result, RESULT_UNKNOWN);
    ck_assert_int_eq(rig_outcome(&rig, hasty)->result, RESULT_UNKNOWN);
    server_resume(&server);
}
END_TEST

// More than the socket takes: what was not written was not executed.
START_TEST(test_timeout_with_unwritten_commands)
{
    static char key[500];
    int unknown = 0, not_sent = 0;
    bool is_unsent = false;

    rig_open_up(&rig);
    rig.timeout_ms = 500;
    server_pause(&server);
    memset(key, 'k', sizeof(key) - 1);
    for (int i = 0; i < RIG_OPS_MAX; i++)
        (void)rig_submit(&rig, BACKEND_QUERY, key, 0, 0, 0);
    rig_flush(&rig);
    rig_await_ended(&rig);
    for (uint64_t op = 1; op <= RIG_OPS_MAX; op++) {
        enum backend_result result = rig_outcome(&rig, op)->result;

        ck_assert(result == RESULT_NOT_SENT || (result == RESULT_UNKNOWN && !is_unsent));
        is_unsent = result == RESULT_NOT_SENT;
        unknown += !is_unsent;
        not_sent += is_unsent;
    }
    ck_assert_int_gt(unknown, 0);
    ck_assert_int_gt(not_sent, 0);
    server_resume(&server);
    rig_await_up(&rig, 2);
}
END_TEST

START_TEST(test_more_than_the_socket_takes)
{
    static char key[500];

    rig_open_up(&rig);
    server_pause(&server);
    memset(key, 'k', sizeof(key) - 1);
    for (int i = 0; i < RIG_OPS_MAX; i++)
        (void)rig_submit(&rig, BACKEND_QUERY, key, 0, 0, 0);
    rig_flush(&rig);
    server_resume(&server);
    rig_await_ended(&rig);
    for (uint64_t op = 1; op <= RIG_OPS_MAX; op++)
        ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_OK);
    ck_assert_int_eq(rig.downs, 0);
}
END_TEST

// It is we who did not run: the answer is there when we go on.
START_TEST(test_own_pause_is_not_blamed_on_redis)
{
    uint64_t op;

    rig_open_up(&rig);
    rig.timeout_ms = 100;
    for (int i = 0; i < 5; i++) {
        op = rig_submit(&rig, BACKEND_QUERY, "a", 0, 0, 0);
        rig_flush(&rig);
        usleep(250000);
        rig_await_ended(&rig);
        ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_OK);
    }
    ck_assert_int_eq(rig.downs, 0);
}
END_TEST

START_TEST(test_killed_and_restarted)
{
    uint64_t op;

    rig_open_up(&rig);
    server_pause(&server);
    op = rig_submit(&rig, BACKEND_ACQUIRE, "a", 1, 60000, 0);
    rig_flush(&rig);
    server_kill(&server);
    rig_await_down(&rig, 3);
    ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_UNKNOWN);
    ck_assert_int_eq(rig_run(&rig, BACKEND_QUERY, "a", 0, 0, 0)->result, RESULT_NOT_SENT);
    server_launch(&server);
    rig_await_up(&rig, 2);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
}
END_TEST

START_TEST(test_down_at_start)
{
    server_kill(&server);
    rig_open(&rig);
    uplink_set_urgent(rig.uplink, true);
    rig_await_down(&rig, 10);
    ck_assert_int_eq(rig.ups, 0);
    server_launch(&server);
    rig_await_up(&rig, 1);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
}
END_TEST

// Once locks are owed, a long pause that has begun already is cut short.
START_TEST(test_urgent_in_a_long_pause)
{
    server_kill(&server);
    rig_open(&rig);
    (void)uv_timer_stop(&rig.tick); // so that the loop waits for the pause alone
    while (uv_backend_timeout(&rig.loop) <= BACKOFF_URGENT_MAX_MS)
        rig_await_down(&rig, rig.downs + 1);
    uplink_set_urgent(rig.uplink, true);
    ck_assert_int_le(uv_backend_timeout(&rig.loop), BACKOFF_URGENT_MAX_MS);
    server_launch(&server);
    rig_await_up(&rig, 1);
}
END_TEST

// Accepts connections but never says a word.
START_TEST(test_silent_at_start)
{
    rig.options.connect_timeout_ms = 200;
    server_pause(&server);
    rig_open(&rig);
    rig_await_down(&rig, 2);
    server_resume(&server);
    rig_await_up(&rig, 1);
}
END_TEST

START_TEST(test_replica_is_refused)
{
    server_run(&server, "REPLICAOF 127.0.0.1 1");
    rig_open(&rig);
    rig_await_down(&rig, 3);
    ck_assert_int_eq(rig.ups, 0);
    server_run(&server, "REPLICAOF NO ONE");
    rig_await_up(&rig, 1);
}
END_TEST

START_TEST(test_demoted)
{
    uint64_t op;

    rig_open_up(&rig);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    server_run(&server, "CONFIG SET min-replicas-to-write 0");
    server_run(&server, "REPLICAOF 127.0.0.1 1");
    op = rig_submit(&rig, BACKEND_ACQUIRE, "b", 2, 60000, 0);
    rig_flush(&rig);
    rig_await_down(&rig, 2);
    ck_assert_int_eq(rig.ups, 1);
    ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_REFUSED);
    server_run(&server, "REPLICAOF NO ONE");
    rig_await_up(&rig, 2);
}
END_TEST

START_TEST(test_out_of_memory)
{
    rig_open_up(&rig);
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_acquire(&rig, "b", 2, 60000)->result, RESULT_OK);
    server_run(&server, "CONFIG SET maxmemory 1");
    ck_assert_int_eq(rig_acquire(&rig, "c", 3, 60000)->result, RESULT_REFUSED);
    ck_assert_int_eq(rig_renew(&rig, "a", 1, 90000)->result, RESULT_OK);
    ck_assert_int_eq(rig_release(&rig, "b", 2)->result, RESULT_OK);
    ck_assert_int_eq(rig.downs, 0);
    server_run(&server, "CONFIG SET maxmemory 0");
    ck_assert_int_eq(server_number(&server, "EXISTS lock:b lock:c"), 0);
}
END_TEST

START_TEST(test_no_permission)
{
    server_run(&server, "ACL SETUSER broker on >secret ~* +@all");
    rig.options.address.user = "broker";
    rig.options.address.password = "secret";
    rig_open_up(&rig);
    server_run(&server, "ACL SETUSER broker -set");
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_REFUSED);
    server_run(&server, "ACL SETUSER broker +set -get");
    ck_assert_int_eq(rig_release(&rig, "a", 1)->result, RESULT_REFUSED);
    server_run(&server, "ACL SETUSER broker +get resetkeys ~other:*");
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_REFUSED);
    ck_assert_int_eq(rig.downs, 0);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 0);
}
END_TEST

START_TEST(test_eviction_policy)
{
    server_run(&server, "CONFIG SET maxmemory-policy allkeys-lru");
    rig_open_up(&rig);
    ck_assert_str_eq(rig.policy, "allkeys-lru");
    ck_assert(rig.may_evict); // whether there is a limit of memory yet or not
    server_run(&server, "CONFIG SET maxmemory-policy noeviction");
    (void)server_number(&server, "CLIENT KILL TYPE normal");
    rig_await_up(&rig, 2);
    ck_assert(!rig.may_evict);
}
END_TEST

static void fake_open_up(void)
{
    fake_init(&fake, &rig.loop, FAKE_GREETING);
    rig.options.address.path = fake.path;
    rig_open_up(&rig);
}

// One acquire of one renewal, answered with those bytes.
static uint64_t fake_answer(enum backend_op_kind kind, const char *bytes)
{
    uint64_t op = rig_submit(&rig, kind, "a", 1, 60000, 0);

    rig_flush(&rig);
    fake_send(&fake, bytes, strlen(bytes));
    rig_await_ended(&rig);
    return op;
}

static void fake_setup(void)
{
    rig_init(&rig, NULL);
}

static void fake_teardown(void)
{
    fake_close(&fake);
    rig_close(&rig);
}

START_TEST(test_bad_replies_end_the_link)
{
    static const char *const replies[] = {
        "+OK\r\n",
        "*2\r\n:1\r\n:0\r\n",
        "*3\r\n:1\r\n:1\r\n:0\r\n",
        "rubbish\r\n",
        "*2147483647\r\n",
        "$-1\r\n",
        "*9\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        ":1\r\n",
    };

    fake_open_up();
    for (int i = 0; i < (int)LB_ARRAY_LENGTH(replies); i++) {
        bool is_whole = strcmp(replies[i], "*9\r\n") != 0;
        uint64_t op;

        rig.timeout_ms = is_whole ? RIG_TIMEOUT_MS : 200;
        op = fake_answer(BACKEND_ACQUIRE, replies[i]);
        ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_UNKNOWN);
        rig_await_up(&rig, i + 2);
    }
    ck_assert_int_eq(rig.downs, (int)LB_ARRAY_LENGTH(replies));
}
END_TEST

START_TEST(test_reply_to_nothing_ends_the_link)
{
    fake_open_up();
    fake_send(&fake, ":1\r\n", 4);
    rig_await_up(&rig, 2);
    ck_assert_int_eq(rig.downs, 1);
}
END_TEST

START_TEST(test_unknown_error)
{
    uint64_t op;

    fake_open_up();
    op = fake_answer(BACKEND_RELEASE, "-ERR upstream timeout\r\n");
    ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_UNKNOWN);
    op = fake_answer(BACKEND_RELEASE, "-BUSY a script\r\n");
    ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_REFUSED);
    op = fake_answer(BACKEND_RELEASE, RELEASED);
    ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_OK);
    ck_assert_int_eq(rig.downs, 0);
    op = fake_answer(BACKEND_RELEASE, "-LOADING the dataset\r\n");
    ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_REFUSED);
    ck_assert_int_eq(rig.downs, 1);
}
END_TEST

START_TEST(test_error_for_a_batch_is_for_each_of_it)
{
    fake_open_up();
    for (int i = 0; i < 5; i++)
        (void)rig_submit(&rig, BACKEND_RENEW, "a", 1, 60000, 0);
    (void)fake_answer(BACKEND_RENEW, "-MISCONF no\r\n");
    for (uint64_t op = 1; op <= 6; op++)
        ck_assert_int_eq(rig_outcome(&rig, op)->result, RESULT_REFUSED);
}
END_TEST

START_TEST(test_dropped_with_half_a_reply)
{
    uint64_t first, second;

    fake_open_up();
    first = rig_submit(&rig, BACKEND_RELEASE, "a", 1, 60000, 0);
    second = rig_submit(&rig, BACKEND_RELEASE, "b", 2, 60000, 0);
    rig_flush(&rig);
    fake_send(&fake, RELEASED "*3\r\n:", strlen(RELEASED) + 5);
    fake_drop(&fake);
    rig_await_ended(&rig);
    ck_assert_int_eq(rig_outcome(&rig, first)->result, RESULT_OK);
    ck_assert_int_eq(rig_outcome(&rig, second)->result, RESULT_UNKNOWN);
    rig_await_up(&rig, 2);
}
END_TEST

// The far end has answered and gone: what is written then is lost, what it said is not.
START_TEST(test_answer_before_the_end_counts)
{
    uint64_t first, second;

    fake_open_up();
    first = rig_submit(&rig, BACKEND_RELEASE, "a", 1, 60000, 0);
    rig_flush(&rig);
    fake_send(&fake, RELEASED, strlen(RELEASED));
    fake_drop(&fake);
    second = rig_submit(&rig, BACKEND_RELEASE, "b", 2, 60000, 0);
    rig_flush(&rig);
    rig_await_ended(&rig);
    ck_assert_int_eq(rig_outcome(&rig, first)->result, RESULT_OK);
    ck_assert_int_eq(rig_outcome(&rig, second)->result, RESULT_NOT_SENT);
}
END_TEST

START_TEST(test_hung_up_at_once)
{
    int64_t begin_ms = clock_now_ms();

    fake_init(&fake, &rig.loop, NULL);
    rig.options.address.path = fake.path;
    rig_open(&rig);
    rig_await_down(&rig, 8);
    // 10, 20, ... 640 ms, half of each for certain.
    ck_assert_int_ge(clock_now_ms() - begin_ms, 630);
    ck_assert_int_eq(rig.ups, 0);
}
END_TEST

Suite *trouble_suite(void)
{
    Suite *suite = suite_create("redis/trouble");
    TCase *real = tcase_create("real redis");
    TCase *made = tcase_create("no redis");

    tcase_set_timeout(real, 120);
    tcase_add_checked_fixture(real, setup, teardown);
    tcase_add_test(real, test_timeout);
    tcase_add_test(real, test_shortest_timeout_counts);
    tcase_add_test(real, test_timeout_with_unwritten_commands);
    tcase_add_test(real, test_more_than_the_socket_takes);
    tcase_add_test(real, test_own_pause_is_not_blamed_on_redis);
    tcase_add_test(real, test_killed_and_restarted);
    tcase_add_test(real, test_down_at_start);
    tcase_add_test(real, test_urgent_in_a_long_pause);
    tcase_add_test(real, test_silent_at_start);
    tcase_add_test(real, test_replica_is_refused);
    tcase_add_test(real, test_demoted);
    tcase_add_test(real, test_out_of_memory);
    tcase_add_test(real, test_no_permission);
    tcase_add_test(real, test_eviction_policy);
    suite_add_tcase(suite, real);

    tcase_set_timeout(made, 120);
    tcase_add_checked_fixture(made, fake_setup, fake_teardown);
    tcase_add_test(made, test_bad_replies_end_the_link);
    tcase_add_test(made, test_reply_to_nothing_ends_the_link);
    tcase_add_test(made, test_unknown_error);
    tcase_add_test(made, test_error_for_a_batch_is_for_each_of_it);
    tcase_add_test(made, test_dropped_with_half_a_reply);
    tcase_add_test(made, test_answer_before_the_end_counts);
    tcase_add_test(made, test_hung_up_at_once);
    suite_add_tcase(suite, made);
    return suite;
}
