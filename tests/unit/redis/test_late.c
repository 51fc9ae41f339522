// What the scripts make of time, against a real Redis: each tells it, and what is executed too late
// does nothing.
#include <stdio.h>

#include "daemon/base/clock.h"
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

START_TEST(test_time_of_the_server)
{
    int64_t before_ms = server_time_ms(&server);
    const struct backend_outcome *outcome;

    ck_assert_int_le(rig.server_ms, before_ms);
    ck_assert_int_gt(rig.server_ms, 1600000000000LL);
    ck_assert_int_gt(rig.asked_ms, 0);
    ck_assert_int_le(rig.asked_ms, clock_now_ms());
    outcome = rig_acquire(&rig, "a", 1, 60000);
    ck_assert_int_ge(outcome->server_ms, before_ms);
    outcome = rig_renew(&rig, "a", 1, 60000);
    ck_assert_int_ge(outcome->server_ms, before_ms);
    outcome = rig_query(&rig, "a");
    ck_assert_int_ge(outcome->server_ms, before_ms);
    outcome = rig_release(&rig, "a", 1);
    ck_assert_int_eq(outcome->server_ms, LB_NONE);
    rig.wants_time = true;
    (void)rig_acquire(&rig, "a", 2, 60000);
    outcome = rig_release(&rig, "a", 2);
    ck_assert_int_eq(outcome->result, RESULT_OK);
    ck_assert_int_ge(outcome->server_ms, before_ms);
    outcome = rig_break(&rig, "a");
    ck_assert_int_ge(outcome->server_ms, before_ms);
    ck_assert_int_le(outcome->server_ms, server_time_ms(&server));
}
END_TEST

START_TEST(test_late)
{
    ck_assert_int_eq(rig_acquire(&rig, "ours", 1, 60000)->result, RESULT_OK);
    server_run(&server, "SET lock:theirs stranger PX 60000");
    rig.loss_ttl_ms = 30000;
    rig.saw_epoch = true;
    rig.not_after_ms = server_time_ms(&server) - 1;
    ck_assert_int_eq(rig_acquire(&rig, "free", 2, 60000)->result, RESULT_LATE);
    ck_assert_int_eq(rig_acquire(&rig, "theirs", 2, 60000)->result, RESULT_LATE);
    ck_assert_int_eq(rig_acquire(&rig, "ours", 1, 900000)->result, RESULT_LATE);
    ck_assert_int_eq(rig_renew(&rig, "ours", 1, 900000)->result, RESULT_LATE);
    ck_assert_int_eq(rig_renew(&rig, "gone", 3, 900000)->result, RESULT_LATE);
    ck_assert_int_eq(rig_break(&rig, "theirs")->result, RESULT_LATE);
    ck_assert_int_gt(rig_outcome(&rig, rig.ops_count)->server_ms, rig.not_after_ms);
    ck_assert_int_eq(rig_query(&rig, "ours")->result, RESULT_OK);
    ck_assert_int_le(server_number(&server, "PTTL lock:ours"), 60000);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:theirs"), 1);
    ck_assert_int_eq(server_number(&server, "EXISTS lock:free lock:gone lockbroker:meta:epoch"), 0);
    ck_assert_int_eq(rig_release(&rig, "ours", 1)->result, RESULT_OK); // that may be late
}
END_TEST

START_TEST(test_late_batch)
{
    uint64_t ops[3];

    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 60000)->result, RESULT_OK);
    ck_assert_int_eq(rig_acquire(&rig, "b", 2, 60000)->result, RESULT_OK);
    ops[0] = rig_submit(&rig, BACKEND_RENEW, "a", 1, 900000, 0);
    rig.not_after_ms = server_time_ms(&server) - 1;
    ops[1] = rig_submit(&rig, BACKEND_RENEW, "b", 2, 900000, 0);
    rig.not_after_ms += 60000;
    ops[2] = rig_submit(&rig, BACKEND_RENEW, "none", 3, 900000, 0);
    rig_flush(&rig);
    rig_await_ended(&rig);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(rig_outcome(&rig, ops[i])->result, RESULT_LATE);
    ck_assert_int_le(server_number(&server, "PTTL lock:a"), 60000);
}
END_TEST

// Runs the operation again and again with a limit a little ahead, until it was once executed in the
// last millisecond and once in the first one too late.
static void late_to_the_ms(enum backend_op_kind kind, const char *key)
{
    bool was_last = false, was_first_late = false;

    while (rig.ops_count < RIG_OPS_MAX && !(was_last && was_first_late)) {
        const struct backend_outcome *outcome;
        int64_t over_ms;

        rig.not_after_ms = server_time_ms(&server) + (int64_t)(rig.ops_count % 4);
        outcome = rig_run(&rig, kind, key, 1, 60000, 0);
        over_ms = outcome->server_ms - rig.not_after_ms;
        ck_assert_int_eq(outcome->result, over_ms > 0 ? RESULT_LATE : RESULT_OK);
        was_last = was_last || over_ms == 0;
        was_first_late = was_first_late || over_ms == 1;
    }
    ck_assert(was_last && was_first_late);
}

START_TEST(test_late_acquire_to_the_ms)
{
    late_to_the_ms(BACKEND_ACQUIRE, "a");
}
END_TEST

START_TEST(test_late_renewal_to_the_ms)
{
    ck_assert_int_eq(rig_acquire(&rig, "a", 1, 3600000)->result, RESULT_OK);
    late_to_the_ms(BACKEND_RENEW, "a");
}
END_TEST

START_TEST(test_late_break_to_the_ms)
{
    late_to_the_ms(BACKEND_BREAK, "a");
}
END_TEST

Suite *late_suite(void)
{
    Suite *suite = suite_create("redis/late");
    TCase *tcase = tcase_create("real redis");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_time_of_the_server);
    tcase_add_test(tcase, test_late);
    tcase_add_test(tcase, test_late_batch);
    tcase_add_test(tcase, test_late_acquire_to_the_ms);
    tcase_add_test(tcase, test_late_renewal_to_the_ms);
    tcase_add_test(tcase, test_late_break_to_the_ms);
    suite_add_tcase(suite, tcase);
    return suite;
}
