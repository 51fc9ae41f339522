// Computes pauses. It may not read a clock: whoever pauses has the timer.
#include "daemon/redis/backoff.h"

void backoff_reset(struct backoff *backoff)
{
    backoff->step_ms = BACKOFF_FIRST_MS;
}

int64_t backoff_next(struct backoff *backoff, bool urgent, struct rng *rng)
{
    int64_t cap = urgent ? BACKOFF_URGENT_MAX_MS : BACKOFF_MAX_MS;
    int64_t pause = backoff->step_ms < cap ? backoff->step_ms : cap;

    if (backoff->step_ms < BACKOFF_MAX_MS)
        backoff->step_ms *= 2;
    return pause - (int64_t)rng_below(rng, (uint64_t)pause / 2 + 1);
}
