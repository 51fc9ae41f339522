// The pauses between attempts to connect: from 10 ms, doubling, with jitter.
#ifndef LB_REDIS_BACKOFF_H
#define LB_REDIS_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/rng.h"

#define BACKOFF_FIRST_MS      10
#define BACKOFF_URGENT_MAX_MS 250
#define BACKOFF_MAX_MS        2000

struct backoff {
    int64_t step_ms; // the next pause without its jitter
};

// Begins anew: after a link that was good.
void backoff_reset(struct backoff *backoff);

// The next pause in ms: half of it is chance, and it is at most 250 ms when urgent, else 2 s.
int64_t backoff_next(struct backoff *backoff, bool urgent, struct rng *rng);

#endif
