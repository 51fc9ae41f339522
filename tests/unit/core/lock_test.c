// The lock's state machine: what may follow what, and its queue.
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/lock.h"
#include "tests/unit/core/suites.h"

static const char states[LOCK_STATES] = {
    [LOCK_IDLE] = 'I',   [LOCK_ACQUIRING] = 'A', [LOCK_BLOCKED] = 'B',   [LOCK_HELD] = 'H',
    [LOCK_VACANT] = 'V', [LOCK_KEPT] = 'K',      [LOCK_RELEASING] = 'R',
};

// From, then what may follow.
static const char *const allowed[LOCK_STATES] = {
    [LOCK_IDLE] = "AB",    [LOCK_ACQUIRING] = "HBR", [LOCK_BLOCKED] = "ARI", [LOCK_HELD] = "KRBV",
    [LOCK_VACANT] = "HAR", [LOCK_KEPT] = "RI",       [LOCK_RELEASING] = "I",
};

static void move(int pair, bool is_allowed)
{
    enum lock_state from = (enum lock_state)(pair / LOCK_STATES);
    enum lock_state to = (enum lock_state)(pair % LOCK_STATES);
    struct alarm_queue queue;
    struct lock *lock = lock_new("a");

    if (!strchr(allowed[from], states[to]) == is_allowed) {
        free(lock);
        if (!is_allowed)
            (void)raise(SIGABRT); // nothing to see here
        return;
    }
    alarm_queue_init(&queue);
    lock->state = from;
    lock->paused = true;
    lock->fences_left = 3;
    alarm_set(&lock->alarm, &queue, 5);
    alarm_set(&lock->early_alarm, &queue, 4);
    lock_move(lock, to);
    ck_assert_int_eq(lock->state, to);
    ck_assert(!lock->paused);
    ck_assert_int_eq(lock->fences_left, to == LOCK_HELD || to == LOCK_VACANT ? 3 : 0);
    ck_assert_ptr_null(alarm_queue_first(&queue));
    free(lock);
}

START_TEST(allowed_moves)
{
    move(_i, true);
}
END_TEST

START_TEST(forbidden_moves_abort)
{
    move(_i, false);
}
END_TEST

START_TEST(contenders_come_in_order)
{
    struct lock *lock = lock_new("a");
    struct claim one = {.id = 1};
    struct claim try = {.id = 2, .is_try = true};
    struct claim three = {.id = 3};
    struct claim four = {.id = 4};
    struct claim *const claims[] = {&one, &try, &three, &four};

    ck_assert_ptr_null(lock_first_contender(lock));
    for (int i = 3; i > 0; i--)
        lock_add_contender_first(lock, claims[i]);
    lock_add_contender_first(lock, claims[0]);
    ck_assert_int_eq(lock_contenders_count(lock), 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_ptr_eq(lock_first_contender(lock), claims[i]);
        lock_invariant(lock);
        lock_remove_contender(lock, claims[i]);
    }
    ck_assert_ptr_null(lock_first_contender(lock));
    lock_add_contender(lock, claims[1]);
    lock_add_contender(lock, claims[3]);
    ck_assert_ptr_eq(lock_first_contender(lock), claims[1]);
    ck_assert_int_eq(lock_contenders_count(lock), 2);
    free(lock);
}
END_TEST

START_TEST(locks_by_name)
{
    struct lock_tree tree = RB_INITIALIZER(&tree);
    const char *const names[] = {"b", "a", "ab", "d"};
    struct lock *lock;
    char found[8] = "";

    for (size_t i = 0; i < LB_ARRAY_LENGTH(names); i++)
        lock_tree_add(&tree, lock_new(names[i]));
    ck_assert_str_eq(lock_tree_find(&tree, "ab")->name, "ab");
    ck_assert_ptr_null(lock_tree_find(&tree, "c"));
    ck_assert_str_eq(lock_tree_from(&tree, "")->name, "a");
    ck_assert_str_eq(lock_tree_from(&tree, "aa")->name, "ab");
    ck_assert_str_eq(lock_tree_from(&tree, "b")->name, "b");
    ck_assert_str_eq(lock_tree_from(&tree, "c")->name, "d");
    ck_assert_ptr_null(lock_tree_from(&tree, "e"));
    for (lock = lock_tree_first(&tree); lock; lock = lock_tree_next(lock))
        strcat(found, lock->name);
    ck_assert_str_eq(found, "aabbd");
    while ((lock = lock_tree_first(&tree))) {
        lock_tree_remove(&tree, lock);
        free(lock);
    }
}
END_TEST

START_TEST(flights_by_id)
{
    struct flight_tree tree = RB_INITIALIZER(&tree);
    struct flight one = {.op_id = 5};
    struct flight two = {.op_id = 3};

    ck_assert_ptr_null(flight_tree_first(&tree));
    flight_tree_add(&tree, &one);
    flight_tree_add(&tree, &two);
    ck_assert_ptr_eq(flight_tree_first(&tree), &two);
    ck_assert_ptr_eq(flight_tree_find(&tree, 5), &one);
    flight_tree_remove(&tree, &one);
    ck_assert_uint_eq(one.op_id, 0);
    ck_assert_ptr_null(flight_tree_find(&tree, 5));
}
END_TEST

START_TEST(names_and_debts_of_states)
{
    struct claim grant = {.state = CLAIM_GRANTED};
    struct lock lock = {.state = LOCK_HELD, .grant = &grant};

    ck_assert_str_eq(lock_state_name(&lock), "ok");
    grant.suspect = true;
    ck_assert_str_eq(lock_state_name(&lock), "suspect");
    ck_assert(lock_is_owed(&lock));
    lock.state = LOCK_KEPT;
    ck_assert_str_eq(lock_state_name(&lock), "lost");
    ck_assert(lock_is_owed(&lock));
    lock.gone = true;
    ck_assert(!lock_is_owed(&lock)); // nothing left to give back
    lock.gone = false;
    lock.grant = NULL;
    ck_assert(!lock_is_owed(&lock)); // left to expire
    lock.state = LOCK_RELEASING;
    ck_assert_str_eq(lock_state_name(&lock), "releasing");
    ck_assert(lock_is_owed(&lock));
    lock.state = LOCK_BLOCKED;
    ck_assert_str_eq(lock_state_name(&lock), "waiting");
    ck_assert(!lock_is_owed(&lock));
    lock.maybe_set = true;
    ck_assert(lock_is_owed(&lock));
}
END_TEST

// Each breaks one thing that must be true of a lock.
START_TEST(broken_invariants_abort)
{
    struct claim claim = {.state = CLAIM_GRANTED, .deadline_ms = 10, .cap_ms = 10};
    struct lock *lock = lock_new("a");

    claim.lock = lock;
    lock->serial = 1;
    lock->grant = &claim;
    lock->state = LOCK_HELD;
    lock->lease.deadline_ms = 10;
    lock_invariant(lock);
    if (_i == 0)
        claim.state = CLAIM_LOST;
    else if (_i == 1)
        lock->serial = 0;
    else if (_i == 2)
        claim.deadline_ms = 11;
    else if (_i == 3)
        lock->lease.deadline_ms = 9;
    else if (_i == 4)
        lock->state = LOCK_IDLE;
    else if (_i == 5)
        lock->waiters_count = 1;
    else if (_i == 6)
        lock->state = LOCK_RELEASING;
    else if (_i == 7)
        lock->grant = NULL;
    else if (_i == 8)
        lock->extending = (struct extension *)(void *)lock;
    lock_invariant(lock);
}
END_TEST

Suite *lock_suite(void)
{
    Suite *suite = suite_create("lock");
    TCase *tests = tcase_create("lock");

    tcase_add_loop_test(tests, allowed_moves, 0, LOCK_STATES * LOCK_STATES);
    tcase_add_loop_test_raise_signal(tests, forbidden_moves_abort, SIGABRT, 0,
                                     LOCK_STATES * LOCK_STATES);
    tcase_add_loop_test_raise_signal(tests, broken_invariants_abort, SIGABRT, 0, 9);
    tcase_add_test(tests, contenders_come_in_order);
    tcase_add_test(tests, locks_by_name);
    tcase_add_test(tests, flights_by_id);
    tcase_add_test(tests, names_and_debts_of_states);
    suite_add_tcase(suite, tests);
    return suite;
}
