// A server that is none: on the test's own loop, it greets like a Redis and then sends whatever
// bytes the test wants.
#ifndef LB_TESTS_REDIS_FAKE_H
#define LB_TESTS_REDIS_FAKE_H

#include <uv.h>

#define FAKE_SHA  "0123456789012345678901234567890123456789"
#define FAKE_BULK "$40\r\n" FAKE_SHA "\r\n"
#define FAKE_TIME "*2\r\n$10\r\n1700000000\r\n$6\r\n123999\r\n"

#define FAKE_SERVER "$29\r\nredis_version:7.0.0\r\nrun_id:x\r\n"

// What a master says to a handshake without AUTH and SELECT.
#define FAKE_GREETING                                                                              \
    "+OK\r\n" FAKE_SERVER "$13\r\nrole:master\r\n\r\n"                                             \
    "$14\r\nmaxmemory:0\r\n \r\n" FAKE_TIME FAKE_BULK FAKE_BULK FAKE_BULK FAKE_BULK FAKE_BULK

struct fake {
    uv_pipe_t listener;
    uv_pipe_t *client; // the last one accepted, while it is open; each has memory of its own, for
                       // the next may come before libuv is done with the one before
    int accepted;
    const char *greeting; // sent at the first bytes of each client; NULL: close at once
    size_t received;      // bytes of the last client
    char path[64];
};

void fake_init(struct fake *fake, uv_loop_t *loop, const char *greeting);
void fake_send(struct fake *fake, const char *bytes, size_t length);
void fake_drop(struct fake *fake); // closes the client's connection
void fake_close(struct fake *fake);

#endif
