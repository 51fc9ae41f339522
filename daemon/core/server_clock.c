// Interval arithmetic on one offset. Between two answers the bounds move apart by what two clocks
// may drift; an answer that does not fit between them even so can only mean a step.
#include "daemon/core/server_clock.h"

#include "proto/message.h"

// Two clocks drift apart by at most one part in a thousand: twice what NTP ever slews by.
#define DRIFT_PARTS 1000

static int64_t drift_ms(const struct server_clock *clock, int64_t now_ms)
{
    int64_t elapsed_ms = now_ms - clock->seen_ms;

    return elapsed_ms > 0 ? elapsed_ms / DRIFT_PARTS + 1 : 0;
}

static int64_t step_of(const struct server_clock *before, int64_t low_ms, int64_t high_ms,
                       int64_t drift)
{
    if (!before->is_known)
        return 0;
    if (low_ms > before->high_ms + drift)
        return low_ms - before->high_ms - drift;
    if (high_ms < before->low_ms - drift)
        return high_ms - before->low_ms + drift;
    return 0;
}

int64_t server_clock_observe(struct server_clock *clock, int64_t asked_ms, int64_t now_ms,
                             int64_t server_ms)
{
    int64_t drift = drift_ms(clock, now_ms);
    int64_t low_ms = server_ms - now_ms - 1; // each time is cut to whole milliseconds
    int64_t high_ms = server_ms + 1 - asked_ms;
    int64_t step_ms = step_of(clock, low_ms, high_ms, drift);

    if (clock->is_known && step_ms == 0) {
        if (low_ms < clock->low_ms - drift)
            low_ms = clock->low_ms - drift;
        if (high_ms > clock->high_ms + drift)
            high_ms = clock->high_ms + drift;
    }
    *clock = (struct server_clock){true, low_ms, high_ms, now_ms};
    return step_ms;
}

int64_t server_clock_latest(const struct server_clock *clock, int64_t now_ms)
{
    return clock->is_known ? now_ms + clock->high_ms + drift_ms(clock, now_ms) : LB_NONE;
}

int64_t server_clock_width(const struct server_clock *clock, int64_t now_ms)
{
    return clock->is_known ? clock->high_ms - clock->low_ms + 2 * drift_ms(clock, now_ms) : 0;
}
