// What is known of a grant: deadlines, validity, and that a loss is terminal.
#include <check.h>
#include <limits.h>

#include "client/lib/grant.h"
#include "tests/unit/client/suites.h"

static struct reply told(int64_t deadline_ms)
{
    return (struct reply){
        .fence = 5, .ttl_ms = 1000, .waited_ms = LB_NONE, .deadline_ms = deadline_ms};
}

static struct lb_grant granted(int64_t deadline_ms)
{
    struct lb_grant grant = {.key = "k", .renews = true};
    struct reply reply = told(deadline_ms);

    grant_take_answer(&grant, &reply, 100);
    return grant;
}

START_TEST(valid_up_to_the_deadline_and_not_at_it)
{
    struct lb_grant grant = granted(2000);

    ck_assert(grant_is_valid(&grant, 0));
    ck_assert(grant_is_valid(&grant, 1999));
    ck_assert(!grant_is_valid(&grant, 2000));
    ck_assert(!grant_is_valid(&grant, 2001));
}
END_TEST

START_TEST(a_check_moves_the_deadline)
{
    struct lb_grant grant = granted(2000);
    struct reply reply = told(3000);

    grant_take_answer(&grant, &reply, 1000);
    ck_assert(grant_is_valid(&grant, 2999));
    ck_assert_int_eq(grant_check_at(&grant), 1000 + 250);
}
END_TEST

START_TEST(suspect_and_ok_are_told)
{
    struct lb_grant grant = granted(2000);
    struct notice suspect = {.kind = NOTICE_SUSPECT, .deadline_ms = 2000, .reason = "x"};
    struct notice ok = {.kind = NOTICE_OK, .deadline_ms = 4000};

    ck_assert(grant_take_notice(&grant, &suspect));
    ck_assert_int_eq(grant.state, LB_GRANT_SUSPECT);
    ck_assert(grant_is_valid(&grant, 1999));
    ck_assert(grant_take_notice(&grant, &ok));
    ck_assert_int_eq(grant.state, LB_GRANT_OK);
    ck_assert(grant_is_valid(&grant, 3999));
}
END_TEST

START_TEST(nothing_affirms_after_a_loss)
{
    struct lb_grant grant = granted(2000);
    struct notice lost = {.kind = NOTICE_LOST, .deadline_ms = 2000, .reason = "stolen"};
    struct notice ok = {.kind = NOTICE_OK, .deadline_ms = 9000};
    struct reply reply = told(9000);

    ck_assert(grant_take_notice(&grant, &lost));
    ck_assert_str_eq(grant.lost_reason, "stolen");
    ck_assert(!grant_is_valid(&grant, 1));
    ck_assert(!grant_take_notice(&grant, &ok));
    ck_assert(!grant_take_notice(&grant, &lost));
    grant_take_answer(&grant, &reply, 1500);
    ck_assert(!grant_lose(&grant, "disconnected"));
    ck_assert(!grant_is_valid(&grant, 1));
    ck_assert_str_eq(grant.lost_reason, "stolen");
    ck_assert_int_eq(grant.deadline_ms, 2000);
    ck_assert_int_eq(grant_check_at(&grant), INT64_MAX);
}
END_TEST

START_TEST(a_grant_that_is_not_renewed_is_not_checked)
{
    struct lb_grant grant = granted(2000);

    grant.renews = false;
    ck_assert_int_eq(grant_check_at(&grant), INT64_MAX);
}
END_TEST

START_TEST(a_long_reason_is_cut)
{
    struct lb_grant grant = granted(2000);
    char reason[200];

    memset(reason, 'r', sizeof(reason) - 1);
    reason[sizeof(reason) - 1] = '\0';
    ck_assert(grant_lose(&grant, reason));
    ck_assert_uint_eq(strlen(grant.lost_reason), GRANT_REASON_BYTES_MAX);
}
END_TEST

Suite *grant_suite(void)
{
    Suite *suite = suite_create("client/grant");
    TCase *tcase = tcase_create("grant");

    tcase_add_test(tcase, valid_up_to_the_deadline_and_not_at_it);
    tcase_add_test(tcase, a_check_moves_the_deadline);
    tcase_add_test(tcase, suspect_and_ok_are_told);
    tcase_add_test(tcase, nothing_affirms_after_a_loss);
    tcase_add_test(tcase, a_grant_that_is_not_renewed_is_not_checked);
    tcase_add_test(tcase, a_long_reason_is_cut);
    suite_add_tcase(suite, tcase);
    return suite;
}
