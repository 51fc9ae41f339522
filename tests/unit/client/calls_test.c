// Matching answers to calls.
#include <check.h>
#include <stdlib.h>

#include "client/lib/calls.h"
#include "tests/unit/client/suites.h"

static struct call *find(const struct calls *calls, int64_t id)
{
    struct request_id request_id = {.kind = REQUEST_ID_NUMBER, .number = id};

    return calls_find(calls, &request_id);
}

START_TEST(ids_are_never_reused)
{
    struct calls calls;
    struct call *first;
    struct call *second;

    calls_init(&calls);
    first = calls_add(&calls, OP_PING, CALL_WAITED);
    ck_assert_ptr_nonnull(first);
    ck_assert_int_eq(first->id, 1);
    calls_free(&calls, first);
    second = calls_add(&calls, OP_PING, CALL_WAITED);
    ck_assert_ptr_nonnull(second);
    ck_assert_int_eq(second->id, 2);
    ck_assert_ptr_null(find(&calls, 1));
    ck_assert_ptr_eq(find(&calls, 2), second);
    calls_free(&calls, second);
    ck_assert_ptr_null(calls_first(&calls));
}
END_TEST

START_TEST(answers_match_in_any_order)
{
    struct calls calls;
    struct call *call[3];

    calls_init(&calls);
    for (int i = 0; i < 3; i++)
        call[i] = calls_add(&calls, OP_ACQUIRE, CALL_WAITED);
    calls_answer(&calls, find(&calls, 2), 0, NULL);
    ck_assert(call[1]->is_answered);
    ck_assert(!call[0]->is_answered);
    ck_assert_ptr_null(find(&calls, 2));
    calls_answer(&calls, find(&calls, 3), LB_E_BUSY, NULL);
    ck_assert_int_eq(call[2]->result, LB_E_BUSY);
    ck_assert_ptr_eq(calls_first(&calls), call[0]);
    for (int i = 0; i < 3; i++)
        calls_free(&calls, call[i]);
}
END_TEST

START_TEST(only_a_number_that_was_asked_matches)
{
    struct request_id text = {.kind = REQUEST_ID_TEXT, .text = "1"};
    struct request_id none = {.kind = REQUEST_ID_NONE};
    struct calls calls;
    struct call *call;

    calls_init(&calls);
    call = calls_add(&calls, OP_PING, CALL_WAITED);
    ck_assert_ptr_null(calls_find(&calls, &text));
    ck_assert_ptr_null(calls_find(&calls, &none));
    ck_assert_ptr_null(find(&calls, 0));
    ck_assert_ptr_null(find(&calls, 4711));
    calls_free(&calls, call);
}
END_TEST

START_TEST(a_grant_is_forgotten_by_all)
{
    struct lb_grant *grant = (struct lb_grant *)&(int){0};
    struct calls calls;
    struct call *first;
    struct call *second;

    calls_init(&calls);
    first = calls_add(&calls, OP_CHECK, CALL_ABANDONED);
    second = calls_add(&calls, OP_CHECK, CALL_ABANDONED);
    first->grant = grant;
    second->grant = grant;
    calls_forget_grant(&calls, grant);
    ck_assert_ptr_null(first->grant);
    ck_assert_ptr_null(second->grant);
    calls_free(&calls, first);
    calls_free(&calls, second);
}
END_TEST

START_TEST(results_follow_the_error_names)
{
    static const struct {
        const char *line;
        int result;
    } cases[] = {
        {"{\"id\":1,\"ok\":true}", 0},
        {"{\"id\":1,\"ok\":false,\"error\":\"busy\",\"message\":\"m\"}", LB_E_BUSY},
        {"{\"id\":1,\"ok\":false,\"error\":\"draining\"}", LB_E_DRAINING},
        {"{\"id\":1,\"ok\":false,\"error\":\"from_the_future\"}", LB_E_OTHER},
    };
    struct incoming incoming;

    for (size_t i = 0; i < LB_ARRAY_LENGTH(cases); i++) {
        ck_assert_int_eq(reply_parse(cases[i].line, strlen(cases[i].line), &incoming), 0);
        ck_assert_int_eq(calls_result(&incoming), cases[i].result);
        incoming_clear(&incoming);
    }
}
END_TEST

Suite *calls_suite(void)
{
    Suite *suite = suite_create("client/calls");
    TCase *tcase = tcase_create("calls");

    tcase_add_test(tcase, ids_are_never_reused);
    tcase_add_test(tcase, answers_match_in_any_order);
    tcase_add_test(tcase, only_a_number_that_was_asked_matches);
    tcase_add_test(tcase, a_grant_is_forgotten_by_all);
    tcase_add_test(tcase, results_follow_the_error_names);
    suite_add_tcase(suite, tcase);
    return suite;
}
