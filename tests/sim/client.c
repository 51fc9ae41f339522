// What clients do of themselves. What they hear is client_hear.c's.
#include "tests/sim/client.h"

#include <string.h>

#include "proto/request.h"
#include "tests/sim/client_hear.h"
#include "tests/sim/world.h"

static int64_t below(struct client *client, int64_t bound)
{
    return sim_below(&client->world->sim, bound);
}

static bool one_in(struct client *client, int64_t n)
{
    return below(client, n) == 0;
}

static struct ask ask_blank(struct client *client, enum op op, int key, int owner)
{
    return (struct ask){
        .id = client->next_id++,
        .op = op,
        .key = key,
        .owner = owner ? 'o' : '\0',
        .renew = true,
        .ttl_ms = LB_NONE,
        .max_hold_ms = LB_NONE,
        .fence = LB_NONE,
    };
}

static void client_ask(struct client *client, const struct ask *ask)
{
    if (client->pending_count == CLIENT_PENDING_MAX)
        return;
    client->pending[client->pending_count++] =
        (struct pending){.ask = *ask, .asked_us = client->world->sim.now_us};
    client->world->operations++;
    sim_tell(&client->world->sim, "c%d > n%d: %lld %s k%d %c ttl %lld wait %lld", client->id,
             client->node->id, (long long)ask->id, op_name(ask->op), ask->key,
             ask->owner ? ask->owner : '-', (long long)ask->ttl_ms, (long long)ask->wait_ms);
    node_ask(client->node, client->session, ask);
}

static void slot_acquire(struct client *client, int key, int owner)
{
    struct slot *slot = &client->slots[key][owner];
    struct ask ask = ask_blank(client, OP_ACQUIRE, key, owner);

    if (!one_in(client, 4))
        ask.ttl_ms = 1000 + below(client, client->world->sim.ttl_max_ms - 999);
    if (one_in(client, 6))
        ask.max_hold_ms = 1 + below(client, 2 * client->world->sim.ttl_max_ms);
    ask.renew = !one_in(client, 6);
    ask.wait_ms = one_in(client, 3) ? 0 : below(client, 8000) - 1;
    slot->state = SLOT_WAITING;
    slot->acquire_id = ask.id;
    client_ask(client, &ask);
}

static void slot_release(struct client *client, int key, int owner)
{
    struct slot *slot = &client->slots[key][owner];
    struct ask ask = ask_blank(client, OP_RELEASE, key, owner);
    struct holding holding = client_holding(client, key, ask.owner);

    if (one_in(client, 2))
        ask.fence = slot->fence;
    truth_client_done(&client->world->truth, &holding);
    slot->state = SLOT_IDLE;
    client_ask(client, &ask);
}

static void slot_extend(struct client *client, int key, int owner)
{
    struct ask ask = ask_blank(client, OP_EXTEND, key, owner);

    if (!one_in(client, 3))
        ask.ttl_ms = 1000 + below(client, client->world->sim.ttl_max_ms - 999);
    if (one_in(client, 4))
        ask.max_hold_ms = 1 + below(client, 2 * client->world->sim.ttl_max_ms);
    client_ask(client, &ask);
}

static void slot_ask(struct client *client, enum op op, int key, int owner)
{
    struct ask ask = ask_blank(client, op, key, owner);

    ask.target = client->slots[key][owner].acquire_id;
    client_ask(client, &ask);
}

static void slot_act(struct client *client, int key, int owner)
{
    switch (client->slots[key][owner].state) {
    case SLOT_IDLE:
        slot_acquire(client, key, owner);
        break;
    case SLOT_WAITING:
        if (one_in(client, 15))
            slot_ask(client, OP_CANCEL, key, owner);
        break;
    case SLOT_HOLDING:
        if (one_in(client, 5))
            slot_extend(client, key, owner);
        else if (one_in(client, 5))
            slot_ask(client, OP_CHECK, key, owner);
        else if (client->is_holder ? one_in(client, 100) : !one_in(client, 3))
            slot_release(client, key, owner);
        break;
    case SLOT_LOST:
    default:
        if (one_in(client, 2))
            slot_release(client, key, owner);
        break;
    }
}

static void client_connect(struct client *client)
{
    uint64_t session = ++client->world->sessions;

    if (node_open(client->node, client, session))
        client->session = session;
}

static void client_disconnect(struct client *client)
{
    uint64_t session = client->session;

    truth_client_gone(&client->world->truth, session);
    client_forget(client);
    node_close(client->node, session);
}

// Before it touches what a lock guards a client asks its library whether it still has it.
static void client_judge_grants(struct client *client)
{
    int64_t now_ms = node_now_ms(client->node);

    for (int key = 0; key < TRUTH_KEYS_MAX; key++) {
        for (int owner = 0; owner < CLIENT_OWNERS; owner++) {
            const struct slot *slot = &client->slots[key][owner];
            struct holding holding = client_holding(client, key, owner ? 'o' : '\0');

            if (slot->state == SLOT_HOLDING && grant_is_valid(&slot->grant, now_ms))
                truth_relied_on(&client->world->truth, &holding);
        }
    }
}

// Looks at a lock, whoever has it.
static void client_look(struct client *client)
{
    static const enum op ops[] = {OP_QUERY, OP_LIST, OP_STATS, OP_PING};
    enum op op = ops[below(client, LB_ARRAY_LENGTH(ops))];
    struct ask ask = ask_blank(client, op, op == OP_QUERY ? world_any_key(client->world) : -1, 0);

    client_ask(client, &ask);
}

// Rather one that holds something, so that locks go round.
static void client_use_slot(struct client *client)
{
    int key = world_any_key(client->world);
    int owner = (int)below(client, CLIENT_OWNERS);

    for (int i = 0; i < TRUTH_KEYS_MAX * CLIENT_OWNERS && !one_in(client, 4); i++) {
        if (client->slots[key][owner].state == SLOT_HOLDING)
            break;
        key = world_any_key(client->world);
        owner = (int)below(client, CLIENT_OWNERS);
    }
    slot_act(client, key, owner);
}

static void client_do_something(struct client *client)
{
    struct sim *sim = &client->world->sim;

    if (sim_fault(sim, FAULT_CLIENT_DIES)) {
        client_disconnect(client);
    } else if (sim_fault(sim, FAULT_CLIENT_CUT)) {
        node_cut(client->node, client->session);
    } else if (sim_fault(sim, FAULT_CLIENT_STALLS)) {
        client->stalled_until_us = sim->now_us + below(client, 2000 * sim->ttl_max_ms);
    } else if (sim_fault(sim, FAULT_BREAK)) {
        struct ask ask = ask_blank(client, OP_BREAK, world_any_key(client->world), 0);

        client_ask(client, &ask);
    } else if (one_in(client, 20)) {
        client_look(client);
    } else {
        client_use_slot(client);
    }
}

// Gives back what it has, and asks for nothing any more.
static void client_end_something(struct client *client)
{
    for (int key = 0; key < TRUTH_KEYS_MAX; key++) {
        for (int owner = 0; owner < CLIENT_OWNERS; owner++) {
            enum slot_state state = client->slots[key][owner].state;

            if (state == SLOT_HOLDING || state == SLOT_LOST)
                slot_release(client, key, owner);
        }
    }
}

static void client_act(void *subject, uint64_t ignored)
{
    struct client *client = subject;
    struct sim *sim = &client->world->sim;
    int64_t think_us = client->is_ending ? 5000 : client->think_us;

    (void)ignored;
    sim_at(sim, sim->now_us + 1 + below(client, 2 * think_us), client_act, client, 0);
    if (sim->now_us < client->stalled_until_us)
        return;
    client_read(client);
    client_judge_grants(client);
    if (!client->session && !client->world->is_over)
        client_connect(client);
    else if (client->session && client->is_ending)
        client_end_something(client);
    else if (client->session)
        client_do_something(client);
}

void client_init(struct client *client, struct world *world, struct node *node, int id)
{
    static const int64_t thinks_us[] = {2000, 10000, 30000, 30000, 60000, 200000};

    memset(client, 0, sizeof(*client));
    client->world = world;
    client->node = node;
    client->id = id;
    client->next_id = 1;
    client->is_holder = one_in(client, 8);
    client->think_us = thinks_us[below(client, LB_ARRAY_LENGTH(thinks_us))];
    sim_at(&world->sim, below(client, 50000), client_act, client, 0);
}

void clients_stall(struct world *world, const struct node *node, int64_t until_us)
{
    for (int i = 0; i < world->clients_count; i++) {
        struct client *client = &world->clients[i];

        if (client->node == node && client->stalled_until_us < until_us)
            client->stalled_until_us = until_us;
    }
}

void client_heal(struct client *client)
{
    client->is_ending = true;
    if (!client->session)
        client_connect(client);
    for (int key = 0; key < client->world->keys_count; key++) {
        struct ask ask = ask_blank(client, OP_ACQUIRE, key, 0);
        struct slot *slot = &client->slots[key][0];

        if (slot->state != SLOT_IDLE || !client->session)
            continue;
        ask.wait_ms = -1;
        slot->state = SLOT_WAITING;
        slot->acquire_id = ask.id;
        client_ask(client, &ask);
    }
}

void client_leave(struct client *client)
{
    if (client->session)
        client_disconnect(client);
}
