// A growable byte buffer with a hard cap: bytes are appended at the back and consumed from the
// front. Storage is taken at the first append and given back when the buffer is cleared.
#ifndef LB_PROTO_BUF_H
#define LB_PROTO_BUF_H

#include <stddef.h>

#include "proto/macros.h"

struct buf {
    char *storage; // NULL while no memory is held
    size_t start;  // offset of the first byte that was not consumed
    size_t length; // bytes from there on
    size_t capacity;
    size_t bytes_max;
};

// Makes an empty buffer that never holds more than `bytes_max` bytes. It takes no memory yet.
void buf_init(struct buf *buf, size_t bytes_max);

// Gives all memory back. The buffer is empty then and may be used again.
void buf_clear(struct buf *buf);

// The bytes held, contiguous; NULL when there are none. Valid until the buffer is changed.
const char *buf_bytes(const struct buf *buf);
size_t buf_length(const struct buf *buf);

// Makes room for `extra` more bytes at the back and returns where they go; buf_commit() then adds
// up to so many of them. Returns 0, -ENOMEM, or -ENOBUFS when that would be over the cap; the
// buffer is as before on failure.
int buf_reserve(struct buf *buf, size_t extra, char **ret_space) LB_MUST_CHECK;
void buf_commit(struct buf *buf, size_t length);

// Adds a copy of the bytes at the back. Errors as buf_reserve().
int buf_append(struct buf *buf, const void *bytes, size_t length) LB_MUST_CHECK;

// Drops `length` bytes from the front, at most as many as there are. Storage is kept.
void buf_consume(struct buf *buf, size_t length);

// Drops bytes from the back until `length` are left; `length` is at most what is held.
void buf_truncate(struct buf *buf, size_t length);

#endif
