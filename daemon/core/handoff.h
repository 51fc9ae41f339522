// Handing a lock that is ours from one local holder to the next, with nothing to be asked of the
// backend: the key keeps its token, and the next grant its own fence out of a block that was
// reserved for that token.
#ifndef LB_CORE_HANDOFF_H
#define LB_CORE_HANDOFF_H

#include <stdbool.h>

#include "daemon/core/book.h"

// Whether the held lock, whose grant its holder gives up, may go to the next local contender: one
// waits, there is no doubt about the lease, and it is not the turn of others.
bool handoff_is_due(const struct broker *broker, const struct lock *lock);

// The held lock's grant is over, and taken out of the books: it goes to the next contender, before
// anything else happens.
void handoff_begin(struct broker *broker, struct lock *lock);

// Whether the held lock, whose grant its holder gives up and for which nobody waits, is kept for a
// moment: the next local contender gets it without a word to the backend then. It never outlasts
// that moment, the word that others want the key, the link or the lease.
bool linger_is_due(const struct broker *broker, const struct lock *lock);

// Like handoff_begin(), for whoever comes.
void linger_begin(struct broker *broker, struct lock *lock);

// True while the vacant lock is kept so.
bool lock_lingers(const struct broker *broker, const struct lock *lock);

// Grants the vacant lock to its next contender; or sees to it that it can be; or gives it back.
// False when there is nothing more to do now.
bool handoff_attend(struct broker *broker, struct lock *lock);

// Has fences reserved for hand-offs that are to come. False when there is no need.
bool handoff_refill(struct broker *broker, struct lock *lock);

// How many fences the next command with the lock's token is to reserve: at least `least`.
int64_t handoff_fences_wanted(const struct broker *broker, const struct lock *lock, int64_t least);

#endif
