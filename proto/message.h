// The messages of the wire contract as plain structs: a request (client to broker), a reply and a
// notice (broker to client; the wire calls a notice "event"). No JSON type appears here.
//
// Texts in a request are held inline, so a request owns nothing and can live on the stack. Texts in
// a reply or notice are borrowed pointers: whoever fills one says how long they live. An integer
// that is "not given" is LB_NONE; a text that is not given is NULL.
#ifndef LB_PROTO_MESSAGE_H
#define LB_PROTO_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

#define LB_NONE INT64_MIN

enum op {
    OP_NONE,
#define X(symbol, name, allowed, required) OP_##symbol,
#include "proto/ops.def"
#undef X
};

enum error_code {
    ERROR_NONE,
#define X(symbol, name, text) ERROR_##symbol,
#include "proto/errors.def"
#undef X
    ERROR_OTHER, // never sent: what a client makes of an error that it does not know
};

enum request_field {
    REQUEST_F_KEY = 1 << 0,
    REQUEST_F_OWNER = 1 << 1,
    REQUEST_F_TTL_MS = 1 << 2,
    REQUEST_F_WAIT_MS = 1 << 3,
    REQUEST_F_RENEW = 1 << 4,
    REQUEST_F_MAX_HOLD_MS = 1 << 5,
    REQUEST_F_NOTE = 1 << 6,
    REQUEST_F_ON_LOST = 1 << 7,
    REQUEST_F_FENCE = 1 << 8,
    REQUEST_F_STATUS = 1 << 9,
    REQUEST_F_TARGET = 1 << 10,
    REQUEST_F_REASON = 1 << 11,
    REQUEST_F_PREFIX = 1 << 12,
    REQUEST_F_AFTER = 1 << 13,
    REQUEST_F_LIMIT = 1 << 14,
    REQUEST_F_CLIENT = 1 << 15,
    REQUEST_F_VERSION = 1 << 16,
    REQUEST_F_BIND = 1 << 17,
};

enum request_id_kind {
    REQUEST_ID_NONE, // written as null
    REQUEST_ID_NUMBER,
    REQUEST_ID_TEXT,
};

struct request_id {
    enum request_id_kind kind;
    int64_t number;                 // 0..2^53-1 when kind is REQUEST_ID_NUMBER
    char text[LB_ID_BYTES_MAX + 1]; // 1..64 bytes when kind is REQUEST_ID_TEXT
};

enum bind_kind {
    BIND_CONNECTION,
    BIND_PROCESS
};
enum on_lost_kind {
    ON_LOST_EVENT,
    ON_LOST_TERM,
    ON_LOST_KILL
};

// A parsed request. `given` has a REQUEST_F_* bit for each field that the line named; fields that
// it did not name hold: texts "", `renew` true, `bind` connection, `on_lost` event, `wait_ms` 0,
// `limit` 100, `version` 1, and LB_NONE for `ttl_ms`, `max_hold_ms` and `fence`.
struct request {
    struct request_id id;
    enum op op;
    uint32_t given;
    bool renew;
    enum bind_kind bind;
    enum on_lost_kind on_lost;
    int64_t ttl_ms;      // >= 1000; the upper bound is an option, checked by the core
    int64_t wait_ms;     // -1 = as long as the broker allows
    int64_t max_hold_ms; // >= 1
    int64_t fence;
    int64_t limit; // 1..1000
    int64_t version;
    struct request_id target;
    char key[LB_KEY_BYTES_MAX + 1];
    char owner[LB_OWNER_BYTES_MAX + 1];
    char note[LB_NOTE_BYTES_MAX + 1];
    char status[LB_STATUS_BYTES_MAX + 1];
    char reason[LB_REASON_BYTES_MAX + 1];
    char client[LB_CLIENT_BYTES_MAX + 1];
    char prefix[LB_KEY_BYTES_MAX + 1];
    char after[LB_KEY_BYTES_MAX + 1];
    // Storage of request_parse()'s refusal.
    char refused_field[LB_FIELD_BYTES_MAX + 1];
    char refused_message[LB_REFUSAL_BYTES_MAX + 1];
};

enum holder_kind {
    HOLDER_NONE,    // nobody: written as null
    HOLDER_LOCAL,   // a client of this broker
    HOLDER_BROKER,  // a client of another lockbroker
    HOLDER_FOREIGN, // anything else that set the key
};

// Who holds a key. Members that are not known are left out of the line.
struct holder {
    enum holder_kind kind;
    const char *host;    // NULL: not known
    const char *client;  // NULL or "": not known
    const char *note;    // NULL or "": not known
    int64_t pid;         // LB_NONE: not known
    int64_t uid;         // LB_NONE: not known
    int64_t fence;       // LB_NONE: not known
    int64_t held_ms;     // LB_NONE: not known
    int64_t ttl_left_ms; // LB_NONE: not known, left out
    bool without_expiry; // the key never expires: ttl_left_ms is written as null
};

// One row of a `list` reply.
struct lock_row {
    const char *key;
    struct holder holder;
    int64_t waiters;
    const char *state;
};

// One named figure of a `stats` reply.
struct stat_value {
    const char *name;
    int64_t value;
};

// A histogram of a `stats` reply: counts[i] observations were <= bounds[i]; the last count, at
// index `bounds_count`, is of those above every bound. `sum` is of all observations.
struct stat_histogram {
    const char *name;
    const int64_t *bounds;
    const int64_t *counts; // bounds_count + 1 of them
    size_t bounds_count;
    int64_t sum;
};

// The success part of `stats`. `backend` describes the link to Redis.
struct stats_page {
    const struct stat_value *counters;
    size_t counters_count;
    const struct stat_value *gauges;
    size_t gauges_count;
    const struct stat_histogram *histograms;
    size_t histograms_count;
    const char *backend_kind;    // "redis" or "memory"
    const char *backend_state;   // "up" or "down"
    const char *backend_role;    // NULL: not known
    const char *backend_version; // NULL: not known
    const char *backend_policy;  // Redis' maxmemory-policy; NULL: not known
    bool backend_may_evict;      // that policy may evict a lock key
};

// A reply. `op` says whose success fields apply; when `error` is not ERROR_NONE the error fields do
// instead. A success or error field at LB_NONE or NULL is left out of the line.
struct reply {
    struct request_id id;
    enum op op;
    enum error_code error;

    // errors
    const char *message;         // NULL: the error's default sentence
    const char *field;           // bad_field
    const char *limit;           // quota
    int64_t may_block_ms;        // unavailable
    int64_t ends_in_ms;          // unavailable, reason "quarantine"
    const struct holder *holder; // busy, timeout; also query and break (NULL: left out)

    // acquire, extend; waited_ms also with timeout; fence, valid_ms, deadline_ms also with check
    const char *key;
    int64_t fence;
    int64_t ttl_ms;
    int64_t valid_ms;
    int64_t deadline_ms; // absolute, CLOCK_BOOTTIME
    int64_t waited_ms;

    // release: outcome, and reason with was_lost (also the reason of unavailable)
    const char *outcome;
    const char *reason;
    int64_t frees_within_ms;

    // check, query, break
    bool held; // also `broken`
    const char *state;
    int64_t waiters;

    // hello, ping
    const char *server;
    int64_t version;
    const char *instance;
    const char *host;
    int64_t ttl_max_ms; // limits
    int64_t max_wait_ms;
    int64_t now_ms;
    const char *backend; // "up" or "down"

    // list, stats
    const struct lock_row *rows;
    size_t rows_count;
    bool more;
    const struct stats_page *stats;
};

// A success without any field.
static inline struct reply reply_blank(void)
{
    return (struct reply){
        .may_block_ms = LB_NONE,
        .ends_in_ms = LB_NONE,
        .fence = LB_NONE,
        .ttl_ms = LB_NONE,
        .valid_ms = LB_NONE,
        .deadline_ms = LB_NONE,
        .waited_ms = LB_NONE,
        .frees_within_ms = LB_NONE,
        .waiters = LB_NONE,
        .version = LB_NONE,
        .ttl_max_ms = LB_NONE,
        .max_wait_ms = LB_NONE,
        .now_ms = LB_NONE,
    };
}

enum notice_kind {
    NOTICE_SUSPECT,
    NOTICE_OK,
    NOTICE_LOST
};

// What the broker tells a holder by itself.
struct notice {
    enum notice_kind kind;
    const char *key;
    const char *owner; // "" : left out of the line
    int64_t fence;
    int64_t valid_ms; // LB_NONE with lost
    int64_t deadline_ms;
    const char *reason; // NULL with ok
};

#endif
