// Times at which something is due, ordered. An alarm is embedded in the object it belongs to, so
// setting one needs no memory and cannot fail.
#ifndef LB_CORE_ALARM_H
#define LB_CORE_ALARM_H

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/macros.h"

struct alarm_queue;

struct alarm {
    RB_ENTRY(alarm) entry;
    struct alarm_queue *queue; // NULL: not set
    int64_t due_ms;
    uint64_t order; // breaks ties by the order of setting, so that equal runs stay equal
};

RB_HEAD(alarm_tree, alarm);

struct alarm_queue {
    struct alarm_tree tree;
    struct alarm *first; // of the tree: it is asked for many times in each step
    uint64_t next_order;
};

void alarm_queue_init(struct alarm_queue *queue);

// The alarm due first, or NULL. It stays set.
struct alarm *alarm_queue_first(const struct alarm_queue *queue);

// Puts the alarm into `queue`; if it was set, here or in another queue, it moves.
void alarm_set(struct alarm *alarm, struct alarm_queue *queue, int64_t due_ms);

// Takes the alarm out of its queue, if it is in one.
void alarm_cancel(struct alarm *alarm);

static inline bool alarm_is_set(const struct alarm *alarm)
{
    return alarm->queue != NULL;
}

#endif
