// What the broker wants done: the only output of broker_step(). Effects are carried out in order.
// Every text in them is borrowed until the next broker_step().
#ifndef LB_CORE_EFFECT_H
#define LB_CORE_EFFECT_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/core/backend.h"
#include "proto/message.h"

enum effect_kind {
    EFFECT_REPLY,   // write a reply to a session
    EFFECT_NOTICE,  // write a notice to a session
    EFFECT_BACKEND, // start an operation
    EFFECT_FACT,    // log a line
    EFFECT_CLOSE,   // close the session's connection: there is no memory for it
};

enum fact_level {
    FACT_WARNING,
    FACT_NOTICE,
    FACT_INFO,
    FACT_DEBUG
};

// A thing worth a log line. Members at NULL or LB_NONE are left out of it.
struct fact {
    enum fact_level level;
    const char *event; // the line's name: "lost", "broken", ...
    const char *key;
    const char *owner;
    const char *reason;
    const char *status; // the client's own word with its release
    int64_t fence;
    int64_t ms; // how long: waited, held, ... as the event says
    int64_t count;
};

struct effect {
    enum effect_kind kind;
    uint64_t session; // REPLY, NOTICE, CLOSE; FACT: whom it is about, 0 for none

    // REPLY of a grant, else 0: read the clock before writing it, and at or after tell_before_ms
    // post EVENT_GRANT_STALE in place of the reply, before any other event.
    uint64_t grant_id;
    int64_t tell_before_ms;
    struct holder holder; // where reply.holder points to, if it points anywhere
    union {
        struct reply reply;
        struct notice notice;
        struct backend_op op;
        struct fact fact;
    };
};

// Enough for any one transition many times over. A step that would need more stops between two
// transitions and goes on at the next call, so that effects never need memory of their own.
#define EFFECTS_MAX 64

struct effects {
    size_t count;
    struct effect items[EFFECTS_MAX];
};

#endif
