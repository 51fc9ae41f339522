// Every outcome of every script, against a real Redis.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/redis/rig.h"
#include "tests/unit/redis/suites.h"

static struct server server;
static struct rig rig;

static void setup(void)
{
    server_start(&server, false, NULL);
    rig_init(&rig, &server);
    rig_open_up(&rig);
}

static void teardown(void)
{
    rig_close(&rig);
    server_stop(&server);
}

// The key's remaining time is that, give or take the time the test took.
static void pttl_is(const char *command, long long ttl_ms)
{
    long long pttl = server_number(&server, command);

    ck_assert_int_le(pttl, ttl_ms);
    ck_assert_int_gt(pttl, ttl_ms - 20000);
}

START_TEST(test_acquire_free)
{
    const struct backend_outcome *outcome = rig_acquire(&rig, "a", 7, 60000);

    ck_assert_int_eq(outcome->result, RESULT_OK);
    ck_assert_int_gt(outcome->fence, 1600000000000000LL);
    ck_assert_int_gt(outcome->sent_ms, 0);
    ck_assert(server_text_is(&server, "GET lock:a", RIG_TOKEN(7)));
    pttl_is("PTTL lock:a", 60000);
    ck_assert_int_eq(server_number(&server, "GET lockbroker:meta:fence"), outcome->fence);
}
END_TEST

START_TEST(test_acquire_again_refreshes)
{
    int64_t first = rig_acquire(&rig, "a", 7, 60000)->fence;
    const struct backend_outcome *again = rig_acquire(&rig, "a", 7, 100000);

    ck_assert_int_eq(again->result, RESULT_OK);
    ck_assert_int_gt(again->fence, first);
    pttl_is("PTTL lock:a", 100000);
    ck_assert_int_gt(server_number(&server, "PTTL lock:a"), 60000);
}
END_TEST

START_TEST(test_acquire_again_never_shortens)
{
    ck_assert_int_eq(rig_acquire(&rig, "a", 7, 600000)->result, RESULT_OK);
    ck_assert_int_eq(rig_acquire(&rig, "a", 7, 60000)->result, RESULT_OK);
    pttl_is("PTTL lock:a", 600000);
    server_run(&server, "PERSIST lock:a");
    ck_assert_int_eq(rig_acquire(&rig, "a", 7, 60000)->result, RESULT_OK);
    pttl_is("PTTL lock:a", 60000);
}
END_TEST

START_TEST(test_acquire_busy)
{
    const struct backend_outcome *outcome;

    server_run(&server, "SET lock:a stranger PX 50000");
    outcome = rig_acquire(&rig, "a", 7, 60000);
    ck_assert_int_eq(outcome->result, RESULT_BUSY);
    ck_assert_int_eq(outcome->holder.kind, HOLDER_FOREIGN);
    ck_assert_ptr_null(outcome->holder.host);
    ck_assert(!outcome->holder.without_expiry);
    ck_assert_int_le(outcome->holder.ttl_left_ms, 50000);
    ck_assert_int_gt(outcome->holder.ttl_left_ms, 30000);
    ck_assert(server_text_is(&server, "GET lock:a", "stranger"));

    server_run(&server, "SET lock:a lb1:other.host:abc123:9");
    outcome = rig_acquire(&rig, "a", 7, 60000);
    ck_assert_int_eq(outcome->holder.kind, HOLDER_BROKER);
    ck_assert_str_eq(outcome->holder.host, "other.host");
    ck_assert(outcome->holder.without_expiry);
    ck_assert_int_eq(outcome->holder.ttl_left_ms, LB_NONE);

    ck_assert_int_eq(rig_acquire(&rig, "b", 8, 60000)->result, RESULT_OK);
    outcome = rig_acquire(&rig, "b", 9, 60000);
    ck_assert_int_eq(outcome->result, RESULT_BUSY);
    ck_assert_int_eq(outcome->holder.kind, HOLDER_LOCAL);
    ck_assert_int_eq(server_number(&server, "EXISTS lockbroker:meta:fence"), 1);
}
END_TEST

START_TEST(test_acquire_empty_value_is_busy)
{
    redisReply *reply = server_command(&server, "SET lock:a %s PX 50000", "");

    freeReplyObject(reply);
    ck_assert_int_eq(rig_acquire(&rig, "a", 7, 60000)->result, RESULT_BUSY);
    ck_assert_int_eq(rig_renew(&rig, "a", 7, 60000)->result, RESULT_STOLEN);
    ck_assert_int_eq(rig_release(&rig, "a", 7)->result, RESULT_STOLEN);
    ck_assert_int_eq(rig_query(&rig, "a")->holder.kind, HOLDER_FOREIGN);
}
END_TEST

START_TEST(test_wrong_types)
{
    server_run(&server, "LPUSH lock:a x");
    ck_assert_int_eq(rig_acquire(&rig, "a", 7, 60000)->result, RESULT_CONFLICT);
    ck_assert_int_eq(rig_renew(&rig, "a", 7, 60000)->result, RESULT_CONFLICT);
    ck_assert_int_eq(rig_release(&rig, "a", 7)->result, RESULT_CONFLICT);
    ck_assert_int_eq(rig_query(&rig, "a")->result, RESULT_CONFLICT);
    ck_assert_int_eq(rig_break(&rig, "a")->result, RESULT_CONFLICT);
    ck_assert_int_eq(server_number(&server, "LLEN lock:a"), 1);
    ck_assert_int_eq(server_number(&server, "PTTL lock:a"), -1);
}
END_TEST

START_TEST(test_meta_keys_are_no_locks)
{
    rig_close(&rig);
    rig_init(&rig, &server);
    rig.options.prefix = "";
    rig_open_up(&rig);
    ck_assert_int_eq(rig_acquire(&rig, "lockbroker:meta:fence", 7, 60000)->result, RESULT_CONFLICT);
    ck_assert_int_eq(rig_break(&rig, "lockbroker:meta:x")->result, RESULT_CONFLICT);
    ck_assert_int_eq(rig_acquire(&rig, "lockbroker:met", 7, 60000)->result, RESULT_OK);
    ck_assert(server_text_is(&server, "GET lockbroker:met", RIG_TOKEN(7)));
}
END_TEST

START_TEST(test_fences_rise)
{
    int64_t last = 0;

    for (uint64_t serial = 1; serial <= 20; serial++) {
        int64_t fence = rig_acquire(&rig, "a", serial, 60000)->fence;

        ck_assert_int_gt(fence, last);
        last = fence;
        ck_assert_int_eq(rig_release(&rig, "a", serial)->result, RESULT_OK);
    }
    server_run(&server, "FLUSHALL");
    ck_assert_int_gt(rig_acquire(&rig, "a", 30, 60000)->fence, last);
}
END_TEST

START_TEST(test_fence_above_stored_and_floor)
{
    server_run(&server, "SET lockbroker:meta:fence 7000000000000123");
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->fence, 7000000000000124);
    ck_assert(server_text_is(&server, "GET lockbroker:meta:fence", "7000000000000124"));
    ck_assert_int_eq(rig_run(&rig, BACKEND_ACQUIRE, "b", 2, 60000, 7000000000000500)->fence,
                     7000000000000501);
    ck_assert(server_text_is(&server, "GET lockbroker:meta:fence", "7000000000000501"));
    ck_assert_int_eq(rig_run(&rig, BACKEND_ACQUIRE, "c", 3, 60000, 5)->fence, 7000000000000502);
    server_run(&server, "DEL lockbroker:meta:fence");
    ck_assert_int_eq(rig_run(&rig, BACKEND_ACQUIRE, "d", 4, 60000, 7000000000000700)->fence,
                     7000000000000701);
}
END_TEST

START_TEST(test_fence_counter_spoilt)
{
    static const char *const values[] = {
        "rubbish", "nan", "inf", "-5", "1e300", "9007199254740990", "8000000000000001"};

    for (uint64_t i = 0; i < 7; i++) {
        char key[16];
        int64_t fence;

        freeReplyObject(server_command(&server, "SET lockbroker:meta:fence %s", values[i]));
        (void)snprintf(key, sizeof(key), "k%d", (int)i);
        fence = rig_acquire(&rig, key, i + 1, 60000)->fence;
        ck_assert_int_gt(fence, 1600000000000000LL);
        ck_assert_int_lt(fence, 4000000000000000LL);
    }
}
END_TEST

START_TEST(test_fence_counter_of_another_type)
{
    server_run(&server, "LPUSH lockbroker:meta:fence x");
    ck_assert_int_gt(rig_acquire(&rig, "b", 3, 60000)->fence, 1600000000000000LL);
    ck_assert_int_gt(server_number(&server, "GETRANGE lockbroker:meta:fence 0 0"), 0);
}
END_TEST

START_TEST(test_fence_last)
{
    ck_assert_int_eq(rig_run(&rig, BACKEND_ACQUIRE, "b", 2, 60000, LB_INTEGER_MAX)->result,
                     RESULT_REFUSED);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:b"), 0);
    ck_assert_int_eq(server_number(&server, "EXISTS lockbroker:meta:fence"), 0);
}
END_TEST

START_TEST(test_renew)
{
    ck_assert_int_eq(rig_acquire(&rig, "a", 7, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_renew(&rig, "a", 7, 100000)->result, RESULT_OK);
    ck_assert_int_gt(server_number(&server, "PTTL lock:a"), 60000);
    ck_assert_int_eq(rig_renew(&rig, "a", 7, 50000)->result, RESULT_OK);
    ck_assert_int_gt(server_number(&server, "PTTL lock:a"), 60000);
    ck_assert_int_eq(rig_renew(&rig, "a", 8, 600000)->result, RESULT_STOLEN);
    ck_assert_int_le(server_number(&server, "PTTL lock:a"), 100000);
    ck_assert_int_eq(rig_renew(&rig, "none", 7, 60000)->result, RESULT_GONE);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:none"), 0);
}
END_TEST

START_TEST(test_renew_after_persist)
{
    ck_assert_int_eq(rig_acquire(&rig, "a", 7, 60000)->result, RESULT_OK);
    server_run(&server, "PERSIST lock:a");
    ck_assert_int_eq(rig_renew(&rig, "a", 7, 50000)->result, RESULT_OK);
    pttl_is("PTTL lock:a", 50000);
}
END_TEST

START_TEST(test_renew_mixed_batch)
{
    uint64_t ops[5];

    ck_assert_int_eq(rig_acquire(&rig, "ours", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_acquire(&rig, "long", 5, 900000)->result, RESULT_OK);
    server_run(&server, "SET lock:stolen stranger");
    server_run(&server, "LPUSH lock:list x");
    ops[0] = rig_submit(&rig, BACKEND_RENEW, "gone", 4, 100000, 0);
    ops[1] = rig_submit(&rig, BACKEND_RENEW, "ours", 1, 100000, 0);
    ops[2] = rig_submit(&rig, BACKEND_RENEW, "stolen", 2, 200000, 0);
    ops[3] = rig_submit(&rig, BACKEND_RENEW, "list", 3, 300000, 0);
    ops[4] = rig_submit(&rig, BACKEND_RENEW, "long", 5, 400000, 0);
    rig_flush(&rig);
    rig_await_ended(&rig);
    ck_assert_int_eq(rig_outcome(&rig, ops[0])->result, RESULT_GONE);
    ck_assert_int_eq(rig_outcome(&rig, ops[1])->result, RESULT_OK);
    ck_assert_int_eq(rig_outcome(&rig, ops[2])->result, RESULT_STOLEN);
    ck_assert_int_eq(rig_outcome(&rig, ops[3])->result, RESULT_CONFLICT);
    ck_assert_int_eq(rig_outcome(&rig, ops[4])->result, RESULT_OK);
    pttl_is("PTTL lock:ours", 100000);
    pttl_is("PTTL lock:long", 900000);
    ck_assert_int_eq(server_number(&server, "PTTL lock:stolen"), -1);
    ck_assert_int_eq(server_number(&server, "PTTL lock:list"), -1);
}
END_TEST

START_TEST(test_release)
{
    ck_assert_int_eq(rig_acquire(&rig, "a", 7, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_release(&rig, "a", 8)->result, RESULT_STOLEN);
    ck_assert_int_eq(rig_release(&rig, "a", 7)->result, RESULT_OK);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 0);
    ck_assert_int_eq(rig_release(&rig, "a", 7)->result, RESULT_GONE);
}
END_TEST

START_TEST(test_query)
{
    const struct backend_outcome *outcome = rig_query(&rig, "a");

    ck_assert_int_eq(outcome->result, RESULT_OK);
    ck_assert_int_eq(outcome->holder.kind, HOLDER_NONE);
    ck_assert_int_eq(rig_acquire(&rig, "a", 7, 60000)->result, RESULT_OK);
    outcome = rig_query(&rig, "a");
    ck_assert_int_eq(outcome->result, RESULT_OK);
    ck_assert_int_eq(outcome->holder.kind, HOLDER_LOCAL);
    ck_assert_int_gt(outcome->holder.ttl_left_ms, 40000);
}
END_TEST

START_TEST(test_query_huge_value)
{
    static char value[1000000];

    memset(value, 'x', sizeof(value) - 1);
    freeReplyObject(server_command(&server, "SET lock:a %s", value));
    ck_assert_int_eq(rig_query(&rig, "a")->holder.kind, HOLDER_FOREIGN);
    ck_assert_int_eq(rig_acquire(&rig, "a", 7, 60000)->result, RESULT_BUSY);
    ck_assert_int_eq(rig.downs, 0);
}
END_TEST

START_TEST(test_break)
{
    const struct backend_outcome *outcome = rig_break(&rig, "a");

    ck_assert_int_eq(outcome->result, RESULT_OK);
    ck_assert_int_eq(outcome->holder.kind, HOLDER_NONE);
    server_run(&server, "SET lock:a lb1:far:ab:1 PX 50000");
    outcome = rig_break(&rig, "a");
    ck_assert_int_eq(outcome->result, RESULT_OK);
    ck_assert_int_eq(outcome->holder.kind, HOLDER_BROKER);
    ck_assert_str_eq(outcome->holder.host, "far");
    ck_assert_int_gt(outcome->holder.ttl_left_ms, 30000);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 0);
}
END_TEST

// From here on what the scripts need to take their short way: a limit and a floor of 16 digits.
#define FLOOR 1000000000000000LL

static const struct backend_outcome *acquire_usual(const char *key, int64_t floor)
{
    rig.not_after_ms = server_time_ms(&server) + 3600000;
    return rig_run(&rig, BACKEND_ACQUIRE, key, 7, 60000, floor);
}

static bool was_called(const char *command)
{
    redisReply *reply = server_command(&server, "INFO commandstats");
    char row[64];
    bool was;

    (void)snprintf(row, sizeof(row), "cmdstat_%s:", command);
    was = strstr(reply->str, row) != NULL;
    freeReplyObject(reply);
    return was;
}

START_TEST(test_usual)
{
    int64_t before_ms = server_time_ms(&server);
    const struct backend_outcome *outcome = acquire_usual("a", FLOOR);

    ck_assert_int_eq(outcome->result, RESULT_OK);
    ck_assert_int_eq(outcome->fence / 1000, outcome->server_ms);
    ck_assert_int_ge(outcome->server_ms, before_ms);
    ck_assert_int_eq(outcome->fences, 1);
    ck_assert(!outcome->others_queue);
    ck_assert_int_eq(rig_release(&rig, "a", 7)->result, RESULT_OK);
    ck_assert_msg(!was_called("get"), "the long way was taken");
    ck_assert_int_eq(server_number(&server, "EXISTS lock:a"), 0);
    ck_assert_int_eq(server_number(&server, "GET lockbroker:meta:fence"), outcome->fence);
    outcome = acquire_usual("a", FLOOR);
    ck_assert(server_text_is(&server, "GET lock:a", RIG_TOKEN(7)));
    pttl_is("PTTL lock:a", 60000);
}
END_TEST

// Fences rise, whatever the counter holds.
START_TEST(test_usual_with_any_counter)
{
    int64_t ahead = (server_time_ms(&server) + 3600000) * 1000;
    const char *const ignored[] = {
        "9007199254740991", "9999999999999999", "zzzzzzzzzzzzzzzz", "0000000000000000", "1", ""};
    char set[64];

    (void)snprintf(set, sizeof(set), "SET lockbroker:meta:fence %" PRId64, ahead);
    server_run(&server, set);
    ck_assert_int_eq(acquire_usual("a", FLOOR)->fence, ahead + 1);
    ck_assert_int_eq(acquire_usual("b", ahead + 5)->fence, ahead + 6);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(ignored); i++) {
        const struct backend_outcome *outcome;

        freeReplyObject(server_command(&server, "SET lockbroker:meta:fence %s", ignored[i]));
        outcome = acquire_usual((const char[]){(char)('c' + i), '\0'}, FLOOR);
        ck_assert_int_eq(outcome->fence / 1000, outcome->server_ms);
        ck_assert_int_eq(server_number(&server, "GET lockbroker:meta:fence"), outcome->fence);
    }
    ck_assert_int_eq(acquire_usual("y", ahead)->fence, ahead + 1);
    server_run(&server, "DEL lockbroker:meta:fence");
    server_run(&server, "LPUSH lockbroker:meta:fence x");
    ck_assert_int_eq(acquire_usual("z", FLOOR)->result, RESULT_OK);
}
END_TEST

START_TEST(test_not_usual)
{
    server_run(&server, "SET lock:held stranger PX 60000");
    ck_assert_int_eq(acquire_usual("held", FLOOR)->result, RESULT_BUSY);
    server_run(&server, "LPUSH lock:list x");
    ck_assert_int_eq(acquire_usual("list", FLOOR)->result, RESULT_CONFLICT);
    ck_assert_int_eq(acquire_usual("ours", FLOOR)->result, RESULT_OK);
    ck_assert_int_eq(acquire_usual("ours", FLOOR)->result, RESULT_OK);
    rig.fences = 8;
    ck_assert_int_eq(acquire_usual("some", FLOOR)->fences, 8);
    rig.fences = 0;
    rig.not_after_ms = server_time_ms(&server) - 1;
    ck_assert_int_eq(rig_run(&rig, BACKEND_ACQUIRE, "late", 7, 60000, FLOOR)->result, RESULT_LATE);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:late"), 0);
    ck_assert_int_eq(rig_release(&rig, "held", 7)->result, RESULT_STOLEN);
    ck_assert_int_eq(rig_release(&rig, "list", 7)->result, RESULT_CONFLICT);
    ck_assert_int_eq(rig_release(&rig, "none", 7)->result, RESULT_GONE);
}
END_TEST

Suite *scripts_suite(void)
{
    Suite *suite = suite_create("redis/scripts");
    TCase *tcase = tcase_create("real redis");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_acquire_free);
    tcase_add_test(tcase, test_acquire_again_refreshes);
    tcase_add_test(tcase, test_acquire_again_never_shortens);
    tcase_add_test(tcase, test_acquire_busy);
    tcase_add_test(tcase, test_acquire_empty_value_is_busy);
    tcase_add_test(tcase, test_wrong_types);
    tcase_add_test(tcase, test_meta_keys_are_no_locks);
    tcase_add_test(tcase, test_fences_rise);
    tcase_add_test(tcase, test_fence_above_stored_and_floor);
    tcase_add_test(tcase, test_fence_counter_spoilt);
    tcase_add_test(tcase, test_fence_counter_of_another_type);
    tcase_add_test(tcase, test_fence_last);
    tcase_add_test(tcase, test_renew);
    tcase_add_test(tcase, test_renew_after_persist);
    tcase_add_test(tcase, test_renew_mixed_batch);
    tcase_add_test(tcase, test_release);
    tcase_add_test(tcase, test_query);
    tcase_add_test(tcase, test_query_huge_value);
    tcase_add_test(tcase, test_break);
    tcase_add_test(tcase, test_usual);
    tcase_add_test(tcase, test_usual_with_any_counter);
    tcase_add_test(tcase, test_not_usual);
    suite_add_tcase(suite, tcase);
    return suite;
}
