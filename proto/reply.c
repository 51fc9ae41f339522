// Replies and notices to JSON lines. What goes into a reply was decided by the core; here it is
// only written, and kept within the limit of a line.
#include "proto/reply.h"

#include <errno.h>

#include "proto/json_out.h"

// What ends the line of a `list` after its rows.
#define LIST_TAIL_BYTES (sizeof("],\"more\":false}\n") - 1)

struct error_row {
    const char *name;
    const char *text;
};

static const struct error_row error_rows[] = {
    [ERROR_NONE] = {NULL, NULL},
#define X(symbol, name, text) [ERROR_##symbol] = {name, text},
#include "proto/errors.def"
#undef X
    [ERROR_OTHER] = {NULL, NULL},
};

const char *error_name(enum error_code error)
{
    return error_rows[error].name;
}

const char *error_text(enum error_code error)
{
    return error_rows[error].text;
}

const char *notice_name(enum notice_kind kind)
{
    static const char *const names[] = {
        [NOTICE_SUSPECT] = "suspect", [NOTICE_OK] = "ok", [NOTICE_LOST] = "lost"};

    return names[kind];
}

void reply_init(struct reply *reply)
{
    *reply = reply_blank();
}

static void write_int(struct json_out *out, const char *name, int64_t value)
{
    if (value != LB_NONE)
        json_out_member_int(out, name, value);
}

static void write_text(struct json_out *out, const char *name, const char *text)
{
    if (text)
        json_out_member_text(out, name, text);
}

// As write_text(), but an empty text counts as not known, too.
static void write_known(struct json_out *out, const char *name, const char *text)
{
    if (text && *text)
        json_out_member_text(out, name, text);
}

static void write_holder(struct json_out *out, const struct holder *holder)
{
    static const char *const kinds[] = {
        [HOLDER_LOCAL] = "local", [HOLDER_BROKER] = "broker", [HOLDER_FOREIGN] = "foreign"};

    json_out_name(out, "holder");
    if (!holder || holder->kind == HOLDER_NONE) {
        json_out_null(out);
        return;
    }
    json_out_object_begin(out);
    json_out_member_text(out, "kind", kinds[holder->kind]);
    write_known(out, "host", holder->host);
    write_int(out, "pid", holder->pid);
    write_int(out, "uid", holder->uid);
    write_known(out, "client", holder->client);
    write_known(out, "note", holder->note);
    write_int(out, "fence", holder->fence);
    write_int(out, "held_ms", holder->held_ms);
    if (holder->without_expiry) {
        json_out_name(out, "ttl_left_ms");
        json_out_null(out);
    } else {
        write_int(out, "ttl_left_ms", holder->ttl_left_ms);
    }
    json_out_object_end(out);
}

static void write_hello(struct json_out *out, const struct reply *reply)
{
    write_text(out, "server", reply->server);
    write_int(out, "version", reply->version);
    write_text(out, "instance", reply->instance);
    write_text(out, "host", reply->host);
    json_out_name(out, "limits");
    json_out_object_begin(out);
    json_out_member_int(out, "ttl_min_ms", LB_TTL_MIN_MS);
    write_int(out, "ttl_max_ms", reply->ttl_max_ms);
    write_int(out, "ttl_max", reply->ttl_max_ms);
    write_int(out, "max_wait_ms", reply->max_wait_ms);
    json_out_member_int(out, "key_bytes", LB_KEY_BYTES_MAX);
    json_out_member_int(out, "owner_bytes", LB_OWNER_BYTES_MAX);
    json_out_member_int(out, "note_bytes", LB_NOTE_BYTES_MAX);
    json_out_member_int(out, "request_line_bytes", LB_REQUEST_LINE_BYTES_MAX);
    json_out_member_int(out, "reply_line_bytes", LB_REPLY_LINE_BYTES_MAX);
    json_out_object_end(out);
    json_out_name(out, "features");
    json_out_array_begin(out);
    json_out_array_end(out);
}

static void write_grant(struct json_out *out, const struct reply *reply)
{
    write_text(out, "key", reply->key);
    write_int(out, "fence", reply->fence);
    write_int(out, "ttl_ms", reply->ttl_ms);
    write_int(out, "valid_ms", reply->valid_ms);
    write_int(out, "deadline_ms", reply->deadline_ms);
    write_int(out, "waited_ms", reply->waited_ms);
}

static void write_check(struct json_out *out, const struct reply *reply)
{
    json_out_member_bool(out, "held", reply->held);
    if (!reply->held)
        return;
    write_int(out, "fence", reply->fence);
    write_int(out, "valid_ms", reply->valid_ms);
    write_int(out, "deadline_ms", reply->deadline_ms);
    write_text(out, "state", reply->state);
}

static void write_row(struct json_out *out, const struct lock_row *row)
{
    json_out_object_begin(out);
    write_text(out, "key", row->key);
    write_holder(out, &row->holder);
    write_int(out, "waiters", row->waiters);
    write_text(out, "state", row->state);
    json_out_object_end(out);
}

// `start` is where the line begins in the buffer.
static void write_list(struct json_out *out, const struct reply *reply, size_t start)
{
    bool more = reply->more;

    json_out_name(out, "locks");
    json_out_array_begin(out);
    for (size_t i = 0; i < reply->rows_count; i++) {
        size_t length = buf_length(out->buf);

        write_row(out, &reply->rows[i]);
        if (buf_length(out->buf) - start + LIST_TAIL_BYTES > LB_REPLY_LINE_BYTES_MAX) {
            buf_truncate(out->buf, length);
            more = true;
            break;
        }
    }
    json_out_array_end(out);
    json_out_member_bool(out, "more", more);
}

static void write_values(struct json_out *out, const char *name, const struct stat_value *values,
                         size_t count)
{
    json_out_name(out, name);
    json_out_object_begin(out);
    for (size_t i = 0; i < count; i++)
        json_out_member_int(out, values[i].name, values[i].value);
    json_out_object_end(out);
}

static void write_integers(struct json_out *out, const char *name, const int64_t *values,
                           size_t count)
{
    json_out_name(out, name);
    json_out_array_begin(out);
    for (size_t i = 0; i < count; i++)
        json_out_int(out, values[i]);
    json_out_array_end(out);
}

static void write_histogram(struct json_out *out, const struct stat_histogram *histogram)
{
    json_out_name(out, histogram->name);
    json_out_object_begin(out);
    write_integers(out, "bounds", histogram->bounds, histogram->bounds_count);
    write_integers(out, "counts", histogram->counts, histogram->bounds_count + 1);
    json_out_member_int(out, "sum", histogram->sum);
    json_out_object_end(out);
}

static void write_stats(struct json_out *out, const struct stats_page *stats)
{
    write_values(out, "counters", stats->counters, stats->counters_count);
    write_values(out, "gauges", stats->gauges, stats->gauges_count);
    json_out_name(out, "histograms");
    json_out_object_begin(out);
    for (size_t i = 0; i < stats->histograms_count; i++)
        write_histogram(out, &stats->histograms[i]);
    json_out_object_end(out);
    json_out_name(out, "backend");
    json_out_object_begin(out);
    write_text(out, "kind", stats->backend_kind);
    write_text(out, "state", stats->backend_state);
    write_text(out, "role", stats->backend_role);
    write_text(out, "version", stats->backend_version);
    write_text(out, "maxmemory_policy", stats->backend_policy);
    json_out_member_bool(out, "may_evict", stats->backend_may_evict);
    json_out_object_end(out);
}

static void write_success(struct json_out *out, const struct reply *reply, size_t start)
{
    switch (reply->op) {
    case OP_HELLO:
        write_hello(out, reply);
        break;
    case OP_PING:
        write_int(out, "now_ms", reply->now_ms);
        write_text(out, "backend", reply->backend);
        break;
    case OP_ACQUIRE:
    case OP_EXTEND:
        write_grant(out, reply);
        break;
    case OP_RELEASE:
        write_text(out, "outcome", reply->outcome);
        write_text(out, "reason", reply->reason);
        write_int(out, "frees_within_ms", reply->frees_within_ms);
        break;
    case OP_CHECK:
        write_check(out, reply);
        break;
    case OP_QUERY:
        json_out_member_bool(out, "held", reply->held);
        write_holder(out, reply->holder);
        write_int(out, "waiters", reply->waiters);
        break;
    case OP_BREAK:
        json_out_member_bool(out, "broken", reply->held);
        write_holder(out, reply->holder);
        break;
    case OP_LIST:
        write_list(out, reply, start);
        break;
    case OP_STATS:
        write_stats(out, reply->stats);
        break;
    case OP_CANCEL:
    case OP_NONE:
        break;
    }
}

static void write_failure(struct json_out *out, const struct reply *reply)
{
    write_text(out, "error", error_name(reply->error));
    write_text(out, "message", reply->message ? reply->message : error_text(reply->error));
    write_text(out, "field", reply->field);
    write_text(out, "limit", reply->limit);
    write_text(out, "reason", reply->reason);
    write_int(out, "may_block_ms", reply->may_block_ms);
    write_int(out, "ends_in_ms", reply->ends_in_ms);
    if (reply->holder)
        write_holder(out, reply->holder);
    write_int(out, "waited_ms", reply->waited_ms);
}

// Ends the line, or takes it back.
static int finish_line(struct json_out *out, size_t start)
{
    int error;

    json_out_object_end(out);
    json_out_newline(out);
    error = json_out_error(out);
    if (error == 0 && buf_length(out->buf) - start > LB_REPLY_LINE_BYTES_MAX)
        error = -ENOBUFS;
    if (error < 0)
        buf_truncate(out->buf, start);
    return error;
}

int reply_write(struct buf *buf, const struct reply *reply)
{
    size_t start = buf_length(buf);
    struct json_out out;

    json_out_init(&out, buf);
    json_out_object_begin(&out);
    json_out_name(&out, "id");
    json_out_id(&out, &reply->id);
    json_out_member_bool(&out, "ok", reply->error == ERROR_NONE);
    if (reply->error == ERROR_NONE)
        write_success(&out, reply, start);
    else
        write_failure(&out, reply);
    return finish_line(&out, start);
}

int notice_write(struct buf *buf, const struct notice *notice)
{
    size_t start = buf_length(buf);
    struct json_out out;

    json_out_init(&out, buf);
    json_out_object_begin(&out);
    json_out_member_text(&out, "event", notice_name(notice->kind));
    write_text(&out, "key", notice->key);
    write_known(&out, "owner", notice->owner);
    write_int(&out, "fence", notice->fence);
    write_int(&out, "valid_ms", notice->valid_ms);
    write_int(&out, "deadline_ms", notice->deadline_ms);
    write_text(&out, "reason", notice->reason);
    return finish_line(&out, start);
}
