// The arithmetic of leases, to the millisecond.
#include <check.h>

#include "daemon/core/lease.h"
#include "tests/unit/core/suites.h"

START_TEST(deadline_counts_from_the_sending)
{
    ck_assert_int_eq(lease_deadline(0, 30000), 29198);  // 30000 - 300 - 2 - 500
    ck_assert_int_eq(lease_deadline(1000, 3000), 3818); // 3000 - 30 - 2 - 150
    ck_assert_int_eq(lease_deadline(0, 1000), 938);     // 1000 - 10 - 2 - 50
    ck_assert_int_eq(lease_deadline(0, 10000), 9398);   // the step is capped from here on
    ck_assert_int_eq(lease_deadline(7, 3600000), 3563505);
    ck_assert_int_eq(lease_deadline(0, 9999), 9399); // 9999 - 99 - 2 - 499
}
END_TEST

START_TEST(a_step_is_tolerated_up_to_a_twentieth)
{
    ck_assert_int_eq(lease_step_tolerance(1000), 50);
    ck_assert_int_eq(lease_step_tolerance(3019), 150);
    ck_assert_int_eq(lease_step_tolerance(9999), 499);
    ck_assert_int_eq(lease_step_tolerance(10000), 500);
    ck_assert_int_eq(lease_step_tolerance(3600000), 500);
}
END_TEST

START_TEST(margin_is_a_tenth_within_bounds)
{
    ck_assert_int_eq(lease_margin(1000), 100);
    ck_assert_int_eq(lease_margin(999), 100);
    ck_assert_int_eq(lease_margin(1010), 101);
    ck_assert_int_eq(lease_margin(3000), 300);
    ck_assert_int_eq(lease_margin(30000), 3000);
    ck_assert_int_eq(lease_margin(30010), 3000);
    ck_assert_int_eq(lease_margin(3600000), 3000);
}
END_TEST

START_TEST(times_of_a_lease)
{
    struct lease lease = {.sent_ms = 500, .ttl_ms = 30000, .deadline_ms = 29698};

    ck_assert_int_eq(lease_renew_at(&lease), 10500);
    ck_assert_int_eq(lease_suspect_at(&lease), 15500);
    ck_assert_int_eq(lease_renew_slack(30000), 2500);
    ck_assert_int_eq(lease_renew_slack(1000), 83);
}
END_TEST

START_TEST(a_lease_is_inherited)
{
    struct lease lease = {.sent_ms = 500, .ttl_ms = 30000, .deadline_ms = 29698, .stepped_ms = 7};

    // As long a one, and a longer one, as they stand: nothing new was confirmed.
    struct lease same = lease_inherit(&lease, 10000, 30000);
    struct lease longer = lease_inherit(&lease, 10000, 60000);

    ck_assert_mem_eq(&same, &lease, sizeof(lease));
    ck_assert_mem_eq(&longer, &lease, sizeof(lease));

    // A shorter one: as if it had been renewed now, since the key lives for longer than that.
    struct lease shorter = lease_inherit(&lease, 10000, 5000);

    ck_assert_int_eq(shorter.sent_ms, 10000);
    ck_assert_int_eq(shorter.ttl_ms, 5000);
    ck_assert_int_eq(shorter.deadline_ms, lease_deadline(10000, 5000));
    ck_assert_int_eq(shorter.stepped_ms, 7);

    // Up to where the key's own end is nearer.
    int64_t last_ms = 29698 - lease_deadline(0, 5000);

    ck_assert_int_eq(lease_inherit(&lease, last_ms, 5000).deadline_ms, 29698);
    ck_assert_int_eq(lease_inherit(&lease, last_ms, 5000).sent_ms, last_ms);
    ck_assert_int_eq(lease_inherit(&lease, last_ms + 1, 5000).deadline_ms, 29698);
    ck_assert_int_eq(lease_inherit(&lease, last_ms + 1, 5000).sent_ms, 500);
}
END_TEST

START_TEST(timeouts_are_clamped)
{
    ck_assert_int_eq(lease_command_timeout(1000), 250);
    ck_assert_int_eq(lease_command_timeout(3750), 250);
    ck_assert_int_eq(lease_command_timeout(3765), 251);
    ck_assert_int_eq(lease_command_timeout(30000), 2000);
    ck_assert_int_eq(lease_command_timeout(29985), 1999);
    ck_assert_int_eq(lease_command_timeout(3600000), 2000);
    ck_assert_int_eq(lease_retry_pause(100), 20);
    ck_assert_int_eq(lease_retry_pause(3000), 100);
    ck_assert_int_eq(lease_retry_pause(60000), 1000);
}
END_TEST

// A ttl that is long enough, and hardly longer.
START_TEST(ttl_for_a_deadline)
{
    for (int64_t left_ms = 1; left_ms < 4000000; left_ms += left_ms / 100 + 1) {
        int64_t ttl_ms = lease_ttl_until(7, 7 + left_ms);

        ck_assert_int_ge(lease_deadline(7, ttl_ms), 7 + left_ms);
        ck_assert_int_le(lease_deadline(7, ttl_ms), 7 + left_ms + left_ms / 1000 + 5);
    }
}
END_TEST

// Whatever the ttl: told before it ends, and with room between the renewal and the end.
START_TEST(order_of_a_lease)
{
    for (int64_t ttl_ms = 1000; ttl_ms <= 3600000; ttl_ms += ttl_ms / 50) {
        struct lease lease = {0, ttl_ms, lease_deadline(0, ttl_ms), 0};
        int64_t lost_ms = lease.deadline_ms - lease_margin(ttl_ms);

        ck_assert_int_lt(lease_renew_at(&lease), lease_suspect_at(&lease));
        ck_assert_int_lt(lease_suspect_at(&lease), lost_ms);
        ck_assert_int_lt(lost_ms, lease.deadline_ms);
        ck_assert_int_lt(lease.deadline_ms, ttl_ms);
        ck_assert_int_lt(lease_renew_slack(ttl_ms), lease_renew_at(&lease));
        ck_assert_int_lt(lease_renew_at(&lease) + lease_command_timeout(ttl_ms), lost_ms);
    }
}
END_TEST

Suite *lease_suite(void)
{
    Suite *suite = suite_create("lease");
    TCase *tests = tcase_create("lease");

    tcase_add_test(tests, deadline_counts_from_the_sending);
    tcase_add_test(tests, a_step_is_tolerated_up_to_a_twentieth);
    tcase_add_test(tests, margin_is_a_tenth_within_bounds);
    tcase_add_test(tests, times_of_a_lease);
    tcase_add_test(tests, a_lease_is_inherited);
    tcase_add_test(tests, timeouts_are_clamped);
    tcase_add_test(tests, ttl_for_a_deadline);
    tcase_add_test(tests, order_of_a_lease);
    suite_add_tcase(suite, tests);
    return suite;
}
