// A small test world around one broker: a clock that stands until it is moved, sessions named by
// letters, a backend that answers when it is told to, and a transcript of all that went in and out.
#ifndef LB_TESTS_CORE_WORLD_H
#define LB_TESTS_CORE_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/core/broker.h"

// Time 0 of a transcript. Far from 0, so that nothing takes a time for a duration by luck.
#define WORLD_EPOCH_MS 5000000

#define WORLD_SESSIONS_MAX 26

// An operation that the broker asked for.
struct world_op {
    struct backend_op op; // its key is owned
    int64_t sent_ms;
    bool answered;
};

struct world {
    struct broker *broker;
    struct broker_config config;
    struct effects effects;
    int64_t now_ms; // on the broker's clock: WORLD_EPOCH_MS is the transcript's 0
    bool paused;    // the process stands still: nothing is swept before the next input

    struct world_op *ops; // in the order of asking: #1 is ops[0]
    size_t ops_count;
    size_t ops_room;
    uint64_t *serials; // tokens in the order of first use
    size_t serials_count;

    int64_t write_at_ms[WORLD_SESSIONS_MAX + 1]; // the session's next grant is written then, or 0

    int64_t stale_ms; // when a grant came too late to be told last

    FILE *out; // the transcript; NULL: none is kept
    char *text;
    size_t text_size;

    // Sees each effect that is carried out, if it is set.
    void (*observe)(struct world *world, const struct effect *effect);
    // How long the next grant takes to be written, if it is set.
    int64_t (*delay)(struct world *world);
    void *context;
};

// A world with a broker whose backend is down. The transcript is kept when `has_text`.
void world_init(struct world *world, uint64_t seed, bool has_text);
void world_deinit(struct world *world);

// Hands one event to the broker as the pump does: again and again until it is handled, carrying out
// the effects of each step. The event's time is set here.
void world_step(struct world *world, struct event *event);

// Lets the time go by until `at_ms`, stepping whenever the broker asked for it.
void world_run(struct world *world, int64_t at_ms);

// Plays one line of a transcript (script.c says what there is). Lines of output are skipped.
void world_play(struct world *world, const char *line);

// Plays lines.
void world_play_all(struct world *world, const char *lines);

// The transcript so far, owned by the world.
const char *world_text(struct world *world);

// Forgets the transcript so far.
void world_clear(struct world *world);

// Answers a pending operation: sets what is common to all outcomes.
void world_answer(struct world *world, struct world_op *op, struct backend_outcome *outcome);

// The next operation that was not answered, at or after index `from`; NULL: none.
struct world_op *world_pending(struct world *world, size_t from);

// Adds one effect to the transcript.
void world_print(struct world *world, const struct effect *effect);

// The short number that stands for a token in the transcript.
size_t world_token(struct world *world, uint64_t serial);

// The session that a letter stands for, and back: beyond Z it is a number. The name lives until the
// next call.
uint64_t world_session(char letter);
const char *world_session_name(uint64_t session);

#endif
