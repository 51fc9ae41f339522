// Bytes in, complete lines out. Lines end in LF or CRLF. A line over the limit is reported once and
// skipped up to its newline, however long it is. Memory is held only while half a line is pending:
// lines that lie wholly in the bytes given are handed out where they are.
#ifndef LB_PROTO_FRAMING_H
#define LB_PROTO_FRAMING_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/buf.h"
#include "proto/macros.h"

#define FRAMING_E_LINE     1 // a complete line
#define FRAMING_E_TOO_LONG 2 // a line over the limit; the rest of it is skipped

struct framing {
    struct buf partial;
    size_t line_bytes_max;
    bool is_skipping; // up to the next newline
    bool is_told;     // `partial` holds a line that was handed out
};

// `line_bytes_max` is without the newline. Takes no memory.
void framing_init(struct framing *framing, size_t line_bytes_max);

// Gives all memory back and forgets what was pending.
void framing_deinit(struct framing *framing);

// Takes the next line out of *bytes and moves *bytes and *length past what was used. Call it until
// it returns 0, that is until all bytes are used up:
//   0                   no further line; *length is 0
//   FRAMING_E_LINE      *ret_line and *ret_length are a line without its newline, not ended by NUL;
//                       valid until the next call and while the caller's bytes are
//   FRAMING_E_TOO_LONG  once for each line over the limit, as soon as that is known
//   -ENOMEM             no memory for half a line: that line is dropped and skipped up to its
//                       newline. Going on is fine
int framing_next(struct framing *framing, const char **bytes, size_t *length, const char **ret_line,
                 size_t *ret_length) LB_MUST_CHECK;

// True while the beginning of a line, not known to be over the limit, waits for its newline.
bool framing_has_partial(const struct framing *framing);

// Drops the half line, if one is pending: the rest of it is skipped up to its newline.
void framing_drop_partial(struct framing *framing);

#endif
