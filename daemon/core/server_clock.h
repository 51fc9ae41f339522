// What is known of the server's clock: how far it is ahead of ours, between two bounds that each
// answer draws closer. Each answer carries the server's time, read between our sending and now.
#ifndef LB_CORE_SERVER_CLOCK_H
#define LB_CORE_SERVER_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct server_clock {
    bool is_known;
    int64_t low_ms; // server time minus ours is at least this
    int64_t high_ms;
    int64_t seen_ms; // ours, when the bounds were drawn
};

// Takes an answer in: asked for at `asked_ms`, here at `now_ms`, both ours. Returns by how much the
// server's clock certainly stepped against ours since the last answer: above 0 forwards, so that
// keys expire sooner than they should; below 0 backwards; else 0.
int64_t server_clock_observe(struct server_clock *clock, int64_t asked_ms, int64_t now_ms,
                             int64_t server_ms);

// The latest that the server's clock can show at `now_ms`, LB_NONE when nothing is known of it.
int64_t server_clock_latest(const struct server_clock *clock, int64_t now_ms);

// How far apart the bounds are at `now_ms`; 0 when nothing is known.
int64_t server_clock_width(const struct server_clock *clock, int64_t now_ms);

#endif
