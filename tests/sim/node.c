// The life of a broker's process, its connections, and its inputs in the order in which they come.
// How they are stepped is node_run.c's.
#include "tests/sim/node.h"

#include <stdlib.h>
#include <string.h>

#include "tests/sim/allocation.h"
#include "tests/sim/client.h"
#include "tests/sim/node_run.h"
#include "tests/sim/tokens.h"
#include "tests/sim/world.h"

#define RETRY_MAX_MS 200

struct node *node_of(struct sim *sim, int id)
{
    return &world_of(sim)->nodes[id];
}

int64_t node_now_ms(const struct node *node)
{
    return sim_clock_us(&node->clock, node->sim->now_us) / 1000;
}

bool node_is_running(const struct node *node)
{
    return node->run != 0 && node->sim->now_us >= node->stopped_until_us;
}

bool node_has_session(const struct node *node, uint64_t session)
{
    for (int i = 0; i < NODE_SESSIONS_MAX; i++) {
        if (node->sessions[i].id == session)
            return true;
    }
    return false;
}

void node_init(struct node *node, struct world *world, int id)
{
    memset(node, 0, sizeof(*node));
    node->world = world;
    node->sim = &world->sim;
    node->id = id;
    node->clock = (struct sim_clock){
        .anchor_us = 1000000000 + sim_below(node->sim, 1000000000),
        .ppm = sim_below(node->sim, 401) - 200,
    };
    node->inputs = calloc(NODE_INPUTS_MAX, sizeof(node->inputs[0]));
    lb_assert(node->inputs);
    node->config = (struct broker_config){
        .ttl_max_ms = world->sim.ttl_max_ms,
        .max_wait_ms = 600000,
        .retry_max_ms = RETRY_MAX_MS,
        .requests_max = 16,
        .waits_after_loss = true,
        .own_uid = 0,
        .fence_block = sim_below(node->sim, 4) ? 2 + sim_below(node->sim, 15) : 256,
        .handoff_grants_max = 1 + sim_below(node->sim, 16),
        .handoff_time_max_ms = 20 + sim_below(node->sim, 480),
        .linger_ms = sim_below(node->sim, 2) ? 1 + sim_below(node->sim, 100) : 0,
        .yield_after_ms = sim_below(node->sim, 2) ? 200 + sim_below(node->sim, 4800) : 0,
        .busy_cache_ms = sim_below(node->sim, 4) ? 0 : sim_below(node->sim, 20),
        .server = "sim",
        .instance = "sim",
        .host = "host",
        .backend_kind = "redis",
    };
}

// Texts of an event are only lent; they are kept with it.
static void text_keep(char text[NODE_TEXT_BYTES_MAX], const char *lent)
{
    (void)snprintf(text, NODE_TEXT_BYTES_MAX, "%s", lent ? lent : "");
}

static struct node_input *input_add(struct node *node, const struct event *event)
{
    size_t at = (node->inputs_first + node->inputs_count) % NODE_INPUTS_MAX;
    struct node_input *input = &node->inputs[at];

    lb_assert(node->inputs_count++ < NODE_INPUTS_MAX);
    input->event = *event;
    for (int i = 0; i < 4; i++)
        input->texts[i][0] = '\0';
    return input;
}

static void on_link_event(void *context, const struct event *event)
{
    struct node *node = context;
    struct node_input *input = input_add(node, event);

    if (event->kind == EVENT_BACKEND_UP) {
        text_keep(input->texts[0], input->event.facts.run_id);
        text_keep(input->texts[1], input->event.facts.role);
        text_keep(input->texts[2], input->event.facts.version);
        text_keep(input->texts[3], input->event.facts.policy);
    } else if (event->kind == EVENT_BACKEND_OUTCOME) {
        text_keep(input->texts[0], input->event.outcome.holder.host);
    }
}

static void on_channel_event(void *context, const struct event *event)
{
    struct node *node = context;
    struct node_input *input = input_add(node, event);

    if (event->kind != EVENT_CHANNEL_UP && event->kind != EVENT_CHANNEL_DOWN)
        text_keep(input->texts[0], event->key);
    node_wake(node);
}

static void on_link_wake(void *context)
{
    node_wake(context);
}

void node_start(struct node *node)
{
    char instance[33];
    struct link_options options = {
        .node = node->id,
        .instance = instance,
        .prefix = TRUTH_PREFIX,
        .clock = &node->clock,
        .post = on_link_event,
        .wake = on_link_wake,
        .context = node,
    };

    lb_assert(node->run == 0);
    node->channel.sim = node->sim;
    node->channel.server = node->world->server;
    node->channel.prefix = TRUTH_PREFIX;
    node->channel.post = on_channel_event;
    node->channel.context = node;
    node->run = ++node->world->runs;
    node->saw_marker = false;
    node->heard_ms = INT64_MIN;
    memset(node->fences, 0, sizeof(node->fences));
    node->is_draining = false;
    node->config.ttl_max_ms = node->sim->ttl_max_ms;
    token_instance(node->run, instance);
    lb_assert(broker_new(&node->config, (uint64_t)sim_below(node->sim, INT32_MAX), &node->broker) ==
              0);
    node->link = link_new(node->sim, node->world->server, &options);
    link_open(node->link);
    channel_begin(&node->channel, instance);
    sim_tell(node->sim, "n%d starts as run %llu", node->id, (unsigned long long)node->run);
    node_wake(node);
}

void node_kill(struct node *node)
{
    if (node->run == 0)
        return;
    sim_tell(node->sim, "n%d ends", node->id);
    node->run = 0;
    channel_end(&node->channel);
    link_free(node->link);
    broker_free(node->broker);
    node->broker = NULL;
    node->link = NULL;
    node->inputs_count = 0;
    node->effects.count = node->carried = 0;
    node->stale_count = 0;
    node->is_unhandled = false;
    node->is_write_late = false;
    for (int i = 0; i < NODE_SESSIONS_MAX; i++) {
        if (node->sessions[i].id)
            client_ended_by_broker(node->sessions[i].client);
        node->sessions[i].id = 0;
    }
}

void node_deinit(struct node *node)
{
    if (node->run) {
        link_free(node->link);
        broker_free(node->broker);
    }
    free(node->inputs);
}

void node_partition(struct node *node, int64_t until_us)
{
    link_partition(node->link, until_us);
    channel_hold(&node->channel, until_us);
}

void node_drain(struct node *node)
{
    struct event drain = {.kind = EVENT_DRAIN};

    if (node->run == 0 || node->is_draining)
        return;
    sim_tell(node->sim, "n%d drains", node->id);
    node->is_draining = true;
    node->drain_until_ms = node_now_ms(node) + 4000;
    (void)input_add(node, &drain);
    node_wake(node);
}

static void on_resume(void *subject, uint64_t suspended_us)
{
    struct node *node = subject;

    // Whatever was sent before is judged by a clock that has stood still since.
    if (suspended_us) {
        truth_excuse_node(&node->world->truth, node);
        sim_clock_step(&node->clock, node->sim->now_us, -(int64_t)suspended_us);
    }
    node_wake(node);
}

void node_stop(struct node *node, int64_t for_us, bool suspended)
{
    int64_t until_us = node->sim->now_us + for_us;

    if (node->stopped_until_us > node->sim->now_us)
        return;
    sim_tell(node->sim, "n%d %s for %lld ms", node->id, suspended ? "is suspended" : "stops",
             (long long)(for_us / 1000));
    node->stopped_until_us = until_us;
    if (suspended)
        clients_stall(node->world, node, until_us);
    sim_at(node->sim, until_us, on_resume, node, suspended ? (uint64_t)for_us : 0);
}

void node_configure(struct node *node, int64_t ttl_max_ms)
{
    struct event configure = {.kind = EVENT_CONFIGURE, .config = &node->config};

    if (node->run == 0)
        return;
    node->config.ttl_max_ms = ttl_max_ms;
    (void)input_add(node, &configure);
    node_wake(node);
}

bool node_open(struct node *node, struct client *client, uint64_t session)
{
    struct event open = {.kind = EVENT_SESSION_OPENED, .session = session};

    // A process that is stopped takes no more connections than its backlog holds.
    if (node->run == 0 || node->is_draining || node->inputs_count > NODE_INPUTS_MAX / 2)
        return false;
    for (int i = 0; i < NODE_SESSIONS_MAX; i++) {
        if (node->sessions[i].id)
            continue;
        node->sessions[i].id = session;
        node->sessions[i].client = client;
        sim_tell(node->sim, "n%d: %llu is c%d", node->id, (unsigned long long)session, client->id);
        (void)input_add(node, &open);
        node_wake(node);
        return true;
    }
    return false;
}

void node_ask(struct node *node, uint64_t session, const struct ask *ask)
{
    struct event event = {.kind = EVENT_REQUEST, .session = session};

    input_add(node, &event)->ask = *ask;
    node_wake(node);
}

static void session_end(struct node *node, uint64_t session, bool by_broker)
{
    struct event event = {
        .kind = EVENT_SESSION_CLOSED, .session = session, .closed_by_broker = by_broker};

    for (int i = 0; i < NODE_SESSIONS_MAX; i++) {
        if (node->sessions[i].id != session)
            continue;
        node->sessions[i].id = 0;
        sim_tell(node->sim, "n%d: %llu %s", node->id, (unsigned long long)session,
                 by_broker ? "is cut off" : "ends");
        (void)input_add(node, &event);
        node_wake(node);
    }
}

void node_close(struct node *node, uint64_t session)
{
    if (session)
        session_end(node, session, false);
}

void node_cut(struct node *node, uint64_t session)
{
    for (int i = 0; i < NODE_SESSIONS_MAX; i++) {
        if (session && node->sessions[i].id == session)
            client_ended_by_broker(node->sessions[i].client);
    }
    if (session)
        session_end(node, session, true);
}
