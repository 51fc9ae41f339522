// A random walk: clients that ask for anything at any time, a backend in trouble, and a referee who
// sees what each client was told.
#ifndef LB_TESTS_CORE_WALK_H
#define LB_TESTS_CORE_WALK_H

#include "tests/unit/core/model.h"
#include "tests/unit/core/world.h"

#define WALK_SESSIONS    6
#define WALK_PENDING_MAX 1024
#define WALK_GRANTS_MAX  4096
#define WALK_SERIALS_MAX 400000

struct walk_pending {
    uint64_t session;
    int64_t id;
    enum op op;
    int key;
    char owner; // 0: none
};

// A grant as its client knows it.
struct walk_grant {
    uint64_t session;
    int key;
    char owner;
    int64_t fence;
    uint64_t serial; // of the token in the backend then
    int64_t deadline_ms;
    bool is_lost; // told
    bool is_over; // its client gave it back or ended
};

struct walk {
    struct world world;
    struct model model;
    struct rng rng;
    uint64_t sessions[WALK_SESSIONS]; // 0: not open
    uint64_t next_session;
    int64_t next_id;
    bool is_ending; // clients give back at once what they get
    struct walk_pending pending[WALK_PENDING_MAX];
    int pending_count;
    struct walk_grant grants[WALK_GRANTS_MAX];
    int grants_count;
    uint64_t leaving_session; // whoever gives back, or ends, in this very step; 0: nobody
    int leaving_key;          // -1: all that it has
    char leaving_owner;
    int64_t last_fence[MODEL_KEYS];
    uint64_t serials[MODEL_KEYS];         // the token that was asked for last
    bool is_given_back[WALK_SERIALS_MAX]; // a compare-and-delete of that token was sent

    // What happened, so that a test can tell a walk from standing still.
    int granted, lost, suspected, stale, refused, extended;
};

void walk_init(struct walk *walk, uint64_t seed, bool has_text);
void walk_deinit(struct walk *walk);

// One random thing happens, after a while.
void walk_step(struct walk *walk);

// The time goes by, without trouble.
void walk_rest(struct walk *walk, int64_t ms);

// Troubles end, clients give back at once what they get, and one more waits for each key.
void walk_heal(struct walk *walk);

// All clients leave.
void walk_close_all(struct walk *walk);

// The referee: sees each effect. Aborts when the contract is broken.
void referee_observe(struct world *world, const struct effect *effect);

// Aborts when a client was told that it has a key that it has not.
void referee_judge_leases(const struct walk *walk);

// What the clients do.
void walk_send(struct walk *walk, uint64_t session, struct request *request);
void walk_forget_session(struct walk *walk, uint64_t session, bool was_cut);
struct walk_grant *walk_live_grant(struct walk *walk, uint64_t session, int key, char owner);

#endif
