// The phases of a run.
#include "tests/sim/world.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/mishaps.h"
#include "tests/sim/tokens.h"

#define TICK_US 100000

struct world *world_of(struct sim *sim)
{
    return (struct world *)(void *)((char *)sim - offsetof(struct world, sim));
}

int world_any_key(struct world *world)
{
    return (int)sim_below(&world->sim, world->keys_count);
}

static void on_tick(void *subject, uint64_t ignored)
{
    struct world *world = subject;

    (void)ignored;
    mishaps_tick(world);
    sim_at(&world->sim, world->sim.now_us + TICK_US, on_tick, world, 0);
}

// A server that has just started, or has been up for long.
static void server_make(struct world *world)
{
    struct server_watcher watcher = truth_watcher(&world->truth);
    int64_t up_for_ms = sim_below(&world->sim, 2) ? 1000000000 : sim_below(&world->sim, 5000);

    world->server = server_new(&world->sim, up_for_ms, &watcher);
    world->truth.server = world->server;
}

void world_init(struct world *world, uint64_t seed)
{
    memset(world, 0, sizeof(*world));
    sim_init(&world->sim, seed);
    world->sim.ttl_max_ms = 1000 + sim_below(&world->sim, 4) * 1000;
    world->nudged_us = world->fence_deleted_us = -1000000000;
    world->keys_count = 1 + (int)sim_below(&world->sim, TRUTH_KEYS_MAX);
    world->nodes_count = 1 + (int)sim_below(&world->sim, NODES_MAX);
    world->clients_count = 2 + (int)sim_below(&world->sim, CLIENTS_MAX - 1);
    truth_init(&world->truth, &world->sim);
    server_make(world);
    for (int i = 0; i < world->nodes_count; i++) {
        node_init(&world->nodes[i], world, i);
        node_start(&world->nodes[i]);
    }
    for (int i = 0; i < world->clients_count; i++)
        client_init(&world->clients[i], world, &world->nodes[i % world->nodes_count], i);
    sim_at(&world->sim, TICK_US, on_tick, world, 0);
}

void world_deinit(struct world *world)
{
    for (int i = 0; i < world->nodes_count; i++)
        node_deinit(&world->nodes[i]);
    server_free(world->server);
    truth_deinit(&world->truth);
    sim_deinit(&world->sim);
    links_end();
}

static void run_for(struct world *world, int64_t us)
{
    int64_t until_us = world->sim.now_us + us;

    while (world->sim.queue_count && world->sim.queue[0].true_us <= until_us)
        (void)sim_step(&world->sim);
    world->sim.now_us = until_us;
}

// I18: with all faults over, everybody is served who waits.
static void judge_liveness(struct world *world)
{
    for (int i = 0; i < world->clients_count; i++) {
        const struct client *client = &world->clients[i];

        for (int j = 0; j < client->pending_count; j++)
            sim_violate(&world->sim, "I18: c%d on n%d still waits for %lld (op %d, k%d)",
                        client->id, client->node->id, (long long)client->pending[j].ask.id,
                        (int)client->pending[j].ask.op, client->pending[j].ask.key);
    }
}

static void judge_brokers(struct world *world)
{
    for (int i = 0; i < world->nodes_count; i++) {
        const struct node *node = &world->nodes[i];

        uint64_t owed = node->run ? tokens_find_owed(&world->truth, node->run) : 0;

        if (owed)
            sim_violate(&world->sim, "I9: n%d never gave token %llu back", node->id,
                        (unsigned long long)(owed & 0xffffffffff));
        if (node->run && broker_kept_count(node->broker) != 0)
            sim_violate(&world->sim, "I10: n%d keeps %zu locks when all is quiet", node->id,
                        broker_kept_count(node->broker));
    }
}

static bool is_of_a_running_broker(const struct world *world, const char *value)
{
    for (int i = 0; i < world->nodes_count; i++) {
        if (world->nodes[i].run && token_run(token_parse(value)) == world->nodes[i].run)
            return true;
    }
    return false;
}

// I10: whatever the server's clock does, a running broker leaves no lock behind; but for those that
// an old snapshot or a renaming brought back.
static void judge_left_behind(struct world *world, const char *name, const char *value)
{
    const uint64_t *fired = world->sim.fired;

    if (value && is_of_a_running_broker(world, value) && !fired[FAULT_RESTART_SNAPSHOT] &&
        !fired[FAULT_RESTART_AOF] && !fired[FAULT_STRANGER_RENAME])
        sim_violate(&world->sim, "I10: %s is left behind with %s", name, value);
}

// What others left in the way for good; or a lock long forgotten that an old snapshot brought back,
// and that a clock set back since keeps alive. Somebody would have to break it.
static void tidy_up(struct world *world)
{
    int64_t latest_ms = server_wall_ms(world->server) + world->sim.ttl_max_ms;

    for (int key = 0; key < world->keys_count; key++) {
        const char *name = truth_redis_key(key);
        const char *value;
        int64_t expires_ms;

        // After the clock was set back a held lock's key may last for long: no renewal shortens it.
        if (!server_look(world->server, name, &value, &expires_ms) ||
            (value && expires_ms <= latest_ms) || truth_is_held(&world->truth, key))
            continue;
        judge_left_behind(world, name, value);
        (void)server_delete(world->server, name);
    }
}

// What is under way ends by itself: pauses, refusals, others' locks, partitions, restarts.
static void heal(struct world *world)
{
    int64_t lease_us = world->sim.ttl_max_ms * 1000;

    sim_tell(&world->sim, "all is healed");
    world->sim.is_healed = true;
    run_for(world, 2 * lease_us + 8000000);
    tidy_up(world);
    for (int i = 0; i < world->clients_count; i++)
        client_heal(&world->clients[i]);

    // A lease of somebody who is gone, a quarantine, and the polls of those who take turns.
    run_for(world, 3 * lease_us + world->clients_count * 1000000 + 5000000);
    judge_liveness(world);
    world->is_over = true;
    for (int i = 0; i < world->clients_count; i++)
        client_leave(&world->clients[i]);
    run_for(world, 2 * lease_us + 3000000);
    judge_brokers(world);
    truth_judge_rest(&world->truth);
}

void world_run(struct world *world, uint64_t operations)
{
    while (world->operations < operations && sim_step(&world->sim))
        ;
    heal(world);
}
