// The lock's state machine and its books. What to do in a state is decided in acquire.c, hold.c
// and release.c; here is only what may follow what, and what must be true in each.
#include "daemon/core/lock.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/core/tree.h"
#include "proto/macros.h"

#define BIT(state) (1U << (state))

// transitions[from]: the states that may follow.
static const unsigned transitions[LOCK_STATES] = {
    [LOCK_IDLE] = BIT(LOCK_ACQUIRING) | BIT(LOCK_BLOCKED),
    [LOCK_ACQUIRING] = BIT(LOCK_HELD) | BIT(LOCK_BLOCKED) | BIT(LOCK_RELEASING),
    [LOCK_BLOCKED] = BIT(LOCK_ACQUIRING) | BIT(LOCK_RELEASING) | BIT(LOCK_IDLE),
    [LOCK_HELD] = BIT(LOCK_KEPT) | BIT(LOCK_RELEASING) | BIT(LOCK_BLOCKED) | BIT(LOCK_VACANT),
    [LOCK_VACANT] = BIT(LOCK_HELD) | BIT(LOCK_ACQUIRING) | BIT(LOCK_RELEASING),
    [LOCK_KEPT] = BIT(LOCK_RELEASING) | BIT(LOCK_IDLE),
    [LOCK_RELEASING] = BIT(LOCK_IDLE),
};

static int lock_compare(const struct lock *a, const struct lock *b)
{
    return strcmp(a->name, b->name);
}

static int flight_compare(const struct flight *a, const struct flight *b)
{
    return a->op_id < b->op_id ? -1 : a->op_id > b->op_id;
}

LB_TREE_GENERATE(flight_tree, flight, entry, flight_compare)

LB_TREE_GENERATE(lock_tree, lock, entry, lock_compare)

struct lock *lock_new(const char *name)
{
    size_t size = strlen(name) + 1;
    struct lock *lock = calloc(1, sizeof(*lock) + size);

    if (!lock)
        return NULL;
    memcpy(lock->name, name, size);
    TAILQ_INIT(&lock->waiters);
    TAILQ_INIT(&lock->tries);
    lock->run.since_ms = LB_NONE;
    lock->lingers_until_ms = LB_NONE;
    return lock;
}

void lock_move(struct lock *lock, enum lock_state state)
{
    lb_assert(transitions[lock->state] & BIT(state));
    lock->state = state;
    lock->paused = false;
    lock->leaves = false;
    if (state != LOCK_HELD && state != LOCK_VACANT)
        lock->fences_left = 0;
    lock->lingers_until_ms = LB_NONE;
    alarm_cancel(&lock->alarm);
    alarm_cancel(&lock->early_alarm);
}

void lock_contend(struct lock *lock, int64_t now_ms)
{
    if (lock->run.is_contended)
        return;
    lock->run.is_contended = true;
    lock->run.contended_ms = now_ms;
    lock->run.contended_grants = 0;
}

void lock_expect_outsider(struct lock *lock, int64_t until_ms)
{
    if (until_ms > lock->outsider_until_ms)
        lock->outsider_until_ms = until_ms;
}

void lock_take_fences(struct lock *lock, int64_t first, int64_t count)
{
    lock->fence_next = first;
    lock->fences_left = count;
    lock->refill_failed = false;
}

static bool grant_fits(const struct lock *lock, enum claim_state state, bool may_be_absent)
{
    if (!lock->grant)
        return may_be_absent;
    return lock->grant->state == state && lock->grant->lock == lock;
}

static void lock_check_state(const struct lock *lock)
{
    switch (lock->state) {
    case LOCK_IDLE:
        lb_assert(!lock->grant && !lock->maybe_set);
        break;
    case LOCK_BLOCKED:
        lb_assert(!lock->grant && !lock->main_op.op_id);
        break;
    case LOCK_ACQUIRING:
        lb_assert(!lock->grant && lock->serial);
        lb_assert(lock->main_op.op_id && lock->main_op.kind == BACKEND_ACQUIRE);
        break;
    case LOCK_HELD:
        lb_assert(lock->serial && grant_fits(lock, CLAIM_GRANTED, false));
        lb_assert(lock->grant->deadline_ms <= lock->grant->cap_ms);
        lb_assert(lock->grant->deadline_ms <= lock->lease.deadline_ms);
        break;
    case LOCK_VACANT:
        lb_assert(lock->serial && !lock->grant && !lock->extending);
        break;
    case LOCK_KEPT:
        lb_assert(grant_fits(lock, CLAIM_LOST, true));
        break;
    case LOCK_RELEASING:
        lb_assert(lock->serial && grant_fits(lock, CLAIM_RELEASING, true));
        break;
    }
}

void lock_invariant(const struct lock *lock)
{
    const struct claim *claim;
    int64_t waiters_count = 0;
    int64_t tries_count = 0;

    lock_check_state(lock);
    lb_assert(!lock->extending || lock->main_op.op_id);
    lb_assert(!lock->fences_left || lock->state == LOCK_HELD || lock->state == LOCK_VACANT);
    TAILQ_FOREACH (claim, &lock->waiters, lock_link) {
        lb_assert(claim->lock == lock && claim->state == CLAIM_WAITING && !claim->is_try);
        waiters_count++;
    }
    TAILQ_FOREACH (claim, &lock->tries, lock_link) {
        lb_assert(claim->lock == lock && claim->state == CLAIM_WAITING && claim->is_try);
        tries_count++;
    }
    lb_assert(waiters_count == lock->waiters_count);
    lb_assert(tries_count == lock->tries_count);
}

const char *lock_state_name(const struct lock *lock)
{
    switch (lock->state) {
    case LOCK_HELD:
        return lock->grant->suspect ? "suspect" : "ok";
    case LOCK_VACANT:
        return "ok";
    case LOCK_KEPT:
        return "lost";
    case LOCK_RELEASING:
        return lock->leaves ? "waiting" : "releasing";
    case LOCK_IDLE:
    case LOCK_ACQUIRING:
    case LOCK_BLOCKED:
    default:
        return "waiting";
    }
}

static struct claim_list *queue_of(struct lock *lock, const struct claim *claim)
{
    return claim->is_try ? &lock->tries : &lock->waiters;
}

static void count_contender(struct lock *lock, const struct claim *claim, int64_t change)
{
    if (claim->is_try)
        lock->tries_count += change;
    else
        lock->waiters_count += change;
}

void lock_add_contender(struct lock *lock, struct claim *claim)
{
    claim->lock = lock;
    TAILQ_INSERT_TAIL(queue_of(lock, claim), claim, lock_link);
    count_contender(lock, claim, 1);
}

void lock_add_contender_first(struct lock *lock, struct claim *claim)
{
    claim->lock = lock;
    TAILQ_INSERT_HEAD(queue_of(lock, claim), claim, lock_link);
    count_contender(lock, claim, 1);
}

void lock_remove_contender(struct lock *lock, struct claim *claim)
{
    TAILQ_REMOVE(queue_of(lock, claim), claim, lock_link);
    count_contender(lock, claim, -1);
}

struct claim *lock_first_contender(const struct lock *lock)
{
    struct claim *waiter = TAILQ_FIRST(&lock->waiters);
    struct claim *try = TAILQ_FIRST(&lock->tries);

    if (!waiter || !try)
        return waiter ? waiter : try;
    return waiter->id < try->id ? waiter : try;
}

int64_t lock_contenders_count(const struct lock *lock)
{
    return lock->waiters_count + lock->tries_count;
}

int64_t lock_waiters_count(const struct lock *lock)
{
    return lock->waiters_count;
}

void lock_main_op_strays(struct lock *lock)
{
    lock->stragglers_limit = time_limit_later(lock->stragglers_limit, lock->main_op_limit);
}

bool lock_may_be_set_late(const struct lock *lock)
{
    return lock->stragglers_limit.is_set || lock->main_op.op_id;
}

int64_t lock_frees_within_ms(const struct lock *lock, int64_t now_ms)
{
    struct time_limit limit = lock->stragglers_limit;

    if (lock->main_op.op_id)
        limit = time_limit_later(limit, lock->main_op_limit);
    return time_limit_left_ms(&limit, now_ms) + lock->ttl_longest_ms + lock->ttl_longest_ms / 100 +
           2;
}

bool lock_is_owed(const struct lock *lock)
{
    switch (lock->state) {
    case LOCK_ACQUIRING:
    case LOCK_HELD:
    case LOCK_VACANT:
        return true;
    case LOCK_RELEASING:
        return !lock->leaves;
    case LOCK_KEPT:
        return lock->grant && !lock->gone;
    case LOCK_BLOCKED:
        return lock->maybe_set;
    case LOCK_IDLE:
    default:
        return false;
    }
}

struct lock *lock_tree_find(struct lock_tree *tree, const char *name)
{
    struct lock *lock = lock_tree_from(tree, name);

    return lock && strcmp(lock->name, name) == 0 ? lock : NULL;
}

void lock_tree_add(struct lock_tree *tree, struct lock *lock)
{
    struct lock *twin = RB_INSERT(lock_tree, tree, lock);

    lb_assert(!twin);
}

void lock_tree_remove(struct lock_tree *tree, struct lock *lock)
{
    RB_REMOVE(lock_tree, tree, lock);
}

struct lock *lock_tree_first(struct lock_tree *tree)
{
    return RB_MIN(lock_tree, tree);
}

struct lock *lock_tree_next(struct lock *lock)
{
    return RB_NEXT(lock_tree, NULL, lock);
}

// Written out, since a tree's own search would want a whole lock to compare with.
struct lock *lock_tree_from(struct lock_tree *tree, const char *name)
{
    struct lock *lock = RB_ROOT(tree);
    struct lock *found = NULL;

    while (lock) {
        int order = strcmp(name, lock->name);

        if (order == 0)
            return lock;
        if (order < 0)
            found = lock;
        lock = order < 0 ? RB_LEFT(lock, entry) : RB_RIGHT(lock, entry);
    }
    return found;
}

struct flight *flight_tree_find(struct flight_tree *tree, uint64_t op_id)
{
    struct flight key = {.op_id = op_id};

    return RB_FIND(flight_tree, tree, &key);
}

struct flight *flight_tree_first(struct flight_tree *tree)
{
    return RB_MIN(flight_tree, tree);
}

void flight_tree_add(struct flight_tree *tree, struct flight *flight)
{
    struct flight *twin = RB_INSERT(flight_tree, tree, flight);

    lb_assert(!twin);
}

void flight_tree_remove(struct flight_tree *tree, struct flight *flight)
{
    RB_REMOVE(flight_tree, tree, flight);
    flight->op_id = 0;
}
