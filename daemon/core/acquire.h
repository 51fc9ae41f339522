// Getting a lock: the acquire request, the queue, and what the backend says to it.
#ifndef LB_CORE_ACQUIRE_H
#define LB_CORE_ACQUIRE_H

#include <stdbool.h>

#include "daemon/core/book.h"

// Handles an `acquire` request.
void acquire_request(struct broker *broker, struct session *session, const struct request *request);

// Handles a `cancel` request.
void acquire_cancel_request(struct broker *broker, struct session *session,
                            const struct request *request);

// The waiting claim's time is over: answers `timeout` or `unavailable`.
void acquire_time_over(struct broker *broker, struct claim *claim);

// Takes a waiting claim out of its queue and ends it. Its call must have been closed.
void acquire_withdraw(struct broker *broker, struct claim *claim);

// Handles the outcome of the lock's acquire.
void acquire_outcome(struct broker *broker, struct lock *lock,
                     const struct backend_outcome *outcome);

// Answers one contender that can be answered now. False when there is none.
bool acquire_answer_next(struct broker *broker, struct lock *lock);

// Asks the backend for the lock if it should be asked now.
void acquire_attend(struct broker *broker, struct lock *lock);

// Whether the lock, which nobody wants at the moment, was found held elsewhere a short while ago,
// and is to be remembered for those who come.
bool acquire_remembers_busy(struct broker *broker, struct lock *lock);

// Asks for a lock that is ours once more, with the same token, for its first contender.
void acquire_again(struct broker *broker, struct lock *lock);

// For how long this broker is to queue for the key, for its clients that wait; 0: not at all.
int64_t acquire_queue_ms(const struct broker *broker, const struct lock *lock);

// Of those that queue for the key it is this broker's turn to take it.
void acquire_turn(struct broker *broker, struct lock *lock);

#endif
