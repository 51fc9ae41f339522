// The operations that the core asks of a backend (Redis, or the table in this process) and the
// outcomes it gets back. A token is named by its serial alone: the text that goes to Redis,
// "lb1:<host>:<instance>:<serial>", is made by the backend, so no secret enters the core.
#ifndef LB_CORE_BACKEND_H
#define LB_CORE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/message.h"

enum backend_op_kind {
    BACKEND_ACQUIRE, // set the key to the token if it is free; refresh its expiry if it is ours
    BACKEND_RENEW,   // push the expiry of our token out to ttl_ms, never nearer
    BACKEND_RELEASE, // delete the key if its value is our token (compare-and-delete)
    BACKEND_QUERY,   // who holds the key
    BACKEND_BREAK,   // delete the key whoever holds it, and say who did
};

struct backend_op {
    enum backend_op_kind kind;
    uint64_t op_id;      // echoed in the outcome; never reused
    const char *key;     // the lock's name, without the prefix; borrowed until the effect is done
    uint64_t serial;     // acquire, renew, release: which token
    int64_t ttl_ms;      // acquire, renew
    int64_t fence_floor; // acquire: the fence granted must be above it
    int64_t timeout_ms;  // unanswered for so long, the link is given up
};

enum backend_result {
    RESULT_OK,       // acquire: ours; renew: pushed out; release: deleted; query, break: answered
    RESULT_BUSY,     // acquire: held by `holder`
    RESULT_GONE,     // renew, release: there is no such key any more
    RESULT_STOLEN,   // renew, release: the key has another's value
    RESULT_CONFLICT, // the key is of a type that is no string
    RESULT_REFUSED,  // definitely not executed: the server said no
    RESULT_QUARANTINED, // acquire: definitely not executed, nothing is granted for ends_in_ms
    RESULT_NOT_SENT,    // definitely not executed: never written to the link
    RESULT_UNKNOWN,     // written, but no answer came: it may or may not have been executed
};

struct backend_outcome {
    uint64_t op_id;
    enum backend_result result;
    int64_t sent_ms;    // CLOCK_BOOTTIME read before the command was formatted; LB_NONE if not sent
    int64_t fence;      // acquire, RESULT_OK
    int64_t ends_in_ms; // RESULT_QUARANTINED

    // acquire with RESULT_BUSY; query and break with RESULT_OK. HOLDER_LOCAL means that the value
    // is a token of this broker. Of `holder` only kind, host, ttl_left_ms and without_expiry count.
    struct holder holder;
};

// What a backend tells of itself when its link comes up. Texts are borrowed, NULL: not known.
struct backend_facts {
    const char *run_id; // another one than before: the backend restarted
    const char *role;
    const char *version;
    const char *policy; // maxmemory-policy
    bool may_evict;     // that policy may evict a lock key
};

#endif
