// Drives an uplink as the daemon would: submit, one flush, run the loop.
#include "tests/unit/redis/rig.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/clock.h"

bool rig_is_inside;

static void text_keep(char *ret_text, size_t size, const char *text)
{
    (void)snprintf(ret_text, size, "%s", text ? text : "");
}

static void outcome_keep(struct rig *rig, const struct backend_outcome *outcome)
{
    struct rig_outcome *kept;

    ck_assert_uint_ge(outcome->op_id, 1);
    ck_assert_uint_le(outcome->op_id, rig->ops_count);
    kept = &rig->outcomes[outcome->op_id];
    ck_assert_msg(kept->count == 0, "two outcomes of one operation");
    kept->count++;
    kept->outcome = *outcome;
    if (outcome->holder.host) {
        text_keep(kept->host, sizeof(kept->host), outcome->holder.host);
        kept->outcome.holder.host = kept->host;
    }
    rig->ended++;
}

static void on_event(void *context, const struct event *event)
{
    struct rig *rig = context;
    bool was_inside = rig_is_inside;

    rig_is_inside = false;
    ck_assert(event->now_ms > 0 && event->now_ms <= clock_now_ms());
    switch (event->kind) {
    case EVENT_BACKEND_UP:
        rig->ups++;
        rig->is_up = true;
        rig->may_evict = event->facts.may_evict;
        text_keep(rig->version, sizeof(rig->version), event->facts.version);
        text_keep(rig->policy, sizeof(rig->policy), event->facts.policy);
        text_keep(rig->role, sizeof(rig->role), event->facts.role);
        text_keep(rig->run_id, sizeof(rig->run_id), event->facts.run_id);
        rig->server_ms = event->facts.server_ms;
        rig->asked_ms = event->facts.asked_ms;
        break;
    case EVENT_BACKEND_DOWN:
        rig->downs++;
        rig->is_up = false;
        break;
    case EVENT_BACKEND_OUTCOME:
        outcome_keep(rig, &event->outcome);
        break;
    case EVENT_TIME:
    case EVENT_SESSION_OPENED:
    case EVENT_REQUEST:
    case EVENT_BAD_REQUEST:
    case EVENT_SESSION_CLOSED:
    case EVENT_GRANT_STALE:
    case EVENT_DRAIN:
    case EVENT_CONFIGURE:
    case EVENT_CHANNEL_UP:
    case EVENT_CHANNEL_DOWN:
    case EVENT_TURN:
    case EVENT_CONTENDED:
    case EVENT_OUTSIDER:
        ck_abort_msg("an event that is not the uplink's");
    }
    rig_is_inside = was_inside;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

void rig_init(struct rig *rig, const struct server *server)
{
    (void)signal(SIGPIPE, SIG_IGN);
    memset(rig, 0, sizeof(*rig));
    ck_assert_int_eq(uv_loop_init(&rig->loop), 0);
    ck_assert_int_eq(uv_timer_init(&rig->loop, &rig->tick), 0);
    ck_assert_int_eq(uv_timer_start(&rig->tick, on_tick, 10, 10), 0);
    rig->timeout_ms = RIG_TIMEOUT_MS;
    rig->not_after_ms = LB_NONE;
    rig->options = (struct uplink_options){
        .address = {.path = server ? server->path : NULL},
        .prefix = "lock:",
        .host = RIG_HOST,
        .instance = RIG_INSTANCE,
        .connect_timeout_ms = 5000,
        .seed = 1,
        .post = on_event,
        .context = rig,
    };
}

void rig_use_tcp(struct rig *rig, const char *host, int port)
{
    rig->options.address.path = NULL;
    rig->options.address.host = host;
    rig->options.address.port = port;
}

void rig_open(struct rig *rig)
{
    ck_assert_int_eq(uplink_new(&rig->loop, &rig->options, &rig->uplink), 0);
    uplink_open(rig->uplink);
}

void rig_open_up(struct rig *rig)
{
    rig_open(rig);
    rig_await_up(rig, 1);
}

void rig_close(struct rig *rig)
{
    if (rig->uplink)
        uplink_close(rig->uplink);
    uv_close((uv_handle_t *)&rig->tick, NULL);
    ck_assert_int_eq(uv_run(&rig->loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&rig->loop), 0);
}

void rig_await(struct rig *rig, bool (*is_met)(const struct rig *rig, int64_t number),
               int64_t number)
{
    int64_t until_ms = clock_now_ms() + RIG_PATIENCE_MS;

    while (!is_met(rig, number)) {
        ck_assert_msg(clock_now_ms() < until_ms, "what the test waits for did not come");
        rig_is_inside = true;
        (void)uv_run(&rig->loop, UV_RUN_ONCE);
        rig_is_inside = false;
    }
}

static bool is_up(const struct rig *rig, int64_t ups)
{
    return rig->is_up && rig->ups >= ups;
}

static bool is_down(const struct rig *rig, int64_t downs)
{
    return rig->downs >= downs;
}

static bool is_ended(const struct rig *rig, int64_t number)
{
    return rig->ended >= (uint64_t)number;
}

void rig_await_up(struct rig *rig, int ups)
{
    rig_await(rig, is_up, ups);
}

void rig_await_down(struct rig *rig, int downs)
{
    rig_await(rig, is_down, downs);
}

void rig_await_ended(struct rig *rig)
{
    rig_await(rig, is_ended, (int64_t)rig->ops_count);
}

uint64_t rig_submit(struct rig *rig, enum backend_op_kind kind, const char *key, uint64_t serial,
                    int64_t ttl_ms, int64_t fence_floor)
{
    struct backend_op op = {.kind = kind,
                            .op_id = ++rig->ops_count,
                            .key = key,
                            .serial = serial,
                            .ttl_ms = ttl_ms,
                            .fence_floor = fence_floor,
                            .timeout_ms = rig->timeout_ms,
                            .not_after_ms = rig->not_after_ms,
                            .loss_ttl_ms = rig->loss_ttl_ms,
                            .saw_epoch = rig->saw_epoch,
                            .fences = rig->fences,
                            .queue_ms = kind == BACKEND_RELEASE ? rig->again_ms : rig->queue_ms,
                            .barges = rig->barges,
                            .wants_time = rig->wants_time};

    ck_assert_uint_le(rig->ops_count, RIG_OPS_MAX);
    rig_is_inside = true;
    uplink_submit(rig->uplink, &op);
    rig_is_inside = false;
    return op.op_id;
}

void rig_flush(struct rig *rig)
{
    rig_is_inside = true;
    uplink_flush(rig->uplink);
    rig_is_inside = false;
}

const struct backend_outcome *rig_outcome(const struct rig *rig, uint64_t op_id)
{
    ck_assert_int_eq(rig->outcomes[op_id].count, 1);
    return &rig->outcomes[op_id].outcome;
}

const struct backend_outcome *rig_run(struct rig *rig, enum backend_op_kind kind, const char *key,
                                      uint64_t serial, int64_t ttl_ms, int64_t fence_floor)
{
    uint64_t op_id = rig_submit(rig, kind, key, serial, ttl_ms, fence_floor);

    rig_flush(rig);
    rig_await_ended(rig);
    return rig_outcome(rig, op_id);
}

const struct backend_outcome *rig_acquire(struct rig *rig, const char *key, uint64_t serial,
                                          int64_t ttl_ms)
{
    return rig_run(rig, BACKEND_ACQUIRE, key, serial, ttl_ms, 0);
}

const struct backend_outcome *rig_renew(struct rig *rig, const char *key, uint64_t serial,
                                        int64_t ttl_ms)
{
    return rig_run(rig, BACKEND_RENEW, key, serial, ttl_ms, 0);
}

const struct backend_outcome *rig_release(struct rig *rig, const char *key, uint64_t serial)
{
    return rig_run(rig, BACKEND_RELEASE, key, serial, 0, 0);
}

const struct backend_outcome *rig_query(struct rig *rig, const char *key)
{
    return rig_run(rig, BACKEND_QUERY, key, 0, 0, 0);
}

const struct backend_outcome *rig_break(struct rig *rig, const char *key)
{
    return rig_run(rig, BACKEND_BREAK, key, 0, 0, 0);
}
