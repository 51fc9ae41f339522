// The broker's books, shared by the files of this folder and by nobody else, with the few ways in
// which they all touch them: adding an effect, starting an operation, asking for attention.
#ifndef LB_CORE_BOOK_H
#define LB_CORE_BOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/base/rng.h"
#include "daemon/core/alarm.h"
#include "daemon/core/broker.h"
#include "daemon/core/claim.h"
#include "daemon/core/grave.h"
#include "daemon/core/lock.h"
#include "daemon/core/server_clock.h"
#include "daemon/core/session.h"
#include "daemon/core/stats.h"

// One transition makes at most so many effects: with less room the step stops before it.
#define EFFECTS_A_TRANSITION 8

#define BOOK_TEXT_MAX 64

#define LB_CONTAINER_OF(pointer, type, member)                                                     \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

// A query or break that waits for the backend.
struct inquiry {
    struct grave grave;
    struct call call;
    struct flight flight;
    const char *key;
    const char *reason; // of a break, for the log
    char texts[];       // key and reason
};

// The rows of one `list` reply, kept until the next step.
struct page {
    struct grave grave;
    struct lock_row rows[];
};

// What a `stats` reply points at.
struct stats_view {
    struct stats_page page;
    struct stat_value counters[STATS_COUNTERS];
    struct stat_value gauges[9];
    struct stat_histogram histograms[3];
};

TAILQ_HEAD(session_list, session);
TAILQ_HEAD(lock_list, lock);

struct broker {
    // Options, and what the broker says of itself.
    int64_t ttl_max_ms;
    int64_t max_wait_ms;
    int64_t retry_max_ms;
    int64_t requests_max;
    bool waits_after_loss;
    int64_t fence_block;
    int64_t handoff_grants_max;
    int64_t handoff_time_max_ms;
    int64_t linger_ms;
    int64_t yield_after_ms;
    int64_t busy_cache_ms;
    int64_t waiters_key_max;
    int64_t waiters_client_max;
    int64_t slow_wait_ms;
    int64_t slow_hold_ms;
    int64_t loss_ttl_ms; // the largest ttl_max so far: locks of that ttl may still be held
    uid_t own_uid;
    char server[BOOK_TEXT_MAX + 1];
    char instance[BOOK_TEXT_MAX + 1];
    char host[BOOK_TEXT_MAX + 1];
    char backend_kind[BOOK_TEXT_MAX + 1];

    // This step.
    int64_t now_ms;
    struct effects *effects;
    struct graveyard graves;
    struct stats_view stats_view;

    // The backend.
    bool up;
    bool hears;          // its channel is open: it is told when it is its turn
    uint64_t down_up_to; // claims up to this id waited when the link was last found down
    bool may_evict;
    bool saw_epoch;              // the server's epoch marker was there, or was made for us
    int64_t quarantine_until_ms; // as far as it was told; 0: never
    struct server_clock server_clock;
    char backend_run_id[BOOK_TEXT_MAX + 1];
    char backend_role[BOOK_TEXT_MAX + 1];
    char backend_version[BOOK_TEXT_MAX + 1];
    char backend_policy[BOOK_TEXT_MAX + 1];

    // Everything there is.
    struct rng rng;
    uint64_t next_id;
    int64_t fence_floor; // the highest fence seen
    struct session_tree sessions;
    struct lock_tree locks;
    struct flight_tree flights;
    size_t sessions_count;
    size_t locks_count;
    size_t held_count;
    size_t owed_count;
    size_t waiting_count; // claims that wait

    // What is to be done.
    bool draining;
    bool batching;       // a renewal is due, so all within their slack go with it
    int64_t paced_ms;    // the millisecond in which renewals went out last
    int64_t paced_count; // and how many did
    struct alarm_queue claim_alarms;
    struct alarm_queue lock_alarms;
    struct alarm_queue renewals;
    struct alarm_queue early_renewals; // the same locks, by when they may go at the earliest
    struct lock_list dirty;
    struct session_list closing;
    struct extension_list finished;

    struct stats stats;
};

// Rises with each use: names claims, grants and operations.
uint64_t broker_new_id(struct broker *broker);

// Adds a success or error reply to a request of `session`; the caller fills in the rest. With a
// NULL session (it ended) the reply is made, but goes nowhere.
struct reply *broker_reply(struct broker *broker, const struct session *session,
                           const struct request_id *id, enum op op);
struct reply *broker_refuse(struct broker *broker, const struct session *session,
                            const struct request_id *id, enum op op, enum error_code error);

// A `bad_field` that names `field`; and a `quota` of what `limit` names.
void broker_refuse_field(struct broker *broker, const struct session *session,
                         const struct request *request, const char *field, const char *message);
void broker_refuse_quota(struct broker *broker, const struct session *session,
                         const struct request *request, const char *limit);

// Refuses a request whose ttl is above ttl_max. False when it is not.
bool broker_refuse_ttl(struct broker *broker, const struct session *session,
                       const struct request *request);

// A `quota` of "memory", counted.
void broker_refuse_memory(struct broker *broker, const struct session *session,
                          const struct request *request);

// The same, for a call, which it closes.
struct reply *call_answer(struct broker *broker, struct call *call);
struct reply *call_refuse(struct broker *broker, struct call *call, enum error_code error);

// A holder of whom nothing is known.
struct holder holder_unknown(void);

// The holder that belongs to a reply of the last effect; the reply points at it from now on.
struct holder *broker_reply_holder(struct broker *broker, struct reply *reply);

// Adds a notice to the claim's holder, when its session is still there.
void broker_notify(struct broker *broker, const struct claim *claim, enum notice_kind kind,
                   const char *reason);

// Adds a log line about a claim (NULL: about none).
struct fact *broker_fact(struct broker *broker, enum fact_level level, const char *event,
                         const struct claim *claim);

// Asks for the end of a connection that there is no session for.
void broker_close(struct broker *broker, uint64_t session_id);

// Starts an operation; its outcome will find `flight`.
struct backend_op *broker_start(struct broker *broker, struct flight *flight,
                                enum backend_op_kind kind, void *subject, const char *key);

// Limits an operation that can create a key or push its expiry out: it is not executed later than
// `within_ms` from now. Unlimited while nothing is known of the server's clock.
struct time_limit broker_limit(const struct broker *broker, struct backend_op *op,
                               int64_t within_ms);

// Puts the claim, which begins to wait, last or first among the lock's contenders; and takes it
// out.
void broker_queue(struct broker *broker, struct lock *lock, struct claim *claim);
void broker_queue_first(struct broker *broker, struct lock *lock, struct claim *claim);
void broker_unqueue(struct broker *broker, struct claim *claim);

// No fence that is granted later may be as low as this one.
void broker_raise_floor(struct broker *broker, int64_t fence);

// Puts the lock on the list of those to be looked at before the step ends.
void broker_mark_dirty(struct broker *broker, struct lock *lock);

// Marks every lock dirty.
void broker_mark_all_dirty(struct broker *broker);

// Room for at least one more transition.
bool broker_has_room(const struct broker *broker);

#endif
