// Each fault of faults.def that strikes by time, and what the truth has to know of it.
#include "tests/sim/mishaps.h"

#include "tests/sim/tokens.h"

#define FAR_STEP_MS 60000 // certain to be seen through the slowest of links

#define NUDGE_MAX_MS 40 // of a lease of 1 s, 50 ms are tolerated

static int64_t below(struct world *world, int64_t bound)
{
    return sim_below(&world->sim, bound);
}

static bool happens(struct world *world, enum fault fault)
{
    return sim_fault(&world->sim, fault);
}

static int64_t up_to_us(struct world *world, int64_t ms)
{
    return 1000 + below(world, ms * 1000);
}

static int64_t two_leases_us(struct world *world)
{
    return up_to_us(world, 2 * world->sim.ttl_max_ms);
}

static void restart(struct world *world, enum restart how)
{
    world->truth.was_flushed = false;
    server_restart(world->server, how);
}

static void restarts_tick(struct world *world)
{
    if (happens(world, FAULT_RESTART_EMPTY))
        restart(world, RESTART_WITH_NOTHING);
    if (happens(world, FAULT_RESTART_AOF))
        restart(world, RESTART_WITHOUT_LAST_SECOND);
    if (happens(world, FAULT_RESTART_SNAPSHOT))
        restart(world, RESTART_FROM_SNAPSHOT);
    if (happens(world, FAULT_RESTART_WHOLE))
        restart(world, RESTART_WITH_ALL);
    if (happens(world, FAULT_FLUSHALL)) {
        world->truth.was_flushed = true;
        server_flush_all(world->server);
    }
}

static void refusals_tick(struct world *world)
{
    static const struct {
        enum fault fault;
        enum refusing refusing;
    } rows[] = {
        {FAULT_SERVER_OOM, REFUSING_OOM},           {FAULT_SERVER_LOADING, REFUSING_LOADING},
        {FAULT_SERVER_BUSY, REFUSING_BUSY},         {FAULT_SERVER_NOPERM, REFUSING_NOPERM},
        {FAULT_SERVER_READONLY, REFUSING_READONLY},
    };

    for (size_t i = 0; i < LB_ARRAY_LENGTH(rows); i++) {
        if (happens(world, rows[i].fault))
            server_refuse(world->server, rows[i].refusing, up_to_us(world, 3000));
    }
}

// Leases tolerate one step of the server's clock. A step back must not meet the loss of the fence
// counter: fences would have nothing left to rise from.
static void nudge(struct world *world)
{
    int64_t by_ms = below(world, 2 * NUDGE_MAX_MS + 1) - NUDGE_MAX_MS;
    int64_t apart_us = 2 * world->sim.ttl_max_ms * 1000;
    int64_t now_us = world->sim.now_us;

    if (now_us - world->nudged_us < apart_us || now_us - world->fence_deleted_us < 1000000)
        return;
    world->nudged_us = now_us;
    server_step_clock(world->server, by_ms);
}

static void clock_tick(struct world *world)
{
    if (happens(world, FAULT_CLOCK_NUDGED))
        nudge(world);
    if (happens(world, FAULT_CLOCK_FORWARD)) {
        truth_excuse_all(&world->truth);
        world->truth.lost_us = INT64_MIN; // no wait by that clock means anything
        server_step_clock(world->server, FAR_STEP_MS + below(world, 3600000));
        truth_clock_set_ahead(&world->truth);
    }
    if (happens(world, FAULT_CLOCK_BACK)) {
        truth_clock_set_back(&world->truth);
        server_step_clock(world->server, -100 - below(world, 3600000));
    }
}

static void server_tick(struct world *world)
{
    if (happens(world, FAULT_SERVER_SLOW))
        server_stop(world->server, up_to_us(world, 300));
    if (happens(world, FAULT_SERVER_STOPPED))
        server_stop(world->server, two_leases_us(world));
    if (happens(world, FAULT_SCRIPT_FLUSH))
        server_flush_scripts(world->server);
    if (happens(world, FAULT_CLIENT_KILL))
        server_kill_clients(world->server);
    restarts_tick(world);
    refusals_tick(world);
    clock_tick(world);
}

static void on_foreign_frees(void *subject, uint64_t key)
{
    struct world *world = subject;
    const char *value;
    int64_t expires_ms;

    if (server_look(world->server, truth_redis_key((int)key), &value, &expires_ms) && value &&
        expires_ms == SERVER_FOREVER && value[0] == 'f')
        (void)server_delete(world->server, truth_redis_key((int)key));
}

// Other programs lock keys as the simplest of libraries do.
static void foreign_tick(struct world *world)
{
    int key = world_any_key(world);
    const char *name = truth_redis_key(key);

    if (happens(world, FAULT_FOREIGN_HOLD) &&
        server_set_if_free(world->server, name, "foreign", 1 + below(world, 3000)))
        truth_foreign_got(&world->truth, key);
    if (happens(world, FAULT_FOREIGN_FOREVER) &&
        server_set_if_free(world->server, name, "forever", SERVER_FOREVER)) {
        truth_foreign_got(&world->truth, key);
        sim_at(&world->sim, world->sim.now_us + two_leases_us(world), on_foreign_frees, world,
               (uint64_t)key);
    }
}

static void rename_key(struct world *world, int key)
{
    char from[32];
    int to = world_any_key(world);

    (void)snprintf(from, sizeof(from), "%s", truth_redis_key(key));
    if (to == key)
        return;
    truth_excuse_key(&world->truth, key);
    truth_excuse_key(&world->truth, to);
    (void)server_rename(world->server, from, truth_redis_key(to));
}

// A list is in the way until whoever made it takes it away.
static void on_list_goes(void *subject, uint64_t key)
{
    struct world *world = subject;
    const char *value;
    int64_t expires_ms;

    if (server_look(world->server, truth_redis_key((int)key), &value, &expires_ms) && !value)
        (void)server_delete(world->server, truth_redis_key((int)key));
}

static void make_list(struct world *world, int key)
{
    truth_excuse_key(&world->truth, key);
    if (server_make_list(world->server, truth_redis_key(key)))
        sim_at(&world->sim, world->sim.now_us + two_leases_us(world), on_list_goes, world,
               (uint64_t)key);
}

// Of a lock that nobody holds any more its broker cannot know that it never expires now.
static void on_persist_noticed(void *subject, uint64_t key)
{
    struct world *world = subject;
    const uint64_t *fired = world->sim.fired;
    const char *value;
    int64_t expires_ms;

    if (!server_look(world->server, truth_redis_key((int)key), &value, &expires_ms) || !value ||
        expires_ms != SERVER_FOREVER || !token_parse(value))
        return;
    if (world->sim.now_us >= world->persisted_us[key] + 2 * world->sim.ttl_max_ms * 1000 &&
        !fired[FAULT_RESTART_SNAPSHOT] && !fired[FAULT_RESTART_AOF] &&
        !fired[FAULT_BROKER_SUSPENDED]) // whose clock stood still has not had two leases' time
        truth_never_expires(&world->truth, (int)key);
    truth_excuse_key(&world->truth, (int)key);
    (void)server_expire(world->server, truth_redis_key((int)key), 1);
}

static void strangers_tick(struct world *world)
{
    int key = world_any_key(world);
    const char *name = truth_redis_key(key);

    if (happens(world, FAULT_STRANGER_DEL)) {
        truth_excuse_key(&world->truth, key);
        (void)server_delete(world->server, name);
    }
    if (happens(world, FAULT_EVICTION)) {
        truth_excuse_key(&world->truth, key);
        (void)server_evict(world->server, name);
    }
    if (happens(world, FAULT_STRANGER_SET)) {
        truth_excuse_key(&world->truth, key);
        (void)server_set(world->server, name, "stranger", 1 + below(world, 3000));
    }
    if (happens(world, FAULT_STRANGER_TYPE))
        make_list(world, key);
    if (happens(world, FAULT_STRANGER_RENAME))
        rename_key(world, key);
    if (happens(world, FAULT_STRANGER_PERSIST) && server_persist(world->server, name)) {
        world->persisted_us[key] = world->sim.now_us;
        sim_at(&world->sim, world->sim.now_us + 2 * world->sim.ttl_max_ms * 1000,
               on_persist_noticed, world, (uint64_t)key);
    }
    if (happens(world, FAULT_STRANGER_SHORTENS)) {
        truth_excuse_key(&world->truth, key);
        (void)server_expire(world->server, name, 1 + below(world, 1000));
    }
}

static void helpers_tick(struct world *world)
{
    if (happens(world, FAULT_FENCE_DELETED) && world->sim.now_us - world->nudged_us > 1000000) {
        world->fence_deleted_us = world->sim.now_us;
        truth_fence_lost(&world->truth);
        (void)server_delete(world->server, "lockbroker:meta:fence");
    }
    if (happens(world, FAULT_MARKER_DELETED))
        (void)server_delete(world->server, "lockbroker:meta:epoch");
}

static void on_start(void *subject, uint64_t ignored)
{
    struct node *node = subject;

    (void)ignored;
    if (node->run == 0)
        node_start(node);
}

void world_node_ended(struct world *world, struct node *node)
{
    node_kill(node);
    sim_at(&world->sim, world->sim.now_us + up_to_us(world, 1000), on_start, node, 0);
}

static void node_tick(struct world *world, struct node *node)
{
    if (happens(world, FAULT_BROKER_PAUSED))
        node_stop(node, up_to_us(world, 500), false);
    if (happens(world, FAULT_BROKER_STOPPED))
        node_stop(node, two_leases_us(world), false);
    if (happens(world, FAULT_BROKER_SUSPENDED)) {
        truth_excuse_node(&world->truth, node);
        node_stop(node, two_leases_us(world), true);
    }
    if (happens(world, FAULT_BROKER_KILLED) && node->run)
        world_node_ended(world, node);
    if (happens(world, FAULT_BROKER_DRAINED))
        node_drain(node);
    if (happens(world, FAULT_BROKER_TTL_MAX))
        node_configure(node, 1000 + below(world, world->sim.ttl_max_ms - 999));
    if (happens(world, FAULT_PARTITION) && node->run)
        node_partition(node, world->sim.now_us + two_leases_us(world));
    if (happens(world, FAULT_CHANNEL_CUT) && node->run)
        channel_cut(&node->channel);
    if (happens(world, FAULT_CHANNEL_DEAF) && node->run)
        channel_deafen(&node->channel, two_leases_us(world));
}

void mishaps_tick(struct world *world)
{
    server_tick(world);
    foreign_tick(world);
    strangers_tick(world);
    helpers_tick(world);
    for (int i = 0; i < world->nodes_count; i++)
        node_tick(world, &world->nodes[i]);
}
