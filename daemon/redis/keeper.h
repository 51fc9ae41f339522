// Keeps one connection to Redis: resolves, connects, greets, and after any failure pauses and
// begins again, for ever. What the connection is for is its user's affair: the uplink, the channel.
#ifndef LB_REDIS_KEEPER_H
#define LB_REDIS_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/base/rng.h"
#include "daemon/redis/backoff.h"
#include "daemon/redis/gate.h"
#include "daemon/redis/handshake.h"
#include "daemon/redis/resolve.h"
#include "daemon/redis/wire.h"
#include "proto/macros.h"

// Where Redis is, parsed from the backend URL. Exactly one of `host` and `path` is set.
struct redis_address {
    const char *host;
    int port;
    const char *path;
    const char *user;     // NULL: none
    const char *password; // NULL: no AUTH
    int database;
};

struct keeper_options {
    struct redis_address address; // texts are copied, as are the next two
    const char *host;             // this machine's name, for the connection's
    const char *channel;          // what to hear; NULL: a connection for commands
    int64_t connect_timeout_ms;
    uint64_t seed; // jitter

    // The names of log lines. Borrowed, as literals are.
    const char *failed_event;
    const char *down_event;
};

// Called from the loop only. None of them may close the keeper.
struct keeper_handlers {
    void (*on_up)(void *context);                              // the greeting is over
    void (*on_reply)(void *context, const struct resp *reply); // while it is up
    void (*on_down)(void *context,
                    bool was_up);     // lost, or an attempt failed; the wire is still there
    void (*on_closed)(void *context); // after keeper_close(): the memory is not needed
    void *context;
};

enum keeper_state {
    KEEPER_IDLE,   // made, not opened
    KEEPER_PAUSED, // between two attempts
    KEEPER_TRYING, // resolving, connecting or greeting
    KEEPER_UP,
    KEEPER_CLOSED,
};

struct keeper {
    uv_loop_t *loop;
    enum keeper_state state;
    bool is_urgent;
    struct keeper_options options;
    struct keeper_handlers handlers;
    char *texts[6]; // what the pointers in `options` point to

    uv_timer_t timer; // the pause, or the time limit of an attempt
    struct resolve *resolve;
    struct resolve_result result;
    size_t address_next;
    struct wire *wire; // of this connection, or NULL
    bool is_connected; // the wire is; its greeting may not be over
    struct handshake handshake;
    char wanted_run_id[HANDSHAKE_WORD_BYTES_MAX + 1]; // ""; any will do

    struct rng rng;
    struct backoff backoff;
    int64_t up_since_ms;
    struct gate failures;
    char label[RESOLVE_HOST_BYTES_MAX + 16]; // of the address, for the log
};

// Makes a keeper on `loop`; it must not be moved afterwards. Returns 0, -EINVAL or -ENOMEM; then
// nothing is to be given back.
int keeper_init(struct keeper *keeper, uv_loop_t *loop, const struct keeper_options *options,
                const struct keeper_handlers *handlers) LB_MUST_CHECK;

// Begins to connect, and goes on for ever. Nothing is called before this returns.
void keeper_open(struct keeper *keeper);

// Tells how urgent the next attempt to connect is: the longest pause is 250 ms when it is, 2 s
// else.
void keeper_set_urgent(struct keeper *keeper, bool urgent);

// Which run of a server it must be from now on; NULL: any. A connection to another one is given up.
void keeper_want(struct keeper *keeper, const char *run_id);

// Gives up a connection that is up, and begins again after a pause.
void keeper_fail(struct keeper *keeper, const char *reason);

// Closes everything. Of the handlers only on_closed is called any more, once.
void keeper_close(struct keeper *keeper);

// Wipes and frees the texts: after on_closed, or when it was never opened nor closed.
void keeper_deinit(struct keeper *keeper);

#endif
