// The Lua scripts that run the broker's operations inside Redis, one for each kind of operation.
// Every one checks everything first and writes last, and a lock's own key is its last write: a
// script that ends in an error has not changed the lock.
//
// What they answer is an array. First comes the server's time in ms, then a status S:
//   acquire  1, first fence, how many, brokers in the queue, and maybe the epoch marker: ours;
//            0, pttl, value: held by another; 3: of another type; 4: too late; 5, ends_in_ms:
//            free, but a loss of data is waited out; 6, ends_in_ms: free, but another's turn
//   renew    one S a key: 1 renewed, 0 gone, 2 another's value, 3 of another type, 4 too late,
//            6 missing after a loss of data and set again, 7 the same, but refused, above that
//            renewed and the first of the fences that were asked for
//   release  1 deleted, 0 gone, 2 another's value, each with 1 when another broker was given its
//            turn, or 0; 3 of another type
//   query    1, pttl, value: held; 0: free; 3: of another type
//   break    as query, or 4; what was held is deleted
// A value is cut to SCRIPT_VALUE_BYTES_MAX bytes. The usual answers are shorter, no arrays: to an
// acquire its one fence, which is the server's time in microseconds as well, as a text; to renewals
// that all succeeded the time in ms; to a release that deleted the key 1.
#ifndef LB_REDIS_SCRIPT_H
#define LB_REDIS_SCRIPT_H

#include "daemon/core/backend.h"

#define SCRIPT_COUNT           (BACKEND_BREAK + 1)
#define SCRIPT_SHA_LENGTH      40
#define SCRIPT_VALUE_BYTES_MAX 256

// The names that Redis gave the scripts: SHA1 in hex, learnt at the handshake.
struct script_names {
    char sha[SCRIPT_COUNT][SCRIPT_SHA_LENGTH + 1];
};

// The Lua source of an operation.
const char *script_text(enum backend_op_kind kind);

// A word for log lines: "acquire", ...
const char *script_label(enum backend_op_kind kind);

#endif
