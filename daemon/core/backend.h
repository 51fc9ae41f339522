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
    BACKEND_RENEW,   // push the expiry of our token out to ttl_ms, never nearer; after a loss of
                     // data set it again if it is missing
    BACKEND_RELEASE, // delete the key if its value is our token (compare-and-delete), leave its
                     // queue, and give the turn to the next broker in it
    BACKEND_QUERY,   // who holds the key
    BACKEND_BREAK,   // delete the key whoever holds it, and say who did
};

struct backend_op {
    enum backend_op_kind kind;
    uint64_t op_id;      // echoed in the outcome; never reused
    const char *key;     // the lock's name, without the prefix; borrowed until the effect is done
    uint64_t serial;     // acquire, renew, release: which token
    int64_t ttl_ms;      // acquire, renew
    int64_t fence_floor; // acquire, renew: every fence granted later must be above it
    int64_t timeout_ms;  // unanswered for so long, the link is given up

    // Acquire, renew, break: the server's time from which on it must not be executed any more.
    // LB_NONE: not known, or the backend has no clock of its own.
    int64_t not_after_ms;

    // Acquire, renew: how many fences to reserve for this token, the one of the grant included.
    // Renew: 0 for none.
    int64_t fences;

    // Acquire: when the key is not to be had, queue for it for so long, among the brokers that do;
    // 0: do not. Release: queue for it again, as the last one. And, acquire, whether to take a free
    // key although others queue for it, for a broker that would not hear that it is its turn.
    int64_t queue_ms;
    bool barges;

    // Release: whether server_ms is wanted, which costs the server something.
    bool wants_time;

    // Acquire, renew: what to make of data that the server lost. How long a lock may live that it
    // does not know of; 0: take what it knows for all there is. And whether this broker has seen
    // the server's epoch marker before, so that its absence is a loss.
    int64_t loss_ttl_ms;
    bool saw_epoch;
};

enum backend_result {
    RESULT_OK,       // acquire: ours; renew: pushed out; release: deleted; query, break: answered
    RESULT_BUSY,     // acquire: held by `holder`
    RESULT_GONE,     // renew, release: there is no such key any more
    RESULT_STOLEN,   // renew, release: the key has another's value
    RESULT_CONFLICT, // the key is of a type that is no string
    RESULT_REFUSED,  // definitely not executed: the server said no
    RESULT_LATE,     // definitely not executed: the server got to it after not_after_ms
    RESULT_QUARANTINED, // acquire: definitely not executed, nothing is granted for ends_in_ms
    RESULT_QUEUED,      // acquire: the key is free, but the turn is another broker's for ends_in_ms
    RESULT_NOT_SENT,    // definitely not executed: never written to the link
    RESULT_UNKNOWN,     // written, but no answer came: it may or may not have been executed
};

struct backend_outcome {
    uint64_t op_id;
    enum backend_result result;
    int64_t sent_ms;    // CLOCK_BOOTTIME read before the command was formatted; LB_NONE if not sent
    int64_t server_ms;  // the server's time when it was executed; LB_NONE: not known
    int64_t fence;      // acquire, RESULT_OK; renew, RESULT_OK with `fences`: the first of them
    int64_t fences;     // how many were reserved; renew: 0 when none were
    int64_t ends_in_ms; // RESULT_QUARANTINED, RESULT_QUEUED
    bool others_queue;  // acquire, RESULT_OK: other brokers queue for the key
    bool gave_turn;     // release: another broker was told that it is its turn
    bool was_missing;   // renew, RESULT_OK: the key was lost with other data, and is set again

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

    // The server's time, and when it was asked for (CLOCK_BOOTTIME); LB_NONE: not known.
    int64_t server_ms;
    int64_t asked_ms;
};

#endif
