// How the broker's books end: everything is freed, nothing is told to anyone.
#include <stdlib.h>

#include "daemon/core/book.h"

static void free_extensions(struct extension_list *list)
{
    while (!TAILQ_EMPTY(list)) {
        struct extension *extension = TAILQ_FIRST(list);

        TAILQ_REMOVE(list, extension, link);
        free(extension);
    }
}

static void claim_free(struct claim *claim)
{
    free_extensions(&claim->extensions);
    free(claim);
}

static void free_claims(struct claim_list *list)
{
    while (!TAILQ_EMPTY(list)) {
        struct claim *claim = TAILQ_FIRST(list);

        TAILQ_REMOVE(list, claim, session_link);
        claim_free(claim);
    }
}

static void session_free(struct session *session)
{
    struct claim *claim;

    session_forget_calls(session);
    while ((claim = session_first_claim(session))) {
        session_remove_claim(session, claim);
        claim_free(claim);
    }
    free_claims(&session->lost);
    free_claims(&session->remembered);
    free(session);
}

static void free_sessions(struct broker *broker)
{
    struct session *session;

    while ((session = session_tree_first(&broker->sessions))) {
        session_tree_remove(&broker->sessions, session);
        session_free(session);
    }
    while ((session = TAILQ_FIRST(&broker->closing))) {
        TAILQ_REMOVE(&broker->closing, session, closing_link);
        session_free(session);
    }
}

static void free_inquiries(struct broker *broker)
{
    struct flight *flight;

    while ((flight = flight_tree_first(&broker->flights))) {
        struct inquiry *inquiry = flight->subject;
        bool is_inquiry = flight->kind == BACKEND_QUERY || flight->kind == BACKEND_BREAK;

        flight_tree_remove(&broker->flights, flight);
        if (!is_inquiry)
            continue;
        call_close(&inquiry->call);
        free(inquiry);
    }
}

static void free_locks(struct broker *broker)
{
    struct lock *lock;

    while ((lock = lock_tree_first(&broker->locks))) {
        lock_tree_remove(&broker->locks, lock);
        if (lock->state == LOCK_RELEASING && lock->grant) {
            call_close(&lock->grant->call);
            claim_free(lock->grant);
        }
        if (lock->extending) {
            call_close(&lock->extending->call);
            free(lock->extending);
        }
        free(lock->rival);
        free(lock);
    }
}

void broker_free(struct broker *broker)
{
    if (!broker)
        return;
    free_inquiries(broker);
    free_locks(broker);
    free_sessions(broker);
    free_extensions(&broker->finished);
    graveyard_clear(&broker->graves);
    free(broker);
}
