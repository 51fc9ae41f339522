// One simulated world: true time, the queue of what is to come, and one seed for all that chance
// decides. Everything that happens is an action on the queue; nothing else moves the time.
#ifndef LB_TESTS_SIM_SIM_H
#define LB_TESTS_SIM_SIM_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/base/rng.h"
#include "proto/macros.h"

enum fault {
#define X(name, per_million, text) FAULT_##name,
#include "tests/sim/faults.def"
#undef X
    FAULTS,
};

// A clock as some machine has it. True time is in microseconds since the start.
struct sim_clock {
    int64_t anchor_true_us;
    int64_t anchor_us;
    int64_t ppm; // how much faster than true time, in millionths
};

int64_t sim_clock_us(const struct sim_clock *clock, int64_t true_us);

// The earliest true time at which the clock shows `clock_us` or more, if it is not stepped.
int64_t sim_clock_true_us(const struct sim_clock *clock, int64_t clock_us);
void sim_clock_step(struct sim_clock *clock, int64_t true_us, int64_t by_us);

struct sim_action {
    int64_t true_us;
    uint64_t order; // of two actions at one time the one asked for first happens first
    void (*act)(void *subject, uint64_t argument);
    void *subject;
    uint64_t argument;
};

struct sim {
    uint64_t seed;
    int64_t now_us;
    struct rng rng;
    struct sim_action *queue; // a heap
    size_t queue_count;
    size_t queue_room;
    uint64_t next_order;
    uint64_t actions; // done so far

    bool is_healed;          // no fault happens any more
    int64_t ttl_max_ms;      // of all brokers, the longest
    uint32_t chance[FAULTS]; // of a million, in this seed
    bool is_masked[FAULTS];  // never happens, whatever the seed says
    uint64_t fired[FAULTS];

    FILE *story;       // NULL: nobody reads it
    bool is_hashed;    // the story is hashed also when nobody reads it
    uint64_t hash;     // of the story so far: equal runs have equal ones
    jmp_buf *violated; // where a violation ends the run
    char violation[512];
};

void sim_init(struct sim *sim, uint64_t seed);
void sim_deinit(struct sim *sim);

// Of all kinds of faults these alone happen, four times as often as a seed has them at the most.
void sim_choose(struct sim *sim, const bool is_chosen[FAULTS]);

// Asks for `act(subject, argument)` at a true time, now at the earliest. An action cannot be taken
// back: whoever asks must know by its argument whether it still wants it.
void sim_at(struct sim *sim, int64_t true_us, void (*act)(void *subject, uint64_t argument),
            void *subject, uint64_t argument);

// Moves on to the next action and does it. False when there is none.
bool sim_step(struct sim *sim);

// 0..bound-1; `bound` is at least 1.
int64_t sim_below(struct sim *sim, int64_t bound);

// Whether this fault happens at this chance of it. It is counted when it does.
bool sim_fault(struct sim *sim, enum fault fault);

// Adds a line to the story.
void sim_tell(struct sim *sim, const char *format, ...) LB_PRINTF(2, 3);

// An invariant is broken: tells it and ends the run.
_Noreturn void sim_violate(struct sim *sim, const char *format, ...) LB_PRINTF(2, 3);

#endif
