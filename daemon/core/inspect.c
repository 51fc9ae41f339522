// Looking at locks. Only `break` changes anything, and only on behalf of root or of the daemon's
// own user.
#include "daemon/core/inspect.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/core/hold.h"
#include "daemon/core/lease.h"
#include "daemon/core/release.h"

void hello_request(struct broker *broker, struct session *session, const struct request *request)
{
    if (session->spoke) {
        broker_refuse_field(broker, session, request, "op", "hello must be the first request");
        return;
    }
    if (request->version != LB_PROTOCOL_VERSION) {
        broker_refuse_field(broker, session, request, "version", "this broker speaks version 1");
        return;
    }
    if (request->bind != BIND_CONNECTION) {
        broker_refuse_field(broker, session, request, "bind",
                            "this broker binds to connections only");
        return;
    }
    memcpy(session->client, request->client, sizeof(session->client));

    struct reply *reply = broker_reply(broker, session, &request->id, OP_HELLO);

    reply->server = broker->server;
    reply->version = LB_PROTOCOL_VERSION;
    reply->instance = broker->instance;
    reply->host = broker->host;
    reply->ttl_max_ms = broker->ttl_max_ms;
    reply->max_wait_ms = broker->max_wait_ms;
}

void ping_request(struct broker *broker, struct session *session, const struct request *request)
{
    struct reply *reply = broker_reply(broker, session, &request->id, OP_PING);

    reply->now_ms = broker->now_ms;
    reply->backend = broker->up ? "up" : "down";
}

static void describe_local(const struct broker *broker, const struct lock *lock,
                           struct holder *holder)
{
    const struct claim *claim = lock->grant;

    holder->kind = HOLDER_LOCAL;
    holder->host = broker->host;
    holder->ttl_left_ms = lock->lease.sent_ms + lock->lease.ttl_ms - broker->now_ms;
    if (holder->ttl_left_ms < 0)
        holder->ttl_left_ms = 0;
    if (!claim || !claim->session)
        return;
    holder->pid = claim->session->peer.pid;
    holder->uid = claim->session->peer.uid;
    holder->client = claim->session->client;
    holder->note = claim->note;
    holder->fence = claim->fence;
    holder->held_ms = broker->now_ms - claim->granted_ms;
}

static void describe_rival(const struct broker *broker, const struct rival *rival,
                           struct holder *holder)
{
    holder->kind = rival->kind;
    holder->host = *rival->host ? rival->host : NULL;
    holder->without_expiry = rival->expires_ms == LB_NONE;
    if (holder->without_expiry)
        return;
    holder->ttl_left_ms = rival->expires_ms - broker->now_ms;
    if (holder->ttl_left_ms < 0)
        holder->ttl_left_ms = 0;
}

void lock_describe_holder(const struct broker *broker, const struct lock *lock,
                          struct holder *ret_holder)
{
    bool is_ours = lock->state == LOCK_HELD || lock->state == LOCK_VACANT ||
                   lock->state == LOCK_KEPT || (lock->state == LOCK_RELEASING && !lock->leaves);

    if (is_ours)
        describe_local(broker, lock, ret_holder);
    else if (lock->state != LOCK_IDLE && lock->rival)
        describe_rival(broker, lock->rival, ret_holder);
    else
        ret_holder->kind = HOLDER_NONE;
}

static struct inquiry *inquiry_new(const char *key, const char *reason)
{
    size_t key_size = strlen(key) + 1;
    size_t reason_size = strlen(reason) + 1;
    struct inquiry *inquiry = calloc(1, sizeof(*inquiry) + key_size + reason_size);

    if (!inquiry)
        return NULL;
    inquiry->key = memcpy(inquiry->texts, key, key_size);
    inquiry->reason = memcpy(inquiry->texts + key_size, reason, reason_size);
    return inquiry;
}

// A break that is executed late could take the key from another holder than was meant.
static void inquiry_send(struct broker *broker, struct inquiry *inquiry, enum backend_op_kind kind)
{
    struct backend_op *op = broker_start(broker, &inquiry->flight, kind, inquiry, inquiry->key);

    if (kind == BACKEND_BREAK)
        (void)broker_limit(broker, op, op->timeout_ms);
}

static void inquiry_begin(struct broker *broker, struct session *session,
                          const struct request *request, enum backend_op_kind kind)
{
    if (!broker->up) {
        broker_refuse(broker, session, &request->id, request->op, ERROR_UNAVAILABLE)->reason =
            "down";
        return;
    }

    struct inquiry *inquiry = inquiry_new(request->key, request->reason);

    if (!inquiry) {
        broker_refuse_memory(broker, session, request);
        return;
    }
    call_open(&inquiry->call, session, &request->id, request->op);
    inquiry_send(broker, inquiry, kind);
}

static bool lock_has_local_holder(const struct lock *lock)
{
    return lock && (lock->state == LOCK_HELD || lock->state == LOCK_KEPT);
}

void query_request(struct broker *broker, struct session *session, const struct request *request)
{
    const struct lock *lock = lock_tree_find(&broker->locks, request->key);

    if (broker->up || !lock_has_local_holder(lock)) {
        inquiry_begin(broker, session, request, BACKEND_QUERY);
        return;
    }

    // Redis cannot be asked, but of its own grants the broker knows anyway.
    struct reply *reply = broker_reply(broker, session, &request->id, OP_QUERY);

    reply->held = true;
    reply->waiters = lock_contenders_count(lock);
    lock_describe_holder(broker, lock, broker_reply_holder(broker, reply));
}

// Who broke what, and why, goes to the log when something was broken, or may have been.
static void break_fact(struct broker *broker, const struct session *session, const char *event,
                       const char *key, const char *reason)
{
    struct fact *fact = broker_fact(broker, FACT_WARNING, event, NULL);

    broker->effects->items[broker->effects->count - 1].session = session ? session->id : 0;
    fact->key = key;
    fact->reason = *reason ? reason : NULL;
}

static void break_local(struct broker *broker, struct session *session,
                        const struct request *request, struct lock *lock)
{
    break_fact(broker, session, "break", lock->name, request->reason);

    struct reply *reply = broker_reply(broker, session, &request->id, OP_BREAK);

    reply->held = true;
    lock_describe_holder(broker, lock, broker_reply_holder(broker, reply));
    broker->stats.broken++;
    if (lock->state == LOCK_HELD) {
        hold_lose(broker, lock->grant, LOSS_BROKEN);
        return;
    }

    // Lost already: it is freed as soon after this word as a held one would be.
    int64_t margin_ms = lease_margin(lock->ttl_ms);

    if (lock->kept_until_ms > broker->now_ms + margin_ms)
        lock->kept_until_ms = broker->now_ms + margin_ms;
    alarm_set(&lock->alarm, &broker->lock_alarms, lock->kept_until_ms);
}

void break_request(struct broker *broker, struct session *session, const struct request *request)
{
    struct lock *lock = lock_tree_find(&broker->locks, request->key);

    if (session->peer.uid != 0 && session->peer.uid != broker->own_uid) {
        (void)broker_refuse(broker, session, &request->id, OP_BREAK, ERROR_DENIED);
        return;
    }
    if (lock && lock->state == LOCK_VACANT) // nobody is to get the key that is going to be deleted
        release_begin(broker, lock);
    if (lock_has_local_holder(lock))
        break_local(broker, session, request, lock);
    else
        inquiry_begin(broker, session, request, BACKEND_BREAK);
}

// Of a holder seen in the backend: what is known of it here.
static void describe_seen(struct broker *broker, const struct lock *lock, const struct holder *seen,
                          struct holder *holder)
{
    if (seen->kind == HOLDER_LOCAL && lock)
        describe_local(broker, lock, holder);
    holder->kind = seen->kind;
    holder->ttl_left_ms = seen->ttl_left_ms;
    holder->without_expiry = seen->without_expiry;
    if (seen->kind == HOLDER_LOCAL)
        holder->host = broker->host;
    else
        holder->host = seen->host;
}

static void inquiry_fail(struct broker *broker, struct inquiry *inquiry, enum backend_result result)
{
    if (result == RESULT_CONFLICT) {
        (void)call_refuse(broker, &inquiry->call, ERROR_CONFLICT);
        return;
    }
    if (result == RESULT_UNKNOWN && inquiry->call.op == OP_BREAK)
        break_fact(broker, inquiry->call.session, "break_unconfirmed", inquiry->key,
                   inquiry->reason);
    call_refuse(broker, &inquiry->call, ERROR_UNAVAILABLE)->reason =
        result == RESULT_REFUSED ? "refused" : "down";
}

// A break that overtook a grant: its key is gone, so its holder must know at once.
static void break_overtook(struct broker *broker, struct lock *lock, const struct holder *seen)
{
    if (!lock || lock->state != LOCK_HELD || seen->kind != HOLDER_LOCAL)
        return;
    hold_lose(broker, lock->grant, LOSS_BROKEN);
    lock->gone = true;
}

static void break_wake(struct broker *broker, struct lock *lock)
{
    if (!lock || lock->state != LOCK_BLOCKED)
        return;
    lock->paused = false;
    broker_mark_dirty(broker, lock);
}

void inquiry_outcome(struct broker *broker, struct inquiry *inquiry,
                     const struct backend_outcome *outcome)
{
    struct lock *lock = lock_tree_find(&broker->locks, inquiry->key);
    bool is_break = inquiry->call.op == OP_BREAK;

    if (outcome->result == RESULT_LATE && broker->up) {
        inquiry_send(broker, inquiry, BACKEND_BREAK);
        return;
    }
    graveyard_bury(&broker->graves, &inquiry->grave);
    if (outcome->result != RESULT_OK) {
        inquiry_fail(broker, inquiry, outcome->result);
        return;
    }

    const struct session *session = inquiry->call.session;
    struct reply *reply = call_answer(broker, &inquiry->call);

    reply->held = outcome->holder.kind != HOLDER_NONE;
    reply->waiters = is_break ? LB_NONE : (lock ? lock_contenders_count(lock) : 0);
    describe_seen(broker, lock, &outcome->holder, broker_reply_holder(broker, reply));
    if (!is_break || !reply->held)
        return;
    broker->stats.broken++;
    break_fact(broker, session, "break", inquiry->key, inquiry->reason);
    break_overtook(broker, lock, &outcome->holder);
    break_wake(broker, lock);
}

static bool is_prefix(const char *prefix, const char *text)
{
    return strncmp(prefix, text, strlen(prefix)) == 0;
}

static struct lock *list_first(struct broker *broker, const struct request *request)
{
    if (strcmp(request->after, request->prefix) < 0)
        return lock_tree_from(&broker->locks, request->prefix);

    struct lock *lock = lock_tree_from(&broker->locks, request->after);

    if (lock && *request->after && strcmp(lock->name, request->after) == 0)
        return lock_tree_next(lock);
    return lock;
}

static void list_fill_row(const struct broker *broker, const struct lock *lock,
                          struct lock_row *row)
{
    *row = (struct lock_row){
        .key = lock->name,
        .waiters = lock_contenders_count(lock),
        .state = lock_state_name(lock),
        .holder = holder_unknown(),
    };
    lock_describe_holder(broker, lock, &row->holder);
}

void list_request(struct broker *broker, struct session *session, const struct request *request)
{
    size_t rows_max = (size_t)request->limit;
    struct page *page = calloc(1, sizeof(*page) + rows_max * sizeof(page->rows[0]));
    struct lock *lock = list_first(broker, request);
    size_t count = 0;

    if (!page) {
        broker_refuse_memory(broker, session, request);
        return;
    }
    graveyard_bury(&broker->graves, &page->grave);
    while (lock && is_prefix(request->prefix, lock->name) && count < rows_max) {
        list_fill_row(broker, lock, &page->rows[count++]);
        lock = lock_tree_next(lock);
    }

    struct reply *reply = broker_reply(broker, session, &request->id, OP_LIST);

    reply->rows = page->rows;
    reply->rows_count = count;
    reply->more = lock && is_prefix(request->prefix, lock->name);
}

static int64_t quarantine_left_ms(const struct broker *broker)
{
    int64_t left_ms = broker->quarantine_until_ms - broker->now_ms;

    return left_ms > 0 ? left_ms : 0;
}

static size_t list_gauges(const struct broker *broker, struct stat_value *values)
{
    const struct stat_value gauges[] = {
        {"backend_up", broker->up},
        {"backend_may_evict", broker->may_evict},
        {"draining", broker->draining},
        {"sessions", (int64_t)broker->sessions_count},
        {"locks", (int64_t)broker->locks_count},
        {"held", (int64_t)broker->held_count},
        {"owed", (int64_t)broker->owed_count},
        {"waiting", (int64_t)broker->waiting_count},
        {"quarantine_ms", quarantine_left_ms(broker)},
    };

    memcpy(values, gauges, sizeof(gauges));
    return LB_ARRAY_LENGTH(gauges);
}

static const char *text_or_null(const char *text)
{
    return *text ? text : NULL;
}

void stats_request(struct broker *broker, struct session *session, const struct request *request)
{
    struct stats_view *view = &broker->stats_view;
    struct stats_page *page = &view->page;

    stats_list(&broker->stats, view->counters);
    view->histograms[0] = histogram_view(&broker->stats.wait_ms, "wait_ms");
    view->histograms[1] = histogram_view(&broker->stats.hold_ms, "hold_ms");
    view->histograms[2] = histogram_view(&broker->stats.renewal_late_ms, "renewal_late_ms");
    *page = (struct stats_page){
        .counters = view->counters,
        .counters_count = STATS_COUNTERS,
        .gauges = view->gauges,
        .gauges_count = list_gauges(broker, view->gauges),
        .histograms = view->histograms,
        .histograms_count = LB_ARRAY_LENGTH(view->histograms),
        .backend_kind = broker->backend_kind,
        .backend_state = broker->up ? "up" : "down",
        .backend_role = text_or_null(broker->backend_role),
        .backend_version = text_or_null(broker->backend_version),
        .backend_policy = text_or_null(broker->backend_policy),
        .backend_may_evict = broker->may_evict,
    };
    broker_reply(broker, session, &request->id, OP_STATS)->stats = page;
}
