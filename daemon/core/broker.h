// The broker: a pure state machine, and the only door to it. It reads no clock, does no IO and
// knows its clients and its backend by id alone; bytes become events at the edge, one step turns
// one event into new state and effects, and the edge carries the effects out.
#ifndef LB_CORE_BROKER_H
#define LB_CORE_BROKER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/effect.h"
#include "daemon/core/event.h"
#include "proto/macros.h"

struct broker;

// Makes a broker whose backend is down. `seed` drives the jitter: the same seed and the same events
// give the same effects. Returns 0, or -ENOMEM.
int broker_new(const struct broker_config *config, uint64_t seed,
               struct broker **ret_broker) LB_MUST_CHECK;

// Frees the broker and all that it holds; no effect is made. NULL is fine.
void broker_free(struct broker *broker);

// Ends what is due, then handles one event, and fills `effects` (which it empties first). Deadlines
// that have passed are always swept before the event is looked at. Returns true when the event was
// handled. Returns false when the sweep filled the effects first: carry them out, then call again
// with the same event and a fresh clock.
bool broker_step(struct broker *broker, const struct event *event,
                 struct effects *effects) LB_MUST_CHECK;

// The time (CLOCK_BOOTTIME, ms) of the next EVENT_TIME that the broker needs: 0 when it has work
// left over and wants one at once, INT64_MAX when it needs none.
int64_t broker_next_deadline(const struct broker *broker) LB_MUST_CHECK;

// After EVENT_DRAIN: true once nothing is held on behalf of any client and nothing waits for the
// backend.
bool broker_is_drained(const struct broker *broker) LB_MUST_CHECK;

// How many keys the broker has in hand: granted, being asked for, kept for a client that was told
// `lost` and has not let go yet, or not yet known to be given back. Keys of connections that the
// broker cut off are not among them: they stay until their deadlines, whoever asks.
size_t broker_kept_count(const struct broker *broker) LB_MUST_CHECK;

// True while the session holds or waits for anything; such a session must go on being read.
bool broker_session_is_busy(const struct broker *broker, uint64_t session) LB_MUST_CHECK;

// Checks every invariant of the broker's books and aborts when one is broken. For tests.
void broker_check(const struct broker *broker);

#endif
