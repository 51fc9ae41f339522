// The books of one client: sessions, pending calls, claims; and the graves that they end in.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/claim.h"
#include "daemon/core/grave.h"
#include "daemon/core/lease.h"
#include "daemon/core/session.h"
#include "proto/request.h"
#include "tests/unit/core/suites.h"

static struct session *session;

static void setup(void)
{
    struct peer peer = {.pid = 4, .uid = 5, .gid = 6};

    session = session_new(7, &peer);
}

static void teardown(void)
{
    free(session);
}

static struct claim *make_claim(const char *key, const char *owner, uint64_t id)
{
    struct request request;

    request_init(&request);
    (void)snprintf(request.key, sizeof(request.key), "%s", key);
    (void)snprintf(request.owner, sizeof(request.owner), "%s", owner);
    (void)snprintf(request.note, sizeof(request.note), "why");
    request.max_hold_ms = 50;
    request.renew = false;
    return claim_new(&request, session, id, 1000);
}

static struct request_id number(int64_t value)
{
    return (struct request_id){.kind = REQUEST_ID_NUMBER, .number = value};
}

static struct request_id text(const char *value)
{
    struct request_id id = {.kind = REQUEST_ID_TEXT};

    (void)snprintf(id.text, sizeof(id.text), "%s", value);
    return id;
}

START_TEST(sessions_by_id)
{
    struct session_tree tree = RB_INITIALIZER(&tree);
    struct peer peer = {0};
    struct session *other = session_new(3, &peer);

    ck_assert_int_eq(session->peer.uid, 5);
    session_tree_add(&tree, session);
    session_tree_add(&tree, other);
    ck_assert_ptr_eq(session_tree_find(&tree, 7), session);
    ck_assert_ptr_eq(session_tree_first(&tree), other);
    session_tree_remove(&tree, other);
    ck_assert_ptr_eq(session_tree_first(&tree), session);
    session_tree_remove(&tree, session);
    ck_assert_ptr_null(session_tree_find(&tree, 7));
    ck_assert_ptr_null(session_tree_first(&tree));
    free(other);
}
END_TEST

START_TEST(calls_by_id)
{
    struct call calls[3] = {0};
    struct request_id ids[] = {number(1), text("1"), text("x")};
    struct request_id missing[] = {number(2), text("2"), {.kind = REQUEST_ID_NONE}};

    for (int i = 0; i < 3; i++)
        call_open(&calls[i], session, &ids[i], OP_ACQUIRE);
    for (int i = 0; i < 3; i++) {
        ck_assert_ptr_eq(session_find_call(session, &ids[i]), &calls[i]);
        ck_assert_ptr_null(session_find_call(session, &missing[i]));
    }
    ck_assert_uint_eq(session->calls_count, 3);
    call_close(&calls[1]);
    call_close(&calls[1]);
    ck_assert_ptr_null(session_find_call(session, &ids[1]));
    ck_assert_uint_eq(session->calls_count, 2);
    session_forget_calls(session);
    ck_assert_uint_eq(session->calls_count, 0);
    ck_assert_ptr_null(calls[0].session);
    ck_assert_ptr_null(calls[2].session);
}
END_TEST

START_TEST(claims_by_key_and_owner)
{
    struct claim *one = make_claim("b", "", 1);
    struct claim *two = make_claim("b", "o", 2);
    struct claim *three = make_claim("a", "o", 3);

    ck_assert(!session_is_busy(session));
    session_add_claim(session, one);
    session_add_claim(session, two);
    session_add_claim(session, three);
    ck_assert(session_is_busy(session));
    ck_assert_ptr_eq(session_find_claim(session, "b", ""), one);
    ck_assert_ptr_eq(session_find_claim(session, "b", "o"), two);
    ck_assert_ptr_null(session_find_claim(session, "a", ""));
    ck_assert_ptr_eq(session_first_claim(session), three);
    ck_assert_ptr_eq(session_next_claim(three), one);
    ck_assert_ptr_eq(session_next_claim(one), two);
    session_remove_claim(session, one);
    ck_assert_ptr_null(session_find_claim(session, "b", ""));
    session_remove_claim(session, two);
    session_remove_claim(session, three);
    ck_assert(!session_is_busy(session));
    free(one);
    free(two);
    free(three);
}
END_TEST

START_TEST(the_newest_lost_one_is_found)
{
    struct claim *claims[4];

    for (int i = 0; i < 4; i++) {
        claims[i] = make_claim("a", i == 3 ? "o" : "", (uint64_t)i);
        claims[i]->fence = 10 + i;
    }
    TAILQ_INSERT_TAIL(&session->remembered, claims[0], session_link);
    TAILQ_INSERT_TAIL(&session->remembered, claims[1], session_link);
    ck_assert(!session_is_busy(session));
    ck_assert_ptr_eq(session_find_lost(session, "a", "", LB_NONE), claims[1]);
    TAILQ_INSERT_TAIL(&session->lost, claims[2], session_link);
    TAILQ_INSERT_TAIL(&session->lost, claims[3], session_link);
    ck_assert(session_is_busy(session));
    ck_assert_ptr_eq(session_find_lost(session, "a", "", LB_NONE), claims[2]);
    ck_assert_ptr_eq(session_find_lost(session, "a", "", 10), claims[0]);
    ck_assert_ptr_eq(session_find_lost(session, "a", "o", 13), claims[3]);
    ck_assert_ptr_null(session_find_lost(session, "a", "o", 12));
    ck_assert_ptr_null(session_find_lost(session, "b", "", LB_NONE));
    for (int i = 0; i < 4; i++)
        free(claims[i]);
}
END_TEST

START_TEST(a_claim_keeps_what_was_asked_for)
{
    struct claim *claim = make_claim("key", "owner", 9);

    ck_assert_str_eq(claim->key, "key");
    ck_assert_str_eq(claim->owner, "owner");
    ck_assert_str_eq(claim->note, "why");
    ck_assert_ptr_eq(claim->session, session);
    ck_assert_int_eq(claim->state, CLAIM_WAITING);
    ck_assert_int_eq(claim->arrived_ms, 1000);
    ck_assert(!claim->renew);
    ck_assert(claim->cap_ms == INT64_MAX);
    free(claim);
}
END_TEST

START_TEST(the_margin_of_a_claim)
{
    struct claim claim = {.ttl_ms = 30000, .max_hold_ms = LB_NONE, .deadline_ms = 29198};

    ck_assert_int_eq(claim_margin(&claim), 3000);
    ck_assert_int_eq(claim_lost_at(&claim), 26198);
    claim.max_hold_ms = 6000;
    ck_assert_int_eq(claim_margin(&claim), 3000);
    claim.max_hold_ms = 5998;
    ck_assert_int_eq(claim_margin(&claim), 2999);
    claim.max_hold_ms = 1;
    ck_assert_int_eq(claim_margin(&claim), 0);
}
END_TEST

START_TEST(graves_are_cleared_once)
{
    struct graveyard yard = SLIST_HEAD_INITIALIZER(yard);

    graveyard_clear(&yard);
    for (int i = 0; i < 3; i++) {
        struct claim *claim = make_claim("k", "", 1);

        graveyard_bury(&yard, &claim->grave);
        ck_assert_str_eq(claim->key, "k"); // buried, and still to be read
    }
    graveyard_clear(&yard);
    ck_assert(SLIST_EMPTY(&yard));
    graveyard_clear(&yard);
}
END_TEST

Suite *session_suite(void)
{
    Suite *suite = suite_create("session");
    TCase *tests = tcase_create("session");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, sessions_by_id);
    tcase_add_test(tests, calls_by_id);
    tcase_add_test(tests, claims_by_key_and_owner);
    tcase_add_test(tests, the_newest_lost_one_is_found);
    tcase_add_test(tests, a_claim_keeps_what_was_asked_for);
    tcase_add_test(tests, the_margin_of_a_claim);
    tcase_add_test(tests, graves_are_cleared_once);
    suite_add_tcase(suite, tests);
    return suite;
}
