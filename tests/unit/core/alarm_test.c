// Alarms: ordered by time, and by the order of setting among equals.
#include <check.h>

#include "daemon/base/rng.h"
#include "daemon/core/alarm.h"
#include "tests/unit/core/suites.h"

START_TEST(first_is_the_earliest)
{
    struct alarm_queue queue;
    struct alarm alarms[4] = {0};

    alarm_queue_init(&queue);
    ck_assert_ptr_null(alarm_queue_first(&queue));
    alarm_set(&alarms[0], &queue, 30);
    alarm_set(&alarms[1], &queue, 10);
    alarm_set(&alarms[2], &queue, 20);
    alarm_set(&alarms[3], &queue, 10);
    ck_assert_ptr_eq(alarm_queue_first(&queue), &alarms[1]);
    alarm_cancel(&alarms[1]);
    ck_assert(!alarm_is_set(&alarms[1]));
    ck_assert_ptr_eq(alarm_queue_first(&queue), &alarms[3]);
    alarm_set(&alarms[3], &queue, 40);
    ck_assert_ptr_eq(alarm_queue_first(&queue), &alarms[2]);
}
END_TEST

START_TEST(set_again_is_moved)
{
    struct alarm_queue one;
    struct alarm_queue two;
    struct alarm alarm = {0};

    alarm_queue_init(&one);
    alarm_queue_init(&two);
    alarm_cancel(&alarm);
    alarm_set(&alarm, &one, -5);
    alarm_set(&alarm, &two, 5);
    ck_assert_ptr_null(alarm_queue_first(&one));
    ck_assert_ptr_eq(alarm_queue_first(&two), &alarm);
    ck_assert_int_eq(alarm.due_ms, 5);
    alarm_cancel(&alarm);
    alarm_cancel(&alarm);
    ck_assert_ptr_null(alarm_queue_first(&two));
}
END_TEST

START_TEST(many_come_out_in_order)
{
    static struct alarm alarms[1000];
    struct alarm_queue queue;
    struct rng rng;
    struct alarm *alarm;
    int64_t last_ms = 0;
    uint64_t last_order = 0;
    int count = 0;

    alarm_queue_init(&queue);
    rng_init(&rng, 1);
    for (int i = 0; i < 2000; i++)
        alarm_set(&alarms[rng_below(&rng, 1000)], &queue, (int64_t)rng_below(&rng, 100));
    for (; (alarm = alarm_queue_first(&queue)); count++) {
        ck_assert_int_ge(alarm->due_ms, last_ms);
        ck_assert(alarm->due_ms > last_ms || alarm->order > last_order);
        last_ms = alarm->due_ms;
        last_order = alarm->order;
        alarm_cancel(alarm);
    }
    ck_assert_int_gt(count, 800);
}
END_TEST

Suite *alarm_suite(void)
{
    Suite *suite = suite_create("alarm");
    TCase *tests = tcase_create("alarm");

    tcase_add_test(tests, first_is_the_earliest);
    tcase_add_test(tests, set_again_is_moved);
    tcase_add_test(tests, many_come_out_in_order);
    suite_add_tcase(suite, tests);
    return suite;
}
