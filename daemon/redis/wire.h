// One connection to Redis: a uv stream that takes command bytes in and hands whole replies out. It
// knows nothing of what they mean. A wire connects once; for another attempt make another one.
#ifndef LB_REDIS_WIRE_H
#define LB_REDIS_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "daemon/redis/resp.h"
#include "proto/macros.h"

#define WIRE_OUTPUT_BYTES_MAX (64 * 1024 * 1024) // not yet written
#define WIRE_PATH_BYTES_MAX   107                // libuv cuts longer ones without a word

struct wire;

// Called from the loop only, never from a wire_* function. Each of them may close the wire.
struct wire_handlers {
    void (*on_open)(void *context);
    void (*on_reply)(void *context, const struct resp *reply);
    void (*on_end)(void *context, const char *reason); // the connection is of no use any more
    void *context;
};

// Connect to an address (IPv4 or IPv6), or to the Unix socket at a path of at most
// WIRE_PATH_BYTES_MAX bytes. Return 0 or a negative errno; then on_open or on_end follows.
int wire_connect(uv_loop_t *loop, const struct sockaddr *address,
                 const struct wire_handlers *handlers, struct wire **ret_wire) LB_MUST_CHECK;
int wire_connect_path(uv_loop_t *loop, const char *path, const struct wire_handlers *handlers,
                      struct wire **ret_wire) LB_MUST_CHECK;

// Adds bytes to what is to be written. *ret_start is how many bytes of this connection lie before
// them. Returns 0, -ENOMEM or -ENOBUFS; nothing is added then.
int wire_append(struct wire *wire, const char *bytes, size_t length,
                uint64_t *ret_start) LB_MUST_CHECK;

// Writes what there is, as far as the kernel takes it; the rest follows by itself. A connection
// found broken here is not reported: replies may still wait to be read, and their end will tell.
void wire_flush(struct wire *wire);

// How many bytes of this connection the kernel has taken so far.
uint64_t wire_written(const struct wire *wire);

// Closes the connection. No handler is called any more; the wire frees itself.
void wire_close(struct wire *wire);

#endif
