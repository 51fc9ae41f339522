// The tables of fields and operations that reading and writing of requests share.
#ifndef LB_PROTO_REQUEST_FIELD_H
#define LB_PROTO_REQUEST_FIELD_H

#include <stddef.h>
#include <stdint.h>

enum field_form {
    FORM_INTEGER, // min..max
    FORM_BOOL,
    FORM_TEXT, // at least min and at most max bytes
    FORM_NAME, // as FORM_TEXT, without control characters
    FORM_WORD, // one of `words`; the value is its place
    FORM_ID,
};

struct field {
    const char *name;
    uint32_t bit; // REQUEST_F_*
    enum field_form form;
    size_t offset; // in struct request
    int64_t min;
    int64_t max;
    const char *const *words; // ended by NULL
};

struct op_row {
    const char *name;
    uint32_t allowed;
    uint32_t required;
};

extern const struct field request_fields[];
extern const size_t request_fields_count;
extern const struct op_row request_ops[]; // by enum op; that of OP_NONE has no name
extern const size_t request_ops_count;

#endif
