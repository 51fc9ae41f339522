// Keeps operations in three lists and moves them along. All formatting happens when the queue is
// sent, so that the time a lease counts from is read right before its command is made, and renewals
// of one loop turn share few script calls. It may not close or reopen the link: it only says that
// the link is bad.
#include "daemon/redis/exchange.h"

#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/redis/command.h"
#include "daemon/redis/refusal.h"

// One operation. One command carries several renewals: they stand behind each other in `sent`, the
// first with their number.
struct flight {
    STAILQ_ENTRY(flight) entry;
    struct backend_op op; // op.key is not valid
    int64_t sent_ms;
    int64_t deadline_ms; // from the first try, when a script had to be sent again
    uint64_t start;      // where its command begins in the connection's bytes
    size_t batch;        // operations in its command; 0: not the first of them
    bool is_text;        // the command carries the script's text
    size_t key_length;
    char key[];
};

void exchange_init(struct exchange *exchange)
{
    exchange->wire = NULL;
    STAILQ_INIT(&exchange->renewals);
    STAILQ_INIT(&exchange->others);
    STAILQ_INIT(&exchange->sent);
    exchange->soonest_ms = INT64_MAX;
}

static void outcome_post(struct exchange *exchange, struct backend_outcome *outcome)
{
    struct event event = {.kind = EVENT_BACKEND_OUTCOME, .now_ms = clock_now_ms()};

    event.outcome = *outcome;
    exchange->post(exchange->context, &event);
}

static struct backend_outcome outcome_make(uint64_t op_id, enum backend_result result,
                                           int64_t sent_ms)
{
    return (struct backend_outcome){
        .op_id = op_id,
        .result = result,
        .sent_ms = sent_ms,
        .server_ms = LB_NONE,
        .fence = LB_NONE,
        .ends_in_ms = LB_NONE,
        .holder = {.kind = HOLDER_NONE,
                   .pid = LB_NONE,
                   .uid = LB_NONE,
                   .fence = LB_NONE,
                   .held_ms = LB_NONE,
                   .ttl_left_ms = LB_NONE},
    };
}

static void unsent_post(struct exchange *exchange, uint64_t op_id, enum backend_result result)
{
    struct backend_outcome outcome = outcome_make(op_id, result, LB_NONE);

    outcome_post(exchange, &outcome);
}

// Posts the outcome of an operation that was sent, and frees it.
static void flight_end(struct exchange *exchange, struct flight *flight, enum backend_result result)
{
    struct backend_outcome outcome = outcome_make(flight->op.op_id, result, flight->sent_ms);

    if (result == RESULT_NOT_SENT)
        outcome.sent_ms = LB_NONE;
    outcome_post(exchange, &outcome);
    free(flight);
}

static struct flight *list_take(struct flight_list *list)
{
    struct flight *flight = STAILQ_FIRST(list);

    if (flight)
        STAILQ_REMOVE_HEAD(list, entry);
    return flight;
}

static void list_end(struct exchange *exchange, struct flight_list *list,
                     enum backend_result result)
{
    struct flight *flight;

    while ((flight = list_take(list)))
        flight_end(exchange, flight, result);
}

static void list_free(struct flight_list *list)
{
    struct flight *flight;

    while ((flight = list_take(list)))
        free(flight);
}

void exchange_start(struct exchange *exchange, struct wire *wire, const struct script_names *names)
{
    exchange->wire = wire;
    exchange->server = (struct command_server){.names = *names};
}

void exchange_fail(struct exchange *exchange)
{
    struct flight *flight;
    uint64_t written;

    if (!exchange->wire)
        return;
    written = wire_written(exchange->wire);
    exchange->wire = NULL;
    exchange->soonest_ms = INT64_MAX;
    while ((flight = list_take(&exchange->sent)))
        flight_end(exchange, flight, flight->start < written ? RESULT_UNKNOWN : RESULT_NOT_SENT);
    list_end(exchange, &exchange->renewals, RESULT_NOT_SENT);
    list_end(exchange, &exchange->others, RESULT_NOT_SENT);
}

void exchange_deinit(struct exchange *exchange)
{
    exchange->wire = NULL;
    list_free(&exchange->sent);
    list_free(&exchange->renewals);
    list_free(&exchange->others);
}

static struct flight *flight_new(const char *prefix, const struct backend_op *op)
{
    size_t prefix_length = strlen(prefix);
    size_t name_length = strlen(op->key);
    struct flight *flight = malloc(sizeof(*flight) + prefix_length + name_length + 1);

    if (!flight)
        return NULL;
    *flight = (struct flight){.op = *op, .key_length = prefix_length + name_length};
    flight->op.key = NULL;
    memcpy(flight->key, prefix, prefix_length);
    memcpy(flight->key + prefix_length, op->key, name_length + 1);
    return flight;
}

// True for a key that is, or might become, one of our own helper keys.
static bool flight_is_meta(const struct flight *flight)
{
    return strncmp(flight->key, COMMAND_META_START, strlen(COMMAND_META_START)) == 0;
}

void exchange_submit(struct exchange *exchange, const struct backend_op *op)
{
    struct flight *flight;

    if (!exchange->wire) {
        unsent_post(exchange, op->op_id, RESULT_NOT_SENT);
        return;
    }
    flight = flight_new(exchange->prefix, op);
    if (!flight) {
        unsent_post(exchange, op->op_id, RESULT_NOT_SENT);
        return;
    }
    if (flight_is_meta(flight)) {
        free(flight);
        unsent_post(exchange, op->op_id, RESULT_CONFLICT);
        return;
    }
    if (op->kind == BACKEND_RENEW)
        STAILQ_INSERT_TAIL(&exchange->renewals, flight, entry);
    else
        STAILQ_INSERT_TAIL(&exchange->others, flight, entry);
}

// Puts one command for all of `batch` on the wire and moves them to `sent`; when that fails they
// are ended as not sent.
static void batch_send(struct exchange *exchange, struct flight_list *batch, size_t count,
                       bool as_text)
{
    struct command_op ops[COMMAND_KEYS_MAX];
    struct flight *first = STAILQ_FIRST(batch);
    int64_t now_ms = clock_now_ms();
    struct flight *flight;
    char *bytes = NULL;
    size_t length = 0, i = 0;
    int rc;

    STAILQ_FOREACH(flight, batch, entry)
    {
        ops[i++] = (struct command_op){&flight->op, flight->key, flight->key_length};
        flight->sent_ms = now_ms;
        flight->batch = 0;
        flight->is_text = as_text;
        if (!as_text)
            flight->deadline_ms = now_ms + flight->op.timeout_ms;
        if (flight->deadline_ms < exchange->soonest_ms)
            exchange->soonest_ms = flight->deadline_ms;
    }
    lb_assert(i == count);
    rc = command_format(&exchange->maker, &exchange->server, ops, count, as_text, &bytes, &length);
    if (rc == 0)
        rc = wire_append(exchange->wire, bytes, length, &first->start);
    command_free(bytes, length);
    if (rc < 0) {
        list_end(exchange, batch, RESULT_NOT_SENT);
        return;
    }
    STAILQ_FOREACH(flight, batch, entry)
    flight->start = first->start;
    first->batch = count;
    exchange->figures.commands++;
    exchange->figures.renewal_calls += first->op.kind == BACKEND_RENEW;
    STAILQ_CONCAT(&exchange->sent, batch);
}

// Moves up to `count_max` operations from the front of `from` to the empty `ret_batch`; returns how
// many.
static size_t batch_take(struct flight_list *from, size_t count_max, struct flight_list *ret_batch)
{
    struct flight *flight;
    size_t count = 0;

    STAILQ_INIT(ret_batch);
    while (count < count_max && (flight = list_take(from))) {
        STAILQ_INSERT_TAIL(ret_batch, flight, entry);
        count++;
    }
    return count;
}

// Renewals first: a release of the same turn may follow the renewal of its own key, never the other
// way round.
void exchange_send(struct exchange *exchange)
{
    struct flight_list batch;
    size_t count;

    if (!exchange->wire)
        return;
    while ((count = batch_take(&exchange->renewals, COMMAND_KEYS_MAX, &batch)) > 0)
        batch_send(exchange, &batch, count, false);
    while ((count = batch_take(&exchange->others, 1, &batch)) > 0)
        batch_send(exchange, &batch, count, false);
}

// True when a release of the same token was sent: it is done with by now, and an operation on it
// that was not executed before must not be executed after.
static bool token_is_released(const struct exchange *exchange, uint64_t serial)
{
    const struct flight *flight;

    STAILQ_FOREACH(flight, &exchange->sent, entry)
    {
        if (flight->op.kind == BACKEND_RELEASE && flight->op.serial == serial)
            return true;
    }
    return false;
}

static bool kind_has_token(enum backend_op_kind kind)
{
    return kind == BACKEND_ACQUIRE || kind == BACKEND_RENEW;
}

// The server has forgotten the script: none of it was executed. Sends it again with its text.
static void batch_resend(struct exchange *exchange, struct flight_list *batch)
{
    struct flight_list again;
    struct flight *flight;
    size_t count = 0;

    STAILQ_INIT(&again);
    while ((flight = list_take(batch))) {
        if (kind_has_token(flight->op.kind) && token_is_released(exchange, flight->op.serial)) {
            flight_end(exchange, flight, RESULT_NOT_SENT);
            continue;
        }
        STAILQ_INSERT_TAIL(&again, flight, entry);
        count++;
    }
    if (count > 0)
        batch_send(exchange, &again, count, true);
}

// Says which code an operation was refused with. Neither its key nor the error's text goes into the
// line: a server may repeat a token there.
static void refusal_log(struct exchange *exchange, enum backend_op_kind kind, const char *text)
{
    char code[REFUSAL_CODE_BYTES_MAX + 1];
    struct log_line line;
    int64_t held_back;

    exchange->figures.refused++;
    refusal_code(text, code);
    if (!gate_pass(&exchange->refusals[kind], code, clock_now_ms(), &held_back))
        return;
    log_begin(&line, LOG_LEVEL_WARNING, "redis_refused");
    log_text(&line, "command", script_label(kind));
    log_text(&line, "code", code);
    log_text(&line, "hint", refusal_hint(code));
    log_number(&line, "not_logged", held_back > 0 ? held_back : LB_NONE);
    log_end(&line);
}

static bool error_take(struct exchange *exchange, struct flight_list *batch, const char *text,
                       const char **ret_reason)
{
    struct flight *first = STAILQ_FIRST(batch);
    enum refusal refusal = refusal_classify(text);
    bool is_good = refusal != REFUSAL_ROLE;

    if (refusal == REFUSAL_NOSCRIPT && !first->is_text) {
        batch_resend(exchange, batch);
        return true;
    }
    refusal_log(exchange, first->op.kind, text);
    list_end(exchange, batch, refusal == REFUSAL_UNKNOWN ? RESULT_UNKNOWN : RESULT_REFUSED);
    if (!is_good)
        *ret_reason = "the server changed its role or is loading";
    return is_good;
}

static void late_count(struct exchange *exchange, const struct flight *flight)
{
    if (clock_now_ms() >= flight->deadline_ms)
        exchange->figures.late_outcomes++;
}

// Reads one operation's part of the reply; the operation stays on its list. Returns false when the
// reply does not fit.
static bool reply_read(struct exchange *exchange, const struct flight *flight,
                       const struct resp *reply, size_t index, size_t count)
{
    struct backend_outcome outcome =
        outcome_make(flight->op.op_id, RESULT_UNKNOWN, flight->sent_ms);
    char host[LB_HOST_BYTES_MAX + 1];

    if (command_read(&exchange->maker, &flight->op, reply, index, count, host, &outcome) < 0)
        return false;
    command_learn(&exchange->server, &flight->op, reply);
    late_count(exchange, flight);
    outcome_post(exchange, &outcome);
    return true;
}

bool exchange_take(struct exchange *exchange, const struct resp *reply, const char **ret_reason)
{
    struct flight *flight = STAILQ_FIRST(&exchange->sent);
    struct flight_list batch;
    size_t count, index = 0;

    if (!flight) {
        *ret_reason = "a reply to nothing";
        return false;
    }
    count = batch_take(&exchange->sent, flight->batch, &batch);
    if (reply->kind == RESP_ERROR)
        return error_take(exchange, &batch, reply->text, ret_reason);
    while ((flight = STAILQ_FIRST(&batch))) {
        if (!reply_read(exchange, flight, reply, index++, count)) {
            list_end(exchange, &batch, RESULT_UNKNOWN);
            *ret_reason = "an unexpected reply";
            return false;
        }
        free(list_take(&batch));
    }
    return true;
}

int64_t exchange_deadline(struct exchange *exchange)
{
    const struct flight *flight;

    exchange->soonest_ms = INT64_MAX;
    STAILQ_FOREACH(flight, &exchange->sent, entry)
    {
        if (flight->deadline_ms < exchange->soonest_ms)
            exchange->soonest_ms = flight->deadline_ms;
    }
    return exchange->soonest_ms;
}
