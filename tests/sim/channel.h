// A node's second connection, on which it hears whose turn it is: what daemon/redis/channel.c makes
// of it, with delays and losses of its own. It comes back by itself.
#ifndef LB_TESTS_SIM_CHANNEL_H
#define LB_TESTS_SIM_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/event.h"
#include "daemon/redis/token.h"
#include "tests/sim/server.h"
#include "tests/sim/sim.h"

#define CHANNEL_MESSAGES_MAX 64
#define CHANNEL_NAME_BYTES   64
#define CHANNEL_KEY_BYTES    16

struct channel_message {
    enum event_kind kind;
    char key[CHANNEL_KEY_BYTES];
};

struct channel {
    struct sim *sim;
    struct server *server;
    const char *prefix; // of lock keys
    // Takes EVENT_CHANNEL_UP and the like; a key is lent until it returns.
    void (*post)(void *context, const struct event *event);
    void *context;

    struct server_ear ear;
    char name[CHANNEL_NAME_BYTES];
    uint64_t life; // of this connection, or of the attempt: what was asked for by another is void
    bool is_told_up;
    int64_t last_us;       // when the last message that is under way arrives
    int64_t held_until_us; // a partition: nothing arrives before
    bool is_deaf;
    struct channel_message messages[CHANNEL_MESSAGES_MAX]; // a ring
    size_t messages_first;
    size_t messages_count;
};

// A process starts, with that instance; `channel` keeps its server, node and context over its
// processes. It ends.
void channel_begin(struct channel *channel, const char *instance);
void channel_end(struct channel *channel);

// The connection breaks. Nothing is heard on it for a while, until it is given up.
void channel_cut(struct channel *channel);
void channel_deafen(struct channel *channel, int64_t for_us);

// Nothing arrives before that time.
void channel_hold(struct channel *channel, int64_t until_us);

#endif
