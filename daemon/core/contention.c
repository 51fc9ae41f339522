// Takes in what other brokers say. It grants and frees nothing by itself: it changes what is known
// of a lock and has it looked at.
#include "daemon/core/contention.h"

#include "daemon/core/acquire.h"

// A broker that would not hear of its turn says four times a second that it wants a key: for so
// long after the last time it is taken to be there.
#define DEAF_RECENT_MS 1000

// Turns may have come while nobody listened: all that wait ask again. And whoever had a key
// meanwhile may well be one that queues.
void contention_channel_up(struct broker *broker)
{
    int64_t until_ms = broker->now_ms + DEAF_RECENT_MS;
    struct lock *lock;

    broker->hears = true;
    for (lock = lock_tree_first(&broker->locks); lock; lock = lock_tree_next(lock)) {
        if (lock->state == LOCK_BLOCKED)
            lock->paused = false;
        if (lock->outsider_until_ms > until_ms)
            lock->outsider_until_ms = until_ms;
    }
    broker_mark_all_dirty(broker);
}

// Others want the key. If it only lingers, it is given back at once.
static void lock_contended(struct broker *broker, struct lock *lock)
{
    lock_contend(lock, broker->now_ms);
    if (lock->state == LOCK_VACANT)
        broker_mark_dirty(broker, lock);
}

// Whoever queues from now on cannot say so: every run of grants is bounded.
void contention_channel_down(struct broker *broker)
{
    struct lock *lock;

    broker->hears = false;
    for (lock = lock_tree_first(&broker->locks); lock; lock = lock_tree_next(lock))
        lock_contended(broker, lock);
}

void contention_message(struct broker *broker, const struct event *event)
{
    struct lock *lock = lock_tree_find(&broker->locks, event->key);

    if (!lock)
        return;
    if (event->kind == EVENT_TURN) {
        acquire_turn(broker, lock);
        return;
    }
    lock_contended(broker, lock);
    if (event->kind == EVENT_OUTSIDER)
        lock_expect_outsider(lock, broker->now_ms + DEAF_RECENT_MS);
}
