// What the daemon's pump does: sweep and step, carry the effects out, read the clock before each
// grant is written and hand it back when it comes too late. The process may be held up between any
// two of these.
#include "tests/sim/node_run.h"

#include <string.h>

#include "proto/request.h"
#include "tests/sim/allocation.h"
#include "tests/sim/client.h"
#include "tests/sim/world.h"

// More than a process that was stopped for long, with all its clients at it, has to catch up with.
#define STEPS_MAX 50000

static void node_act(void *subject, uint64_t wanted);

static void node_run_at(struct node *node, int64_t at_us)
{
    node->run_at_us = at_us;
    sim_at(node->sim, at_us, node_act, node, ++node->run_wanted);
}

void node_wake(struct node *node)
{
    int64_t soon_us = node->sim->now_us + 10 + sim_below(node->sim, 50);

    if (node->run_at_us > soon_us || node->run_at_us < node->sim->now_us)
        node_run_at(node, soon_us);
}

static struct client *client_of(const struct node *node, uint64_t session)
{
    for (int i = 0; i < NODE_SESSIONS_MAX; i++) {
        if (session && node->sessions[i].id == session)
            return node->sessions[i].client;
    }
    return NULL;
}

static void carry_backend(struct node *node, const struct backend_op *op)
{
    if (op->kind == BACKEND_ACQUIRE || op->kind == BACKEND_RENEW)
        node->asking[truth_key_of(op->key)] = op->op_id;
    if (op->kind == BACKEND_ACQUIRE)
        node->asked_us[truth_key_of(op->key)] = node->sim->now_us;
    if (op->kind == BACKEND_ACQUIRE)
        node->barges[truth_key_of(op->key)] |= op->barges;
    if (op->kind == BACKEND_ACQUIRE)
        node->contended[truth_key_of(op->key)].is_known = false;
    if (op->kind == BACKEND_ACQUIRE)
        node->serials[truth_key_of(op->key)] = op->serial;
    node->kinds[op->op_id % NODE_KINDS] = (uint8_t)op->kind;
    truth_sends(&node->world->truth, node, op);
    allocation_may_fail(node->sim);
    link_submit(node->link, op);
    allocation_may_fail(NULL);
}

// False when the process is held up before it writes the grant.
static bool carry_grant(struct node *node, const struct effect *effect)
{
    if (!node->is_write_late && sim_fault(node->sim, FAULT_WRITE_LATE)) {
        node->is_write_late = true;
        node_stop(node, 1000 + sim_below(node->sim, node->sim->ttl_max_ms * 1500), false);
        return false;
    }
    node->is_write_late = false;
    if (node_now_ms(node) >= effect->tell_before_ms) {
        node->stale[node->stale_count++] = (struct event){
            .kind = EVENT_GRANT_STALE,
            .session = effect->session,
            .grant_id = effect->grant_id,
        };
        node->world->truth.stale++;
        return true;
    }

    struct client *client = client_of(node, effect->session);

    truth_grants(&node->world->truth, node, truth_key_of(effect->reply.key));
    node->written[truth_key_of(effect->reply.key)] = effect->reply.fence;
    if (client)
        client_hears_reply(client, &effect->reply);
    return true;
}

// False when the process is held up.
static bool carry(struct node *node, const struct effect *effect)
{
    struct client *client = client_of(node, effect->session);

    switch (effect->kind) {
    case EFFECT_REPLY:
        if (effect->grant_id)
            return carry_grant(node, effect);
        if (client)
            client_hears_reply(client, &effect->reply);
        break;
    case EFFECT_NOTICE:
        if (client)
            client_hears_notice(client, &effect->notice);
        break;
    case EFFECT_BACKEND:
        carry_backend(node, &effect->op);
        break;
    case EFFECT_CLOSE:
        node_cut(node, effect->session);
        break;
    case EFFECT_FACT:
    default:
        break;
    }
    return true;
}

// False when the process is held up in the midst of it.
static bool carry_all(struct node *node)
{
    while (node->carried < node->effects.count) {
        if (!carry(node, &node->effects.items[node->carried]))
            return false;
        node->carried++;
    }
    return true;
}

static bool step(struct node *node, struct event *event)
{
    bool handled;

    event->now_ms = node_now_ms(node);
    allocation_may_fail(node->sim);
    handled = broker_step(node->broker, event, &node->effects);
    allocation_may_fail(NULL);
    broker_check(node->broker);
    node->carried = 0;
    return handled;
}

static void request_expand(const struct ask *ask, struct request *ret_request)
{
    request_init(ret_request);
    ret_request->id = (struct request_id){.kind = REQUEST_ID_NUMBER, .number = ask->id};
    ret_request->op = ask->op;
    ret_request->target = (struct request_id){.kind = REQUEST_ID_NUMBER, .number = ask->target};
    if (ask->key >= 0)
        (void)snprintf(ret_request->key, sizeof(ret_request->key), "k%d", ask->key);
    ret_request->owner[0] = ask->owner;
    ret_request->owner[1] = '\0';
    ret_request->renew = ask->renew;
    ret_request->ttl_ms = ask->ttl_ms;
    ret_request->wait_ms = ask->wait_ms;
    ret_request->max_hold_ms = ask->max_hold_ms;
    ret_request->fence = ask->fence;
}

static void marker_seen(struct node *node)
{
    if (!node->saw_marker)
        node->saw_us = node->sim->now_us;
    node->saw_marker = true;
}

// As the core has it: whoever an acquire or renewal was executed for has seen the marker.
static void marker_look(struct node *node, const struct event *event)
{
    const struct backend_outcome *outcome = &event->outcome;
    uint8_t kind = node->kinds[outcome->op_id % NODE_KINDS];

    if (event->kind == EVENT_BACKEND_OUTCOME && outcome->server_ms > node->heard_ms)
        node->heard_ms = outcome->server_ms;
    if (event->kind == EVENT_BACKEND_OUTCOME && outcome->server_ms != LB_NONE &&
        outcome->result != RESULT_LATE && (kind == BACKEND_ACQUIRE || kind == BACKEND_RENEW))
        marker_seen(node);
}

static void contended_set(struct node *node, size_t key)
{
    if (node->contended[key].is_known)
        return;
    node->contended[key].is_known = true;
    node->contended[key].grants = 0;
}

static void outcome_look(struct node *node, const struct event *event)
{
    for (size_t key = 0; key < LB_ARRAY_LENGTH(node->asking); key++) {
        if (event->kind != EVENT_BACKEND_OUTCOME || node->asking[key] != event->outcome.op_id)
            continue;
        node->asking[key] = 0;
        if (event->outcome.others_queue)
            contended_set(node, key);
    }
}

static void message_look(struct node *node, const struct event *event)
{
    if (event->kind == EVENT_CONTENDED || event->kind == EVENT_OUTSIDER)
        contended_set(node, (size_t)truth_key_of(event->key));
    node->world->truth.turns += event->kind == EVENT_TURN;
}

// Texts are where the input is now.
static void texts_lend(struct node_input *input)
{
    const char *texts[4];

    for (int i = 0; i < 4; i++)
        texts[i] = input->texts[i][0] ? input->texts[i] : NULL;
    if (input->event.kind == EVENT_TURN || input->event.kind == EVENT_CONTENDED ||
        input->event.kind == EVENT_OUTSIDER) {
        input->event.key = texts[0];
    } else if (input->event.kind == EVENT_BACKEND_OUTCOME) {
        input->event.outcome.holder.host = texts[0];
    } else if (input->event.kind == EVENT_BACKEND_UP) {
        input->event.facts.run_id = texts[0];
        input->event.facts.role = texts[1];
        input->event.facts.version = texts[2];
        input->event.facts.policy = texts[3];
    }
}

static void step_current(struct node *node)
{
    static struct request request;
    struct event *event = &node->current.event;

    if (event->kind == EVENT_REQUEST) {
        struct client *client = client_of(node, event->session);

        request_expand(&node->current.ask, &request);
        event->request = &request;
        if (client)
            client_is_asking(client, node->current.ask.id, ++node->next_arrival);
        else if (node->current.ask.op == OP_BREAK) // nobody will hear of it
            truth_broken(&node->world->truth, node->current.ask.key);
    }
    if (event->kind == EVENT_SESSION_CLOSED && !event->closed_by_broker &&
        node->ended_count < NODE_SESSIONS_MAX)
        node->ended[node->ended_count++] = event->session;
    marker_look(node, event);
    outcome_look(node, event);
    message_look(node, event);
    node->is_unhandled = !step(node, event);
}

// The next thing that is to be stepped. False when there is nothing.
static bool step_next(struct node *node)
{
    struct event time = {.kind = EVENT_TIME};

    if (node->stale_count) {
        (void)step(node, &node->stale[--node->stale_count]);
    } else if (node->is_unhandled) {
        step_current(node);
    } else if (node->inputs_count) {
        node->current = node->inputs[node->inputs_first];
        node->inputs_first = (node->inputs_first + 1) % NODE_INPUTS_MAX;
        node->inputs_count--;
        texts_lend(&node->current);
        step_current(node);
    } else if (broker_next_deadline(node->broker) <= node_now_ms(node)) {
        (void)step(node, &time);
    } else {
        return false;
    }
    return true;
}

static void judge_ended(struct node *node)
{
    for (int i = 0; i < node->ended_count && link_is_up(node->link); i++)
        truth_session_ended(&node->world->truth, node, node->ended[i]);
    node->ended_count = 0;
}

// False when the process is held up before all is done.
static bool run_all(struct node *node)
{
    int steps = 0;

    do {
        if (++steps > STEPS_MAX)
            sim_violate(node->sim, "n%d does not come to rest", node->id);
        if (!carry_all(node))
            return false;
        allocation_may_fail(node->sim);
        link_run(node->link);
        link_flush(node->link);
        allocation_may_fail(NULL);
    } while (step_next(node));
    return true;
}

static void node_arm(struct node *node)
{
    int64_t due_ms = broker_next_deadline(node->broker);
    int64_t link_ms = link_next_ms(node->link);
    int64_t at_us;

    if (link_ms < due_ms)
        due_ms = link_ms;
    if (node->is_draining && node->drain_until_ms < due_ms)
        due_ms = node->drain_until_ms;
    if (due_ms == INT64_MAX) {
        node->run_at_us = INT64_MAX;
        node->run_wanted++;
        return;
    }
    at_us = sim_clock_true_us(&node->clock, due_ms * 1000);
    if (at_us < node->sim->now_us)
        at_us = node->sim->now_us;
    if (sim_fault(node->sim, FAULT_TIMER_LATE))
        at_us += sim_below(node->sim, 40000);
    node_run_at(node, at_us);
}

static bool is_drained(const struct node *node)
{
    return node->is_draining &&
           (broker_is_drained(node->broker) || node_now_ms(node) >= node->drain_until_ms);
}

static void node_act(void *subject, uint64_t wanted)
{
    struct node *node = subject;

    if (wanted != node->run_wanted)
        return;
    node->run_at_us = INT64_MAX;
    if (!node_is_running(node))
        return;
    if (!run_all(node))
        return;
    node->ran_us = node->sim->now_us;
    judge_ended(node);
    clients_judge_waits(node->world, node);
    truth_after_run(&node->world->truth, node);
    link_set_urgent(node->link, broker_kept_count(node->broker) > 0);
    if (is_drained(node))
        world_node_ended(node->world, node);
    else
        node_arm(node);
}
