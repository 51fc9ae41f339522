// Each line goes to the truth when it is written, and to the client when it reads it. A client that
// stalls reads late; one that is gone never does.
#include "tests/sim/client_hear.h"

#include <string.h>

#include "proto/reply.h"
#include "proto/request.h"
#include "tests/sim/world.h"

// A try waits for its one question, for as long as a command may take here, or the link to come up;
// a broker may be late by a timer and what it does at once.
#define TRY_MS       270
#define WAIT_LATE_MS 400

struct holding client_holding(struct client *client, int key, char owner)
{
    return (struct holding){client->node, client->session, key, owner};
}

static struct slot *slot_of(struct client *client, int key, char owner)
{
    return &client->slots[key][owner ? 1 : 0];
}

static void on_read(void *subject, uint64_t session)
{
    struct client *client = subject;

    if (session == client->session && client->world->sim.now_us >= client->stalled_until_us)
        client_read(client);
}

static void line_add(struct client *client, const struct line *line)
{
    struct sim *sim = &client->world->sim;

    if (client->lines_count == CLIENT_LINES_MAX) { // as a slow reader it would be cut off
        node_cut(client->node, client->session);
        return;
    }
    client->lines[client->lines_count++] = *line;
    sim_at(sim, sim->now_us + 20 + sim_below(sim, 200), on_read, client, client->session);
}

static struct pending *find_pending(struct client *client, int64_t id)
{
    for (int i = 0; i < client->pending_count; i++) {
        if (client->pending[i].ask.id == id)
            return &client->pending[i];
    }
    return NULL;
}

void client_is_asking(struct client *client, int64_t id, uint64_t arrival)
{
    struct pending *pending = find_pending(client, id);

    if (pending && !pending->arrival)
        pending->arrival = arrival;
    if (pending)
        pending->stepped_us = client->world->sim.now_us;
}

static void judge_wait(const struct client *client, const struct pending *pending)
{
    int64_t wait_ms = pending->ask.wait_ms ? pending->ask.wait_ms : TRY_MS;
    int64_t late_us = client->world->sim.now_us - pending->stepped_us - wait_ms * 1000;

    if (pending->ask.op == OP_ACQUIRE && pending->arrival && pending->ask.wait_ms >= 0 &&
        client->node->stopped_until_us < pending->stepped_us && late_us > WAIT_LATE_MS * 1000)
        sim_violate(&client->world->sim, "I18: n%d does not answer c%d's %lld in time",
                    client->node->id, client->id, (long long)pending->ask.id);
}

void clients_judge_waits(struct world *world, const struct node *node)
{
    for (int i = 0; i < world->clients_count; i++) {
        const struct client *client = &world->clients[i];

        for (int j = 0; j < client->pending_count && client->node == node; j++)
            judge_wait(client, &client->pending[j]);
    }
}

// I17: of those who wait on one host the first one comes first.
static void judge_order(struct client *client, const struct pending *granted)
{
    struct world *world = client->world;

    if (granted->ask.wait_ms == 0)
        return;
    for (int i = 0; i < world->clients_count; i++) {
        const struct client *other = &world->clients[i];

        for (int j = 0; j < other->pending_count && other->node == client->node; j++) {
            const struct pending *pending = &other->pending[j];

            if (pending->ask.op == OP_ACQUIRE && pending->ask.key == granted->ask.key &&
                pending->ask.wait_ms != 0 && pending->arrival &&
                pending->arrival < granted->arrival && other->session)
                sim_violate(&world->sim, "I17: k%d is granted to c%d before c%d", granted->ask.key,
                            client->id, other->id);
        }
    }
}

static void judge_success(struct client *client, const struct pending *pending,
                          const struct reply *reply)
{
    struct truth *truth = &client->world->truth;
    const struct ask *ask = &pending->ask;
    struct holding holding = client_holding(client, ask->key, ask->owner);

    if (ask->op == OP_ACQUIRE) {
        judge_order(client, pending);
        truth_granted(truth, &holding, reply, ask->max_hold_ms);
    } else if (ask->op == OP_EXTEND || (ask->op == OP_CHECK && reply->held)) {
        truth_affirmed(truth, &holding, reply->fence, reply->deadline_ms);
    } else if (ask->op == OP_CHECK) {
        truth_not_held(truth, &holding);
    } else if (ask->op == OP_BREAK) {
        truth_broken(truth, ask->key);
    } else if (ask->op == OP_RELEASE && strcmp(reply->outcome, "released") == 0) {
        truth_released(truth, &holding);
    }
    if (ask->op == OP_EXTEND && ask->max_hold_ms != LB_NONE)
        truth_capped(truth, &holding);
}

// I18: with all faults over, whoever waits for as long as it takes is granted its lock.
static void judge_patience(const struct client *client, const struct pending *pending,
                           enum error_code error)
{
    if (client->is_ending && pending->ask.op == OP_ACQUIRE && pending->ask.wait_ms == -1 &&
        error != ERROR_NONE)
        sim_violate(&client->world->sim, "I18: c%d on n%d waits for k%d, and gets error %d",
                    client->id, client->node->id, pending->ask.key, (int)error);
}

void client_hears_reply(struct client *client, const struct reply *reply)
{
    struct pending *pending = find_pending(client, reply->id.number);
    struct sim *sim = &client->world->sim;

    if (!pending || pending->ask.op != reply->op)
        sim_violate(sim, "c%d is answered %lld, which it did not ask", client->id,
                    (long long)reply->id.number);
    if (reply->error == ERROR_INTERNAL || reply->error == ERROR_MALFORMED)
        sim_violate(sim, "c%d is answered with error %d", client->id, (int)reply->error);
    sim_tell(sim, "n%d < c%d: %lld %s k%d: %s fence %lld until %lld", client->node->id, client->id,
             (long long)reply->id.number, op_name(reply->op), pending->ask.key,
             reply->error ? error_name(reply->error) : "ok", (long long)reply->fence,
             (long long)reply->deadline_ms);
    judge_patience(client, pending, reply->error);
    if (reply->error == ERROR_NONE)
        judge_success(client, pending, reply);

    struct line line = {
        .error = reply->error,
        .id = reply->id.number,
        .op = reply->op,
        .key = pending->ask.key,
        .owner = pending->ask.owner,
        .held = reply->held,
        .fence = reply->fence,
        .ttl_ms = reply->ttl_ms,
        .deadline_ms = reply->deadline_ms,
    };

    *pending = client->pending[--client->pending_count];
    line_add(client, &line);
}

void client_hears_notice(struct client *client, const struct notice *notice)
{
    struct truth *truth = &client->world->truth;
    struct line line = {
        .is_notice = true,
        .notice = notice->kind,
        .key = truth_key_of(notice->key),
        .owner = notice->owner[0],
        .fence = notice->fence,
        .deadline_ms = notice->deadline_ms,
    };
    struct holding holding = client_holding(client, line.key, line.owner);

    sim_tell(&client->world->sim, "n%d < c%d: notice %d k%d fence %lld until %lld (%s)",
             client->node->id, client->id, (int)notice->kind, line.key, (long long)notice->fence,
             (long long)notice->deadline_ms, notice->reason ? notice->reason : "");

    if (notice->kind != NOTICE_LOST)
        truth_affirmed(truth, &holding, notice->fence, notice->deadline_ms);
    else
        truth_lost(truth, &holding, notice);
    truth->suspected += notice->kind == NOTICE_SUSPECT;
    truth->recovered += notice->kind == NOTICE_OK;
    line_add(client, &line);
}

static void read_notice(struct client *client, const struct line *line)
{
    struct slot *slot = slot_of(client, line->key, line->owner);
    struct holding holding = client_holding(client, line->key, line->owner);
    struct notice notice = {
        .kind = line->notice, .fence = line->fence, .deadline_ms = line->deadline_ms};

    if (slot->state != SLOT_HOLDING || slot->fence != line->fence)
        return;
    (void)grant_take_notice(&slot->grant, &notice);
    if (line->notice != NOTICE_LOST)
        return;
    slot->state = SLOT_LOST;
    if (!sim_fault(&client->world->sim, FAULT_LOST_IGNORED))
        truth_client_done(&client->world->truth, &holding);
}

static void grant_hears(struct slot *slot, const struct line *line, int64_t now_ms)
{
    struct reply reply = reply_blank();

    reply.fence = line->fence;
    reply.ttl_ms = line->ttl_ms;
    reply.deadline_ms = line->deadline_ms;
    grant_take_answer(&slot->grant, &reply, now_ms);
}

static void read_acquired(struct slot *slot, const struct line *line)
{
    if (slot->state != SLOT_WAITING || slot->acquire_id != line->id)
        return;
    slot->state = line->error == ERROR_NONE ? SLOT_HOLDING : SLOT_IDLE;
    slot->fence = line->fence;
    slot->grant = (struct lb_grant){.deadline_ms = INT64_MIN};
}

static void read_reply(struct client *client, const struct line *line)
{
    struct slot *slot;

    if (line->op != OP_ACQUIRE && line->op != OP_EXTEND && !(line->op == OP_CHECK && line->held))
        return;
    slot = slot_of(client, line->key, line->owner);
    if (line->op == OP_ACQUIRE)
        read_acquired(slot, line);
    if (line->error == ERROR_NONE && slot->state == SLOT_HOLDING && slot->fence == line->fence)
        grant_hears(slot, line, node_now_ms(client->node));
}

void client_read(struct client *client)
{
    for (int i = 0; i < client->lines_count; i++) {
        if (client->lines[i].is_notice)
            read_notice(client, &client->lines[i]);
        else
            read_reply(client, &client->lines[i]);
    }
    client->lines_count = 0;
}

void client_forget(struct client *client)
{
    client->session = 0;
    client->pending_count = 0;
    client->lines_count = 0;
    memset(client->slots, 0, sizeof(client->slots));
}

// What it had it may go on using until the deadlines that it was told.
void client_ended_by_broker(struct client *client)
{
    client_forget(client);
}
