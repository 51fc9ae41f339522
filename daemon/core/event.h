// What can happen to the broker: the only input of broker_step().
#ifndef LB_CORE_EVENT_H
#define LB_CORE_EVENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/core/backend.h"
#include "proto/message.h"

enum event_kind {
    EVENT_TIME,            // a deadline may be due
    EVENT_SESSION_OPENED,  // a client connected
    EVENT_REQUEST,         // a client sent a request
    EVENT_BAD_REQUEST,     // a client sent a line that is no request
    EVENT_SESSION_CLOSED,  // a connection ended
    EVENT_BACKEND_UP,      // the backend can be asked
    EVENT_BACKEND_DOWN,    // the link broke, or an attempt to connect failed
    EVENT_BACKEND_OUTCOME, // an operation ended
    EVENT_CHANNEL_UP,      // from now on turns and contentions are heard of
    EVENT_CHANNEL_DOWN,    // they are not any more; both may also get lost at any time
    EVENT_TURN,            // a key that this broker queues for is free, and kept for it a moment
    EVENT_CONTENDED,       // another broker queues for a key that this one has
    EVENT_OUTSIDER,        // another broker wants such a key, and cannot be told when it is free
    EVENT_GRANT_STALE,     // a grant was not told: too little was left when it was to be written
    EVENT_DRAIN,           // go down: give everything back
    EVENT_CONFIGURE,       // new limits
};

// The client's identity as the kernel gives it, fixed at accept.
struct peer {
    pid_t pid;
    uid_t uid;
    gid_t gid;
};

struct broker_config {
    int64_t ttl_max_ms;
    int64_t max_wait_ms;
    int64_t retry_max_ms;  // the longest pause between two tries on a key held elsewhere
    int64_t requests_max;  // pending requests of one connection
    bool waits_after_loss; // data_loss = quarantine: no free key is taken until no lock can be left
                           // of which a server that lost data does not know
    uid_t own_uid;         // may break locks, beside root

    // Handing a lock from one local holder to the next, without the backend in between.
    int64_t fence_block;         // fences reserved at a time; 1 or less: no such thing
    int64_t handoff_grants_max;  // in a row, once another broker is known to queue for the key
    int64_t handoff_time_max_ms; // likewise
    int64_t yield_after_ms;      // after so long an unbroken run the key is left free for a moment,
                                 // for those whose waiting nobody can see; 0: never
    int64_t linger_ms;           // a released lock that nobody waits for is kept for so long, for
                                 // the next local contender; 0: it is given back at once
    int64_t busy_cache_ms;       // a key found held is taken to be held for so long, by tries
    int64_t waiters_key_max;     // that may wait for one key; 0: no limit
    int64_t waiters_client_max;  // that one connection may have; 0: no limit
    int64_t slow_wait_ms;        // a wait, a hold from which on it is logged; 0: none is
    int64_t slow_hold_ms;
    const char *server;   // "lockbrokerd 0.1.0"; texts are copied
    const char *instance; // shown by hello
    const char *host;
    const char *backend_kind; // "redis" or "memory"
};

// Texts in an event are borrowed until its effects have been carried out.
struct event {
    enum event_kind kind;
    int64_t now_ms;   // CLOCK_BOOTTIME, read right before the step
    uint64_t session; // SESSION_*, REQUEST, BAD_REQUEST, GRANT_STALE
    union {
        struct peer peer;                   // SESSION_OPENED
        const struct request *request;      // REQUEST; borrowed until the effects are carried out
        const struct reply *refusal;        // BAD_REQUEST: the error reply; borrowed likewise
        bool closed_by_broker;              // SESSION_CLOSED: we closed it, so its keys are kept
        struct backend_facts facts;         // BACKEND_UP; texts are copied
        struct backend_outcome outcome;     // BACKEND_OUTCOME
        uint64_t grant_id;                  // GRANT_STALE
        const char *key;                    // TURN, CONTENDED, OUTSIDER: without the prefix
        const struct broker_config *config; // CONFIGURE
    };
};

#endif
