// A uv stream with an output buffer and a reply parser. Bytes are collected and written at a flush:
// a write a command would cost more than the command. It may not retry or reconnect: what an end
// means for commands under way is for its owner to say.
#include "daemon/redis/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>

#define WIRE_INPUT_BYTES     RESP_TEXT_BYTES_MAX
#define WIRE_IDLE_BYTES_MAX  (1024 * 1024) // storage kept by an empty output buffer
#define WIRE_FIRST_BYTES     16384         // a whole handshake: it must not be moved about
#define WIRE_KEEPALIVE_S     15
#define WIRE_USER_TIMEOUT_MS 10000

struct output {
    char *bytes;
    size_t length;
    size_t capacity;
};

struct wire {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    };
    uv_connect_t connect_request;
    uv_write_t write_request;
    struct wire_handlers handlers;
    struct resp_reader reader;
    struct output waiting; // to be written
    struct output writing; // libuv's until the write ends
    uint64_t appended;     // bytes of the connection's whole life
    uint64_t written;      // of them, those in no buffer of ours
    bool is_writing;
    bool is_broken; // a write failed
    bool is_closing;
    char input[WIRE_INPUT_BYTES];
};

// The whole storage is wiped: a password was in it once.
static void output_clear(struct output *output)
{
    if (output->bytes)
        explicit_bzero(output->bytes, output->capacity);
    free(output->bytes);
    *output = (struct output){0};
}

static int output_reserve(struct output *output, size_t extra)
{
    size_t capacity = output->capacity ? output->capacity : WIRE_FIRST_BYTES;
    char *bytes;

    if (extra <= output->capacity - output->length)
        return 0;
    while (capacity - output->length < extra)
        capacity *= 2;
    bytes = realloc(output->bytes, capacity);
    if (!bytes)
        return -ENOMEM;
    output->bytes = bytes;
    output->capacity = capacity;
    return 0;
}

// Empties the buffer, and keeps its storage unless it is large.
static void output_reset(struct output *output)
{
    if (output->capacity > WIRE_IDLE_BYTES_MAX)
        output_clear(output);
    output->length = 0;
}

static void wire_free(struct wire *wire)
{
    resp_reader_deinit(&wire->reader);
    output_clear(&wire->waiting);
    output_clear(&wire->writing);
    free(wire);
}

static void on_closed(uv_handle_t *handle)
{
    wire_free(handle->data);
}

void wire_close(struct wire *wire)
{
    if (wire->is_closing)
        return;
    wire->is_closing = true;
    uv_close(&wire->handle, on_closed);
}

static void wire_end(struct wire *wire, const char *reason)
{
    if (!wire->is_closing)
        wire->handlers.on_end(wire->handlers.context, reason);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    struct wire *wire = handle->data;

    (void)suggested;
    *ret_buf = uv_buf_init(wire->input, WIRE_INPUT_BYTES);
}

static void wire_take(struct wire *wire, const char *bytes, size_t length)
{
    struct resp *reply;
    int rc;

    if (resp_reader_feed(&wire->reader, bytes, length) < 0) {
        wire_end(wire, "out of memory");
        return;
    }
    while ((rc = resp_reader_next(&wire->reader, &reply)) == RESP_E_REPLY) {
        wire->handlers.on_reply(wire->handlers.context, reply);
        resp_free(reply);
        if (wire->is_closing)
            return;
    }
    if (rc < 0)
        wire_end(wire, "a reply that is none or is over a limit");
    else
        wire_flush(wire);
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buf)
{
    struct wire *wire = stream->data;

    if (wire->is_closing)
        return;
    if (length > 0)
        wire_take(wire, buf->base, (size_t)length);
    else if (length == UV_EOF)
        wire_end(wire, "closed by the server");
    else if (length < 0)
        wire_end(wire, uv_strerror((int)length));
}

static void tcp_tune(uv_tcp_t *tcp)
{
    unsigned timeout_ms = WIRE_USER_TIMEOUT_MS;
    uv_os_fd_t fd;

    // None of these is needed for the connection to work.
    (void)uv_tcp_nodelay(tcp, 1);
    (void)uv_tcp_keepalive(tcp, 1, WIRE_KEEPALIVE_S);
    if (uv_fileno((const uv_handle_t *)tcp, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

static void on_connected(uv_connect_t *request, int status)
{
    struct wire *wire = request->data;

    if (wire->is_closing)
        return;
    if (status == 0 && wire->handle.type == UV_TCP)
        tcp_tune(&wire->tcp);
    if (status == 0)
        status = uv_read_start(&wire->stream, on_alloc, on_read);
    if (status < 0)
        wire_end(wire, uv_strerror(status));
    else
        wire->handlers.on_open(wire->handlers.context);
}

static struct wire *wire_new(const struct wire_handlers *handlers)
{
    struct wire *wire = calloc(1, sizeof(*wire));

    if (!wire)
        return NULL;
    if (resp_reader_init(&wire->reader) < 0) {
        free(wire);
        return NULL;
    }
    wire->handlers = *handlers;
    wire->connect_request.data = wire;
    wire->write_request.data = wire;
    return wire;
}

int wire_connect(uv_loop_t *loop, const struct sockaddr *address,
                 const struct wire_handlers *handlers, struct wire **ret_wire)
{
    struct wire *wire = wire_new(handlers);
    int rc;

    if (!wire)
        return -ENOMEM;
    rc = uv_tcp_init(loop, &wire->tcp);
    if (rc < 0) {
        wire_free(wire);
        return rc;
    }
    wire->handle.data = wire;
    rc = uv_tcp_connect(&wire->connect_request, &wire->tcp, address, on_connected);
    if (rc < 0) {
        wire_close(wire);
        return rc;
    }
    *ret_wire = wire;
    return 0;
}

int wire_connect_path(uv_loop_t *loop, const char *path, const struct wire_handlers *handlers,
                      struct wire **ret_wire)
{
    struct wire *wire;
    int rc;

    if (strlen(path) > WIRE_PATH_BYTES_MAX)
        return -ENAMETOOLONG;
    wire = wire_new(handlers);
    if (!wire)
        return -ENOMEM;
    rc = uv_pipe_init(loop, &wire->pipe, 0);
    if (rc < 0) {
        wire_free(wire);
        return rc;
    }
    wire->handle.data = wire;
    uv_pipe_connect(&wire->connect_request, &wire->pipe, path, on_connected);
    *ret_wire = wire;
    return 0;
}

int wire_append(struct wire *wire, const char *bytes, size_t length, uint64_t *ret_start)
{
    size_t unwritten = (size_t)(wire->appended - wire->written);
    int rc;

    if (length > WIRE_OUTPUT_BYTES_MAX || unwritten > WIRE_OUTPUT_BYTES_MAX - length)
        return -ENOBUFS;
    rc = output_reserve(&wire->waiting, length);
    if (rc < 0)
        return rc;
    memcpy(wire->waiting.bytes + wire->waiting.length, bytes, length);
    wire->waiting.length += length;
    *ret_start = wire->appended;
    wire->appended += length;
    return 0;
}

static void on_written(uv_write_t *request, int status)
{
    struct wire *wire = request->data;

    wire->is_writing = false;
    if (status < 0) {
        // `writing` stays as it is: wire_written() must not count it.
        wire->is_broken = true;
        return;
    }
    wire->written = wire->appended - wire->waiting.length;
    output_reset(&wire->writing);
    wire_flush(wire);
}

// Hands all of `waiting` but its first `skip` bytes to libuv.
static void wire_write_rest(struct wire *wire, size_t skip)
{
    struct output rest = wire->waiting;
    uv_buf_t buf = uv_buf_init(rest.bytes + skip, (unsigned)(rest.length - skip));

    wire->waiting = wire->writing;
    wire->writing = rest;
    wire->is_writing = true;
    if (uv_write(&wire->write_request, &wire->stream, &buf, 1, on_written) < 0) {
        wire->is_writing = false;
        wire->is_broken = true;
    }
}

void wire_flush(struct wire *wire)
{
    uv_buf_t buf;
    int taken;

    if (wire->is_closing || wire->is_writing || wire->is_broken || wire->waiting.length == 0)
        return;
    buf = uv_buf_init(wire->waiting.bytes, (unsigned)wire->waiting.length);
    taken = uv_try_write(&wire->stream, &buf, 1);
    if (taken == UV_EAGAIN)
        taken = 0;
    if (taken < 0) {
        wire->is_broken = true;
        return;
    }
    wire->written += (size_t)taken;
    if ((size_t)taken == wire->waiting.length)
        output_reset(&wire->waiting);
    else
        wire_write_rest(wire, (size_t)taken);
}

uint64_t wire_written(const struct wire *wire)
{
    if (!wire->is_writing)
        return wire->written;
    return wire->appended - wire->waiting.length - wire->stream.write_queue_size;
}
