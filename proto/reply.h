// Replies and notices: from structs to a line of JSON.
#ifndef LB_PROTO_REPLY_H
#define LB_PROTO_REPLY_H

#include "proto/buf.h"
#include "proto/macros.h"
#include "proto/message.h"

// Makes a success without any field: all texts NULL, all integers LB_NONE, no rows.
void reply_init(struct reply *reply);

// Appends one line with its newline, never longer than LB_REPLY_LINE_BYTES_MAX with it: rows of a
// `list` that would not fit are left out, and `more` is written as true. Bytes that are no UTF-8
// are written as U+FFFD. Returns 0, -ENOMEM or -ENOBUFS (the buffer's cap, or a single reply that
// is too large); the buffer is as before on failure.
int reply_write(struct buf *buf, const struct reply *reply) LB_MUST_CHECK;

// The same for a notice.
int notice_write(struct buf *buf, const struct notice *notice) LB_MUST_CHECK;

// The name of an error on the wire, e.g. "busy", and the sentence that goes with it; NULL for
// ERROR_NONE and ERROR_OTHER.
const char *error_name(enum error_code error);
const char *error_text(enum error_code error);

// The name of a notice on the wire, e.g. "lost".
const char *notice_name(enum notice_kind kind);

#endif
