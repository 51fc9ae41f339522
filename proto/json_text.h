// Texts of a checked line, without their escapes; json_in.h has the rest of it.
#ifndef LB_PROTO_JSON_TEXT_H
#define LB_PROTO_JSON_TEXT_H

#include <stdbool.h>

#include "proto/json_in.h"

// True when two texts are the same when unescaped.
bool json_text_same(const struct json_value *a, const struct json_value *b);

#endif
