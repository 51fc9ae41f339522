// Requests from JSON, driven by the table of fields. What is checked here is the form of each field
// by itself; whatever needs an option or the state of a lock is the core's. For the broker alone:
// it sets the allocation functions of jansson.
#include "proto/request.h"

#include <jansson.h>
#include <string.h>

#include "proto/json_arena.h"
#include "proto/json_scan.h"
#include "proto/reply.h"
#include "proto/request_field.h"

// Enough for any line that json_scan() passes: the most is taken by an array of empty objects, some
// 80 bytes for each byte of the line.
#define REQUEST_ARENA_BYTES ((size_t)128 * LB_REQUEST_LINE_BYTES_MAX)

// Each of the parsers below returns NULL, or the sentence that says what is wrong with the value.

static const char *parse_integer(const json_t *value, const struct field *field, void *ret_integer)
{
    int64_t integer;

    if (!json_is_integer(value))
        return "the field must be an integer, written without fraction and exponent";
    integer = json_integer_value(value);
    if (integer < field->min || integer > field->max)
        return "the field is out of range";
    memcpy(ret_integer, &integer, sizeof(integer));
    return NULL;
}

static const char *parse_bool(const json_t *value, bool *ret_bool)
{
    if (!json_is_boolean(value))
        return "the field must be true or false";
    *ret_bool = json_is_true(value);
    return NULL;
}

static bool has_control(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7F)
            return true;
    }
    return false;
}

static const char *parse_text(const json_t *value, const struct field *field, char *ret_text)
{
    size_t length;

    if (!json_is_string(value))
        return "the field must be a string";
    length = json_string_length(value);
    if (length > (size_t)field->max)
        return "the field is too long";
    if (length < (size_t)field->min)
        return "the field must not be empty";
    if (field->form == FORM_NAME && has_control(json_string_value(value)))
        return "the field has a control character in it";
    memcpy(ret_text, json_string_value(value), length + 1);
    return NULL;
}

static const char *parse_word(const json_t *value, const struct field *field, unsigned *ret_place)
{
    if (!json_is_string(value))
        return "the field must be a string";
    for (unsigned i = 0; field->words[i]; i++) {
        if (strcmp(json_string_value(value), field->words[i]) == 0) {
            *ret_place = i;
            return NULL;
        }
    }
    return "the field has none of the values that it may have";
}

static const char *parse_id(const json_t *value, struct request_id *ret_id)
{
    static const struct field number = {.max = LB_INTEGER_MAX};
    static const struct field text = {.min = 1, .max = LB_ID_BYTES_MAX};
    struct request_id id = {.kind = REQUEST_ID_NUMBER};
    const char *wrong;

    if (json_is_string(value)) {
        id.kind = REQUEST_ID_TEXT;
        wrong = parse_text(value, &text, id.text);
    } else if (json_is_integer(value)) {
        wrong = parse_integer(value, &number, &id.number);
    } else {
        wrong = "the field must be an integer or a string";
    }
    if (!wrong)
        *ret_id = id;
    return wrong;
}

static const char *parse_field(const json_t *value, const struct field *field,
                               struct request *request)
{
    char *member = (char *)request + field->offset;

    switch (field->form) {
    case FORM_INTEGER:
        return parse_integer(value, field, member);
    case FORM_BOOL:
        return parse_bool(value, (bool *)member);
    case FORM_TEXT:
    case FORM_NAME:
        return parse_text(value, field, member);
    case FORM_WORD:
        return parse_word(value, field, (void *)member);
    case FORM_ID:
        return parse_id(value, (void *)member);
    }
    lb_assert(false);
}

// Fills the refusal, with what is known of the request so far.
static int refuse(const struct request *request, struct reply *refusal, enum error_code error,
                  const char *field, const char *message)
{
    reply_init(refusal);
    refusal->id = request->id;
    refusal->op = request->op;
    refusal->error = error;
    refusal->field = field;
    refusal->message = message;
    return REQUEST_E_REFUSED;
}

static int refuse_field(const struct request *request, struct reply *refusal, const char *field,
                        const char *message)
{
    return refuse(request, refusal, ERROR_BAD_FIELD, field, message);
}

static const struct field *field_by_name(const char *name)
{
    for (size_t i = 0; i < request_fields_count; i++) {
        if (name[0] == request_fields[i].name[0] && strcmp(name, request_fields[i].name) == 0)
            return &request_fields[i];
    }
    return NULL;
}

static enum op op_by_name(const char *name)
{
    for (unsigned i = OP_NONE + 1; i < request_ops_count; i++) {
        if (strcmp(name, request_ops[i].name) == 0)
            return (enum op)i;
    }
    return OP_NONE;
}

static int request_take_id(const json_t *line, struct request *request, struct reply *refusal)
{
    const json_t *value = json_object_get(line, "id");
    const char *wrong = value ? parse_id(value, &request->id) : "the field is missing";

    return wrong ? refuse_field(request, refusal, "id", wrong) : 0;
}

static int request_take_op(const json_t *line, struct request *request, struct reply *refusal)
{
    const json_t *value = json_object_get(line, "op");

    if (!value)
        return refuse_field(request, refusal, "op", "the field is missing");
    if (!json_is_string(value))
        return refuse_field(request, refusal, "op", "the field must be a string");
    request->op = op_by_name(json_string_value(value));
    if (request->op == OP_NONE)
        return refuse(request, refusal, ERROR_UNKNOWN_OP, NULL, NULL);
    return 0;
}

// Copies a name, cut between two characters when it is too long.
static void copy_name(const char *name, char *space, size_t bytes_max)
{
    size_t length = strnlen(name, bytes_max + 1);

    if (length > bytes_max) {
        length = bytes_max;
        while (((unsigned char)name[length] & 0xC0) == 0x80)
            length--;
    }
    memcpy(space, name, length);
    space[length] = '\0';
}

static int request_take_field(const char *name, const json_t *value, struct request *request,
                              struct reply *refusal)
{
    const struct field *field = field_by_name(name);

    if (!field || !(field->bit & request_ops[request->op].allowed)) {
        copy_name(name, request->refused_field, LB_FIELD_BYTES_MAX);
        return refuse_field(request, refusal, request->refused_field,
                            "the operation has no such field");
    }

    const char *wrong = parse_field(value, field, request);

    if (wrong)
        return refuse_field(request, refusal, field->name, wrong);
    request->given |= field->bit;
    return 0;
}

static int request_take_fields(json_t *line, struct request *request, struct reply *refusal)
{
    const char *name;
    json_t *value;

    json_object_foreach (line, name, value) {
        if (strcmp(name, "id") == 0 || strcmp(name, "op") == 0)
            continue;

        int r = request_take_field(name, value, request, refusal);

        if (r != 0)
            return r;
    }
    return 0;
}

static int request_check_required(const struct request *request, struct reply *refusal)
{
    uint32_t missing = request_ops[request->op].required & ~request->given;

    for (size_t i = 0; missing && i < request_fields_count; i++) {
        if (request_fields[i].bit & missing)
            return refuse_field(request, refusal, request_fields[i].name, "the field is missing");
    }
    return 0;
}

static int request_take(json_t *line, struct request *request, struct reply *refusal)
{
    int r = request_take_id(line, request, refusal);

    if (r == 0)
        r = request_take_op(line, request, refusal);
    if (r == 0)
        r = request_take_fields(line, request, refusal);
    if (r == 0)
        r = request_check_required(request, refusal);
    return r;
}

// With the arena open: parses a line that passed the scan.
static int request_load(const char *line, size_t length, struct request *request,
                        struct reply *refusal)
{
    json_t *root = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);

    if (json_arena_is_short()) {
        (void)refuse(request, refusal, ERROR_QUOTA, NULL, NULL);
        refusal->limit = "memory";
        return REQUEST_E_REFUSED;
    }
    if (!json_is_object(root))
        return refuse(request, refusal, ERROR_MALFORMED, NULL, NULL);
    return request_take(root, request, refusal);
}

int request_parser_init(void)
{
    int r = json_arena_init(REQUEST_ARENA_BYTES);

    if (r == 0)
        json_object_seed(0); // now, while there surely is a descriptor to read a random one with
    return r;
}

int request_parse(const char *line, size_t length, struct request *ret_request,
                  struct reply *ret_refusal)
{
    int r;

    request_init(ret_request);
    if (length > LB_REQUEST_LINE_BYTES_MAX)
        return refuse(ret_request, ret_refusal, ERROR_TOO_LONG, NULL, NULL);
    if (!json_scan(line, length, LB_JSON_DEPTH_MAX, LB_JSON_MEMBERS_MAX))
        return refuse(ret_request, ret_refusal, ERROR_MALFORMED, NULL, NULL);
    json_arena_open();
    r = request_load(line, length, ret_request, ret_refusal);
    json_arena_close();
    return r;
}
