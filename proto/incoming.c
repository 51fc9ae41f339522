// Lines from the broker to structs, driven by tables of members. It may not fail on anything that a
// newer broker could send: what is unknown is passed over.
#include "proto/incoming.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_in.h"
#include "proto/reply.h"

#define INCOMING_DEPTH_MAX 16

// A piece of an incoming's storage; `bytes` follow the head.
struct incoming_block {
    struct incoming_block *next;
    alignas(max_align_t) char bytes[];
};

struct incoming_reader {
    struct incoming *incoming;
    char *text;        // where the next text goes
    size_t text_bytes; // room for texts; no text is longer than what it is read from
    bool has_ok;
    bool is_ok;
    int error; // -ENOMEM once there was no memory
};

// A member of an object, and how and where in `base` to keep it.
struct incoming_slot {
    const char *name;
    void (*read)(struct incoming_reader *reader, const struct json_value *value, void *member);
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
    block->next = reader->incoming->storage;
    reader->incoming->storage = block;
    return block->bytes;
}

static void read_object(struct incoming_reader *reader, const struct json_value *object,
                        const struct incoming_slot *slots, size_t slots_count, void *base)
{
    struct json_cursor cursor;
    struct json_value name;
    struct json_value value;

    if (object->kind != JSON_OBJECT)
        return;
    json_cursor_init(&cursor, object);
    while (json_next_member(&cursor, &name, &value)) {
        for (size_t i = 0; i < slots_count; i++) {
            if (json_text_equals(&name, slots[i].name)) {
                slots[i].read(reader, &value, (char *)base + slots[i].offset);
                break;
            }
        }
    }
}

static const char *take_text(struct incoming_reader *reader, const struct json_value *value)
{
    char *text = reader->text;
    size_t length = json_text_copy(value, text, reader->text_bytes);

    lb_assert(length != SIZE_MAX);
    reader->text += length + 1;
    reader->text_bytes -= length + 1;
    return text;
}

static void read_text(struct incoming_reader *reader, const struct json_value *value, void *member)
{
    if (value->kind == JSON_TEXT)
        *(const char **)member = take_text(reader, value);
}

static void read_integer(struct incoming_reader *reader, const struct json_value *value,
                         void *member)
{
    (void)reader;
    if (value->kind != JSON_INTEGER || !json_integer(value, member))
        return;
}

static void read_bool(struct incoming_reader *reader, const struct json_value *value, void *member)
{
    (void)reader;
    if (value->kind == JSON_BOOL)
        *(bool *)member = json_bool(value);
}

static void read_ok(struct incoming_reader *reader, const struct json_value *value, void *member)
{
    (void)member;
    reader->has_ok = value->kind == JSON_BOOL;
    reader->is_ok = reader->has_ok && json_bool(value);
}

static void read_id(struct incoming_reader *reader, const struct json_value *value, void *member)
{
    struct request_id id = {.kind = REQUEST_ID_NONE};

    (void)reader;
    if (value->kind == JSON_INTEGER && json_integer(value, &id.number))
        id.kind = REQUEST_ID_NUMBER;
    else if (value->kind == JSON_TEXT &&
             json_text_copy(value, id.text, sizeof(id.text)) != SIZE_MAX)
        id.kind = REQUEST_ID_TEXT;
    *(struct request_id *)member = id;
}

static void read_holder_kind(struct incoming_reader *reader, const struct json_value *value,
                             void *member)
{
    enum holder_kind kind = HOLDER_FOREIGN; // also whatever a newer broker may tell apart

    (void)reader;
    if (value->kind != JSON_TEXT)
        return;
    if (json_text_equals(value, "local"))
        kind = HOLDER_LOCAL;
    else if (json_text_equals(value, "broker"))
        kind = HOLDER_BROKER;
    *(enum holder_kind *)member = kind;
}

static void read_ttl_left(struct incoming_reader *reader, const struct json_value *value,
                          void *member)
{
    struct holder *holder = member;

    holder->without_expiry = value->kind == JSON_NULL;
    read_integer(reader, value, &holder->ttl_left_ms);
}

static void read_holder(struct incoming_reader *reader, const struct json_value *value,
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
        .kind = value->kind == JSON_OBJECT ? HOLDER_FOREIGN : HOLDER_NONE,
        .pid = LB_NONE,
        .uid = LB_NONE,
        .fence = LB_NONE,
        .held_ms = LB_NONE,
        .ttl_left_ms = LB_NONE,
    };
    read_object(reader, value, slots, LB_ARRAY_LENGTH(slots), holder);
}

static void read_reply_holder(struct incoming_reader *reader, const struct json_value *value,
                              void *member)
{
    struct holder *holder = reader_alloc(reader, 1, sizeof(*holder));

    if (!holder)
        return;
    read_holder(reader, value, holder);
    *(const struct holder **)member = holder;
}

static void read_limits(struct incoming_reader *reader, const struct json_value *value,
                        void *member)
{
    static const struct incoming_slot slots[] = {
        {"ttl_max_ms", read_integer, offsetof(struct reply, ttl_max_ms)},
        {"max_wait_ms", read_integer, offsetof(struct reply, max_wait_ms)},
    };

    read_object(reader, value, slots, LB_ARRAY_LENGTH(slots), member);
}

// How many elements, or names and values, a container has; 0 for anything else.
static size_t count_items(const struct json_value *container)
{
    struct json_cursor cursor;
    struct json_value item;
    size_t count = 0;

    if (container->kind != JSON_ARRAY && container->kind != JSON_OBJECT)
        return 0;
    json_cursor_init(&cursor, container);
    while (json_next_element(&cursor, &item))
        count++;
    return count;
}

static void read_rows(struct incoming_reader *reader, const struct json_value *value, void *member)
{
    static const struct incoming_slot slots[] = {
        {"key", read_text, offsetof(struct lock_row, key)},
        {"holder", read_holder, offsetof(struct lock_row, holder)},
        {"waiters", read_integer, offsetof(struct lock_row, waiters)},
        {"state", read_text, offsetof(struct lock_row, state)},
    };
    struct reply *reply = member;
    size_t count = value->kind == JSON_ARRAY ? count_items(value) : 0;
    struct lock_row *rows = reader_alloc(reader, count, sizeof(*rows));
    struct json_cursor cursor;
    struct json_value row;

    if (!rows)
        return;
    json_cursor_init(&cursor, value);
    for (size_t i = 0; json_next_element(&cursor, &row); i++) {
        rows[i].key = "";
        rows[i].state = "";
        read_object(reader, &row, slots, LB_ARRAY_LENGTH(slots), &rows[i]);
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

static struct stat_value *read_values(struct incoming_reader *reader,
                                      const struct json_value *value, size_t *ret_count)
{
    size_t count = value->kind == JSON_OBJECT ? count_items(value) / 2 : 0;
    struct stat_value *values = reader_alloc(reader, count, sizeof(*values));
    struct json_cursor cursor;
    struct json_value name;
    struct json_value figure;

    *ret_count = 0; // a member may come twice
    if (!values)
        return NULL;
    json_cursor_init(&cursor, value);
    for (size_t i = 0; json_next_member(&cursor, &name, &figure); i++) {
        values[i].name = take_text(reader, &name);
        read_integer(reader, &figure, &values[i].value);
    }
    *ret_count = count;
    return values;
}

static void read_counters(struct incoming_reader *reader, const struct json_value *value,
                          void *member)
{
    struct stats_page *page = take_page(reader);

    (void)member;
    if (page)
        page->counters = read_values(reader, value, &page->counters_count);
}

static void read_gauges(struct incoming_reader *reader, const struct json_value *value,
                        void *member)
{
    struct stats_page *page = take_page(reader);

    (void)member;
    if (page)
        page->gauges = read_values(reader, value, &page->gauges_count);
}

// The first `count` integers of an array, zeros for what it lacks; NULL when `count` is 0.
static const int64_t *read_integers(struct incoming_reader *reader, const struct json_value *array,
                                    size_t count)
{
    int64_t *integers = reader_alloc(reader, count, sizeof(*integers));
    struct json_cursor cursor;
    struct json_value item;

    if (!integers || array->kind != JSON_ARRAY)
        return integers;
    json_cursor_init(&cursor, array);
    for (size_t i = 0; i < count && json_next_element(&cursor, &item); i++)
        read_integer(reader, &item, &integers[i]);
    return integers;
}

static void read_histogram(struct incoming_reader *reader, const struct json_value *value,
                           struct stat_histogram *histogram)
{
    struct json_value bounds = {.kind = JSON_NULL};
    struct json_value counts = {.kind = JSON_NULL};
    struct json_value sum = {.kind = JSON_NULL};

    if (value->kind == JSON_OBJECT) {
        (void)json_find_member(value, "bounds", &bounds);
        (void)json_find_member(value, "counts", &counts);
        (void)json_find_member(value, "sum", &sum);
    }
    histogram->bounds_count = bounds.kind == JSON_ARRAY ? count_items(&bounds) : 0;
    histogram->bounds = read_integers(reader, &bounds, histogram->bounds_count);
    histogram->counts = read_integers(reader, &counts, histogram->bounds_count + 1);
    read_integer(reader, &sum, &histogram->sum);
}

static void read_histograms(struct incoming_reader *reader, const struct json_value *value,
                            void *member)
{
    struct stats_page *page = take_page(reader);
    size_t count = value->kind == JSON_OBJECT ? count_items(value) / 2 : 0;
    struct stat_histogram *histograms = reader_alloc(reader, count, sizeof(*histograms));
    struct json_cursor cursor;
    struct json_value name;
    struct json_value histogram;

    (void)member;
    if (!page || !histograms)
        return;
    json_cursor_init(&cursor, value);
    for (size_t i = 0; json_next_member(&cursor, &name, &histogram); i++) {
        histograms[i].name = take_text(reader, &name);
        read_histogram(reader, &histogram, &histograms[i]);
    }
    page->histograms = histograms;
    page->histograms_count = count;
}

// A text in the reply to `ping`, an object in that to `stats`.
static void read_backend(struct incoming_reader *reader, const struct json_value *value,
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
    struct stats_page *page = value->kind == JSON_OBJECT ? take_page(reader) : NULL;

    read_text(reader, value, member);
    if (page)
        read_object(reader, value, slots, LB_ARRAY_LENGTH(slots), page);
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

int reply_parse(const char *line, size_t length, struct incoming *ret_incoming)
{
    struct incoming incoming = {.kind = INCOMING_OTHER};
    struct incoming_reader reader = {.incoming = &incoming, .text_bytes = length};
    struct json_value value;
    int r;

    if (!json_in_check(line, length, INCOMING_DEPTH_MAX, SIZE_MAX, &value) ||
        value.kind != JSON_OBJECT)
        return INCOMING_E_GARBAGE;
    reply_init(&incoming.reply);
    reader.text = reader_alloc(&reader, length, 1);
    if (reader.text)
        read_object(&reader, &value, line_slots, LB_ARRAY_LENGTH(line_slots), &incoming);
    r = reader.error < 0 ? reader.error : incoming_settle(&reader);
    if (r != 0) {
        incoming_clear(&incoming);
        return r;
    }
    *ret_incoming = incoming;
    return 0;
}

void incoming_clear(struct incoming *incoming)
{
    struct incoming_block *block = incoming->storage;

    while (block) {
        struct incoming_block *next = block->next;
        free(block);
        block = next;
    }
    *incoming = (struct incoming){.storage = NULL};
}
