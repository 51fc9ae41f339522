// Ordered alarms in a red-black tree: setting, moving and cancelling are O(log n), without memory.
#include "daemon/core/alarm.h"

#include <stddef.h>

#include "daemon/core/tree.h"

static int alarm_compare(const struct alarm *a, const struct alarm *b)
{
    if (a->due_ms != b->due_ms)
        return a->due_ms < b->due_ms ? -1 : 1;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return 0;
}

LB_TREE_GENERATE(alarm_tree, alarm, entry, alarm_compare)

void alarm_queue_init(struct alarm_queue *queue)
{
    RB_INIT(&queue->tree);
    queue->first = NULL;
    queue->next_order = 1;
}

struct alarm *alarm_queue_first(const struct alarm_queue *queue)
{
    return queue->first;
}

void alarm_set(struct alarm *alarm, struct alarm_queue *queue, int64_t due_ms)
{
    alarm_cancel(alarm);
    alarm->due_ms = due_ms;
    alarm->order = queue->next_order++;
    alarm->queue = queue;

    struct alarm *twin = RB_INSERT(alarm_tree, &queue->tree, alarm);

    lb_assert(!twin);
    if (!queue->first || alarm_compare(alarm, queue->first) < 0)
        queue->first = alarm;
}

void alarm_cancel(struct alarm *alarm)
{
    if (!alarm->queue)
        return;
    if (alarm == alarm->queue->first)
        alarm->queue->first = RB_NEXT(alarm_tree, &alarm->queue->tree, alarm);
    RB_REMOVE(alarm_tree, &alarm->queue->tree, alarm);
    alarm->queue = NULL;
}
