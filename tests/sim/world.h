// A whole run: some hosts with brokers and clients, one Redis, others who use it too, and faults;
// then all is healed, and everybody must get what they wait for; then all leave, and nothing may be
// left behind.
#ifndef LB_TESTS_SIM_WORLD_H
#define LB_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/client.h"
#include "tests/sim/node.h"
#include "tests/sim/server.h"
#include "tests/sim/sim.h"
#include "tests/sim/truth.h"

#define CLIENTS_MAX 12

struct world {
    struct sim sim;
    struct truth truth;
    struct server *server;
    struct node nodes[NODES_MAX];
    int nodes_count;
    struct client clients[CLIENTS_MAX];
    int clients_count;
    int keys_count;
    uint64_t runs;       // broker processes so far
    uint64_t sessions;   // connections so far
    uint64_t operations; // requests so far
    int64_t nudged_us;   // when the server's clock was nudged last
    int64_t fence_deleted_us;
    int64_t persisted_us[TRUTH_KEYS_MAX]; // when a key's expiry was taken away last
    bool is_over;                         // clients only leave
};

// Sets a world up from the seed. Everything of it is allocated or embedded here.
void world_init(struct world *world, uint64_t seed);
void world_deinit(struct world *world);

// Runs it: faults until that many operations were asked for, then the healed phases.
void world_run(struct world *world, uint64_t operations);

struct world *world_of(struct sim *sim);
int world_any_key(struct world *world);

// A broker's process has drained.
void world_node_ended(struct world *world, struct node *node);

#endif
