// One lock that this broker holds or wants: a state machine, its lease, and the queue of local
// contenders. The state changes only by lock_move(), along the transition table in lock.c.
//
//   IDLE -> ACQUIRING -> HELD -> RELEASING -> IDLE      the usual way
//   ACQUIRING -> BLOCKED -> ACQUIRING                   held elsewhere, refused, or no answer
//   HELD -> VACANT -> HELD                              handed on to the next local contender
//   HELD -> VACANT -> RELEASING                         lingered, and nobody came
//   HELD -> KEPT -> RELEASING or IDLE                   lost: must not move before its deadline
#ifndef LB_CORE_LOCK_H
#define LB_CORE_LOCK_H

#include <bsd/sys/queue.h>
#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/alarm.h"
#include "daemon/core/backend.h"
#include "daemon/core/claim.h"
#include "daemon/core/grave.h"
#include "daemon/core/lease.h"
#include "daemon/core/straggler.h"

enum lock_state {
    LOCK_IDLE,      // nothing of ours is in the backend
    LOCK_ACQUIRING, // an acquire is in flight
    LOCK_BLOCKED,   // not to be had now; tried again later
    LOCK_HELD,      // ours, and granted to `grant`
    LOCK_VACANT,    // ours, between two grants: the next contender gets it
    LOCK_KEPT,      // the grant is over, but the key must not move before kept_until_ms
    LOCK_RELEASING, // a compare-and-delete is owed until its outcome is definite
};
#define LOCK_STATES 7

// Why contenders that were asked for get no grant.
enum verdict_kind {
    VERDICT_NONE,
    VERDICT_BUSY,
    VERDICT_CONFLICT,
    VERDICT_REFUSED,
    VERDICT_DOWN,
    VERDICT_QUARANTINE
};

// An operation in flight, found by its id when the outcome comes.
struct flight {
    RB_ENTRY(flight) entry;
    uint64_t op_id; // 0: none in flight
    enum backend_op_kind kind;
    void *subject; // struct lock, or struct inquiry for query and break
};

// Who was seen to hold the key elsewhere.
struct rival {
    struct grave grave;
    enum holder_kind kind;
    int64_t expires_ms; // LB_NONE: never
    char host[LB_HOST_BYTES_MAX + 1];
};

// The grants that one token serves, one after another.
struct run {
    int64_t since_ms; // LB_NONE: there was none yet
    int64_t grants;
    bool is_contended;        // others are known to want the key
    int64_t contended_ms;     // since when
    int64_t contended_grants; // how many grants began since then
};

struct lock {
    struct grave grave;
    RB_ENTRY(lock) entry;
    TAILQ_ENTRY(lock) dirty_link;
    bool dirty; // in the broker's list of locks that want attention
    bool owed;  // counted in the broker's owed_count
    enum lock_state state;

    // The key in the backend.
    uint64_t serial; // names the token; 0: none yet. Kept over retries, never used again after
    bool maybe_set;  // an acquire with it got no answer, so the key may carry it
    bool gone;       // kept, but the key is known not to be ours any more
    struct lease lease;
    int64_t ttl_ms;         // what the next renewal asks for
    int64_t ttl_longest_ms; // the longest that was sent with the token
    int64_t kept_until_ms;
    struct flight main_op; // acquire or renew: at most one in flight
    struct flight release_op;
    int64_t main_op_ttl_ms;             // what the one in flight asked for
    struct time_limit main_op_limit;    // of the one in flight
    struct time_limit stragglers_limit; // of those with this token that got no answer
    int64_t main_op_fences;             // how many fences it asked for
    bool main_op_queues;                // it asked for a place in the key's queue
    struct extension *extending;        // the extension that the renewal in flight serves
    struct alarm alarm;                 // blocked, releasing: try again; held: renew; kept: over
    struct alarm early_alarm;           // held: from then on the renewal may go with others
    bool paused;                        // blocked, releasing: until the alarm

    // Fences that are reserved for the token, and not granted yet.
    int64_t fence_next;
    int64_t fences_left;
    bool refill_failed; // the last attempt to get more brought none: the next renewal tries again

    // The key among brokers, and others.
    struct run run;
    bool queues;               // this broker may be in the key's queue
    bool release_queues;       // the release that was sent last asked for a place in it
    bool leaves;               // releasing: nothing but the queue, the key never was ours
    bool turn_came;            // while an acquire was in flight
    int64_t lingers_until_ms;  // vacant, and kept until then for who may come; LB_NONE: it is not
    int64_t gap_ms;            // when it was last left free on purpose
    int64_t outsider_until_ms; // until then somebody in no queue is taken to want it
    int64_t busy_ms;           // when it was last found held elsewhere
    int64_t poll_ms;           // the last pause between two tries, where nobody tells when to try

    // Contenders, first come first served; tries are apart so that none is looked for in a long
    // queue. A verdict is for those whose id is at most asked_up_to.
    struct claim_list waiters;
    struct claim_list tries;
    int64_t waiters_count;
    int64_t tries_count;
    struct claim *grant; // held: granted; kept: lost, or NULL; releasing: the releaser, or NULL
    enum verdict_kind verdict;      // NONE while a question is on its way
    enum verdict_kind last_verdict; // of the question before
    int64_t verdict_ms;             // may_block_ms, or the end of a quarantine
    uint64_t asked_up_to;
    struct rival *rival; // NULL: not known

    char name[];
};

RB_HEAD(lock_tree, lock);
RB_HEAD(flight_tree, flight);

struct lock *lock_new(const char *name);

// Changes the state. A change that the transition table does not have is a defect: it aborts.
void lock_move(struct lock *lock, enum lock_state state);

// Another broker, or some other program, is known to want the key.
void lock_contend(struct lock *lock, int64_t now_ms);

// Somebody who is in no queue is taken to want the key, at least until then.
void lock_expect_outsider(struct lock *lock, int64_t until_ms);

// Takes in the fences that were reserved for the token: `count`, from `first` on.
void lock_take_fences(struct lock *lock, int64_t first, int64_t count);

// Aborts when the parts of the lock do not fit its state.
void lock_invariant(const struct lock *lock);

const char *lock_state_name(const struct lock *lock);

void lock_add_contender(struct lock *lock, struct claim *claim);
void lock_add_contender_first(struct lock *lock, struct claim *claim);
void lock_remove_contender(struct lock *lock, struct claim *claim);

// The contender that came first, or NULL.
struct claim *lock_first_contender(const struct lock *lock);

// Local contenders still waiting, tries included.
int64_t lock_contenders_count(const struct lock *lock);

// The same without them.
int64_t lock_waiters_count(const struct lock *lock);

// The main operation got no answer, or is not waited for any more: it may be executed late.
void lock_main_op_strays(struct lock *lock);

// True while a command with the lock's token may still be executed.
bool lock_may_be_set_late(const struct lock *lock);

// The longest that the key can still be there at `now_ms`, if it carries our token or may yet: what
// is left to the commands that may set it or push it out, and the longest ttl of them. A shorter
// ttl never takes back a longer one.
int64_t lock_frees_within_ms(const struct lock *lock, int64_t now_ms);

// True while something is to be given back or waited for before the broker may end.
bool lock_is_owed(const struct lock *lock);

struct lock *lock_tree_find(struct lock_tree *tree, const char *name);
void lock_tree_add(struct lock_tree *tree, struct lock *lock);
void lock_tree_remove(struct lock_tree *tree, struct lock *lock);
struct lock *lock_tree_first(struct lock_tree *tree);
struct lock *lock_tree_next(struct lock *lock);

// The first lock whose name is `name` or sorts after it, or NULL.
struct lock *lock_tree_from(struct lock_tree *tree, const char *name);

struct flight *flight_tree_find(struct flight_tree *tree, uint64_t op_id);
struct flight *flight_tree_first(struct flight_tree *tree);
void flight_tree_add(struct flight_tree *tree, struct flight *flight);
void flight_tree_remove(struct flight_tree *tree, struct flight *flight);

#endif
