// Two flags beside the pump. Nothing is queued here.
#include "daemon/io/hearing.h"

void hearing_retry(struct hearing *hearing)
{
    struct event event = {.kind = hearing->is_up ? EVENT_CHANNEL_UP : EVENT_CHANNEL_DOWN};

    if (hearing->is_told_up != hearing->is_up && pump_submit(hearing->pump, &event))
        hearing->is_told_up = hearing->is_up;
}

void hearing_take(void *context, const struct event *event)
{
    struct hearing *hearing = context;
    struct event hint = *event;

    if (event->kind == EVENT_CHANNEL_UP || event->kind == EVENT_CHANNEL_DOWN) {
        hearing->is_up = event->kind == EVENT_CHANNEL_UP;
        hearing_retry(hearing);
    } else {
        (void)!pump_submit(hearing->pump, &hint); // dropped when there is no memory
    }
}
