// The clock, the steps and the carrying out of effects. It does what the pump does, in the open: it
// may not look into the broker.
#include "tests/unit/core/world.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/core/fault.h"

void world_init(struct world *world, uint64_t seed, bool has_text)
{
    *world = (struct world){
        .now_ms = WORLD_EPOCH_MS,
        .config =
            {
                .ttl_max_ms = 30000,
                .max_wait_ms = 3600000,
                .retry_max_ms = 1000,
                .requests_max = 16,
                .own_uid = 990,
                .server = "lockbrokerd test",
                .instance = "i1",
                .host = "box",
                .backend_kind = "redis",
            },
    };
    lb_assert(broker_new(&world->config, seed, &world->broker) == 0);
    if (has_text)
        world->out = open_memstream(&world->text, &world->text_size);
}

void world_deinit(struct world *world)
{
    broker_free(world->broker);
    if (world->out)
        (void)fclose(world->out);
    free(world->text);
    for (size_t i = 0; i < world->ops_count; i++)
        free((char *)(uintptr_t)world->ops[i].op.key);
    free(world->ops);
    free(world->serials);
}

const char *world_text(struct world *world)
{
    (void)fflush(world->out);
    return world->text;
}

void world_clear(struct world *world)
{
    (void)fclose(world->out);
    free(world->text);
    world->out = open_memstream(&world->text, &world->text_size);
}

uint64_t world_session(char letter)
{
    lb_assert(letter >= 'A' && letter <= 'Z');
    return (uint64_t)(letter - 'A') + 1;
}

const char *world_session_name(uint64_t session)
{
    static char name[24];

    if (session >= 1 && session <= WORLD_SESSIONS_MAX)
        (void)snprintf(name, sizeof(name), "%c", (char)('A' + session - 1));
    else
        (void)snprintf(name, sizeof(name), "%llu", (unsigned long long)session);
    return name;
}

static void keep_op(struct world *world, const struct backend_op *op)
{
    if (world->ops_count == world->ops_room) {
        world->ops_room = world->ops_room ? 2 * world->ops_room : 64;
        world->ops = realloc(world->ops, world->ops_room * sizeof(world->ops[0]));
        lb_assert(world->ops);
    }
    struct world_op *kept = &world->ops[world->ops_count++];

    *kept = (struct world_op){.op = *op, .sent_ms = world->now_ms};
    kept->op.key = strdup(op->key);
}

size_t world_token(struct world *world, uint64_t serial)
{
    size_t i = 0;

    while (i < world->serials_count && world->serials[i] != serial)
        i++;
    if (i == world->serials_count) {
        world->serials = realloc(world->serials, (i + 1) * sizeof(world->serials[0]));
        lb_assert(world->serials);
        world->serials[world->serials_count++] = serial;
    }
    return i + 1;
}

// True when the grant comes too late to be written.
static bool is_stale(struct world *world, const struct effect *effect)
{
    int64_t stepped_ms = effect->reply.deadline_ms - effect->reply.valid_ms;

    if (effect->kind != EFFECT_REPLY || !effect->grant_id)
        return false;
    lb_assert(effect->reply.error == ERROR_NONE && effect->reply.op == OP_ACQUIRE);
    lb_assert(stepped_ms < effect->tell_before_ms);
    lb_assert(effect->tell_before_ms <= effect->reply.deadline_ms);
    if (effect->session <= WORLD_SESSIONS_MAX) {
        if (world->now_ms < world->write_at_ms[effect->session])
            world->now_ms = world->write_at_ms[effect->session];
        world->write_at_ms[effect->session] = 0;
    }
    if (world->delay)
        world->now_ms += world->delay(world);
    return world->now_ms >= effect->tell_before_ms;
}

static void step_once(struct world *world, struct event *event, bool *ret_handled)
{
    event->now_ms = world->now_ms;
    fault_arm();
    *ret_handled = broker_step(world->broker, event, &world->effects);
    fault_disarm();
    broker_check(world->broker);
}

static void carry(struct world *world, const struct effect *effect)
{
    if (effect->kind == EFFECT_BACKEND)
        keep_op(world, &effect->op);
    if (world->observe)
        world->observe(world, effect);
    if (world->out)
        world_print(world, effect);
}

// Carries all out. Returns how many grants were stale, with an event for each.
static size_t carry_all(struct world *world, struct event stale[EFFECTS_MAX])
{
    size_t count = 0;

    for (size_t i = 0; i < world->effects.count; i++) {
        const struct effect *effect = &world->effects.items[i];

        if (!is_stale(world, effect)) {
            carry(world, effect);
            continue;
        }
        world->stale_ms = world->now_ms;
        stale[count++] = (struct event){
            .kind = EVENT_GRANT_STALE,
            .session = effect->session,
            .grant_id = effect->grant_id,
        };
        if (world->out)
            (void)fprintf(world->out, "%7lld      %s< (its grant comes too late to be written)\n",
                          (long long)(world->now_ms - WORLD_EPOCH_MS),
                          world_session_name(effect->session));
    }
    return count;
}

static void step_and_carry(struct world *world, struct event *event, bool *ret_handled)
{
    struct event stale[EFFECTS_MAX];
    bool handled;

    step_once(world, event, ret_handled);
    for (size_t count = carry_all(world, stale); count > 0; count--)
        step_and_carry(world, &stale[count - 1], &handled);
}

void world_step(struct world *world, struct event *event)
{
    bool handled = false;

    while (!handled)
        step_and_carry(world, event, &handled);
    world->paused = false;
}

void world_run(struct world *world, int64_t at_ms)
{
    int64_t due_ms = broker_next_deadline(world->broker);

    while (due_ms <= at_ms) {
        struct event event = {.kind = EVENT_TIME};

        if (world->now_ms < due_ms)
            world->now_ms = due_ms;
        world_step(world, &event);
        due_ms = broker_next_deadline(world->broker);
    }
    if (world->now_ms < at_ms)
        world->now_ms = at_ms;
}

struct world_op *world_pending(struct world *world, size_t from)
{
    for (size_t i = from; i < world->ops_count; i++) {
        if (!world->ops[i].answered)
            return &world->ops[i];
    }
    return NULL;
}

void world_answer(struct world *world, struct world_op *op, struct backend_outcome *outcome)
{
    struct event event = {.kind = EVENT_BACKEND_OUTCOME};

    op->answered = true;
    outcome->op_id = op->op.op_id;
    if (outcome->sent_ms == LB_NONE)
        outcome->sent_ms = op->sent_ms;
    event.outcome = *outcome;
    world_step(world, &event);
}
