// The clients and the passing of time.
#include "tests/unit/core/walk.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/request.h"

static int64_t below(struct walk *walk, int64_t bound)
{
    return (int64_t)rng_below(&walk->rng, (uint64_t)bound);
}

static bool one_in(struct walk *walk, int64_t n)
{
    return below(walk, n) == 0;
}

// Sometimes this process is held up between deciding on a grant and writing it.
static int64_t write_delay(struct world *world)
{
    struct walk *walk = world->context;

    if (walk->model.is_healthy || !one_in(walk, 20))
        return 0;
    walk->stale++;
    return below(walk, 5000);
}

void walk_init(struct walk *walk, uint64_t seed, bool has_text)
{
    memset(walk, 0, sizeof(*walk));
    world_init(&walk->world, seed, has_text);
    walk->world.observe = referee_observe;
    walk->world.delay = write_delay;
    walk->world.context = walk;
    walk->world.config.ttl_max_ms = 5000;
    walk->world.config.fence_block = seed % 3 == 0 ? 1 : 6;
    walk->world.config.handoff_grants_max = 3;
    walk->world.config.handoff_time_max_ms = 100;
    walk->world.config.yield_after_ms = seed % 2 == 0 ? 0 : 400;
    walk->world.config.linger_ms = seed % 3 == 0 ? 20 : 0;
    rng_init(&walk->rng, seed + 1);
    model_init(&walk->model, seed + 2, walk->world.now_ms);
    walk->next_session = WORLD_SESSIONS_MAX + 1;
    if (!has_text && getenv("WALK_TEXT")) // to see what led to a failure
        walk->world.out = fdopen(dup(STDERR_FILENO), "w");
    if (walk->world.out && !has_text)
        (void)setvbuf(walk->world.out, NULL, _IONBF, 0);

    struct event event = {.kind = EVENT_CONFIGURE, .config = &walk->world.config};

    world_step(&walk->world, &event);
}

void walk_deinit(struct walk *walk)
{
    world_deinit(&walk->world);
}

static void walk_print(struct walk *walk, uint64_t session, const struct request *request)
{
    if (!walk->world.out)
        return;
    (void)fprintf(walk->world.out, "%7lld  %llu> %lld %s %s %s ttl=%lld wait=%lld max_hold=%lld\n",
                  (long long)(walk->world.now_ms - WORLD_EPOCH_MS), (unsigned long long)session,
                  (long long)request->id.number, op_name(request->op), request->key, request->owner,
                  (long long)request->ttl_ms, (long long)request->wait_ms,
                  (long long)request->max_hold_ms);
}

static void walk_print_event(struct walk *walk, const struct event *event)
{
    static const char *const names[] = {"ok",       "busy",     "gone",   "stolen",
                                        "conflict", "refused",  "late",   "quarantined",
                                        "queued",   "not_sent", "unknown"};
    size_t i = 0;

    if (!walk->world.out)
        return;
    (void)fprintf(walk->world.out, "%7lld  ", (long long)(walk->world.now_ms - WORLD_EPOCH_MS));
    if (event->kind != EVENT_BACKEND_OUTCOME) {
        (void)fprintf(walk->world.out, "event %d %llu %d\n", (int)event->kind,
                      (unsigned long long)event->session,
                      event->kind == EVENT_SESSION_CLOSED && event->closed_by_broker);
        return;
    }
    while (i < walk->world.ops_count && walk->world.ops[i].op.op_id != event->outcome.op_id)
        i++;
    (void)fprintf(walk->world.out, "redis> #%zu %s sent=%lld fence=%lld\n", i + 1,
                  names[event->outcome.result],
                  event->outcome.sent_ms == LB_NONE
                      ? -1LL
                      : (long long)(event->outcome.sent_ms - WORLD_EPOCH_MS),
                  (long long)event->outcome.fence);
}

void walk_send(struct walk *walk, uint64_t session, struct request *request)
{
    struct event event = {.kind = EVENT_REQUEST, .session = session, .request = request};

    request->id = (struct request_id){.kind = REQUEST_ID_NUMBER, .number = ++walk->next_id};
    lb_assert(walk->pending_count < WALK_PENDING_MAX);
    walk->pending[walk->pending_count++] = (struct walk_pending){
        .session = session,
        .id = request->id.number,
        .op = request->op,
        .key = *request->key ? model_key_of(request->key) : 0,
        .owner = request->owner[0],
    };
    walk_print(walk, session, request);
    if (request->op == OP_RELEASE) {
        walk->leaving_session = session;
        walk->leaving_key = model_key_of(request->key);
        walk->leaving_owner = request->owner[0];
    }
    world_step(&walk->world, &event);
    walk->leaving_session = 0;
}

void walk_forget_session(struct walk *walk, uint64_t session, bool was_cut)
{
    for (int i = walk->pending_count - 1; i >= 0; i--) {
        if (walk->pending[i].session == session)
            walk->pending[i] = walk->pending[--walk->pending_count];
    }
    for (int i = 0; i < walk->grants_count && !was_cut; i++) {
        if (walk->grants[i].session == session)
            walk->grants[i].is_over = true;
    }
}

static void session_toggle(struct walk *walk, int slot)
{
    struct event event = {.kind = EVENT_SESSION_OPENED, .session = walk->next_session};

    if (walk->sessions[slot]) {
        event.kind = EVENT_SESSION_CLOSED;
        event.session = walk->sessions[slot];
        event.closed_by_broker = one_in(walk, 3);
        walk->sessions[slot] = 0;
    } else {
        walk->sessions[slot] = walk->next_session++;
    }
    walk_print_event(walk, &event);
    if (event.kind == EVENT_SESSION_CLOSED && !event.closed_by_broker) {
        walk->leaving_session = event.session;
        walk->leaving_key = -1;
    }
    world_step(&walk->world, &event);
    walk->leaving_session = 0;

    // What the step swept before the end was still told to it.
    if (event.kind == EVENT_SESSION_CLOSED)
        walk_forget_session(walk, event.session, event.closed_by_broker);
}

static void request_any(struct walk *walk, struct request *request)
{
    static const enum op ops[] = {
        OP_ACQUIRE, OP_ACQUIRE, OP_ACQUIRE, OP_ACQUIRE, OP_RELEASE, OP_RELEASE, OP_RELEASE,
        OP_EXTEND,  OP_CHECK,   OP_QUERY,   OP_CANCEL,  OP_LIST,    OP_STATS,   OP_PING,
    };

    request_init(request);
    request->op = ops[below(walk, LB_ARRAY_LENGTH(ops))];
    if (one_in(walk, 100))
        request->op = OP_BREAK;
    (void)snprintf(request->key, sizeof(request->key), "k%d", (int)below(walk, MODEL_KEYS));
    if (one_in(walk, 3))
        (void)snprintf(request->owner, sizeof(request->owner), "o");
}

static void request_times(struct walk *walk, struct request *request)
{
    if (!one_in(walk, 4))
        request->ttl_ms = 1000 + below(walk, 4001);
    if (one_in(walk, 4))
        request->max_hold_ms = 1 + below(walk, 8000);
    if (request->op != OP_ACQUIRE)
        return;
    request->renew = !one_in(walk, 5);
    request->wait_ms = one_in(walk, 3) ? 0 : below(walk, 4000) - 1;
}

// The client gave back what it had: the newest grant, lost or not.
static void client_is_done(struct walk *walk, uint64_t session, const struct request *request)
{
    int key = model_key_of(request->key);

    for (int i = walk->grants_count - 1; i >= 0; i--) {
        struct walk_grant *grant = &walk->grants[i];

        if (grant->session != session || grant->key != key || grant->owner != *request->owner)
            continue;
        if (grant->is_over)
            continue;
        grant->is_over = true;
        return;
    }
}

static void client_act(struct walk *walk, uint64_t session)
{
    struct request request;

    request_any(walk, &request);
    request_times(walk, &request);
    if (request.op == OP_CANCEL)
        request.target = (struct request_id){.kind = REQUEST_ID_NUMBER,
                                             .number = walk->next_id - below(walk, 12)};

    walk_send(walk, session, &request);
    if (request.op == OP_RELEASE)
        client_is_done(walk, session, &request);
}

static void deliver(struct walk *walk)
{
    struct event event;

    while (model_take(&walk->model, &event)) {
        walk_print_event(walk, &event);
        world_step(&walk->world, &event);
    }
}

// Until the world's clock stands at `at_ms`, whatever is due happens in its order.
static void pass(struct walk *walk, int64_t at_ms)
{
    struct world *world = &walk->world;

    for (;;) {
        int64_t due_ms = broker_next_deadline(world->broker);
        int64_t model_ms = model_next(&walk->model);
        int64_t next_ms = due_ms < model_ms ? due_ms : model_ms;

        deliver(walk);
        if (next_ms > at_ms)
            break;
        if (next_ms > world->now_ms)
            world->now_ms = next_ms;
        if (model_ms <= world->now_ms)
            model_run(&walk->model, world->now_ms);
        else
            world_run(world, world->now_ms);
    }
    if (world->now_ms < at_ms)
        world->now_ms = at_ms;
}

// The broker's process stands still while all others go on.
static void freeze(struct walk *walk, int64_t ms)
{
    int64_t until_ms = walk->world.now_ms + ms;
    int64_t next_ms = model_next(&walk->model);

    while (next_ms <= until_ms && walk->model.events_count < MODEL_OPS_MAX / 2) {
        model_run(&walk->model, next_ms);
        next_ms = model_next(&walk->model);
    }
    walk->world.now_ms = until_ms;
}

static void trouble(struct walk *walk)
{
    if (one_in(walk, 150))
        model_break(&walk->model, walk->world.now_ms);
    if (one_in(walk, 100))
        model_meddle(&walk->model, walk->world.now_ms);
    if (one_in(walk, 40))
        model_foreign(&walk->model, walk->world.now_ms);
    if (one_in(walk, 200))
        freeze(walk, below(walk, 6000));
}

void walk_step(struct walk *walk)
{
    int slot = (int)below(walk, WALK_SESSIONS);

    pass(walk, walk->world.now_ms + (one_in(walk, 10) ? below(walk, 600) : below(walk, 20)));
    trouble(walk);
    if (!walk->sessions[slot] || one_in(walk, 60))
        session_toggle(walk, slot);
    else
        client_act(walk, walk->sessions[slot]);
    referee_judge_leases(walk);
}

static void release_all(struct walk *walk)
{
    for (int i = 0; i < walk->grants_count; i++) {
        struct walk_grant *grant = &walk->grants[i];
        struct request request;
        bool is_open = false;

        for (int slot = 0; slot < WALK_SESSIONS; slot++)
            is_open = is_open || walk->sessions[slot] == grant->session;
        if (grant->is_over || !is_open)
            continue;
        request_init(&request);
        request.op = OP_RELEASE;
        request.fence = grant->fence;
        (void)snprintf(request.key, sizeof(request.key), "k%d", grant->key);
        request.owner[0] = grant->owner;
        request.owner[1] = '\0';
        walk_send(walk, grant->session, &request);
        walk->grants[i].is_over = true;
    }
}

void walk_rest(struct walk *walk, int64_t ms)
{
    int64_t until_ms = walk->world.now_ms + ms;

    while (walk->world.now_ms < until_ms) {
        if (walk->is_ending)
            release_all(walk);
        pass(walk, walk->world.now_ms + 50);
    }
}

void walk_heal(struct walk *walk)
{
    walk->model.is_healthy = true;
    walk->is_ending = true;
    if (!walk->sessions[0])
        session_toggle(walk, 0);
    for (int key = 0; key < MODEL_KEYS; key++) {
        struct request request;

        request_init(&request);
        request.op = OP_ACQUIRE;
        request.wait_ms = -1;
        (void)snprintf(request.key, sizeof(request.key), "k%d", key);
        (void)snprintf(request.owner, sizeof(request.owner), "z");
        walk_send(walk, walk->sessions[0], &request);
    }
}

void walk_close_all(struct walk *walk)
{
    for (int slot = 0; slot < WALK_SESSIONS; slot++) {
        struct event event = {.kind = EVENT_SESSION_CLOSED, .session = walk->sessions[slot]};

        if (!walk->sessions[slot])
            continue;
        world_step(&walk->world, &event);
        walk_forget_session(walk, event.session, false);
        walk->sessions[slot] = 0;
    }
}
