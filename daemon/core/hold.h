// Having a lock: granting, renewing, extending, and losing it.
#ifndef LB_CORE_HOLD_H
#define LB_CORE_HOLD_H

#include <stdbool.h>

#include "daemon/core/book.h"

enum loss {
    LOSS_EXPIRED,
    LOSS_DELETED,
    LOSS_STOLEN,
    LOSS_MAX_HOLD,
    LOSS_BROKEN,
    LOSS_NOT_RENEWED,
    LOSS_SHUTDOWN
};

// Grants the lock, which an acquire has just confirmed, to the waiting claim. False, and nothing
// happens, when too little of the lease would be left.
bool hold_grant(struct broker *broker, struct lock *lock, struct claim *claim,
                const struct backend_outcome *outcome);

// Grants the vacant lock to the waiting claim out of what is left of the lease and of the fences.
// False, and nothing happens, when that is too little.
bool hold_pass(struct broker *broker, struct lock *lock, struct claim *claim);

// A grant could not be told in time: its claim waits again, in the first place.
void hold_take_back(struct broker *broker, struct session *session, uint64_t grant_id);

// The granted claim's alarm: it becomes suspect, or it is lost.
void hold_alarm(struct broker *broker, struct claim *claim);

// The held lock's key may be gone, for that reason (static text): its holder is told so, and a
// renewal that finds out goes at once.
void hold_doubt(struct broker *broker, struct lock *lock, const char *reason);

// The server's clock jumped forwards by so much, and so did the expiry of the held lock's key: its
// deadline is as much nearer.
void hold_clock_stepped(struct broker *broker, struct lock *lock, int64_t step_ms);

// Sends the renewal that is due, for the next extension if one waits.
void hold_renew(struct broker *broker, struct lock *lock);

// Sends a renewal for the next extension of the held lock, if one waits and nothing is in flight.
// False when there was nothing to do.
bool hold_renew_for_extension(struct broker *broker, struct lock *lock);

// Handles the outcome of the lock's renewal.
void hold_outcome(struct broker *broker, struct lock *lock, const struct backend_outcome *outcome);

// Ends the grant: its holder is told `lost`, and the key is kept until the deadline that it knows.
void hold_lose(struct broker *broker, struct claim *claim, enum loss loss);

// Takes a granted claim out of its session's books because it ends: no alarm, no extension is left.
void hold_end(struct broker *broker, struct claim *claim);

// Answers one extension that ended without success. False when there is none.
bool hold_answer_next(struct broker *broker);

void hold_extend_request(struct broker *broker, struct session *session,
                         const struct request *request);
void hold_check_request(struct broker *broker, struct session *session,
                        const struct request *request);

// The session's granted claim that the request names by key, owner and, if given, fence; or NULL.
struct claim *hold_find(struct session *session, const struct request *request);

#endif
