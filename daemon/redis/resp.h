// Replies of Redis (RESP 2), parsed with hiredis' reader under our own limits. What is over a limit
// or is no RESP is an error after which the connection can only be given up.
#ifndef LB_REDIS_RESP_H
#define LB_REDIS_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/macros.h"

#define RESP_TEXT_BYTES_MAX  (64 * 1024)  // of one line or one bulk string
#define RESP_REPLY_BYTES_MAX (256 * 1024) // of all texts of one reply
#define RESP_ITEMS_MAX       256          // of one array
#define RESP_TOTAL_MAX       1024         // of all arrays of one reply
#define RESP_DEPTH_MAX       3            // arrays inside each other

enum resp_kind {
    RESP_NIL,
    RESP_INTEGER,
    RESP_STATUS,
    RESP_ERROR,
    RESP_TEXT,
    RESP_ARRAY,
};

struct resp {
    enum resp_kind kind;
    int64_t integer;    // RESP_INTEGER
    char *text;         // RESP_STATUS, RESP_ERROR, RESP_TEXT: ended by NUL, may hold others
    size_t length;      // of `text`
    struct resp *items; // RESP_ARRAY: `count` of them
    size_t count;
};

struct resp_reader {
    struct redisReader *parser;
    size_t budget_bytes; // left for the reply under way
    size_t budget_items;
};

#define RESP_E_REPLY 1 // there is a reply

// Returns 0 or -ENOMEM. The reader must not be moved afterwards.
int resp_reader_init(struct resp_reader *reader) LB_MUST_CHECK;

// Gives all back. A zeroed reader is fine.
void resp_reader_deinit(struct resp_reader *reader);

// Takes bytes in, at most RESP_TEXT_BYTES_MAX at a time; call resp_reader_next() until it returns 0
// before the next ones. Returns 0 or -ENOMEM.
int resp_reader_feed(struct resp_reader *reader, const char *bytes, size_t length) LB_MUST_CHECK;

// Takes the next reply out: RESP_E_REPLY and *ret_reply, to be given back with resp_free(); 0 when
// there is none yet; -EPROTO when a limit is broken, the bytes are no RESP, or memory ran out.
int resp_reader_next(struct resp_reader *reader, struct resp **ret_reply) LB_MUST_CHECK;

// True for a bulk string with just these bytes.
bool resp_is_text(const struct resp *reply, const char *text);

// Frees a reply with all that is in it. NULL is fine.
void resp_free(struct resp *reply);

#endif
