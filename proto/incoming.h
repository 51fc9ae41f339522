// The client's side of replies and notices: from a line of JSON to structs. Parsing is lenient, so
// that a client gets along with a newer broker: unknown fields are passed over, and a known field
// of an unexpected type counts as not given.
#ifndef LB_PROTO_INCOMING_H
#define LB_PROTO_INCOMING_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/macros.h"
#include "proto/message.h"

enum incoming_kind {
    INCOMING_REPLY,
    INCOMING_NOTICE,
    INCOMING_OTHER, // an event that this version does not know: to be ignored
};

#define INCOMING_E_GARBAGE 1 // the line is neither a reply nor an event

// One line from the broker. All that it points to lies in `storage`.
struct incoming {
    enum incoming_kind kind;

    // kind INCOMING_REPLY. `op` is OP_NONE: only the caller knows what it asked. `error` is
    // ERROR_OTHER for an error that this version does not know. `held` is also `broken`. rows,
    // holder and stats point to `storage`.
    struct reply reply;
    const char *error; // the error's name as it was sent; NULL for a success

    // kind INCOMING_NOTICE; of INCOMING_OTHER all members but `kind`, as far as they were sent.
    struct notice notice;
    const char *event; // the event's name as it was sent; NULL for a reply

    void *storage; // ours to free, with incoming_clear()
};

// Parses one line (without its newline; it need not be ended by NUL). Returns 0 and fills
// *ret_incoming, to be given back with incoming_clear(); INCOMING_E_GARBAGE; or -ENOMEM.
//
// -ENOMEM is only sure when memory is short before the line is parsed. jansson (2.14 and before)
// does not check the growth of its lexer's buffer: if malloc() fails there after all, for what
// other threads took meanwhile, the line may be garbage, or a text in it wrong.
int reply_parse(const char *line, size_t length, struct incoming *ret_incoming) LB_MUST_CHECK;

// Gives the memory back. A cleared or zeroed struct is fine.
void incoming_clear(struct incoming *incoming);

#endif
