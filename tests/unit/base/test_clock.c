// The clock is CLOCK_BOOTTIME in milliseconds.
#include <check.h>
#include <time.h>

#include "daemon/base/clock.h"
#include "tests/unit/base/suites.h"

static int64_t boottime_ms(void)
{
    struct timespec now;

    ck_assert_int_eq(clock_gettime(CLOCK_BOOTTIME, &now), 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

START_TEST(test_reads_boottime)
{
    for (int i = 0; i < 1000; i++) {
        int64_t before = boottime_ms();
        int64_t now = clock_now_ms();

        ck_assert_int_ge(now, before);
        ck_assert_int_le(now, boottime_ms());
    }
}
END_TEST

Suite *clock_suite(void)
{
    Suite *suite = suite_create("clock");
    TCase *tests = tcase_create("clock");

    tcase_add_test(tests, test_reads_boottime);
    suite_add_tcase(suite, tests);
    return suite;
}
