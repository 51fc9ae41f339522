// The second connection to Redis: it only listens. Scripts of other brokers tell this one by its
// channel that a key it queues for is free, or that somebody queues for a key it has. These are
// hints: any of them may get lost, and anybody may have made them up.
#ifndef LB_REDIS_CHANNEL_H
#define LB_REDIS_CHANNEL_H

#include <stdint.h>
#include <uv.h>

#include "daemon/core/event.h"
#include "daemon/redis/keeper.h"
#include "proto/macros.h"

// After how long a silence the server is asked whether it is there, and how long it has to answer.
#define CHANNEL_QUIET_MS  5000
#define CHANNEL_ANSWER_MS 2000

struct channel;

// As the uplink's, whose address it is; texts are copied by channel_new().
struct channel_options {
    struct redis_address address;
    const char *prefix;   // messages about keys that do not begin with it are ignored
    const char *host;     // this machine's name, for the connection's
    const char *instance; // the secret; the channel's name is made of its queue id
    int64_t connect_timeout_ms;
    int64_t quiet_ms;
    int64_t answer_ms;
    uint64_t seed; // jitter

    // Called with EVENT_CHANNEL_UP, EVENT_CHANNEL_DOWN (once for each up), EVENT_TURN or
    // EVENT_CONTENDED or EVENT_OUTSIDER, from the loop. The key is borrowed until it returns. It
    // may not close the channel.
    void (*post)(void *context, const struct event *event);
    void *context;
};

// Makes a channel on `loop`; it does not connect yet. Returns 0 or a negative errno.
int channel_new(uv_loop_t *loop, const struct channel_options *options,
                struct channel **ret_channel) LB_MUST_CHECK;

// Begins to connect, and goes on for ever.
void channel_open(struct channel *channel);

// Which run of a server the uplink has, while it has one; NULL: none, or it does not tell. What the
// scripts publish there is heard there alone, so a channel to another one is given up: after a
// failover both servers may still answer at what was one address.
void channel_follow(struct channel *channel, const char *run_id);

// Closes the connection and all handles. The channel frees itself once the loop has closed them.
void channel_close(struct channel *channel);

// A few figures of the channel itself, for `stats`.
struct channel_figures {
    int64_t connects;
    int64_t connect_failures;
    int64_t messages;         // of them, some may have been ignored
    int64_t pings_unanswered; // each of them cost the connection
};
void channel_get_figures(const struct channel *channel, struct channel_figures *ret_figures);

#endif
