// A writer of compact JSON into a buffer. The first failure sticks: later calls do nothing, and
// json_out_error() tells it at the end.
#ifndef LB_PROTO_JSON_OUT_H
#define LB_PROTO_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/buf.h"
#include "proto/message.h"

struct json_out {
    struct buf *buf; // borrowed
    int error;
    bool needs_comma;
};

// Begins to append to `buf`.
void json_out_init(struct json_out *out, struct buf *buf);

// 0, or what went wrong first: -ENOMEM or -ENOBUFS.
int json_out_error(const struct json_out *out);

void json_out_object_begin(struct json_out *out);
void json_out_object_end(struct json_out *out);
void json_out_array_begin(struct json_out *out);
void json_out_array_end(struct json_out *out);

// The name of the object's next member; its value follows. `name` needs no escaping.
void json_out_name(struct json_out *out, const char *name);

void json_out_int(struct json_out *out, int64_t value);
void json_out_bool(struct json_out *out, bool value);
void json_out_null(struct json_out *out);

// A string. Bytes that are no UTF-8 are written as U+FFFD, one for each.
void json_out_text(struct json_out *out, const char *text);

// The id of a request: an integer, a string or null.
void json_out_id(struct json_out *out, const struct request_id *id);

// Ends the line.
void json_out_newline(struct json_out *out);

// A member with its value.
void json_out_member_int(struct json_out *out, const char *name, int64_t value);
void json_out_member_bool(struct json_out *out, const char *name, bool value);
void json_out_member_text(struct json_out *out, const char *name, const char *text);

#endif
