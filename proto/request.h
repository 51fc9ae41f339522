// Requests: from a line of JSON to struct request and back.
#ifndef LB_PROTO_REQUEST_H
#define LB_PROTO_REQUEST_H

#include <stddef.h>

#include "proto/buf.h"
#include "proto/macros.h"
#include "proto/message.h"

#define REQUEST_E_REFUSED 1 // the line is no request; the refusal says why

// Parses one line (without its newline; it need not be ended by NUL). It takes no memory, so there
// is none that could be missing.
// Returns 0 and fills *ret_request, every member of it, texts up to their NUL; or REQUEST_E_REFUSED
// and fills *ret_refusal with the error reply to send: error, message, field, limit, and id and op
// as far as they are known. Its texts are static or lie in *ret_request, which holds nothing else
// of use then. The other one of the two is unspecified.
int request_parse(const char *line, size_t length, struct request *ret_request,
                  struct reply *ret_refusal) LB_MUST_CHECK;

// A request with nothing given: every member at its default, id NONE, op NONE.
void request_init(struct request *request);

// Appends the request as one line with its newline: id, op and the fields in `given`. Returns 0,
// -ENOMEM or -ENOBUFS; the buffer is as before on failure.
int request_write(struct buf *buf, const struct request *request) LB_MUST_CHECK;

// The name of an operation on the wire, e.g. "acquire"; NULL for OP_NONE.
const char *op_name(enum op op);

#endif
