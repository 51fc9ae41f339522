// Sessions and their pending calls. This file keeps the books of one client; what becomes of its
// locks is decided elsewhere.
#include "daemon/core/session.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/core/claim.h"
#include "daemon/core/tree.h"
#include "proto/macros.h"

static int session_compare(const struct session *a, const struct session *b)
{
    return a->id < b->id ? -1 : a->id > b->id;
}

static int call_compare(const struct call *a, const struct call *b)
{
    if (a->id.kind != b->id.kind)
        return a->id.kind < b->id.kind ? -1 : 1;
    if (a->id.kind == REQUEST_ID_TEXT)
        return strcmp(a->id.text, b->id.text);
    return a->id.number < b->id.number ? -1 : a->id.number > b->id.number;
}

static int claim_compare(const struct claim *a, const struct claim *b)
{
    int order = strcmp(a->key, b->key);

    return order ? order : strcmp(a->owner, b->owner);
}

LB_TREE_GENERATE(session_tree, session, entry, session_compare)
LB_TREE_GENERATE(call_tree, call, entry, call_compare)
LB_TREE_GENERATE(claim_tree, claim, session_entry, claim_compare)

struct session *session_tree_find(struct session_tree *tree, uint64_t id)
{
    struct session key = {.id = id};

    return RB_FIND(session_tree, tree, &key);
}

void session_tree_add(struct session_tree *tree, struct session *session)
{
    struct session *twin = RB_INSERT(session_tree, tree, session);

    lb_assert(!twin);
}

void session_tree_remove(struct session_tree *tree, struct session *session)
{
    RB_REMOVE(session_tree, tree, session);
}

struct session *session_tree_first(struct session_tree *tree)
{
    return RB_MIN(session_tree, tree);
}

struct session *session_new(uint64_t id, const struct peer *peer)
{
    struct session *session = calloc(1, sizeof(*session));

    if (!session)
        return NULL;
    session->id = id;
    session->peer = *peer;
    RB_INIT(&session->calls);
    RB_INIT(&session->claims);
    TAILQ_INIT(&session->lost);
    TAILQ_INIT(&session->remembered);
    return session;
}

bool session_is_busy(const struct session *session)
{
    return !RB_EMPTY(&session->claims) || !TAILQ_EMPTY(&session->lost);
}

struct call *session_find_call(struct session *session, const struct request_id *id)
{
    struct call key = {.id = *id};

    return RB_FIND(call_tree, &session->calls, &key);
}

void call_open(struct call *call, struct session *session, const struct request_id *id, enum op op)
{
    call->session = session;
    call->op = op;
    call->id = *id;

    struct call *twin = RB_INSERT(call_tree, &session->calls, call);

    lb_assert(!twin);
    session->calls_count++;
}

void call_close(struct call *call)
{
    if (!call->session)
        return;
    RB_REMOVE(call_tree, &call->session->calls, call);
    call->session->calls_count--;
    call->session = NULL;
}

void session_forget_calls(struct session *session)
{
    while (!RB_EMPTY(&session->calls))
        call_close(RB_ROOT(&session->calls));
}

struct claim *session_find_claim(struct session *session, const char *key, const char *owner)
{
    struct claim wanted = {.key = key, .owner = owner};

    return RB_FIND(claim_tree, &session->claims, &wanted);
}

void session_add_claim(struct session *session, struct claim *claim)
{
    struct claim *twin = RB_INSERT(claim_tree, &session->claims, claim);

    lb_assert(!twin);
}

void session_remove_claim(struct session *session, struct claim *claim)
{
    RB_REMOVE(claim_tree, &session->claims, claim);
}

struct claim *session_first_claim(struct session *session)
{
    return RB_MIN(claim_tree, &session->claims);
}

struct claim *session_next_claim(struct claim *claim)
{
    return RB_NEXT(claim_tree, NULL, claim);
}

static bool claim_is(const struct claim *claim, const char *key, const char *owner, int64_t fence)
{
    if (fence != LB_NONE && claim->fence != fence)
        return false;
    return strcmp(claim->key, key) == 0 && strcmp(claim->owner, owner) == 0;
}

static struct claim *claim_list_find_last(struct claim_list *list, const char *key,
                                          const char *owner, int64_t fence)
{
    struct claim *claim;

    TAILQ_FOREACH_REVERSE(claim, list, claim_list, session_link)
    {
        if (claim_is(claim, key, owner, fence))
            return claim;
    }
    return NULL;
}

struct claim *session_find_lost(struct session *session, const char *key, const char *owner,
                                int64_t fence)
{
    struct claim *claim = claim_list_find_last(&session->lost, key, owner, fence);

    return claim ? claim : claim_list_find_last(&session->remembered, key, owner, fence);
}
