// The alarm for a late loop: what counts, and how often it is told.
#include <check.h>

#include "daemon/io/lateness.h"
#include "tests/unit/io/suites.h"

START_TEST(a_turn_in_time_is_no_alarm)
{
    struct lateness lateness = {0};

    lateness_note(&lateness, 1000, 990);
    lateness_note(&lateness, 1000, 1000 + LATENESS_ALARM_MS - 1);
    ck_assert_int_eq(lateness.count, 0);
    ck_assert_int_eq(lateness.most_ms, 0);
    ck_assert_int_eq(lateness.told_ms, 0);
}
END_TEST

START_TEST(a_late_turn_counts_once)
{
    struct lateness lateness = {0};

    lateness_note(&lateness, 1000, 1000 + LATENESS_ALARM_MS);
    lateness_note(&lateness, 1000, 1000 + LATENESS_ALARM_MS + 1);
    ck_assert_int_eq(lateness.count, 1);
    ck_assert_int_eq(lateness.most_ms, LATENESS_ALARM_MS);
    ck_assert_int_eq(lateness.told_ms, 1000 + LATENESS_ALARM_MS);
}
END_TEST

START_TEST(the_log_has_a_line_now_and_then)
{
    struct lateness lateness = {0};
    int64_t first = 1000 + LATENESS_ALARM_MS;

    lateness_note(&lateness, 1000, first);
    lateness_note(&lateness, 1001, first + LATENESS_GAP_MS - 1);
    ck_assert_int_eq(lateness.untold, 1);
    ck_assert_int_eq(lateness.told_ms, first);
    lateness_note(&lateness, 1002, first + LATENESS_GAP_MS);
    ck_assert_int_eq(lateness.untold, 0);
    ck_assert_int_eq(lateness.told_ms, first + LATENESS_GAP_MS);
    ck_assert_int_eq(lateness.count, 3);
    ck_assert_int_eq(lateness.most_ms, first + LATENESS_GAP_MS - 1002);
}
END_TEST

Suite *lateness_suite(void)
{
    Suite *suite = suite_create("lateness");
    TCase *tests = tcase_create("lateness");

    tcase_add_test(tests, a_turn_in_time_is_no_alarm);
    tcase_add_test(tests, a_late_turn_counts_once);
    tcase_add_test(tests, the_log_has_a_line_now_and_then);
    suite_add_tcase(suite, tests);
    return suite;
}
