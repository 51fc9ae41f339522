// One value as text and as a number: durations, sizes, modes and levels.
#ifndef LB_CONFIG_VALUE_H
#define LB_CONFIG_VALUE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/macros.h"

enum value_type {
    VALUE_PATH,
    VALUE_GROUP,
    VALUE_BACKEND,
    VALUE_PREFIX,
    VALUE_DURATION,
    VALUE_COUNT,
    VALUE_BYTES,
    VALUE_MODE,
    VALUE_LEVEL,
    VALUE_LOSS,
};

// Enough for any number that value_format() writes.
#define VALUE_FORMAT_BYTES_MAX 32

// Reads a number type. Returns 0, -EINVAL when the text is no such thing, or -ERANGE when it is one
// but outside of least..most.
int value_parse(enum value_type type, const char *text, int64_t least, int64_t most,
                int64_t *ret_value) LB_MUST_CHECK;

// Writes a number type as value_parse() reads it, in the largest unit that divides it.
void value_format(enum value_type type, int64_t value, char ret_text[VALUE_FORMAT_BYTES_MAX]);

// What a value of the type is called and looks like: "a duration (for example 30s, 500ms, 1h)".
const char *value_description(enum value_type type);

// The type's name in --help.
const char *value_type_name(enum value_type type);

#endif
