// A reader of JSON that takes no memory: a line is first checked as a whole, then walked in place.
//
// It exists because a general JSON library builds a tree from many small allocations, and what such
// a library does when one of them fails is not ours to decide; a request must not be misread then.
#ifndef LB_PROTO_JSON_IN_H
#define LB_PROTO_JSON_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/macros.h"

enum json_kind {
    JSON_NULL,
    JSON_BOOL,
    JSON_INTEGER, // a number without fraction and exponent
    JSON_REAL,
    JSON_TEXT,
    JSON_OBJECT,
    JSON_ARRAY,
};

// A value inside a checked line, borrowed from it.
struct json_value {
    enum json_kind kind;
    const char *text; // its first byte: of a string the opening quote
    size_t length;
};

// A walk over the members of an object or the elements of an array.
struct json_cursor {
    const char *at;
    const char *end;
};

// Checks that the line is one JSON value and nothing else: strict grammar, valid UTF-8 also after
// unescaping, no U+0000 in any text, at most `depth_max` objects and arrays inside each other and
// at most `members_max` members of objects in all. Returns true and the value, or false.
bool json_in_check(const char *line, size_t length, unsigned depth_max, size_t members_max,
                   struct json_value *ret_value) LB_MUST_CHECK;

// True when the value is, or has anywhere in it, an object that names a member twice. Takes time
// quadratic in the number of members: for lines with a small `members_max` only.
bool json_has_duplicates(const struct json_value *value);

// Begins a walk over an object or array.
void json_cursor_init(struct json_cursor *cursor, const struct json_value *container);

// The next member of an object (the name is a JSON_TEXT), or element of an array; false at the end.
bool json_next_member(struct json_cursor *cursor, struct json_value *ret_name,
                      struct json_value *ret_value);
bool json_next_element(struct json_cursor *cursor, struct json_value *ret_value);

// Looks a member up by name; false when there is none.
bool json_find_member(const struct json_value *object, const char *name,
                      struct json_value *ret_value);

// True when the text, unescaped, is `other`.
bool json_text_equals(const struct json_value *text, const char *other);

// Unescapes a text into `space` and ends it with NUL. Returns its length without the NUL, or
// SIZE_MAX when that and the NUL are more than `space_bytes`; then as many whole characters as fit
// were written, ended by NUL. `space_bytes` is at least 1; value->length bytes are always enough.
size_t json_text_copy(const struct json_value *text, char *space, size_t space_bytes);

// The value of a JSON_INTEGER; false when it is outside of int64_t.
bool json_integer(const struct json_value *value, int64_t *ret_integer) LB_MUST_CHECK;

// The value of a JSON_BOOL.
bool json_bool(const struct json_value *value);

#endif
