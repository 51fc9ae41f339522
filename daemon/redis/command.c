// Turns operations into commands and replies into outcomes. It trusts no reply: each is checked for
// its whole shape before any of it is used, and a shape that our scripts do not have is an error.
#include "daemon/redis/command.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <string.h>

// Script name and number of keys, then of each renewal key, token and ttl.
#define COMMAND_WORDS_MAX (3 + 3 * COMMAND_KEYS_MAX)
#define NUMBER_BYTES_MAX  24

enum script_status {
    STATUS_NO = 0, // gone, free; acquire: held by another
    STATUS_YES = 1,
    STATUS_STOLEN = 2,
    STATUS_CONFLICT = 3,
};

// A command under construction. Words are borrowed, or lie in the arrays here.
struct words {
    size_t count;
    const char *text[COMMAND_WORDS_MAX];
    size_t length[COMMAND_WORDS_MAX];
    char tokens[COMMAND_KEYS_MAX][TOKEN_BYTES_MAX + 1];
    size_t tokens_count;
    char numbers[COMMAND_KEYS_MAX + 2][NUMBER_BYTES_MAX];
    size_t numbers_count;
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
    (void)snprintf(text, NUMBER_BYTES_MAX, "%" PRId64, number);
    words_add_text(words, text);
}

static void words_add_token(struct words *words, const struct token_maker *maker, uint64_t serial)
{
    char *token = words->tokens[words->tokens_count++];

    lb_assert(words->tokens_count <= COMMAND_KEYS_MAX);
    words_add(words, token, token_write(maker, serial, token));
}

static int words_format(struct words *words, char **ret_bytes, size_t *ret_length)
{
    char *bytes = NULL;
    long long length =
        redisFormatCommandArgv(&bytes, (int)words->count, words->text, words->length);

    if (length < 0)
        return -ENOMEM;
    *ret_bytes = bytes;
    *ret_length = (size_t)length;
    return 0;
}

static void words_add_arguments(struct words *words, const struct token_maker *maker,
                                const struct command_op *ops, size_t count)
{
    const struct backend_op *op = ops[0].op;

    switch (op->kind) {
    case BACKEND_ACQUIRE:
        words_add_token(words, maker, op->serial);
        words_add_number(words, op->ttl_ms);
        words_add_number(words, op->fence_floor);
        break;
    case BACKEND_RENEW:
        for (size_t i = 0; i < count; i++)
            words_add_token(words, maker, ops[i].op->serial);
        for (size_t i = 0; i < count; i++)
            words_add_number(words, ops[i].op->ttl_ms);
        break;
    case BACKEND_RELEASE:
        words_add_token(words, maker, op->serial);
        break;
    case BACKEND_QUERY:
    case BACKEND_BREAK:
        break;
    }
}

int command_format(const struct token_maker *maker, const struct script_names *names,
                   const struct command_op *ops, size_t count, bool as_text, char **ret_bytes,
                   size_t *ret_length)
{
    enum backend_op_kind kind = ops[0].op->kind;
    bool has_fence = kind == BACKEND_ACQUIRE;
    struct words words;

    lb_assert(count == 1 || (count <= COMMAND_KEYS_MAX && kind == BACKEND_RENEW));
    words.count = words.tokens_count = words.numbers_count = 0;
    words_add_text(&words, as_text ? "EVAL" : "EVALSHA");
    words_add_text(&words, as_text ? script_text(kind) : names->sha[kind]);
    words_add_number(&words, (int64_t)count + has_fence);
    for (size_t i = 0; i < count; i++)
        words_add(&words, ops[i].key, ops[i].key_length);
    if (has_fence)
        words_add_text(&words, COMMAND_FENCE_KEY);
    words_add_arguments(&words, maker, ops, count);
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
    redisFreeCommand(bytes);
}

// True when the item is there and of that kind.
static bool item_is(const struct resp *reply, size_t index, enum resp_kind kind)
{
    return index < reply->count && reply->items[index].kind == kind;
}

// The status at the head of an array; -1 when there is none.
static int64_t reply_status(const struct resp *reply)
{
    if (reply->kind != RESP_ARRAY || !item_is(reply, 0, RESP_INTEGER))
        return -1;
    return reply->items[0].integer;
}

// The holder from {status, pttl, value}.
static int holder_read(const struct token_maker *maker, const struct resp *reply,
                       char ret_host[LB_HOST_BYTES_MAX + 1], struct holder *ret_holder)
{
    const struct resp *value;
    int64_t pttl;

    if (reply->count != 3 || !item_is(reply, 1, RESP_INTEGER) || !item_is(reply, 2, RESP_TEXT))
        return -EPROTO;
    pttl = reply->items[1].integer;
    value = &reply->items[2];
    if (pttl < -1)
        return -EPROTO;
    ret_holder->kind = token_classify(maker, value->text, value->length, ret_host);
    ret_holder->host = ret_host[0] ? ret_host : NULL;
    ret_holder->without_expiry = pttl == -1;
    ret_holder->ttl_left_ms = pttl == -1 ? LB_NONE : pttl;
    return 0;
}

static int acquire_read(const struct token_maker *maker, const struct backend_op *op,
                        const struct resp *reply, char ret_host[LB_HOST_BYTES_MAX + 1],
                        struct backend_outcome *ret_outcome)
{
    switch (reply_status(reply)) {
    case STATUS_YES:
        if (reply->count != 2 || !item_is(reply, 1, RESP_INTEGER) ||
            reply->items[1].integer <= op->fence_floor || reply->items[1].integer > LB_INTEGER_MAX)
            return -EPROTO;
        ret_outcome->result = RESULT_OK;
        ret_outcome->fence = reply->items[1].integer;
        return 0;
    case STATUS_NO:
        ret_outcome->result = RESULT_BUSY;
        return holder_read(maker, reply, ret_host, &ret_outcome->holder);
    case STATUS_CONFLICT:
        ret_outcome->result = RESULT_CONFLICT;
        return 0;
    default:
        return -EPROTO;
    }
}

// The outcome of a renewal or a release from its status.
static int status_read(const struct resp *status, struct backend_outcome *ret_outcome)
{
    static const enum backend_result results[] = {
        [STATUS_NO] = RESULT_GONE,
        [STATUS_YES] = RESULT_OK,
        [STATUS_STOLEN] = RESULT_STOLEN,
        [STATUS_CONFLICT] = RESULT_CONFLICT,
    };

    if (status->kind != RESP_INTEGER || status->integer < 0 ||
        status->integer >= (int64_t)LB_ARRAY_LENGTH(results))
        return -EPROTO;
    ret_outcome->result = results[status->integer];
    return 0;
}

static int look_read(const struct token_maker *maker, const struct resp *reply,
                     char ret_host[LB_HOST_BYTES_MAX + 1], struct backend_outcome *ret_outcome)
{
    switch (reply_status(reply)) {
    case STATUS_YES:
        ret_outcome->result = RESULT_OK;
        return holder_read(maker, reply, ret_host, &ret_outcome->holder);
    case STATUS_NO:
        ret_outcome->result = RESULT_OK;
        ret_outcome->holder.kind = HOLDER_NONE;
        return 0;
    case STATUS_CONFLICT:
        ret_outcome->result = RESULT_CONFLICT;
        return 0;
    default:
        return -EPROTO;
    }
}

int command_read(const struct token_maker *maker, const struct backend_op *op,
                 const struct resp *reply, size_t index, size_t count,
                 char ret_host[LB_HOST_BYTES_MAX + 1], struct backend_outcome *ret_outcome)
{
    switch (op->kind) {
    case BACKEND_ACQUIRE:
        return acquire_read(maker, op, reply, ret_host, ret_outcome);
    case BACKEND_RENEW:
        if (reply->kind != RESP_ARRAY || reply->count != count)
            return -EPROTO;
        return status_read(&reply->items[index], ret_outcome);
    case BACKEND_RELEASE:
        return status_read(reply, ret_outcome);
    case BACKEND_QUERY:
    case BACKEND_BREAK:
        return look_read(maker, reply, ret_host, ret_outcome);
    }
    return -EPROTO;
}
