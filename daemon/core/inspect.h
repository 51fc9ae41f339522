// Looking, and the little that goes with it: hello, ping, query, break, list, stats.
#ifndef LB_CORE_INSPECT_H
#define LB_CORE_INSPECT_H

#include "daemon/core/book.h"

void hello_request(struct broker *broker, struct session *session, const struct request *request);
void ping_request(struct broker *broker, struct session *session, const struct request *request);
void query_request(struct broker *broker, struct session *session, const struct request *request);
void break_request(struct broker *broker, struct session *session, const struct request *request);
void list_request(struct broker *broker, struct session *session, const struct request *request);
void stats_request(struct broker *broker, struct session *session, const struct request *request);

// Handles the outcome of a query or break, and ends it.
void inquiry_outcome(struct broker *broker, struct inquiry *inquiry,
                     const struct backend_outcome *outcome);

// Who holds the lock as far as this broker knows, without asking; HOLDER_NONE if nobody does.
void lock_describe_holder(const struct broker *broker, const struct lock *lock,
                          struct holder *ret_holder);

#endif
