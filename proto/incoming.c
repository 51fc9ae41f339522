// Lines from the broker to structs, driven by tables of members. Most lines are plain objects, and
// read without a tree; only those with objects and arrays inside go to jansson. It may not fail on
// anything that a newer broker could send: what is unknown is passed over. It may not touch the
// settings of jansson either, which belong to the program that the library is loaded into.
#include "proto/incoming.h"

#include <errno.h>
#include <jansson.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_in.h"
#include "proto/json_scan.h"
#include "proto/reply.h"

#define INCOMING_DEPTH_MAX 16

// Elements that an incoming points to; `bytes` follow the head.
struct incoming_block {
    struct incoming_block *next;
    alignas(max_align_t) char bytes[];
};

// What the storage of an incoming is. All texts lie in the tree, or, without one, in `texts`.
struct incoming_storage {
    json_t *root;
    struct incoming_block *blocks;
    char texts[]; // as many bytes as the line has
};

// A value of either kind of line.
struct incoming_value {
    struct json_value plain;
    json_t *tree; // NULL when the line has none
};

struct incoming_reader {
    struct incoming *incoming;
    struct incoming_storage *storage;
    bool has_ok;
    bool is_ok;
    int error; // -ENOMEM once there was no memory
};

// A member of an object, and how and where in `base` to keep it.
struct incoming_slot {
    const char *name;
    void (*read)(struct incoming_reader *reader, const struct incoming_value *value, void *member);
    size_t offset;
};

// Storage for `count` elements, zeroed; NULL when there is no memory or nothing to store.
static void *reader_alloc(struct incoming_reader *reader, size_t count, size_t bytes)
{
    struct incoming_block *block = NULL;

    if (reader->error < 0 || count == 0)
        return NULL;
    if (count <= (SIZE_MAX - sizeof(*block)) / bytes)
        block = calloc(1, sizeof(*block) + count * bytes);
    if (!block) {
        reader->error = -ENOMEM;
        return NULL;
    }
    block->next = reader->storage->blocks;
    reader->storage->blocks = block;
    return block->bytes;
}

static struct incoming_value value_of(json_t *tree)
{
    static const enum json_kind kinds[] = {
        [JSON_OBJECT] = JSON_KIND_OBJECT, [JSON_ARRAY] = JSON_KIND_ARRAY,
        [JSON_STRING] = JSON_KIND_TEXT,   [JSON_INTEGER] = JSON_KIND_INTEGER,
        [JSON_REAL] = JSON_KIND_REAL,     [JSON_TRUE] = JSON_KIND_TRUE,
        [JSON_FALSE] = JSON_KIND_FALSE,   [JSON_NULL] = JSON_KIND_NULL,
    };

    return (struct incoming_value){
        .plain = {.kind = kinds[json_typeof(tree)],
                  .integer = json_integer_value(tree),
                  .text = json_string_value(tree),
                  .length = json_string_length(tree)},
        .tree = tree,
    };
}

static void read_member(struct incoming_reader *reader, const char *name,
                        const struct incoming_value *value, const struct incoming_slot *slots,
                        size_t slots_count, void *base)
{
    for (size_t i = 0; i < slots_count; i++) {
        if (strcmp(name, slots[i].name) == 0) {
            slots[i].read(reader, value, (char *)base + slots[i].offset);
            return;
        }
    }
}

static void read_object(struct incoming_reader *reader, json_t *object,
                        const struct incoming_slot *slots, size_t slots_count, void *base)
{
    const char *name;
    json_t *member;

    json_object_foreach (object, name, member) {
        struct incoming_value value = value_of(member);

        read_member(reader, name, &value, slots, slots_count, base);
    }
}

static void read_text(struct incoming_reader *reader, const struct incoming_value *value,
                      void *member)
{
    (void)reader;
    if (value->plain.kind == JSON_KIND_TEXT)
        *(const char **)member = value->plain.text;
}

static void read_integer(struct incoming_reader *reader, const struct incoming_value *value,
                         void *member)
{
    (void)reader;
    if (value->plain.kind == JSON_KIND_INTEGER)
        *(int64_t *)member = value->plain.integer;
}

static void read_bool(struct incoming_reader *reader, const struct incoming_value *value,
                      void *member)
{
    enum json_kind kind = value->plain.kind;

    (void)reader;
    if (kind == JSON_KIND_TRUE || kind == JSON_KIND_FALSE)
        *(bool *)member = kind == JSON_KIND_TRUE;
}

static void read_ok(struct incoming_reader *reader, const struct incoming_value *value,
                    void *member)
{
    enum json_kind kind = value->plain.kind;

    (void)member;
    reader->has_ok = kind == JSON_KIND_TRUE || kind == JSON_KIND_FALSE;
    reader->is_ok = kind == JSON_KIND_TRUE;
}

static void read_id(struct incoming_reader *reader, const struct incoming_value *value,
                    void *member)
{
    struct request_id id = {.kind = REQUEST_ID_NONE};

    (void)reader;
    if (value->plain.kind == JSON_KIND_INTEGER) {
        id.kind = REQUEST_ID_NUMBER;
        id.number = value->plain.integer;
    } else if (value->plain.kind == JSON_KIND_TEXT && value->plain.length < sizeof(id.text)) {
        id.kind = REQUEST_ID_TEXT;
        memcpy(id.text, value->plain.text, value->plain.length + 1);
    }
    *(struct request_id *)member = id;
}

static void read_holder_kind(struct incoming_reader *reader, const struct incoming_value *value,
                             void *member)
{
    enum holder_kind kind = HOLDER_FOREIGN; // also whatever a newer broker may tell apart

    (void)reader;
    if (value->plain.kind != JSON_KIND_TEXT)
        return;
    if (strcmp(value->plain.text, "local") == 0)
        kind = HOLDER_LOCAL;
    else if (strcmp(value->plain.text, "broker") == 0)
        kind = HOLDER_BROKER;
    *(enum holder_kind *)member = kind;
}

static void read_ttl_left(struct incoming_reader *reader, const struct incoming_value *value,
                          void *member)
{
    struct holder *holder = member;

    holder->without_expiry = value->plain.kind == JSON_KIND_NULL;
    read_integer(reader, value, &holder->ttl_left_ms);
}

static void read_holder(struct incoming_reader *reader, const struct incoming_value *value,
                        void *member)
{
    static const struct incoming_slot slots[] = {
        {"kind", read_holder_kind, offsetof(struct holder, kind)},
        {"host", read_text, offsetof(struct holder, host)},
        {"client", read_text, offsetof(struct holder, client)},
        {"note", read_text, offsetof(struct holder, note)},
        {"pid", read_integer, offsetof(struct holder, pid)},
        {"uid", read_integer, offsetof(struct holder, uid)},
        {"fence", read_integer, offsetof(struct holder, fence)},
        {"held_ms", read_integer, offsetof(struct holder, held_ms)},
        {"ttl_left_ms", read_ttl_left, 0},
    };
    struct holder *holder = member;

    *holder = (struct holder){
        .kind = value->plain.kind == JSON_KIND_OBJECT ? HOLDER_FOREIGN : HOLDER_NONE,
        .pid = LB_NONE,
        .uid = LB_NONE,
        .fence = LB_NONE,
        .held_ms = LB_NONE,
        .ttl_left_ms = LB_NONE,
    };
    read_object(reader, value->tree, slots, LB_ARRAY_LENGTH(slots), holder);
}

static void read_reply_holder(struct incoming_reader *reader, const struct incoming_value *value,
                              void *member)
{
    struct holder *holder = reader_alloc(reader, 1, sizeof(*holder));

    if (!holder)
        return;
    read_holder(reader, value, holder);
    *(const struct holder **)member = holder;
}

static void read_limits(struct incoming_reader *reader, const struct incoming_value *value,
                        void *member)
{
    static const struct incoming_slot slots[] = {
        {"ttl_max_ms", read_integer, offsetof(struct reply, ttl_max_ms)},
        {"max_wait_ms", read_integer, offsetof(struct reply, max_wait_ms)},
    };

    read_object(reader, value->tree, slots, LB_ARRAY_LENGTH(slots), member);
}

static void read_rows(struct incoming_reader *reader, const struct incoming_value *value,
                      void *member)
{
    static const struct incoming_slot slots[] = {
        {"key", read_text, offsetof(struct lock_row, key)},
        {"holder", read_holder, offsetof(struct lock_row, holder)},
        {"waiters", read_integer, offsetof(struct lock_row, waiters)},
        {"state", read_text, offsetof(struct lock_row, state)},
    };
    struct reply *reply = member;
    size_t count = json_array_size(value->tree);
    struct lock_row *rows = reader_alloc(reader, count, sizeof(*rows));

    if (!rows)
        return;
    for (size_t i = 0; i < count; i++) {
        rows[i].key = "";
        rows[i].state = "";
        read_object(reader, json_array_get(value->tree, i), slots, LB_ARRAY_LENGTH(slots),
                    &rows[i]);
    }
    reply->rows = rows;
    reply->rows_count = count;
}

// The page that the figures of `stats` go to, made when the first of them comes; NULL when there is
// no memory.
static struct stats_page *take_page(struct incoming_reader *reader)
{
    struct reply *reply = &reader->incoming->reply;

    if (!reply->stats)
        reply->stats = reader_alloc(reader, 1, sizeof(struct stats_page));
    // The page lies in our own storage; it is const to the reader of a reply alone.
    return (struct stats_page *)(uintptr_t)reply->stats;
}

static struct stat_value *read_values(struct incoming_reader *reader, json_t *object,
                                      size_t *ret_count)
{
    size_t count = json_object_size(object);
    struct stat_value *values = reader_alloc(reader, count, sizeof(*values));
    const char *name;
    json_t *figure;
    size_t i = 0;

    *ret_count = 0;
    if (!values)
        return NULL;
    json_object_foreach (object, name, figure) {
        values[i].name = name;
        values[i].value = json_integer_value(figure);
        i++;
    }
    *ret_count = count;
    return values;
}

static void read_counters(struct incoming_reader *reader, const struct incoming_value *value,
                          void *member)
{
    struct stats_page *page = take_page(reader);

    (void)member;
    if (page)
        page->counters = read_values(reader, value->tree, &page->counters_count);
}

static void read_gauges(struct incoming_reader *reader, const struct incoming_value *value,
                        void *member)
{
    struct stats_page *page = take_page(reader);

    (void)member;
    if (page)
        page->gauges = read_values(reader, value->tree, &page->gauges_count);
}

// The first `count` integers of an array, zeros for what it lacks; NULL when `count` is 0.
static const int64_t *read_integers(struct incoming_reader *reader, const json_t *array,
                                    size_t count)
{
    int64_t *integers = reader_alloc(reader, count, sizeof(*integers));

    for (size_t i = 0; integers && i < count; i++)
        integers[i] = json_integer_value(json_array_get(array, i));
    return integers;
}

static void read_histogram(struct incoming_reader *reader, json_t *value,
                           struct stat_histogram *histogram)
{
    const json_t *bounds = json_object_get(value, "bounds");
    const json_t *counts = json_object_get(value, "counts");

    histogram->bounds_count = json_array_size(bounds);
    histogram->bounds = read_integers(reader, bounds, histogram->bounds_count);
    histogram->counts = read_integers(reader, counts, histogram->bounds_count + 1);
    histogram->sum = json_integer_value(json_object_get(value, "sum"));
}

static void read_histograms(struct incoming_reader *reader, const struct incoming_value *value,
                            void *member)
{
    struct stats_page *page = take_page(reader);
    size_t count = json_object_size(value->tree);
    struct stat_histogram *histograms = reader_alloc(reader, count, sizeof(*histograms));
    const char *name;
    json_t *histogram;
    size_t i = 0;

    (void)member;
    if (!page || !histograms)
        return;
    json_object_foreach (value->tree, name, histogram) {
        histograms[i].name = name;
        read_histogram(reader, histogram, &histograms[i]);
        i++;
    }
    page->histograms = histograms;
    page->histograms_count = count;
}

// A text in the reply to `ping`, an object in that to `stats`.
static void read_backend(struct incoming_reader *reader, const struct incoming_value *value,
                         void *member)
{
    static const struct incoming_slot slots[] = {
        {"kind", read_text, offsetof(struct stats_page, backend_kind)},
        {"state", read_text, offsetof(struct stats_page, backend_state)},
        {"role", read_text, offsetof(struct stats_page, backend_role)},
        {"version", read_text, offsetof(struct stats_page, backend_version)},
        {"maxmemory_policy", read_text, offsetof(struct stats_page, backend_policy)},
        {"may_evict", read_bool, offsetof(struct stats_page, backend_may_evict)},
    };
    struct stats_page *page = value->plain.kind == JSON_KIND_OBJECT ? take_page(reader) : NULL;

    read_text(reader, value, member);
    if (page)
        read_object(reader, value->tree, slots, LB_ARRAY_LENGTH(slots), page);
}

// What is named alike in replies and events is read into the reply first.
static const struct incoming_slot line_slots[] = {
#define REPLY(member) offsetof(struct incoming, reply.member)
    {"id", read_id, REPLY(id)},
    {"ok", read_ok, 0},
    {"error", read_text, offsetof(struct incoming, error)},
    {"event", read_text, offsetof(struct incoming, event)},
    {"owner", read_text, offsetof(struct incoming, notice.owner)},
    {"message", read_text, REPLY(message)},
    {"field", read_text, REPLY(field)},
    {"limit", read_text, REPLY(limit)},
    {"may_block_ms", read_integer, REPLY(may_block_ms)},
    {"ends_in_ms", read_integer, REPLY(ends_in_ms)},
    {"holder", read_reply_holder, REPLY(holder)},
    {"key", read_text, REPLY(key)},
    {"fence", read_integer, REPLY(fence)},
    {"ttl_ms", read_integer, REPLY(ttl_ms)},
    {"valid_ms", read_integer, REPLY(valid_ms)},
    {"deadline_ms", read_integer, REPLY(deadline_ms)},
    {"waited_ms", read_integer, REPLY(waited_ms)},
    {"outcome", read_text, REPLY(outcome)},
    {"reason", read_text, REPLY(reason)},
    {"frees_within_ms", read_integer, REPLY(frees_within_ms)},
    {"held", read_bool, REPLY(held)},
    {"broken", read_bool, REPLY(held)},
    {"state", read_text, REPLY(state)},
    {"waiters", read_integer, REPLY(waiters)},
    {"server", read_text, REPLY(server)},
    {"version", read_integer, REPLY(version)},
    {"instance", read_text, REPLY(instance)},
    {"host", read_text, REPLY(host)},
    {"limits", read_limits, offsetof(struct incoming, reply)},
    {"now_ms", read_integer, REPLY(now_ms)},
    {"backend", read_backend, REPLY(backend)},
    {"locks", read_rows, offsetof(struct incoming, reply)},
    {"more", read_bool, REPLY(more)},
    {"counters", read_counters, 0},
    {"gauges", read_gauges, 0},
    {"histograms", read_histograms, 0},
#undef REPLY
};

static enum error_code error_by_name(const char *name)
{
    for (unsigned i = ERROR_NONE + 1; i < ERROR_OTHER; i++) {
        if (strcmp(name, error_name((enum error_code)i)) == 0)
            return (enum error_code)i;
    }
    return ERROR_OTHER;
}

static void settle_notice(struct incoming *incoming)
{
    const struct reply *reply = &incoming->reply;
    struct notice *notice = &incoming->notice;

    incoming->kind = INCOMING_OTHER;
    for (unsigned i = NOTICE_SUSPECT; i <= NOTICE_LOST; i++) {
        if (strcmp(incoming->event, notice_name((enum notice_kind)i)) == 0) {
            incoming->kind = INCOMING_NOTICE;
            notice->kind = (enum notice_kind)i;
        }
    }
    notice->key = reply->key;
    notice->owner = notice->owner ? notice->owner : "";
    notice->fence = reply->fence;
    notice->valid_ms = reply->valid_ms;
    notice->deadline_ms = reply->deadline_ms;
    notice->reason = reply->reason;
}

// Decides what the line was. Returns 0 or INCOMING_E_GARBAGE.
static int incoming_settle(const struct incoming_reader *reader)
{
    struct incoming *incoming = reader->incoming;

    if (incoming->event) {
        settle_notice(incoming);
        return incoming->kind == INCOMING_NOTICE && !incoming->notice.key ? INCOMING_E_GARBAGE : 0;
    }
    if (!reader->has_ok || (!reader->is_ok && !incoming->error))
        return INCOMING_E_GARBAGE;
    incoming->kind = INCOMING_REPLY;
    if (reader->is_ok)
        incoming->error = NULL;
    else
        incoming->reply.error = error_by_name(incoming->error);
    return 0;
}

// jansson (2.14 and before) may misread a text, or worse, when the buffer of its lexer cannot grow.
// Here its allocation functions are not ours to change, so that a parse is only begun while as much
// as it may take is to be had.
static bool has_memory_for(size_t length)
{
    char *block = malloc(4096 + 8 * length);

    if (!block)
        return false;
    *(volatile char *)block = 0; // or the compiler leaves the whole block out
    free(block);
    return true;
}

// Parses the line into the storage. Returns 0, INCOMING_E_GARBAGE or -ENOMEM.
static int incoming_load(struct incoming_storage *storage, const char *line, size_t length)
{
    json_error_t error = {0}; // jansson leaves the code alone when memory ends before it begins

    if (!json_scan(line, length, INCOMING_DEPTH_MAX, SIZE_MAX))
        return INCOMING_E_GARBAGE;
    if (!has_memory_for(length))
        return -ENOMEM;
    storage->root = json_loadb(line, length, 0, &error);
    if (!storage->root && json_error_code(&error) == json_error_unknown)
        return -ENOMEM;
    return json_is_object(storage->root) ? 0 : INCOMING_E_GARBAGE;
}

// A line without objects and arrays inside. False when it is none, or is for jansson to judge.
static bool read_plain(struct incoming_reader *reader, const char *line, size_t length)
{
    struct json_object object;

    if (!json_in(line, length, reader->storage->texts, &object))
        return false;
    for (size_t i = 0; i < object.count; i++) {
        enum json_kind kind = object.members[i].value.kind;

        if (kind == JSON_KIND_OBJECT || kind == JSON_KIND_ARRAY)
            return false;
    }
    for (size_t i = 0; i < object.count; i++) {
        struct incoming_value value = {.plain = object.members[i].value};

        read_member(reader, object.members[i].name, &value, line_slots, LB_ARRAY_LENGTH(line_slots),
                    reader->incoming);
    }
    return true;
}

static int read_tree(struct incoming_reader *reader, const char *line, size_t length)
{
    int r = incoming_load(reader->storage, line, length);

    if (r == 0)
        read_object(reader, reader->storage->root, line_slots, LB_ARRAY_LENGTH(line_slots),
                    reader->incoming);
    return r;
}

// Parses the line into an incoming that has its storage. Errors as reply_parse().
static int incoming_read(struct incoming *incoming, const char *line, size_t length)
{
    struct incoming_reader reader = {.incoming = incoming, .storage = incoming->storage};
    int r = 0;

    reply_init(&incoming->reply);
    if (!read_plain(&reader, line, length))
        r = read_tree(&reader, line, length);
    if (r != 0)
        return r;
    return reader.error < 0 ? reader.error : incoming_settle(&reader);
}

int reply_parse(const char *line, size_t length, struct incoming *ret_incoming)
{
    struct incoming incoming = {.kind = INCOMING_OTHER};
    struct incoming_storage *storage = malloc(sizeof(*storage) + length);
    int r;

    if (!storage)
        return -ENOMEM;
    storage->root = NULL;
    storage->blocks = NULL;
    incoming.storage = storage;
    r = incoming_read(&incoming, line, length);
    if (r != 0) {
        incoming_clear(&incoming);
        return r;
    }
    *ret_incoming = incoming;
    return 0;
}

void incoming_clear(struct incoming *incoming)
{
    struct incoming_storage *storage = incoming->storage;

    if (storage) {
        while (storage->blocks) {
            struct incoming_block *next = storage->blocks->next;
            free(storage->blocks);
            storage->blocks = next;
        }
        json_decref(storage->root);
        free(storage);
    }
    *incoming = (struct incoming){.storage = NULL};
}
