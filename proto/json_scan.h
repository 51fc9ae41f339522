// What is looked at before a line is given to jansson, which recurses and takes memory for whatever
// comes.
#ifndef LB_PROTO_JSON_SCAN_H
#define LB_PROTO_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/macros.h"

// True when the line has no NUL (jansson passes over one that follows a number), at most
// `depth_max` objects and arrays inside each other and at most `members_max` members of objects in
// all. Whether it is JSON at all is not checked.
bool json_scan(const char *line, size_t length, unsigned depth_max,
               size_t members_max) LB_MUST_CHECK;

#endif
