// Feeds hiredis' redisReader, whose objects are made here: it allocates by the lengths that the
// other end announces and bounds neither a reply's size nor, in later versions, its depth, so each
// object is checked before any memory is taken for it. Only what hiredis 0.14 and 1.x have in
// common may be used.
#include "daemon/redis/resp.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <string.h>

// A bulk string's header line and the newline behind it.
#define RESP_FRAME_BYTES 64

#if HIREDIS_MAJOR >= 1
#define RESP_COUNT_TYPE size_t
#else
#define RESP_COUNT_TYPE int
#endif

static struct resp_reader *task_reader(const redisReadTask *task)
{
    return task->privdata;
}

static size_t task_depth(const redisReadTask *task)
{
    size_t depth = 1;

    while ((task = task->parent))
        depth++;
    return depth;
}

// Where the object goes: its place in the array around it, or memory of its own. NULL without
// memory.
static struct resp *object_place(const redisReadTask *task)
{
    struct resp *array;

    if (!task->parent)
        return calloc(1, sizeof(struct resp));
    array = task->parent->obj;
    lb_assert(task->idx >= 0 && (size_t)task->idx < array->count);
    return &array->items[task->idx];
}

static void object_clear(struct resp *object)
{
    for (size_t i = 0; i < object->count; i++)
        object_clear(&object->items[i]);
    free(object->items);
    free(object->text);
}

// A new array's items are all nil until they have come.
static void *array_create(const redisReadTask *task, RESP_COUNT_TYPE announced)
{
    struct resp_reader *reader = task_reader(task);
    size_t count = (size_t)announced;
    struct resp *items = NULL;
    struct resp *object;

    if (count > RESP_ITEMS_MAX || count > reader->budget_items || task_depth(task) > RESP_DEPTH_MAX)
        return NULL;
    if (count > 0 && !(items = calloc(count, sizeof(*items))))
        return NULL;
    object = object_place(task);
    if (!object) {
        free(items);
        return NULL;
    }
    reader->budget_items -= count;
    *object = (struct resp){.kind = RESP_ARRAY, .items = items, .count = count};
    return object;
}

static void *text_create(const redisReadTask *task, char *bytes, size_t length)
{
    struct resp_reader *reader = task_reader(task);
    struct resp *object;
    char *text;

    if (length > RESP_TEXT_BYTES_MAX || length > reader->budget_bytes)
        return NULL;
    text = malloc(length + 1);
    if (!text)
        return NULL;
    object = object_place(task);
    if (!object) {
        free(text);
        return NULL;
    }
    reader->budget_bytes -= length;
    memcpy(text, bytes, length);
    text[length] = '\0';
    *object = (struct resp){.kind = RESP_TEXT, .text = text, .length = length};
    if (task->type == REDIS_REPLY_ERROR)
        object->kind = RESP_ERROR;
    else if (task->type == REDIS_REPLY_STATUS)
        object->kind = RESP_STATUS;
    return object;
}

static void *integer_create(const redisReadTask *task, long long value)
{
    struct resp *object = object_place(task);

    if (object)
        *object = (struct resp){.kind = RESP_INTEGER, .integer = value};
    return object;
}

static void *nil_create(const redisReadTask *task)
{
    struct resp *object = object_place(task);

    if (object)
        *object = (struct resp){.kind = RESP_NIL};
    return object;
}

#if HIREDIS_MAJOR >= 1
// RESP 3 was never asked for.
static void *double_refuse(const redisReadTask *task, double value, char *bytes, size_t length)
{
    (void)task, (void)value, (void)bytes, (void)length;
    return NULL;
}

static void *bool_refuse(const redisReadTask *task, int value)
{
    (void)task, (void)value;
    return NULL;
}
#endif

static void object_free(void *object)
{
    resp_free(object);
}

static redisReplyObjectFunctions object_functions = {
    .createString = text_create,
    .createArray = array_create,
    .createInteger = integer_create,
    .createNil = nil_create,
#if HIREDIS_MAJOR >= 1
    .createDouble = double_refuse,
    .createBool = bool_refuse,
#endif
    .freeObject = object_free,
};

static void budget_reset(struct resp_reader *reader)
{
    reader->budget_bytes = RESP_REPLY_BYTES_MAX;
    reader->budget_items = RESP_TOTAL_MAX;
}

int resp_reader_init(struct resp_reader *reader)
{
    redisReader *parser = redisReaderCreateWithFunctions(&object_functions);

    if (!parser)
        return -ENOMEM;
    parser->privdata = reader;
    // With a limit here hiredis frees its idle buffer and asserts that it gets another one.
    parser->maxbuf = 0;
    reader->parser = parser;
    budget_reset(reader);
    return 0;
}

void resp_reader_deinit(struct resp_reader *reader)
{
    if (reader->parser)
        redisReaderFree(reader->parser);
    reader->parser = NULL;
}

int resp_reader_feed(struct resp_reader *reader, const char *bytes, size_t length)
{
    lb_assert(length <= RESP_TEXT_BYTES_MAX);
    return redisReaderFeed(reader->parser, bytes, length) == REDIS_OK ? 0 : -ENOMEM;
}

int resp_reader_next(struct resp_reader *reader, struct resp **ret_reply)
{
    redisReader *parser = reader->parser;
    void *reply = NULL;

    if (redisReaderGetReply(parser, &reply) != REDIS_OK)
        return -EPROTO;
    if (reply) {
        budget_reset(reader);
        *ret_reply = reply;
        return RESP_E_REPLY;
    }
    // What is left is a piece of one line or of one bulk string, however long that claims to be.
    if (parser->len - parser->pos > RESP_TEXT_BYTES_MAX + RESP_FRAME_BYTES)
        return -EPROTO;
    return 0;
}

bool resp_is_text(const struct resp *reply, const char *text)
{
    return reply->kind == RESP_TEXT && reply->length == strlen(text) &&
           memcmp(reply->text, text, reply->length) == 0;
}

void resp_free(struct resp *reply)
{
    if (!reply)
        return;
    object_clear(reply);
    free(reply);
}
