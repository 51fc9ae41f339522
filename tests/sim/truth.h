// Who knows the truth: sees what every client was told, what every broker sends and what really
// happens to the keys, and ends the run when an invariant is broken. It judges by that alone and
// never looks into a broker.
#ifndef LB_TESTS_SIM_TRUTH_H
#define LB_TESTS_SIM_TRUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/backend.h"
#include "proto/message.h"
#include "tests/sim/server.h"
#include "tests/sim/sim.h"

#define TRUTH_KEYS_MAX   4
#define TRUTH_GRANTS_MAX 128
#define TRUTH_TOKENS     (1 << 17)
#define TRUTH_PREFIX     "lock:"

struct node;

// Where a grant belongs: a client's connection, the key's number, the owner (0: none).
struct holding {
    struct node *node;
    uint64_t session;
    int key;
    char owner;
};

struct truth_grant {
    struct holding holding;
    uint64_t run; // of the node's process
    uint64_t serial;
    int64_t fence;
    int64_t deadline_ms; // told last, on the node's clock
    int64_t told_us;     // when it was
    bool has_cap;        // max_hold_ms was given
    bool is_lost;        // told
    bool is_released;    // told
    bool is_over;        // its client is done with it, or never knew of it
};

struct truth_key {
    struct truth_grant grants[TRUTH_GRANTS_MAX];
    int grants_count;
    int64_t last_fence;
    uint64_t last_token; // of the newest grant
};

// What became of a token: excused, since somebody other than its broker tampered with its key or
// with the clock, so that its holders may be overtaken; set in a key; given back, never to be sent
// again; granted, so that it may also be left to expire; or settled: its broker is done with it,
// and has gone on to another token of the same key.
struct truth_token {
    uint64_t name; // 0: unused
    bool is_excused;
    bool is_set;
    bool is_given_back;
    bool is_granted;
    bool is_settled;
    bool is_deleted; // by its broker
    int64_t sent_us; // when a command that can set it was sent last
};

struct truth {
    struct sim *sim;
    struct server *server;
    struct truth_key keys[TRUTH_KEYS_MAX];
    struct truth_token *tokens; // TRUTH_TOKENS, a hash table
    size_t tokens_count;
    int64_t lost_us;     // when data was lost last; INT64_MIN: never
    int64_t since_us;    // since when the brokers wait for it, as the marker has it
    bool was_flushed;    // it was by FLUSHALL, which leaves no trace but the missing marker
    int64_t far_step_us; // when the server's clock jumped far ahead last; 0: never
    int64_t far_step_ms; // what it showed then
    bool clock_was_set_back;
    bool fence_was_lost; // with both, fences have nothing left to rise from
    uint64_t granted, handed_on, turns, lost, suspected, recovered, released, stale;
};

void truth_init(struct truth *truth, struct sim *sim);
void truth_deinit(struct truth *truth);

// The watcher that a server has to have.
struct server_watcher truth_watcher(struct truth *truth);

// A key's number from its name without prefix, "k0"..; and its whole name in Redis, until the next
// call.
int truth_key_of(const char *name);
const char *truth_redis_key(int key);

// A broker sends an operation.
void truth_sends(struct truth *truth, struct node *node, const struct backend_op *op);

// A broker grants its token of that key, whether or not anybody is there to hear of it.
void truth_grants(struct truth *truth, const struct node *node, int key);

// A broker writes to a client that is connected: a grant; that a grant is still valid until a
// deadline (extend, check, suspect, ok); that it is lost.
void truth_granted(struct truth *truth, const struct holding *holding, const struct reply *reply,
                   int64_t max_hold_ms);
void truth_affirmed(struct truth *truth, const struct holding *holding, int64_t fence,
                    int64_t deadline_ms);
void truth_lost(struct truth *truth, const struct holding *holding, const struct notice *notice);

// A cap is on the grant from now on. The broker says that the key is given back.
void truth_capped(struct truth *truth, const struct holding *holding);
void truth_released(struct truth *truth, const struct holding *holding);

// A broker says that the client has no such grant.
void truth_not_held(struct truth *truth, const struct holding *holding);

// A break frees the key soon, also when its holder cannot be told: it was told `lost` with a later
// deadline, or was cut off.
void truth_broken(struct truth *truth, int key);

// The client relies on it now, for its library says that it has it.
void truth_relied_on(struct truth *truth, const struct holding *holding);

// The client is done with what it has of that key and owner; the connection's process ended.
void truth_client_done(struct truth *truth, const struct holding *holding);
void truth_client_gone(struct truth *truth, uint64_t session);

// The client's newest grant of that key and owner that it still may use; NULL: none.
struct truth_grant *truth_find(struct truth *truth, const struct holding *holding);

// I15: the broker has stepped the end of a client's connection while its link was up.
void truth_session_ended(struct truth *truth, const struct node *node, uint64_t session);

// A client that is connected has the lock, and was not told otherwise.
bool truth_is_held(const struct truth *truth, int key);

// Its client may be at work on what the lock guards.
bool truth_is_active(const struct truth_grant *grant);

// A broker has done all that there was to do at this time.
void truth_after_run(struct truth *truth, struct node *node);

// Holders of that key, of that node's clock, of everything may be overtaken from now on.
void truth_excuse_key(struct truth *truth, int key);
void truth_excuse_node(struct truth *truth, const struct node *node);
void truth_excuse_all(struct truth *truth);

// Another program has just got a key that was free.
void truth_foreign_got(struct truth *truth, int key);

// The server's clock was set ahead by far just now.
void truth_clock_set_ahead(struct truth *truth);

// A key was without expiry for two leases: a holder's broker must have seen to it.
void truth_never_expires(struct truth *truth, int key);

// The server's clock was set back by far; the fence counter is gone.
void truth_clock_set_back(struct truth *truth);
void truth_fence_lost(struct truth *truth);

// All is quiet: no token of any broker may be left.
void truth_judge_rest(struct truth *truth);

// Until when a free key must not be taken, in true time; far in the past: it may.
int64_t truth_quarantine_until_us(const struct truth *truth);

#endif
