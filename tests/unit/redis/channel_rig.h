// A channel on a loop of its own, with what it posts kept for the test to look at.
#ifndef LB_TESTS_REDIS_CHANNEL_RIG_H
#define LB_TESTS_REDIS_CHANNEL_RIG_H

#include <stdbool.h>
#include <uv.h>

#include "daemon/redis/channel.h"
#include "proto/limits.h"
#include "tests/unit/redis/rig.h"
#include "tests/unit/redis/server.h"

// Of RIG_INSTANCE: the digits are the first of its SHA-1.
#define EAR_CHANNEL "lockbroker:meta:wake:b1775a785f09a6eb"

struct ear {
    uv_loop_t loop;
    uv_timer_t tick;
    struct channel *channel;
    struct channel_options options;
    int ups;
    int downs;
    int turns;
    int waits;
    int polls;
    char key[LB_KEY_BYTES_MAX + 1]; // of the last hint
};

// An ear for that server, by its Unix socket; not opened yet. The options may be changed before
// ear_open().
void ear_init(struct ear *ear, const struct server *server);
void ear_open(struct ear *ear);
void ear_open_up(struct ear *ear);
void ear_use_tcp(struct ear *ear, const char *host, int port);

// Closes everything; the loop must end by itself.
void ear_close(struct ear *ear);

// Runs the loop: until so many of them have come in all; for a while.
void ear_await_ups(struct ear *ear, int ups);
void ear_await_downs(struct ear *ear, int downs);
void ear_await_hints(struct ear *ear, int hints);
void ear_await_failures(struct ear *ear, int failures);
void ear_run(struct ear *ear, int64_t for_ms);

struct channel_figures ear_figures(const struct ear *ear);

// Publishes those bytes; returns how many heard them.
long long ear_publish(const struct server *server, const char *bytes, size_t length);
long long ear_say(const struct server *server, const char *text);

// How many are subscribed to the channel.
long long ear_hearers(const struct server *server);

// Publishes a hint and waits for it: what was published before has come by then.
void ear_assert_hears(struct ear *ear, const struct server *server);

#endif
