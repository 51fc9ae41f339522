// Giving a lock back: by its client's word, by its client's end, and after a loss.
#ifndef LB_CORE_RELEASE_H
#define LB_CORE_RELEASE_H

#include <stdbool.h>

#include "daemon/core/book.h"

// Handles a `release` request.
void release_request(struct broker *broker, struct session *session, const struct request *request);

// Owes the backend a compare-and-delete of the lock's token, for lock->grant if that is not NULL.
void release_begin(struct broker *broker, struct lock *lock);

// Likewise for a lock that never was ours: only this broker's place in its queue is given back.
void release_place(struct broker *broker, struct lock *lock);

// Sends the compare-and-delete if it should be sent now.
void release_attend(struct broker *broker, struct lock *lock);

// Handles the outcome of the compare-and-delete.
void release_outcome(struct broker *broker, struct lock *lock,
                     const struct backend_outcome *outcome);

// The kept lock's time is over: nobody relies on it any more.
void release_kept_over(struct broker *broker, struct lock *lock);

// The session ended: ends one of its claims. False when it has none left.
bool release_next_of_session(struct broker *broker, struct session *session);

#endif
