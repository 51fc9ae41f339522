// Accepts one client at a time and reads all that it says without a look at it.
#include "tests/unit/redis/fake.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char input[65536];

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    (void)handle, (void)suggested;
    *ret_buf = uv_buf_init(input, sizeof(input));
}

static void on_client_closed(uv_handle_t *handle)
{
    free(handle);
}

void fake_drop(struct fake *fake)
{
    if (fake->client)
        uv_close((uv_handle_t *)fake->client, on_client_closed);
    fake->client = NULL;
}

void fake_send(struct fake *fake, const char *bytes, size_t length)
{
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes, (unsigned)length);

    ck_assert_ptr_nonnull(fake->client);
    ck_assert_int_eq(uv_try_write((uv_stream_t *)fake->client, &buf, 1), (int)length);
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buf)
{
    struct fake *fake = stream->data;
    int is_first = fake->received == 0;

    (void)buf;
    if (length < 0 || !fake->greeting) {
        fake_drop(fake);
        return;
    }
    fake->received += (size_t)length;
    if (is_first)
        fake_send(fake, fake->greeting, strlen(fake->greeting));
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct fake *fake = stream->data;

    ck_assert_int_eq(status, 0);
    fake_drop(fake); // its end may be read after the next one's beginning
    fake->client = malloc(sizeof(*fake->client));
    ck_assert_ptr_nonnull(fake->client);
    ck_assert_int_eq(uv_pipe_init(stream->loop, fake->client, 0), 0);
    fake->client->data = fake;
    ck_assert_int_eq(uv_accept(stream, (uv_stream_t *)fake->client), 0);
    ck_assert_int_eq(uv_read_start((uv_stream_t *)fake->client, on_alloc, on_read), 0);
    fake->received = 0;
    fake->accepted++;
}

void fake_init(struct fake *fake, uv_loop_t *loop, const char *greeting)
{
    memset(fake, 0, sizeof(*fake));
    fake->greeting = greeting;
    (void)snprintf(fake->path, sizeof(fake->path), "/tmp/lb-fake-%d.sock", (int)getpid());
    (void)unlink(fake->path);
    ck_assert_int_eq(uv_pipe_init(loop, &fake->listener, 0), 0);
    fake->listener.data = fake;
    ck_assert_int_eq(uv_pipe_bind(&fake->listener, fake->path), 0);
    ck_assert_int_eq(uv_listen((uv_stream_t *)&fake->listener, 8, on_connection), 0);
}

void fake_close(struct fake *fake)
{
    fake_drop(fake);
    uv_close((uv_handle_t *)&fake->listener, NULL);
}
