// The broker's operations as Redis commands, and Redis' replies as outcomes. Pure: it knows no
// connection and no clock.
#ifndef LB_REDIS_COMMAND_H
#define LB_REDIS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/core/backend.h"
#include "daemon/redis/resp.h"
#include "daemon/redis/script.h"
#include "daemon/redis/token.h"

#define COMMAND_KEYS_MAX      100 // of one renewal: more would hold Redis up for too long
#define COMMAND_FENCE_KEY     "lockbroker:meta:fence"
#define COMMAND_EPOCH_KEY     "lockbroker:meta:epoch"
#define COMMAND_QUEUE_START   "lockbroker:meta:queue:" // and the lock's key, prefix included
#define COMMAND_CHANNEL_START "lockbroker:meta:wake:"  // and a broker's name in queues
#define COMMAND_META_START    "lockbroker:meta:"       // lock keys may not start with this

// One operation with its key as it stands in Redis, the prefix included.
struct command_op {
    const struct backend_op *op;
    const char *key;
    size_t key_length;
};

#define COMMAND_MARKER_BYTES_MAX 127

// What is known of the server at the far end of one connection. All of it is about one run of the
// server, and a connection does not outlive that: on the next one it has to be learnt again.
struct command_server {
    struct script_names names;

    // The epoch marker, once it said that nothing is to be waited for any more, as far as locks go
    // that live for that long at most. "": it did not yet.
    char marker[COMMAND_MARKER_BYTES_MAX + 1];
    int64_t marker_ttl_ms;
};

// Formats one command that runs `count` operations of one kind: 1, or up to COMMAND_KEYS_MAX
// renewals. It names the script by its SHA, or carries its text when `as_text`. Returns 0 and the
// bytes, to be given back with command_free(); or -ENOMEM.
int command_format(const struct token_maker *maker, const struct command_server *server,
                   const struct command_op *ops, size_t count, bool as_text, char **ret_bytes,
                   size_t *ret_length) LB_MUST_CHECK;

// Formats any command from its words.
int command_format_words(const char *const *words, size_t count, char **ret_bytes,
                         size_t *ret_length) LB_MUST_CHECK;

// Overwrites the bytes (they hold secrets) and frees them. NULL is fine.
void command_free(char *bytes, size_t length);

// Reads the reply to operation `index` of a command with `count` operations: result, server_ms,
// fence, fences, ends_in_ms, others_queue, gave_turn, was_missing and holder of *ret_outcome (the
// rest is left alone). holder.host lies in `ret_host`. Returns 0; or -EPROTO when this is no reply
// to such a command. The reply is no error.
int command_read(const struct token_maker *maker, const struct backend_op *op,
                 const struct resp *reply, size_t index, size_t count,
                 char ret_host[LB_HOST_BYTES_MAX + 1],
                 struct backend_outcome *ret_outcome) LB_MUST_CHECK;

// Keeps what a reply that command_read() has taken says of the epoch marker, if anything.
void command_learn(struct command_server *server, const struct backend_op *op,
                   const struct resp *reply);

#endif
