// Counters and histograms.
#include <check.h>
#include <string.h>

#include "daemon/core/stats.h"
#include "proto/macros.h"
#include "tests/unit/core/suites.h"

START_TEST(observations_fall_into_their_buckets)
{
    struct histogram histogram = {0};
    struct stat_histogram view = histogram_view(&histogram, "wait_ms");

    ck_assert_str_eq(view.name, "wait_ms");
    for (size_t i = 0; i < view.bounds_count; i++) {
        histogram_add(&histogram, view.bounds[i]);
        ck_assert_int_eq(view.counts[i], i == 0 ? 1 : 2);
        histogram_add(&histogram, view.bounds[i] + 1);
        ck_assert_int_eq(view.counts[i + 1], 1);
        if (i > 0)
            ck_assert_int_gt(view.bounds[i], view.bounds[i - 1]);
    }
    ck_assert_uint_eq(view.bounds_count, STATS_BOUNDS);
}
END_TEST

START_TEST(the_sum_is_of_all)
{
    struct histogram histogram = {0};

    histogram_add(&histogram, 5);
    histogram_add(&histogram, 7000000);
    ck_assert_int_eq(histogram_view(&histogram, "x").sum, 7000005);
    ck_assert_int_eq(histogram.counts[STATS_BOUNDS], 1);
}
END_TEST

START_TEST(counters_have_their_names)
{
    struct stats stats = {.requests = 3, .out_of_memory = 4};
    struct stat_value values[STATS_COUNTERS];

    stats_list(&stats, values);
    ck_assert_str_eq(values[0].name, "requests");
    ck_assert_int_eq(values[0].value, 3);
    ck_assert_str_eq(values[STATS_COUNTERS - 1].name, "out_of_memory");
    ck_assert_int_eq(values[STATS_COUNTERS - 1].value, 4);
    for (int i = 0; i < STATS_COUNTERS; i++) {
        for (int k = 0; k < i; k++)
            ck_assert_str_ne(values[i].name, values[k].name);
    }
}
END_TEST

Suite *stats_suite(void)
{
    Suite *suite = suite_create("stats");
    TCase *tests = tcase_create("stats");

    tcase_add_test(tests, observations_fall_into_their_buckets);
    tcase_add_test(tests, the_sum_is_of_all);
    tcase_add_test(tests, counters_have_their_names);
    suite_add_tcase(suite, tests);
    return suite;
}
