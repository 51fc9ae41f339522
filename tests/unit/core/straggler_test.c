// Limits of commands that may be executed late, to the millisecond.
#include <check.h>

#include "daemon/core/straggler.h"
#include "proto/message.h"
#include "tests/unit/core/suites.h"

static const struct time_limit unset = {0};
static const struct time_limit early = {true, 100500, 500};
static const struct time_limit late = {true, 100600, 700};

static void limit_is(struct time_limit limit, int64_t server_ms, int64_t local_ms)
{
    ck_assert(limit.is_set);
    ck_assert_int_eq(limit.server_ms, server_ms);
    ck_assert_int_eq(limit.local_ms, local_ms);
}

START_TEST(the_later_of_two)
{
    struct time_limit crossed = {true, 100700, 400};

    limit_is(time_limit_later(early, late), 100600, 700);
    limit_is(time_limit_later(late, early), 100600, 700);
    limit_is(time_limit_later(crossed, late), 100700, 700);
    limit_is(time_limit_later(late, crossed), 100700, 700);
}
END_TEST

START_TEST(what_is_not_set_is_no_limit)
{
    // The numbers of an unset one mean nothing.
    struct time_limit rest = {false, 900000, 900000};

    limit_is(time_limit_later(early, unset), 100500, 500);
    limit_is(time_limit_later(unset, early), 100500, 500);
    limit_is(time_limit_later(early, rest), 100500, 500);
    limit_is(time_limit_later(rest, early), 100500, 500);
    ck_assert(!time_limit_later(unset, rest).is_set);
    ck_assert(!time_limit_later(rest, unset).is_set);
    ck_assert_int_eq(time_limit_left_ms(&rest, 100), 0);
    ck_assert(time_limit_is_over(&rest, 0, 0, 0));
    ck_assert(time_limit_is_over(&unset, LB_NONE, 0, 1000));
}
END_TEST

START_TEST(left_is_by_our_clock)
{
    ck_assert_int_eq(time_limit_left_ms(&early, 0), 500);
    ck_assert_int_eq(time_limit_left_ms(&early, 499), 1);
    ck_assert_int_eq(time_limit_left_ms(&early, 500), 0);
    ck_assert_int_eq(time_limit_left_ms(&early, 501), 0);
}
END_TEST

// At its very limit a command is still executed, so it is over only after that.
START_TEST(over_when_the_server_is_beyond)
{
    ck_assert(!time_limit_is_over(&early, 100499, 0, 1000));
    ck_assert(!time_limit_is_over(&early, 100500, 0, 1000));
    ck_assert(time_limit_is_over(&early, 100501, 0, 1000));
    ck_assert(!time_limit_is_over(&early, LB_NONE, 0, 1000));
}
END_TEST

START_TEST(over_when_our_patience_is)
{
    ck_assert(!time_limit_is_over(&early, 0, 1500, 1000));
    ck_assert(time_limit_is_over(&early, 0, 1501, 1000));
    ck_assert(time_limit_is_over(&early, LB_NONE, 1501, 1000));
    ck_assert(!time_limit_is_over(&early, 0, 500, 0));
    ck_assert(time_limit_is_over(&early, 0, 501, 0));
}
END_TEST

Suite *straggler_suite(void)
{
    Suite *suite = suite_create("straggler");
    TCase *tests = tcase_create("straggler");

    tcase_add_test(tests, the_later_of_two);
    tcase_add_test(tests, what_is_not_set_is_no_limit);
    tcase_add_test(tests, left_is_by_our_clock);
    tcase_add_test(tests, over_when_the_server_is_beyond);
    tcase_add_test(tests, over_when_our_patience_is);
    suite_add_tcase(suite, tests);
    return suite;
}
