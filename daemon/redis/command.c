// Turns operations into commands and replies into outcomes. It trusts no reply: each is checked for
// its whole shape before any of it is used, and a shape that our scripts do not have is an error.
#include "daemon/redis/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/decimal.h"

// Script, number of keys, two helper keys, six words for all, then of each renewal key, token, ttl
// and number of fences.
#define COMMAND_WORDS_MAX (3 + 2 + 6 + 4 * COMMAND_KEYS_MAX)

// A lock's key is its prefix and its name.
#define QUEUE_KEY_BYTES_MAX (sizeof(COMMAND_QUEUE_START) - 1 + 256 + LB_KEY_BYTES_MAX)

// Items in the answer to an acquire that succeeded, without and with the epoch marker.
#define FENCE_ITEMS  5
#define MARKER_ITEMS 6

enum script_status {
    STATUS_NO = 0, // gone, free; acquire: held by another
    STATUS_YES = 1,
    STATUS_STOLEN = 2,
    STATUS_CONFLICT = 3,
    STATUS_LATE = 4,
    STATUS_QUARANTINED = 5, // acquire
    STATUS_QUEUED = 6,      // acquire
    STATUS_SET_AGAIN = 6,   // renew
    STATUS_NOT_SET = 7,     // renew
    STATUS_MAX = 7,         // renew: what is above it is a fence
};

// A command under construction. Words are borrowed, or lie in the arrays here.
struct words {
    size_t count;
    const char *text[COMMAND_WORDS_MAX];
    size_t length[COMMAND_WORDS_MAX];
    char tokens[COMMAND_KEYS_MAX][TOKEN_BYTES_MAX + 1];
    size_t tokens_count;
    char numbers[2 * COMMAND_KEYS_MAX + 5][DECIMAL_BYTES_MAX];
    size_t numbers_count;
    char queue_key[QUEUE_KEY_BYTES_MAX];
    char rest[3 * (DECIMAL_BYTES_MAX + 1) + TOKEN_QUEUE_ID_LENGTH + 2];
};

static void words_add(struct words *words, const char *text, size_t length)
{
    lb_assert(words->count < COMMAND_WORDS_MAX);
    words->text[words->count] = text;
    words->length[words->count++] = length;
}

static void words_add_text(struct words *words, const char *text)
{
    words_add(words, text, strlen(text));
}

static void words_add_number(struct words *words, int64_t number)
{
    char *text = words->numbers[words->numbers_count++];

    lb_assert(words->numbers_count <= LB_ARRAY_LENGTH(words->numbers));
    words_add(words, text, decimal_write(number, text));
}

static void words_add_token(struct words *words, const struct token_maker *maker, uint64_t serial)
{
    char *token = words->tokens[words->tokens_count++];

    lb_assert(words->tokens_count <= COMMAND_KEYS_MAX);
    words_add(words, token, token_write(maker, serial, token));
}

// "*3\r\n" and "$3\r\n": what stands before all words and before each.
static char *header_put(char *at, char kind, size_t number)
{
    *at++ = kind;
    at += decimal_write_unsigned(number, at);
    *at++ = '\r';
    *at++ = '\n';
    return at;
}

#define HEADER_BYTES_MAX (1 + DECIMAL_BYTES_MAX + 2)

static int words_format(const struct words *words, char **ret_bytes, size_t *ret_length)
{
    size_t room = HEADER_BYTES_MAX;
    char *bytes, *at;

    for (size_t i = 0; i < words->count; i++)
        room += HEADER_BYTES_MAX + words->length[i] + 2;
    at = bytes = malloc(room);
    if (!bytes)
        return -ENOMEM;
    at = header_put(at, '*', words->count);
    for (size_t i = 0; i < words->count; i++) {
        at = header_put(at, '$', words->length[i]);
        memcpy(at, words->text[i], words->length[i]);
        at += words->length[i];
        *at++ = '\r';
        *at++ = '\n';
    }
    *ret_bytes = bytes;
    *ret_length = (size_t)(at - bytes);
    return 0;
}

static void words_add_limit(struct words *words, int64_t not_after_ms)
{
    if (not_after_ms == LB_NONE)
        words_add_text(words, "");
    else
        words_add_number(words, not_after_ms);
}

// The marker is of use only to who waits out no longer locks than it speaks of.
static void words_add_marker(struct words *words, const struct command_server *server,
                             int64_t loss_ttl_ms)
{
    if (loss_ttl_ms == 0)
        words_add_text(words, "-");
    else
        words_add_text(words, loss_ttl_ms <= server->marker_ttl_ms ? server->marker : "");
}

static void words_add_queue_key(struct words *words, const struct command_op *op)
{
    const size_t start = sizeof(COMMAND_QUEUE_START) - 1;

    lb_assert(op->key_length <= sizeof(words->queue_key) - start);
    memcpy(words->queue_key, COMMAND_QUEUE_START, start);
    memcpy(words->queue_key + start, op->key, op->key_length);
    words_add(words, words->queue_key, start + op->key_length);
}

static size_t number_put(char *at, int64_t number)
{
    size_t length = decimal_write(number, at);

    at[length] = ' ';
    return length + 1;
}

// What an acquire needs in rare cases alone, as one word.
static void words_add_rest(struct words *words, const struct token_maker *maker,
                           const struct backend_op *op)
{
    char *at = words->rest;

    at += number_put(at, op->loss_ttl_ms);
    at += number_put(at, op->saw_epoch);
    memcpy(at, maker->queue_id, TOKEN_QUEUE_ID_LENGTH);
    at += TOKEN_QUEUE_ID_LENGTH;
    *at++ = ' ';
    at += number_put(at, op->queue_ms);
    *at++ = op->barges ? '1' : '0';
    words_add(words, words->rest, (size_t)(at - words->rest));
}

static void words_add_acquire(struct words *words, const struct token_maker *maker,
                              const struct command_server *server, const struct command_op *op)
{
    words_add_number(words, 4);
    words_add(words, op->key, op->key_length);
    words_add_text(words, COMMAND_FENCE_KEY);
    words_add_text(words, COMMAND_EPOCH_KEY);
    words_add_queue_key(words, op);
    words_add_token(words, maker, op->op->serial);
    words_add_number(words, op->op->ttl_ms);
    words_add_limit(words, op->op->not_after_ms);
    words_add_number(words, op->op->fence_floor);
    words_add_marker(words, server, op->op->loss_ttl_ms);
    words_add_number(words, op->op->fences > 1 ? op->op->fences : 1);
    words_add_rest(words, maker, op->op);
}

// What a renewal has in common with the others of its command: of each the stricter.
static struct backend_op renewals_join(const struct command_op *ops, size_t count)
{
    struct backend_op joint = *ops[0].op;

    for (size_t i = 1; i < count; i++) {
        const struct backend_op *op = ops[i].op;

        if (op->fence_floor > joint.fence_floor)
            joint.fence_floor = op->fence_floor;
        if (op->not_after_ms != LB_NONE &&
            (joint.not_after_ms == LB_NONE || op->not_after_ms < joint.not_after_ms))
            joint.not_after_ms = op->not_after_ms;
        if (op->loss_ttl_ms > joint.loss_ttl_ms)
            joint.loss_ttl_ms = op->loss_ttl_ms;
        joint.saw_epoch = joint.saw_epoch || op->saw_epoch;
    }
    return joint;
}

static bool renewals_have_one_ttl(const struct command_op *ops, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (ops[i].op->ttl_ms != ops[0].op->ttl_ms)
            return false;
    }
    return true;
}

static bool renewals_want_fences(const struct command_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ops[i].op->fences > 0)
            return true;
    }
    return false;
}

static void words_add_renewals(struct words *words, const struct token_maker *maker,
                               const struct command_server *server, const struct command_op *ops,
                               size_t count)
{
    struct backend_op joint = renewals_join(ops, count);
    bool has_one_ttl = renewals_have_one_ttl(ops, count);
    bool wants_fences = renewals_want_fences(ops, count);

    words_add_number(words, (int64_t)count + 2);
    words_add_text(words, COMMAND_FENCE_KEY);
    words_add_text(words, COMMAND_EPOCH_KEY);
    for (size_t i = 0; i < count; i++)
        words_add(words, ops[i].key, ops[i].key_length);
    words_add_number(words, joint.fence_floor);
    words_add_limit(words, joint.not_after_ms);
    words_add_number(words, joint.loss_ttl_ms);
    words_add_text(words, joint.saw_epoch ? "1" : "0");
    words_add_marker(words, server, joint.loss_ttl_ms);
    if (has_one_ttl)
        words_add_number(words, joint.ttl_ms);
    else
        words_add_text(words, "");
    for (size_t i = 0; i < count; i++)
        words_add_token(words, maker, ops[i].op->serial);
    for (size_t i = 0; i < count && !has_one_ttl; i++)
        words_add_number(words, ops[i].op->ttl_ms);
    for (size_t i = 0; i < count && wants_fences; i++)
        words_add_number(words, ops[i].op->fences);
}

// The operations that may free the lock, and give the next broker in its queue the turn.
static void words_add_freeing(struct words *words, const struct token_maker *maker,
                              const struct command_op *op)
{
    words_add_number(words, 2);
    words_add(words, op->key, op->key_length);
    words_add_queue_key(words, op);
    if (op->op->kind == BACKEND_RELEASE) {
        words_add_token(words, maker, op->op->serial);
        words_add_text(words, maker->queue_id);
        if (op->op->queue_ms > 0 || op->op->wants_time)
            words_add_number(words, op->op->queue_ms);
    } else {
        words_add_limit(words, op->op->not_after_ms);
    }
}

static void words_add_query(struct words *words, const struct command_op *op)
{
    words_add_number(words, 1);
    words_add(words, op->key, op->key_length);
}

static void words_add_op(struct words *words, const struct token_maker *maker,
                         const struct command_server *server, const struct command_op *ops,
                         size_t count)
{
    switch (ops[0].op->kind) {
    case BACKEND_ACQUIRE:
        words_add_acquire(words, maker, server, ops);
        break;
    case BACKEND_RENEW:
        words_add_renewals(words, maker, server, ops, count);
        break;
    case BACKEND_RELEASE:
    case BACKEND_BREAK:
        words_add_freeing(words, maker, ops);
        break;
    case BACKEND_QUERY:
    default:
        words_add_query(words, ops);
        break;
    }
}

int command_format(const struct token_maker *maker, const struct command_server *server,
                   const struct command_op *ops, size_t count, bool as_text, char **ret_bytes,
                   size_t *ret_length)
{
    enum backend_op_kind kind = ops[0].op->kind;
    struct words words;

    lb_assert(count == 1 || (count <= COMMAND_KEYS_MAX && kind == BACKEND_RENEW));
    words.count = words.tokens_count = words.numbers_count = 0;
    words_add_text(&words, as_text ? "EVAL" : "EVALSHA");
    words_add_text(&words, as_text ? script_text(kind) : server->names.sha[kind]);
    words_add_op(&words, maker, server, ops, count);
    return words_format(&words, ret_bytes, ret_length);
}

int command_format_words(const char *const *texts, size_t count, char **ret_bytes,
                         size_t *ret_length)
{
    struct words words;

    words.count = words.tokens_count = words.numbers_count = 0;
    for (size_t i = 0; i < count; i++)
        words_add_text(&words, texts[i]);
    return words_format(&words, ret_bytes, ret_length);
}

void command_free(char *bytes, size_t length)
{
    if (!bytes)
        return;
    explicit_bzero(bytes, length);
    free(bytes);
}

// True when the item is there and of that kind.
static bool item_is(const struct resp *reply, size_t index, enum resp_kind kind)
{
    return index < reply->count && reply->items[index].kind == kind;
}

// The holder from {time, status, pttl, value}.
static int holder_read(const struct token_maker *maker, const struct resp *reply,
                       char ret_host[LB_HOST_BYTES_MAX + 1], struct holder *ret_holder)
{
    const struct resp *value;
    int64_t pttl;

    if (reply->count != 4 || !item_is(reply, 2, RESP_INTEGER) || !item_is(reply, 3, RESP_TEXT))
        return -EPROTO;
    pttl = reply->items[2].integer;
    value = &reply->items[3];
    if (pttl < -1)
        return -EPROTO;
    ret_holder->kind = token_classify(maker, value->text, value->length, ret_host);
    ret_holder->host = ret_host[0] ? ret_host : NULL;
    ret_holder->without_expiry = pttl == -1;
    ret_holder->ttl_left_ms = pttl == -1 ? LB_NONE : pttl;
    return 0;
}

static bool fence_fits(const struct backend_op *op, int64_t fence)
{
    return fence > op->fence_floor && fence <= LB_INTEGER_MAX;
}

// {time, status, first fence, number of fences, brokers in the queue}, and the epoch marker when it
// says that nothing is to be waited for.
static int fence_read(const struct backend_op *op, const struct resp *reply,
                      struct backend_outcome *ret_outcome)
{
    bool has_marker = reply->count == MARKER_ITEMS && item_is(reply, FENCE_ITEMS, RESP_TEXT);

    if ((reply->count != FENCE_ITEMS && !has_marker) || !item_is(reply, 2, RESP_INTEGER) ||
        !item_is(reply, 3, RESP_INTEGER) || !item_is(reply, 4, RESP_INTEGER))
        return -EPROTO;
    if (!fence_fits(op, reply->items[2].integer) || reply->items[3].integer < 1 ||
        reply->items[3].integer > (op->fences > 1 ? op->fences : 1))
        return -EPROTO;
    ret_outcome->result = RESULT_OK;
    ret_outcome->fence = reply->items[2].integer;
    ret_outcome->fences = reply->items[3].integer;
    ret_outcome->others_queue = reply->items[4].integer > 0;
    return 0;
}

// An answer that it cannot be had for some time yet.
static int later_read(const struct resp *reply, enum backend_result result,
                      struct backend_outcome *ret_outcome)
{
    if (reply->count != 3 || !item_is(reply, 2, RESP_INTEGER) || reply->items[2].integer < 1 ||
        reply->items[2].integer > LB_INTEGER_MAX)
        return -EPROTO;
    ret_outcome->result = result;
    ret_outcome->ends_in_ms = reply->items[2].integer;
    return 0;
}

// An answer of the status alone.
static int bare_read(const struct resp *reply, enum backend_result result,
                     struct backend_outcome *ret_outcome)
{
    if (reply->count != 2)
        return -EPROTO;
    ret_outcome->result = result;
    return 0;
}

static int acquire_read(const struct token_maker *maker, const struct backend_op *op,
                        const struct resp *reply, int64_t status,
                        char ret_host[LB_HOST_BYTES_MAX + 1], struct backend_outcome *ret_outcome)
{
    switch (status) {
    case STATUS_YES:
        return fence_read(op, reply, ret_outcome);
    case STATUS_NO:
        ret_outcome->result = RESULT_BUSY;
        return holder_read(maker, reply, ret_host, &ret_outcome->holder);
    case STATUS_CONFLICT:
        return bare_read(reply, RESULT_CONFLICT, ret_outcome);
    case STATUS_LATE:
        return bare_read(reply, RESULT_LATE, ret_outcome);
    case STATUS_QUARANTINED:
        return later_read(reply, RESULT_QUARANTINED, ret_outcome);
    case STATUS_QUEUED:
        return later_read(reply, RESULT_QUEUED, ret_outcome);
    default:
        return -EPROTO;
    }
}

static int renewal_read(const struct backend_op *op, int64_t status,
                        struct backend_outcome *ret_outcome)
{
    static const enum backend_result results[] = {
        [STATUS_NO] = RESULT_GONE,       [STATUS_YES] = RESULT_OK,
        [STATUS_STOLEN] = RESULT_STOLEN, [STATUS_CONFLICT] = RESULT_CONFLICT,
        [STATUS_LATE] = RESULT_LATE,     [STATUS_QUARANTINED] = RESULT_UNKNOWN,
        [STATUS_SET_AGAIN] = RESULT_OK,  [STATUS_NOT_SET] = RESULT_REFUSED,
    };

    if (status > STATUS_MAX && op->fences > 0 && fence_fits(op, status)) {
        ret_outcome->result = RESULT_OK;
        ret_outcome->fence = status;
        ret_outcome->fences = op->fences;
        return 0;
    }
    if (status < 0 || status > STATUS_MAX || status == STATUS_QUARANTINED)
        return -EPROTO;
    ret_outcome->result = results[status];
    ret_outcome->was_missing = status == STATUS_SET_AGAIN;
    return 0;
}

// {time, status}, and whether another broker was given its turn; without that for a key of another
// type.
static int release_read(const struct backend_op *op, const struct resp *reply, int64_t status,
                        struct backend_outcome *ret_outcome)
{
    if (status < STATUS_NO || status > STATUS_CONFLICT)
        return -EPROTO;
    if (status != STATUS_CONFLICT) {
        if (reply->count != 3 || !item_is(reply, 2, RESP_INTEGER))
            return -EPROTO;
        ret_outcome->gave_turn = reply->items[2].integer != 0;
    } else if (reply->count != 2) {
        return -EPROTO;
    }
    return renewal_read(op, status, ret_outcome);
}

static int look_read(const struct token_maker *maker, const struct backend_op *op,
                     const struct resp *reply, int64_t status, char ret_host[LB_HOST_BYTES_MAX + 1],
                     struct backend_outcome *ret_outcome)
{
    if (status == STATUS_YES) {
        ret_outcome->result = RESULT_OK;
        return holder_read(maker, reply, ret_host, &ret_outcome->holder);
    }
    if (status == STATUS_NO) {
        ret_outcome->holder.kind = HOLDER_NONE;
        return bare_read(reply, RESULT_OK, ret_outcome);
    }
    if (status == STATUS_CONFLICT)
        return bare_read(reply, RESULT_CONFLICT, ret_outcome);
    if (status == STATUS_LATE && op->kind == BACKEND_BREAK)
        return bare_read(reply, RESULT_LATE, ret_outcome);
    return -EPROTO;
}

// The short answer to an acquire: the server's time in microseconds, which is the fence as well.
static int acquired_read(const struct backend_op *op, const struct resp *reply,
                         struct backend_outcome *ret_outcome)
{
    int64_t micros = 0;

    if (reply->length < 1 || reply->length > 16)
        return -EPROTO;
    for (size_t i = 0; i < reply->length; i++) {
        if (reply->text[i] < '0' || reply->text[i] > '9')
            return -EPROTO;
        micros = micros * 10 + (reply->text[i] - '0');
    }
    if (!fence_fits(op, micros))
        return -EPROTO;
    ret_outcome->result = RESULT_OK;
    ret_outcome->server_ms = micros / 1000;
    ret_outcome->fence = micros;
    ret_outcome->fences = 1;
    ret_outcome->others_queue = false;
    return 0;
}

// The short answer to renewals: the server's time, and all are renewed.
static int renewed_read(const struct backend_op *op, const struct resp *reply,
                        struct backend_outcome *ret_outcome)
{
    if (reply->integer < 0 || reply->integer > LB_INTEGER_MAX)
        return -EPROTO;
    ret_outcome->server_ms = reply->integer;
    return renewal_read(op, STATUS_YES, ret_outcome);
}

// The short answer to a release: 1, and nobody was given a turn.
static int released_read(const struct resp *reply, struct backend_outcome *ret_outcome)
{
    if (reply->integer != STATUS_YES)
        return -EPROTO;
    ret_outcome->result = RESULT_OK;
    ret_outcome->gave_turn = false;
    return 0;
}

int command_read(const struct token_maker *maker, const struct backend_op *op,
                 const struct resp *reply, size_t index, size_t count,
                 char ret_host[LB_HOST_BYTES_MAX + 1], struct backend_outcome *ret_outcome)
{
    int64_t status;

    if (op->kind == BACKEND_ACQUIRE && reply->kind == RESP_TEXT)
        return acquired_read(op, reply, ret_outcome);
    if (op->kind == BACKEND_RENEW && reply->kind == RESP_INTEGER)
        return renewed_read(op, reply, ret_outcome);
    if (op->kind == BACKEND_RELEASE && reply->kind == RESP_INTEGER)
        return released_read(reply, ret_outcome);
    if (reply->kind != RESP_ARRAY || !item_is(reply, 0, RESP_INTEGER) ||
        !item_is(reply, 1 + index, RESP_INTEGER))
        return -EPROTO;
    status = reply->items[1 + index].integer;
    ret_outcome->server_ms = reply->items[0].integer;
    if (ret_outcome->server_ms < 0 || ret_outcome->server_ms > LB_INTEGER_MAX)
        return -EPROTO;
    switch (op->kind) {
    case BACKEND_ACQUIRE:
        return acquire_read(maker, op, reply, status, ret_host, ret_outcome);
    case BACKEND_RENEW:
        return reply->count == 1 + count ? renewal_read(op, status, ret_outcome) : -EPROTO;
    case BACKEND_RELEASE:
        return release_read(op, reply, status, ret_outcome);
    case BACKEND_QUERY:
    case BACKEND_BREAK:
        return look_read(maker, op, reply, status, ret_host, ret_outcome);
    }
    return -EPROTO;
}

void command_learn(struct command_server *server, const struct backend_op *op,
                   const struct resp *reply)
{
    const struct resp *marker;

    if (op->kind != BACKEND_ACQUIRE || reply->kind != RESP_ARRAY || reply->count != MARKER_ITEMS)
        return;
    marker = &reply->items[FENCE_ITEMS];
    if (marker->length > COMMAND_MARKER_BYTES_MAX)
        return;
    memcpy(server->marker, marker->text, marker->length);
    server->marker[marker->length] = '\0';
    server->marker_ttl_ms = op->loss_ttl_ms;
}
