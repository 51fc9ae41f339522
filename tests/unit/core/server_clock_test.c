// The arithmetic on what is known of another's clock, to the millisecond.
#include <check.h>

#include "daemon/core/server_clock.h"
#include "proto/message.h"
#include "tests/unit/core/suites.h"

static struct server_clock server;

static void nothing_known(void)
{
    server = (struct server_clock){0};
}

// The server's clock is 1000000 ahead, known within 10 ms: it was asked at 5000, and answered
// 1005003 by 5008.
static void something_known(void)
{
    nothing_known();
    ck_assert_int_eq(server_clock_observe(&server, 5000, 5008, 1005003), 0);
}

static void bounds_are(int64_t low_ms, int64_t high_ms)
{
    ck_assert(server.is_known);
    ck_assert_int_eq(server.low_ms, low_ms);
    ck_assert_int_eq(server.high_ms, high_ms);
}

START_TEST(of_an_unknown_clock_nothing_is_said)
{
    nothing_known();
    ck_assert_int_eq(server_clock_latest(&server, 5000), LB_NONE);
    ck_assert_int_eq(server_clock_width(&server, 5000), 0);
}
END_TEST

START_TEST(the_first_answer_is_no_step)
{
    something_known();
    bounds_are(999994, 1000004);
    ck_assert_int_eq(server.seen_ms, 5008);
    nothing_known();
    ck_assert_int_eq(server_clock_observe(&server, 7, 7, 0), 0);
    bounds_are(-8, -6);
}
END_TEST

START_TEST(doubt_grows_by_a_thousandth_and_what_was_cut_off)
{
    something_known();
    ck_assert_int_eq(server_clock_latest(&server, 5008), 1005012);
    ck_assert_int_eq(server_clock_width(&server, 5008), 10);
    ck_assert_int_eq(server_clock_latest(&server, 5009), 1005014);
    ck_assert_int_eq(server_clock_width(&server, 5009), 12);
    ck_assert_int_eq(server_clock_latest(&server, 6007), 1006012);
    ck_assert_int_eq(server_clock_width(&server, 6007), 12);
    ck_assert_int_eq(server_clock_latest(&server, 6008), 1006014);
    ck_assert_int_eq(server_clock_width(&server, 6008), 14);
    ck_assert_int_eq(server_clock_latest(&server, 3605008), 4605008 + 4 + 3601);
    ck_assert_int_eq(server_clock_width(&server, 3605008), 10 + 2 * 3601);
}
END_TEST

// The clock of a test may stand still, and so may ours; it is never asked of a time before.
START_TEST(no_time_no_drift)
{
    something_known();
    ck_assert_int_eq(server_clock_latest(&server, 5000), 1005004);
    ck_assert_int_eq(server_clock_width(&server, 5000), 10);
}
END_TEST

START_TEST(each_answer_draws_the_bounds_closer)
{
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 5008, 5008, 1005008), 0);
    bounds_are(999999, 1000001);

    // Of a slow answer only what is better counts, and the old bounds move apart.
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 5900, 6008, 1006000), 0);
    bounds_are(999994 - 2, 1000004 + 2);
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 6000, 6008, 1006008), 0);
    bounds_are(999999, 1000004 + 2);
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 6000, 6008, 1006000), 0);
    bounds_are(999994 - 2, 1000001);
    ck_assert_int_eq(server.seen_ms, 6008);
}
END_TEST

// At 6008 the clock is ahead by at most 1000006 and answers that it is by at least low.
START_TEST(a_step_forwards_is_what_nothing_else_explains)
{
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 6000, 6008, 1006015), 0);
    bounds_are(1000006, 1000006);
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 6000, 6008, 1006014), 0);
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 6000, 6008, 1006016), 1);
    bounds_are(1000007, 1000017);
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 6000, 6008, 9006015), 8000000);
    bounds_are(9000006, 9000016);
    ck_assert_int_eq(server.seen_ms, 6008);
    ck_assert_int_eq(server_clock_observe(&server, 6008, 6010, 9006017), 0);
}
END_TEST

START_TEST(a_step_backwards_is_below_zero)
{
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 6000, 6008, 1005991), 0);
    bounds_are(999992, 999992);
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 6000, 6008, 1005992), 0);
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 6000, 6008, 1005990), -1);
    bounds_are(999981, 999991);
    something_known();
    ck_assert_int_eq(server_clock_observe(&server, 6000, 6008, 5991), -1000000);
    bounds_are(-18, -8);
}
END_TEST

// An hour in which one clock gains a thousandth on the other is no step.
START_TEST(drift_is_no_step)
{
    for (int64_t parts = -1; parts <= 1; parts += 2) {
        nothing_known();
        for (int64_t now_ms = 0; now_ms <= 3600000; now_ms += 997) {
            int64_t server_ms = 1000000 + now_ms + parts * now_ms / 1000;

            ck_assert_int_eq(server_clock_observe(&server, now_ms, now_ms, server_ms), 0);
            ck_assert_int_ge(server_clock_latest(&server, now_ms), server_ms);
            ck_assert_int_le(server_clock_width(&server, now_ms), 4);
        }
    }
}
END_TEST

Suite *server_clock_suite(void)
{
    Suite *suite = suite_create("server_clock");
    TCase *tests = tcase_create("server_clock");

    tcase_add_test(tests, of_an_unknown_clock_nothing_is_said);
    tcase_add_test(tests, the_first_answer_is_no_step);
    tcase_add_test(tests, doubt_grows_by_a_thousandth_and_what_was_cut_off);
    tcase_add_test(tests, no_time_no_drift);
    tcase_add_test(tests, each_answer_draws_the_bounds_closer);
    tcase_add_test(tests, a_step_forwards_is_what_nothing_else_explains);
    tcase_add_test(tests, a_step_backwards_is_below_zero);
    tcase_add_test(tests, drift_is_no_step);
    suite_add_tcase(suite, tests);
    return suite;
}
