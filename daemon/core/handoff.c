// Hand-off. What makes it safe: it happens only while the lease is beyond doubt, it tells no later
// deadline than the one that is there, and every grant has a fence of its own which is above all
// before it, since a fence is only ever reserved while the key is ours. What makes it fair: the run
// of grants ends when others are known to want the key.
#include "daemon/core/handoff.h"

#include "daemon/core/acquire.h"
#include "daemon/core/hold.h"
#include "daemon/core/release.h"

static bool run_is_over(const struct broker *broker, const struct run *run)
{
    if (run->is_contended)
        return run->contended_grants >= broker->handoff_grants_max ||
               broker->now_ms - run->contended_ms >= broker->handoff_time_max_ms;

    // Those who are no brokers cannot say that they wait.
    return broker->yield_after_ms && broker->now_ms - run->since_ms >= broker->yield_after_ms;
}

// Whether the held lock may stay with this host when its holder lets go.
static bool may_stay(const struct broker *broker, const struct lock *lock)
{
    const struct claim *claim = lock->grant;

    if (broker->fence_block <= 1 || broker->draining)
        return false;
    if (claim->suspect || claim->doubt || lock->lease.deadline_ms <= broker->now_ms)
        return false;
    return !run_is_over(broker, &lock->run);
}

bool handoff_is_due(const struct broker *broker, const struct lock *lock)
{
    return lock_first_contender(lock) && may_stay(broker, lock);
}

// There is nothing to linger for without fences: the next acquire would go to the backend anyway.
bool linger_is_due(const struct broker *broker, const struct lock *lock)
{
    return broker->linger_ms > 0 && broker->up && !lock_first_contender(lock) &&
           !lock->run.is_contended && lock->fences_left > 0 && may_stay(broker, lock);
}

void linger_begin(struct broker *broker, struct lock *lock)
{
    broker->stats.lingers++;
    handoff_begin(broker, lock);
    lock->lingers_until_ms = broker->now_ms + broker->linger_ms;
    alarm_set(&lock->alarm, &broker->lock_alarms, lock->lingers_until_ms);
}

bool lock_lingers(const struct broker *broker, const struct lock *lock)
{
    return lock->lingers_until_ms != LB_NONE && broker->now_ms < lock->lingers_until_ms &&
           !lock->run.is_contended && broker->up && !broker->draining;
}

void handoff_begin(struct broker *broker, struct lock *lock)
{
    lb_assert(!lock->grant);
    lock_move(lock, LOCK_VACANT);
    broker_mark_dirty(broker, lock);
}

bool handoff_attend(struct broker *broker, struct lock *lock)
{
    struct claim *next = lock_first_contender(lock);

    if (!next && lock_lingers(broker, lock))
        return false;
    if (!next) {
        release_begin(broker, lock);
        return true;
    }
    if (hold_pass(broker, lock, next)) {
        broker->stats.handoffs++;
        return true;
    }
    if (lock->main_op.op_id) // what it brings may make it possible
        return false;
    if (!broker->up) {
        release_begin(broker, lock);
        return true;
    }

    // Too little is left of the lease or of the fences: both come anew with the same token.
    lock->maybe_set = true;
    lock->fences_left = 0;
    acquire_again(broker, lock);
    return false;
}

int64_t handoff_fences_wanted(const struct broker *broker, const struct lock *lock, int64_t least)
{
    bool is_short = lock->fences_left < broker->fence_block / 2;

    if (broker->fence_block <= 1 || !is_short)
        return least;
    if (lock_contenders_count(lock) <= least && broker->linger_ms == 0)
        return least;
    return broker->fence_block;
}

bool handoff_refill(struct broker *broker, struct lock *lock)
{
    const struct claim *claim = lock->grant;

    if (!broker->up || lock->main_op.op_id || lock->refill_failed || claim->suspect ||
        !claim->renew || handoff_fences_wanted(broker, lock, 0) == 0)
        return false;
    broker->stats.refills++;
    hold_renew(broker, lock);
    return true;
}
