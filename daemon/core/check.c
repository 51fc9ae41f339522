// What must be true of the broker's books between two steps, and how they end.
#include <stdlib.h>

#include "daemon/core/book.h"

static void check_alarms(const struct lock *lock, const struct claim *claim)
{
    lb_assert(claim->lock == lock);
    lb_assert(claim->state == CLAIM_RELEASING || claim->session || claim->state == CLAIM_LOST);
    if (claim->state == CLAIM_GRANTED || claim->state == CLAIM_WAITING)
        lb_assert(alarm_is_set(&claim->alarm));
}

static void check_flight(const struct broker *broker, const struct flight *flight,
                         const struct lock *lock)
{
    if (!flight->op_id)
        return;
    lb_assert(flight->subject == lock);
    lb_assert(flight_tree_find((struct flight_tree *)(uintptr_t)&broker->flights, flight->op_id) ==
              flight);
}

// It waits for an answer that makes the next grant possible, or lingers: not past its time, and
// not against others.
static void check_vacant(const struct broker *broker, const struct lock *lock)
{
    if (lock_first_contender(lock)) {
        lb_assert(lock->main_op.op_id);
        return;
    }
    lb_assert(lock->lingers_until_ms != LB_NONE && !lock->run.is_contended);
    lb_assert(broker->up && !broker->draining && alarm_is_set(&lock->alarm));
    lb_assert(lock->alarm.due_ms == lock->lingers_until_ms);
}

static void check_lock(const struct broker *broker, const struct lock *lock)
{
    lock_invariant(lock);
    check_flight(broker, &lock->main_op, lock);
    check_flight(broker, &lock->release_op, lock);
    if (lock->grant)
        check_alarms(lock, lock->grant);
    if (lock->state == LOCK_KEPT)
        lb_assert(alarm_is_set(&lock->alarm));
    if (lock->dirty)
        return;

    // A lock that nothing is going to look at must have a reason to rest.
    lb_assert(lock->owed == lock_is_owed(lock));
    lb_assert(lock->state != LOCK_IDLE || (lock_first_contender(lock) && !broker->up));
    if (lock->state == LOCK_BLOCKED)
        lb_assert((lock_first_contender(lock) || lock->verdict == VERDICT_BUSY) &&
                  (lock->paused || !broker->up));
    if (lock->state == LOCK_VACANT)
        check_vacant(broker, lock);
    if (lock->state == LOCK_RELEASING)
        lb_assert(lock->release_op.op_id || lock->paused || !broker->up);
}

void broker_check(const struct broker *broker)
{
    struct lock_tree *locks = (struct lock_tree *)(uintptr_t)&broker->locks;
    size_t count = 0;
    size_t held = 0;
    size_t owed = 0;

    for (struct lock *lock = lock_tree_first(locks); lock; lock = lock_tree_next(lock)) {
        check_lock(broker, lock);
        count++;
        held += lock->state == LOCK_HELD;
        owed += lock->owed;
    }
    lb_assert(count == broker->locks_count);
    lb_assert(held == broker->held_count);
    lb_assert(owed == broker->owed_count);
}
