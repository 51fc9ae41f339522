// Commands that may be executed late. Nothing sent can be called back: a command whose answer never
// came may lie in a stopped server or on a dead connection, and be executed long after its sender
// gave it up. Each one that can create a key or push its expiry out therefore says until when, by
// the server's clock, it may be executed at all; here is kept when the last of them is over.
#ifndef LB_CORE_STRAGGLER_H
#define LB_CORE_STRAGGLER_H

#include <stdbool.h>
#include <stdint.h>

// Until when a command may be executed; zeroed: it needs no limit, or none is known.
struct time_limit {
    bool is_set;
    int64_t server_ms; // by the server's clock: the command itself says so
    int64_t local_ms;  // by ours, at the latest, unless the server's steps
};

// The later of two limits.
struct time_limit time_limit_later(struct time_limit a, struct time_limit b);

// How long after `now_ms` the command may still be executed; 0: no more.
int64_t time_limit_left_ms(const struct time_limit *limit, int64_t now_ms);

// True when nothing under this limit is executed any more, since the server executed something else
// at `server_ms`. A server's clock that was set far back would have us wait for it: after another
// `patience_ms` of our own time it is given up.
bool time_limit_is_over(const struct time_limit *limit, int64_t server_ms, int64_t now_ms,
                        int64_t patience_ms);

#endif
