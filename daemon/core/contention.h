// What other brokers say of keys: that one is free now, that they want one. All of it is a hint
// that may be late, twice, or missing.
#ifndef LB_CORE_CONTENTION_H
#define LB_CORE_CONTENTION_H

#include "daemon/core/book.h"

// From now on others are heard, or not heard any more.
void contention_channel_up(struct broker *broker);
void contention_channel_down(struct broker *broker);

// EVENT_TURN, EVENT_CONTENDED or EVENT_OUTSIDER.
void contention_message(struct broker *broker, const struct event *event);

#endif
