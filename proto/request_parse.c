// Requests from JSON, driven by the table of fields. What is checked here is the form of each field
// by itself; whatever needs an option or the state of a lock is the core's.
#include "proto/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/json_in.h"
#include "proto/reply.h"
#include "proto/request_field.h"

// Writes the sentence about a field, which names it, so that it can be read alone. Returns it.
static const char *wrong(struct request *request, const char *name, const char *what)
{
    (void)snprintf(request->refused_message, sizeof(request->refused_message), "%s %s", name, what);
    return request->refused_message;
}

static const char *wrong_range(struct request *request, const struct field *field, int64_t integer)
{
    char what[64];

    if (integer > LB_INTEGER_MAX)
        (void)snprintf(what, sizeof(what), "must be at most %lld", LB_INTEGER_MAX);
    else if (field->max == LB_INTEGER_MAX)
        (void)snprintf(what, sizeof(what), "must be %" PRId64 " or more", field->min);
    else
        (void)snprintf(what, sizeof(what), "must be %" PRId64 " to %" PRId64, field->min,
                       field->max);
    return wrong(request, field->name, what);
}

// Each of the parsers below returns NULL, or the sentence that says what is wrong with the value.

static const char *parse_integer(const struct json_value *value, const struct field *field,
                                 struct request *request, void *ret_integer)
{
    int64_t integer = value->integer;

    if (value->kind == JSON_KIND_REAL)
        return wrong(request, field->name,
                     "must be an integer, written without fraction and exponent");
    if (value->kind != JSON_KIND_INTEGER)
        return wrong(request, field->name, "must be an integer");
    if (integer < field->min || integer > field->max)
        return wrong_range(request, field, integer);
    memcpy(ret_integer, &integer, sizeof(integer));
    return NULL;
}

static const char *parse_bool(const struct json_value *value, const struct field *field,
                              struct request *request, bool *ret_bool)
{
    if (value->kind != JSON_KIND_TRUE && value->kind != JSON_KIND_FALSE)
        return wrong(request, field->name, "must be true or false");
    *ret_bool = value->kind == JSON_KIND_TRUE;
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

static const char *parse_text(const struct json_value *value, const struct field *field,
                              struct request *request, char *ret_text)
{
    char what[64];
    size_t length = value->length;

    if (value->kind != JSON_KIND_TEXT)
        return wrong(request, field->name, "must be a string");
    if (length > (size_t)field->max) {
        (void)snprintf(what, sizeof(what), "is longer than %" PRId64 " bytes", field->max);
        return wrong(request, field->name, what);
    }
    if (length < (size_t)field->min)
        return wrong(request, field->name, "must not be empty");
    if (field->form == FORM_NAME && has_control(value->text))
        return wrong(request, field->name, "has a control character in it");
    memcpy(ret_text, value->text, length + 1);
    return NULL;
}

static const char *wrong_word(struct request *request, const struct field *field)
{
    char what[80] = "must be ";
    size_t length = strlen(what);

    for (size_t i = 0; field->words[i]; i++) {
        const char *before = i == 0 ? "" : field->words[i + 1] ? ", " : " or ";

        lb_assert(length < sizeof(what));
        length += (size_t)snprintf(what + length, sizeof(what) - length, "%s\"%s\"", before,
                                   field->words[i]);
    }
    return wrong(request, field->name, what);
}

static const char *parse_word(const struct json_value *value, const struct field *field,
                              struct request *request, unsigned *ret_place)
{
    for (unsigned i = 0; value->kind == JSON_KIND_TEXT && field->words[i]; i++) {
        if (strcmp(value->text, field->words[i]) == 0) {
            *ret_place = i;
            return NULL;
        }
    }
    return wrong_word(request, field);
}

static const char *parse_id(const struct json_value *value, const char *name,
                            struct request *request, struct request_id *ret_id)
{
    const struct field number = {.name = name, .max = LB_INTEGER_MAX};
    const struct field text = {.name = name, .min = 1, .max = LB_ID_BYTES_MAX};
    struct request_id id = {.kind = REQUEST_ID_NUMBER};
    const char *problem;

    if (value->kind == JSON_KIND_TEXT) {
        id.kind = REQUEST_ID_TEXT;
        problem = parse_text(value, &text, request, id.text);
    } else if (value->kind == JSON_KIND_INTEGER || value->kind == JSON_KIND_REAL) {
        problem = parse_integer(value, &number, request, &id.number);
    } else {
        problem = wrong(request, name, "must be an integer or a string");
    }
    if (!problem)
        *ret_id = id;
    return problem;
}

static const char *parse_field(const struct json_value *value, const struct field *field,
                               struct request *request)
{
    char *member = (char *)request + field->offset;

    switch (field->form) {
    case FORM_INTEGER:
        return parse_integer(value, field, request, member);
    case FORM_BOOL:
        return parse_bool(value, field, request, (bool *)member);
    case FORM_TEXT:
    case FORM_NAME:
        return parse_text(value, field, request, member);
    case FORM_WORD:
        return parse_word(value, field, request, (void *)member);
    case FORM_ID:
        return parse_id(value, field->name, request, (void *)member);
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

// The member's value, or NULL.
static const struct json_value *member_find(const struct json_object *line, const char *name)
{
    for (size_t i = 0; i < line->count; i++) {
        if (strcmp(line->members[i].name, name) == 0)
            return &line->members[i].value;
    }
    return NULL;
}

static int request_take_id(const struct json_object *line, struct request *request,
                           struct reply *refusal)
{
    const struct json_value *value = member_find(line, "id");
    const char *problem = value ? parse_id(value, "id", request, &request->id) : "id is missing";

    return problem ? refuse_field(request, refusal, "id", problem) : 0;
}

static int request_take_op(const struct json_object *line, struct request *request,
                           struct reply *refusal)
{
    const struct json_value *value = member_find(line, "op");

    if (!value)
        return refuse_field(request, refusal, "op", "op is missing");
    if (value->kind != JSON_KIND_TEXT)
        return refuse_field(request, refusal, "op", "op must be a string");
    request->op = op_by_name(value->text);
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

static int request_take_field(const char *name, const struct json_value *value,
                              struct request *request, struct reply *refusal)
{
    const struct field *field = field_by_name(name);

    if (!field || !(field->bit & request_ops[request->op].allowed)) {
        copy_name(name, request->refused_field, LB_FIELD_BYTES_MAX);
        (void)snprintf(request->refused_message, sizeof(request->refused_message),
                       "%s has no field \"%s\"", op_name(request->op), request->refused_field);
        return refuse_field(request, refusal, request->refused_field, request->refused_message);
    }

    const char *problem = parse_field(value, field, request);

    if (problem)
        return refuse_field(request, refusal, field->name, problem);
    request->given |= field->bit;
    return 0;
}

static int request_take_fields(const struct json_object *line, struct request *request,
                               struct reply *refusal)
{
    for (size_t i = 0; i < line->count; i++) {
        const struct json_member *member = &line->members[i];
        int r = 0;

        if (strcmp(member->name, "id") != 0 && strcmp(member->name, "op") != 0)
            r = request_take_field(member->name, &member->value, request, refusal);
        if (r != 0)
            return r;
    }
    return 0;
}

static int request_check_required(struct request *request, struct reply *refusal)
{
    uint32_t missing = request_ops[request->op].required & ~request->given;

    for (size_t i = 0; i < request_fields_count; i++) {
        const char *name = request_fields[i].name;

        if (request_fields[i].bit & missing)
            return refuse_field(request, refusal, name, wrong(request, name, "is missing"));
    }
    return 0;
}

static int request_take(const struct json_object *line, struct request *request,
                        struct reply *refusal)
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

int request_parse(const char *line, size_t length, struct request *ret_request,
                  struct reply *ret_refusal)
{
    char space[LB_REQUEST_LINE_BYTES_MAX];
    struct json_object object;

    request_init(ret_request);
    if (length > LB_REQUEST_LINE_BYTES_MAX)
        return refuse(ret_request, ret_refusal, ERROR_TOO_LONG, NULL, NULL);
    if (!json_in(line, length, space, &object))
        return refuse(ret_request, ret_refusal, ERROR_MALFORMED, NULL, NULL);
    return request_take(&object, ret_request, ret_refusal);
}
