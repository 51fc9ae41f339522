// The growable buffer. It never moves bytes one at a time: consumed space in front is reused by
// moving the rest only when that frees at least as much as is moved, so a long run of small appends
// and consumes stays linear.
#include "proto/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUF_BYTES_MIN 256

void buf_init(struct buf *buf, size_t bytes_max)
{
    *buf = (struct buf){.bytes_max = bytes_max};
}

void buf_clear(struct buf *buf)
{
    free(buf->storage);
    buf_init(buf, buf->bytes_max);
}

const char *buf_bytes(const struct buf *buf)
{
    return buf->length == 0 ? NULL : buf->storage + buf->start;
}

size_t buf_length(const struct buf *buf)
{
    return buf->length;
}

// The next capacity that holds `needed` bytes: doubled, so that growing is linear in all.
static size_t buf_next_capacity(const struct buf *buf, size_t needed)
{
    size_t capacity = buf->capacity < BUF_BYTES_MIN ? BUF_BYTES_MIN : buf->capacity;

    while (capacity < needed)
        capacity = capacity > buf->bytes_max / 2 ? buf->bytes_max : capacity * 2;
    return capacity > buf->bytes_max ? buf->bytes_max : capacity;
}

static int buf_grow(struct buf *buf, size_t needed)
{
    size_t capacity = buf_next_capacity(buf, needed);
    char *storage = malloc(capacity);

    if (!storage)
        return -ENOMEM;
    if (buf->length > 0)
        memcpy(storage, buf->storage + buf->start, buf->length);
    free(buf->storage);
    buf->storage = storage;
    buf->capacity = capacity;
    buf->start = 0;
    return 0;
}

int buf_reserve(struct buf *buf, size_t extra, char **ret_space)
{
    if (extra > buf->bytes_max - buf->length)
        return -ENOBUFS;

    size_t needed = buf->length + extra;

    if (!buf->storage || needed > buf->capacity - buf->start) {
        if (buf->storage && needed <= buf->capacity && buf->start >= buf->length) {
            memmove(buf->storage, buf->storage + buf->start, buf->length);
            buf->start = 0;
        } else {
            int r = buf_grow(buf, needed);
            if (r < 0)
                return r;
        }
    }
    *ret_space = buf->storage + buf->start + buf->length;
    return 0;
}

void buf_commit(struct buf *buf, size_t length)
{
    lb_assert(length <= buf->capacity - buf->start - buf->length);
    buf->length += length;
}

int buf_append(struct buf *buf, const void *bytes, size_t length)
{
    char *space = NULL;

    if (length == 0)
        return 0;

    int r = buf_reserve(buf, length, &space);
    if (r < 0)
        return r;
    memcpy(space, bytes, length);
    buf_commit(buf, length);
    return 0;
}

void buf_consume(struct buf *buf, size_t length)
{
    if (length > buf->length)
        length = buf->length;
    buf->length -= length;
    buf->start = buf->length == 0 ? 0 : buf->start + length;
}

void buf_truncate(struct buf *buf, size_t length)
{
    lb_assert(length <= buf->length);
    buf->length = length;
}
