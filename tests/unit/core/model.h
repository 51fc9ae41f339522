// A backend that tells the truth, behind a link that does not always: keys with values and expiry,
// operations that take their time, break off, run without an answer or run late.
#ifndef LB_TESTS_CORE_MODEL_H
#define LB_TESTS_CORE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/rng.h"
#include "daemon/core/event.h"

#define MODEL_KEYS    4
#define MODEL_OPS_MAX 512

struct model_key {
    uint64_t serial; // of our token; 0: not ours
    bool is_foreign;
    int64_t expires_ms;
    int64_t meddled_ms; // when somebody deleted or overwrote our token; 0: never
};

struct model_op {
    struct backend_op op;
    int key;
    int64_t sent_ms;
    int64_t run_ms;    // when the backend gets to it
    int64_t answer_ms; // when the answer arrives
    bool has_run;
    bool is_orphan; // its link is gone: it runs, but nobody hears of it
    struct backend_outcome outcome;
};

struct model {
    struct rng rng;
    struct model_key keys[MODEL_KEYS];
    struct model_op ops[MODEL_OPS_MAX];
    int ops_count;
    int64_t fence;
    int64_t last_run_ms;
    int64_t last_answer_ms;
    bool is_up;
    bool is_healthy;                        // no more trouble
    int64_t connect_ms;                     // when the next attempt to connect ends
    struct event events[MODEL_OPS_MAX + 2]; // for the broker, in order
    int events_count;
    int events_done;
};

void model_init(struct model *model, uint64_t seed, int64_t now_ms);

// The number of a key in its name, "k0".. "k3".
int model_key_of(const char *name);

// Takes an operation of the broker.
void model_submit(struct model *model, const struct backend_op *op, int64_t now_ms);

// When something happens next; INT64_MAX: nothing will.
int64_t model_next(const struct model *model);

// Lets everything happen that is due at `now_ms`; what the broker gets to know is in the events.
void model_run(struct model *model, int64_t now_ms);

// The next event for the broker; false: none.
bool model_take(struct model *model, struct event *ret_event);

// Breaks the link.
void model_break(struct model *model, int64_t now_ms);

// Others use the keys, and some abuse them.
void model_foreign(struct model *model, int64_t now_ms);
void model_meddle(struct model *model, int64_t now_ms);

#endif
