// One client: who it is, what it holds and waits for, and its requests that are still pending.
#ifndef LB_CORE_SESSION_H
#define LB_CORE_SESSION_H

#include <bsd/sys/queue.h>
#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/core/event.h"
#include "daemon/core/grave.h"
#include "proto/message.h"

struct claim;
struct session;

// A request that will be answered later.
struct call {
    RB_ENTRY(call) entry;
    struct session *session; // NULL: answered, or its session ended
    enum op op;
    struct request_id id;
};

RB_HEAD(call_tree, call);
RB_HEAD(claim_tree, claim);
TAILQ_HEAD(claim_list, claim);

// So many lost grants are remembered, to answer their release with "was_lost".
#define SESSION_REMEMBERED_MAX 64

struct session {
    struct grave grave;
    RB_ENTRY(session) entry;
    TAILQ_ENTRY(session) closing_link;
    uint64_t id;
    struct peer peer;
    bool spoke;            // a request came: too late for hello
    bool closed;           // its connection ended
    bool closed_by_broker; // by us: its keys must not move before the deadlines it was told
    struct call_tree calls;
    size_t calls_count;
    size_t waiting_count;         // claims that wait, tries left out
    struct claim_tree claims;     // waiting and granted, by key and owner
    struct claim_list lost;       // lost, and still keeping their keys
    struct claim_list remembered; // lost, and their keys gone
    size_t remembered_count;
    char client[LB_CLIENT_BYTES_MAX + 1];
};

RB_HEAD(session_tree, session);

struct session *session_tree_find(struct session_tree *tree, uint64_t id);
void session_tree_add(struct session_tree *tree, struct session *session);
void session_tree_remove(struct session_tree *tree, struct session *session);
struct session *session_tree_first(struct session_tree *tree);

// A new session, or NULL without memory.
struct session *session_new(uint64_t id, const struct peer *peer);

// True while it holds, keeps or waits for anything.
bool session_is_busy(const struct session *session);

// The pending call with this id, or NULL.
struct call *session_find_call(struct session *session, const struct request_id *id);

// Makes `call` pending for the request. The id must not be pending already.
void call_open(struct call *call, struct session *session, const struct request_id *id, enum op op);

// Ends `call`, answered or not; a closed call may be closed again.
void call_close(struct call *call);

// The session ended: none of its pending calls will be answered.
void session_forget_calls(struct session *session);

// The waiting or granted claim of that key and owner, or NULL.
struct claim *session_find_claim(struct session *session, const char *key, const char *owner);
void session_add_claim(struct session *session, struct claim *claim);
void session_remove_claim(struct session *session, struct claim *claim);
struct claim *session_first_claim(struct session *session);
struct claim *session_next_claim(struct claim *claim);

// The newest lost grant of that key and owner, whose fence is `fence` unless that is LB_NONE.
struct claim *session_find_lost(struct session *session, const char *key, const char *owner,
                                int64_t fence);

#endif
