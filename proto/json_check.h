// Whether a line is well-formed JSON: the inside of json_in_check().
#ifndef LB_PROTO_JSON_CHECK_H
#define LB_PROTO_JSON_CHECK_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/macros.h"

// See json_in_check().
bool json_check_line(const char *line, size_t length, unsigned depth_max,
                     size_t members_max) LB_MUST_CHECK;

#endif
