// One client's stream. All connections share one read buffer and one timer, so an idle connection
// costs its struct and nothing else. A connection that holds or waits for locks is always read
// from, since only reading shows its end.
#include "daemon/io/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/config.h"
#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/io/conn_turn.h"
#include "daemon/io/conn_wait.h"
#include "daemon/io/pump.h"
#include "proto/reply.h"
#include "proto/request.h"

#define CONN_OF_PIPE(handle) ((struct conn *)(handle)->data)

// With so much to be written a connection is flushed at once, in the midst of its requests.
#define FLUSH_BYTES 65536

static int conn_compare(const struct conn *a, const struct conn *b)
{
    return a->id < b->id ? -1 : a->id > b->id;
}

RB_GENERATE_INTERNAL(conn_tree, conn, entry, conn_compare, __attribute__((__unused__)) static)

static void log_conn(const struct conn *conn, enum log_level level, const char *event,
                     const char *reason)
{
    struct log_line line;

    log_begin(&line, level, event);
    log_number(&line, "session", (int64_t)conn->id);
    log_number(&line, "pid", conn->peer.pid);
    log_number(&line, "uid", conn->peer.uid);
    log_text(&line, "reason", reason);
    log_end(&line);
}

struct conn *conn_table_find(struct conn_table *table, uint64_t id)
{
    struct conn key = {.id = id};
    struct conn *conn = RB_FIND(conn_tree, &table->tree, &key);

    return conn && !conn->ended ? conn : NULL;
}

static size_t conn_unread(const struct conn *conn)
{
    return buf_length(&conn->out) + buf_length(&conn->writing);
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *conn = CONN_OF_PIPE(handle);

    RB_REMOVE(conn_tree, &conn->table->tree, conn);
    conn->table->count--;
    framing_deinit(&conn->framing);
    buf_clear(&conn->held);
    buf_clear(&conn->out);
    buf_clear(&conn->writing);
    free(conn);
}

static void conn_close(struct conn *conn)
{
    if (conn->closing)
        return;
    conn->closing = true;
    conn->ended = true;
    conn_wait_end_all(conn);
    if (conn->dirty)
        LIST_REMOVE(conn, dirty_link);
    conn->dirty = false;
    uv_close((uv_handle_t *)&conn->pipe, on_closed);
}

static void conn_mark_dirty(struct conn *conn)
{
    if (conn->dirty)
        return;
    conn->dirty = true;
    LIST_INSERT_HEAD(&conn->table->dirty, conn, dirty_link);
}

// The session is over. What was written for it before still goes out, for a while.
static void conn_end(struct conn *conn, bool by_broker)
{
    struct event event = {
        .kind = EVENT_SESSION_CLOSED,
        .session = conn->id,
        .closed_by_broker = by_broker,
    };

    if (conn->ended)
        return;
    conn->ended = true;
    (void)uv_read_stop((uv_stream_t *)&conn->pipe);
    conn_wait_end_all(conn);
    conn_turn_forget(conn);
    pump_post(conn->table->pump, &event);
    if (by_broker || conn_unread(conn) == 0) {
        conn_close(conn);
        return;
    }
    conn_wait_begin(conn, CONN_WAIT_WRITE);
    conn_mark_dirty(conn);
}

void conn_cut(struct conn *conn, const char *reason)
{
    if (!conn->ended)
        log_conn(conn, LOG_LEVEL_WARNING, "client_cut", reason);
    conn_end(conn, true);
}

static bool conn_is_busy(const struct conn *conn)
{
    return broker_session_is_busy(conn->table->pump->broker, conn->id);
}

static void conn_flush(struct conn *conn);

static void conn_bytes(struct conn *conn, const char *bytes, size_t length);

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buffer);

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct conn_table *table = CONN_OF_PIPE(handle)->table;

    (void)suggested;
    *buffer = uv_buf_init(table->read_buffer, sizeof(table->read_buffer));
}

void conn_go_on(struct conn *conn)
{
    struct buf held = conn->held;

    buf_init(&conn->held, CONN_READ_BYTES);
    conn_bytes(conn, buf_bytes(&held), buf_length(&held));
    buf_clear(&held);
    if (conn->paused || conn->yielded || conn->ended)
        return;
    if (uv_read_start((uv_stream_t *)&conn->pipe, on_alloc, on_read) < 0)
        conn_cut(conn, "read_failed");
}

// All that was written for it is out.
static void conn_resume(struct conn *conn)
{
    if (!conn->paused)
        return;
    conn->paused = false;
    conn_wait_end(conn, CONN_WAIT_READ);
    conn_go_on(conn);
}

// A client that asks faster than it reads is not heard any further until it has read, unless it
// holds or waits for something: then it must be heard, and is cut off at the cap.
static void conn_pause_if_behind(struct conn *conn)
{
    size_t high = (size_t)conn->table->limits.output_max_bytes / 2;

    if (conn_unread(conn) >= FLUSH_BYTES)
        conn_flush(conn);
    if (conn->ended || conn_unread(conn) < high || conn_is_busy(conn))
        return;
    conn->paused = true;
    conn_wait_begin(conn, CONN_WAIT_READ);
    (void)uv_read_stop((uv_stream_t *)&conn->pipe);
}

static void conn_written(struct conn *conn, int status)
{
    if (conn->closing)
        return;
    if (status < 0) {
        conn_end(conn, false);
        conn_close(conn);
    } else if (buf_length(&conn->out)) {
        conn_flush(conn);
    } else if (conn->ended) {
        conn_close(conn);
    } else {
        conn_resume(conn);
    }
}

static void on_written(uv_write_t *write, int status)
{
    struct conn *conn = write->data;

    conn->is_writing = false;
    buf_clear(&conn->writing);
    conn_written(conn, status);
}

// Hands the loop what the socket did not take at once.
static void conn_write_rest(struct conn *conn)
{
    conn->writing = conn->out;
    buf_init(&conn->out, conn->writing.bytes_max);

    uv_buf_t rest = uv_buf_init((char *)(uintptr_t)buf_bytes(&conn->writing),
                                (unsigned)buf_length(&conn->writing));
    int r = uv_write(&conn->write, (uv_stream_t *)&conn->pipe, &rest, 1, on_written);

    conn->is_writing = r == 0;
    if (r < 0)
        conn_written(conn, r);
}

static void conn_flush(struct conn *conn)
{
    if (conn->is_writing || buf_length(&conn->out) == 0)
        return;

    uv_buf_t all =
        uv_buf_init((char *)(uintptr_t)buf_bytes(&conn->out), (unsigned)buf_length(&conn->out));
    int written = uv_try_write((uv_stream_t *)&conn->pipe, &all, 1);

    if (written < 0 && written != UV_EAGAIN) {
        conn_written(conn, written);
        return;
    }
    if (written > 0)
        buf_consume(&conn->out, (size_t)written);
    if (buf_length(&conn->out)) {
        conn_write_rest(conn);
        return;
    }
    buf_clear(&conn->out);
    conn_written(conn, 0);
}

void conn_table_flush(struct conn_table *table)
{
    while (!LIST_EMPTY(&table->dirty)) {
        struct conn *conn = LIST_FIRST(&table->dirty);

        LIST_REMOVE(conn, dirty_link);
        conn->dirty = false;
        conn_flush(conn);
    }
}

// A line was appended, or could not be.
static void conn_appended(struct conn *conn, int r)
{
    if (r == -ENOMEM) {
        conn_cut(conn, "out_of_memory");
    } else if (r < 0 || conn_unread(conn) > (size_t)conn->table->limits.output_max_bytes) {
        conn->table->overflows++;
        conn_cut(conn, "output_max");
    } else {
        conn_mark_dirty(conn);
    }
}

void conn_reply(struct conn *conn, const struct reply *reply)
{
    conn_appended(conn, reply_write(&conn->out, reply));
}

void conn_notify(struct conn *conn, const struct notice *notice)
{
    conn_appended(conn, notice_write(&conn->out, notice));
}

static void conn_submit(struct conn *conn, struct event *event)
{
    if (!pump_submit(conn->table->pump, event))
        conn_cut(conn, "out_of_memory");
}

static void conn_refuse_line(struct conn *conn, const struct reply *refusal)
{
    struct event event = {
        .kind = EVENT_BAD_REQUEST,
        .session = conn->id,
        .refusal = refusal,
    };

    conn_submit(conn, &event);
}

static void conn_refuse(struct conn *conn, enum error_code error, const char *message)
{
    struct reply refusal;

    reply_init(&refusal);
    refusal.error = error;
    refusal.message = message;
    conn_refuse_line(conn, &refusal);
}

static bool key_is_reserved(const struct conn *conn, const struct request *request)
{
    return (request->given & REQUEST_F_KEY) &&
           config_key_is_reserved(conn->table->prefix, request->key);
}

static void conn_request(struct conn *conn, const char *text, size_t length)
{
    struct request request;
    struct reply refusal;
    struct event event = {.kind = EVENT_REQUEST, .session = conn->id, .request = &request};

    if (request_parse(text, length, &request, &refusal)) {
        conn_refuse_line(conn, &refusal);
        return;
    }
    if (key_is_reserved(conn, &request)) {
        reply_init(&refusal);
        refusal.id = request.id;
        refusal.op = request.op;
        refusal.error = ERROR_BAD_FIELD;
        refusal.field = "key";
        refusal.message = "this key is one of the broker's own";
        conn_refuse_line(conn, &refusal);
        return;
    }
    conn_submit(conn, &event);
}

static void conn_line_overdue(struct conn *conn)
{
    framing_drop_partial(&conn->framing);
    conn_refuse(conn, ERROR_MALFORMED, "the line was not ended in time and is dropped");
}

void conn_overdue(struct conn *conn, enum conn_wait wait)
{
    switch (wait) {
    case CONN_WAIT_LINE:
        conn_line_overdue(conn);
        break;
    case CONN_WAIT_SPEAK:
        log_conn(conn, LOG_LEVEL_INFO, "client_idle", "idle_timeout");
        conn_end(conn, true);
        break;
    case CONN_WAIT_READ:
        conn_cut(conn, "output_unread");
        break;
    case CONN_WAIT_WRITE:
    default:
        conn_close(conn);
        break;
    }
}

static void conn_line(struct conn *conn, int outcome, const char *line, size_t length)
{
    conn_wait_end(conn, CONN_WAIT_LINE);
    conn_wait_end(conn, CONN_WAIT_SPEAK);
    if (outcome == FRAMING_E_LINE)
        conn_request(conn, line, length);
    else if (outcome == FRAMING_E_TOO_LONG)
        conn_refuse(conn, ERROR_TOO_LONG, NULL);
    else
        conn_refuse(conn, ERROR_QUOTA, "no memory for the line");
    if (!conn->ended)
        conn_pause_if_behind(conn);
}

static void conn_bytes(struct conn *conn, const char *bytes, size_t length)
{
    bool may_have_more = length == CONN_READ_BYTES;
    const char *line;
    size_t line_length;
    int lines = 0;
    int r;

    while (!conn->ended && !conn->paused && !conn->yielded &&
           (r = framing_next(&conn->framing, &bytes, &length, &line, &line_length)) != 0) {
        conn_line(conn, r, line, line_length);
        if (!conn->ended && !conn->paused && conn_turn_is_used_up(conn, ++lines))
            conn_turn_yield(conn);
    }
    if (conn->ended)
        return;
    if (may_have_more && !conn->paused && !conn->yielded)
        conn_turn_yield(conn);
    if (buf_append(&conn->held, bytes, length) < 0)
        conn_cut(conn, "out_of_memory");
    else if (!conn->paused && framing_has_partial(&conn->framing))
        conn_wait_begin(conn, CONN_WAIT_LINE);
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buffer)
{
    struct conn *conn = CONN_OF_PIPE(stream);

    if (nread > 0) {
        conn_bytes(conn, buffer->base, (size_t)nread);
    } else if (nread < 0) {
        log_conn(conn, LOG_LEVEL_DEBUG, "client_end", NULL);
        conn_end(conn, false);
    }
}

// Tells a client too many why it gets no connection; nothing waits for it.
static void refuse_fd(struct conn_table *table, int fd)
{
    static const char line[] = "{\"id\":null,\"ok\":false,\"error\":\"quota\",\"limit\":"
                               "\"connections_max\",\"message\":\"the broker has as many "
                               "connections as it may\"}\n";

    table->refused++;
    (void)!send(fd, line, sizeof(line) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)close(fd);
}

static bool read_peer(int fd, struct peer *ret_peer)
{
    struct ucred credentials;
    socklen_t size = sizeof(credentials);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
        return false;
    *ret_peer = (struct peer){credentials.pid, credentials.uid, credentials.gid};
    return true;
}

static struct conn *conn_new(struct conn_table *table, const struct peer *peer)
{
    struct conn *conn = calloc(1, sizeof(*conn));

    if (!conn)
        return NULL;
    conn->table = table;
    conn->id = table->next_id++;
    conn->peer = *peer;
    framing_init(&conn->framing, LB_REQUEST_LINE_BYTES_MAX);
    buf_init(&conn->held, CONN_READ_BYTES);
    buf_init(&conn->out, (size_t)table->limits.output_max_bytes + LB_REPLY_LINE_BYTES_MAX);
    buf_init(&conn->writing, 0);
    conn->write.data = conn;
    (void)uv_pipe_init(table->loop, &conn->pipe, 0);
    conn->pipe.data = conn;
    RB_INSERT(conn_tree, &table->tree, conn);
    table->count++;
    table->opened_total++;
    return conn;
}

void conn_table_accept(struct conn_table *table, int fd)
{
    struct peer peer;
    struct event event = {.kind = EVENT_SESSION_OPENED};

    if (table->count >= table->limits.connections_max) {
        refuse_fd(table, fd);
        return;
    }

    struct conn *conn = read_peer(fd, &peer) ? conn_new(table, &peer) : NULL;

    if (!conn) {
        (void)close(fd);
        return;
    }
    if (uv_pipe_open(&conn->pipe, fd) < 0) {
        (void)close(fd);
        conn_close(conn);
        return;
    }
    if (uv_read_start((uv_stream_t *)&conn->pipe, on_alloc, on_read) < 0) {
        conn_close(conn);
        return;
    }
    event.session = conn->id;
    event.peer = peer;
    conn_submit(conn, &event);
    if (conn->ended)
        return;
    conn_wait_begin(conn, CONN_WAIT_SPEAK);
    log_conn(conn, LOG_LEVEL_DEBUG, "client_begin", NULL);
}

void conn_table_init(struct conn_table *table, uv_loop_t *loop, struct pump *pump)
{
    memset(table, 0, sizeof(*table));
    table->pump = pump;
    table->loop = loop;
    table->next_id = 1;
    RB_INIT(&table->tree);
    LIST_INIT(&table->dirty);

    conn_turn_init(table);
    conn_wait_init(table);
}

void conn_table_close(struct conn_table *table)
{
    struct conn *conn;
    struct conn *next;

    conn_table_flush(table);
    RB_FOREACH_SAFE (conn, conn_tree, &table->tree, next)
        conn_close(conn);
    uv_close((uv_handle_t *)&table->timer, NULL);
    conn_turn_close(table);
}
