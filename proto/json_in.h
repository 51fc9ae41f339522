// A strict reader of the one kind of JSON that requests are: an object whose members are numbers,
// texts and words. Objects and arrays inside it are checked, and otherwise passed over. It takes no
// memory, and its time is linear in the line: parsing was a quarter of what a request cost.
#ifndef LB_PROTO_JSON_IN_H
#define LB_PROTO_JSON_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"
#include "proto/macros.h"

enum json_kind {
    JSON_KIND_NULL,
    JSON_KIND_FALSE,
    JSON_KIND_TRUE,
    JSON_KIND_INTEGER, // without fraction and exponent
    JSON_KIND_REAL,
    JSON_KIND_TEXT,
    JSON_KIND_OBJECT,
    JSON_KIND_ARRAY,
};

struct json_value {
    enum json_kind kind;
    int64_t integer;  // INTEGER
    const char *text; // TEXT: without escapes, ended by NUL and with no other NUL in it
    size_t length;    // of `text`
};

struct json_member {
    const char *name; // as a text
    struct json_value value;
};

struct json_object {
    size_t count;
    struct json_member members[LB_JSON_MEMBERS_MAX]; // in the order of the line
};

// Reads a line, which need not be ended by NUL. Returns true and fills *ret_object, whose texts lie
// in `space`, which has room for `length` bytes. Returns false when the line is no such object by
// RFC 8259, and also for: text that is no UTF-8, a NUL in a text, a name that an object has twice,
// an integer beyond 64 bits, a number beyond a double, more than LB_JSON_DEPTH_MAX objects and
// arrays inside each other, more than LB_JSON_MEMBERS_MAX members in all.
bool json_in(const char *line, size_t length, char *space,
             struct json_object *ret_object) LB_MUST_CHECK;

#endif
