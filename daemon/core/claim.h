// One contender for one lock: first a waiter, then, granted, the grant itself, at last perhaps the
// memory of a lost one.
#ifndef LB_CORE_CLAIM_H
#define LB_CORE_CLAIM_H

#include <bsd/sys/queue.h>
#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/alarm.h"
#include "daemon/core/grave.h"
#include "daemon/core/session.h"
#include "proto/message.h"

struct lock;

enum claim_state {
    CLAIM_WAITING,    // queued; `call` is its acquire
    CLAIM_GRANTED,    // it has the lock
    CLAIM_RELEASING,  // given back by its client; `call` is the release, if one asked
    CLAIM_LOST,       // told `lost`; the key must not move yet
    CLAIM_REMEMBERED, // lost, the key is gone: kept to answer a late release
};

// An extend that waits for the backend.
struct extension {
    struct grave grave;
    TAILQ_ENTRY(extension) link;
    struct call call;
    int64_t ttl_ms;
    int64_t max_hold_ms; // LB_NONE: not asked for
    int64_t arrived_ms;
    enum error_code error; // the answer, once the extension is over without success
    const char *reason;
};

TAILQ_HEAD(extension_list, extension);

struct claim {
    struct grave grave;
    RB_ENTRY(claim) session_entry;   // waiting, granted: in session->claims
    TAILQ_ENTRY(claim) session_link; // lost, remembered: in the session's lists
    TAILQ_ENTRY(claim) lock_link;    // waiting: in the lock's queue
    struct session *session;         // NULL once its session ended
    struct lock *lock;               // NULL once remembered
    enum claim_state state;
    bool is_try; // wait_ms was 0
    bool renew;
    bool suspect;
    const char *doubt; // to become suspect at its alarm for this reason; NULL: for the usual ones
    uint64_t id;       // rises with arrival; names the grant
    struct call call;
    struct alarm alarm; // waiting: the end of the wait; granted: suspect, then lost
    struct extension_list extensions;
    int64_t ttl_ms;
    int64_t arrived_ms;
    int64_t wait_until_ms;
    int64_t max_hold_ms; // LB_NONE: none
    int64_t granted_ms;
    int64_t cap_ms; // no deadline told is later than this; INT64_MAX: no cap
    int64_t fence;
    int64_t deadline_ms; // told to the client
    const char *lost_reason;
    const char *key;
    const char *owner;
    const char *note;
    char texts[]; // key, owner and note
};

// A claim for the acquire `request` of `session`, arrived at `now_ms`; its ttl, wait and state are
// the caller's to set. NULL without memory.
struct claim *claim_new(const struct request *request, struct session *session, uint64_t id,
                        int64_t now_ms);

// How long before its deadline the holder is told `lost`: the lease's margin, but never more than
// half of a shorter max_hold_ms, which would leave nothing to hold.
int64_t claim_margin(const struct claim *claim);

// When a granted claim must be told `lost`.
int64_t claim_lost_at(const struct claim *claim);

#endif
