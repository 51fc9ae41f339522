// Requests to and from JSON, driven by one table of fields. What is checked here is the form of
// each field by itself; whatever needs an option or the state of a lock is the core's.
#include "proto/request.h"

#include <string.h>

#include "proto/json_in.h"
#include "proto/json_out.h"
#include "proto/reply.h"

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

static const char *const bind_words[] = {"connection", "process", NULL};
static const char *const on_lost_words[] = {"event", "term", "kill", NULL};

#define AT(member) offsetof(struct request, member)
static const struct field fields[] = {
    {"key", REQUEST_F_KEY, FORM_NAME, AT(key), 1, LB_KEY_BYTES_MAX, NULL},
    {"owner", REQUEST_F_OWNER, FORM_TEXT, AT(owner), 0, LB_OWNER_BYTES_MAX, NULL},
    {"ttl_ms", REQUEST_F_TTL_MS, FORM_INTEGER, AT(ttl_ms), LB_TTL_MIN_MS, LB_INTEGER_MAX, NULL},
    {"wait_ms", REQUEST_F_WAIT_MS, FORM_INTEGER, AT(wait_ms), -1, LB_INTEGER_MAX, NULL},
    {"renew", REQUEST_F_RENEW, FORM_BOOL, AT(renew), 0, 0, NULL},
    {"max_hold_ms", REQUEST_F_MAX_HOLD_MS, FORM_INTEGER, AT(max_hold_ms), 1, LB_INTEGER_MAX, NULL},
    {"note", REQUEST_F_NOTE, FORM_TEXT, AT(note), 0, LB_NOTE_BYTES_MAX, NULL},
    {"on_lost", REQUEST_F_ON_LOST, FORM_WORD, AT(on_lost), 0, 0, on_lost_words},
    {"fence", REQUEST_F_FENCE, FORM_INTEGER, AT(fence), 0, LB_INTEGER_MAX, NULL},
    {"status", REQUEST_F_STATUS, FORM_TEXT, AT(status), 0, LB_STATUS_BYTES_MAX, NULL},
    {"target", REQUEST_F_TARGET, FORM_ID, AT(target), 0, 0, NULL},
    {"reason", REQUEST_F_REASON, FORM_TEXT, AT(reason), 0, LB_REASON_BYTES_MAX, NULL},
    {"prefix", REQUEST_F_PREFIX, FORM_NAME, AT(prefix), 0, LB_KEY_BYTES_MAX, NULL},
    {"after", REQUEST_F_AFTER, FORM_NAME, AT(after), 0, LB_KEY_BYTES_MAX, NULL},
    {"limit", REQUEST_F_LIMIT, FORM_INTEGER, AT(limit), 1, LB_LIST_LIMIT_MAX, NULL},
    {"client", REQUEST_F_CLIENT, FORM_TEXT, AT(client), 0, LB_CLIENT_BYTES_MAX, NULL},
    {"version", REQUEST_F_VERSION, FORM_INTEGER, AT(version), -LB_INTEGER_MAX, LB_INTEGER_MAX,
     NULL},
    {"bind", REQUEST_F_BIND, FORM_WORD, AT(bind), 0, 0, bind_words},
};
#undef AT

struct op_row {
    const char *name;
    uint32_t allowed;
    uint32_t required;
};

static const struct op_row op_rows[] = {
    [OP_NONE] = {NULL, 0, 0},
#define X(symbol, name, allowed, required) [OP_##symbol] = {name, allowed, required},
#include "proto/ops.def"
#undef X
};

const char *op_name(enum op op)
{
    return op_rows[op].name;
}

void request_init(struct request *request)
{
    *request = (struct request){
        .renew = true,
        .bind = BIND_CONNECTION,
        .on_lost = ON_LOST_EVENT,
        .ttl_ms = LB_NONE,
        .max_hold_ms = LB_NONE,
        .fence = LB_NONE,
        .limit = LB_LIST_LIMIT,
        .version = LB_PROTOCOL_VERSION,
    };
}

// Each of the parsers below returns NULL, or the sentence that says what is wrong with the value.

static const char *parse_integer(const struct json_value *value, const struct field *field,
                                 void *ret_integer)
{
    int64_t integer = 0;

    if (value->kind != JSON_INTEGER)
        return "the field must be an integer, written without fraction and exponent";
    if (!json_integer(value, &integer) || integer < field->min || integer > field->max)
        return "the field is out of range";
    memcpy(ret_integer, &integer, sizeof(integer));
    return NULL;
}

static const char *parse_bool(const struct json_value *value, bool *ret_bool)
{
    if (value->kind != JSON_BOOL)
        return "the field must be true or false";
    *ret_bool = json_bool(value);
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
                              char *ret_text)
{
    if (value->kind != JSON_TEXT)
        return "the field must be a string";

    size_t length = json_text_copy(value, ret_text, (size_t)field->max + 1);

    if (length == SIZE_MAX)
        return "the field is too long";
    if (length < (size_t)field->min)
        return "the field must not be empty";
    if (field->form == FORM_NAME && has_control(ret_text))
        return "the field has a control character in it";
    return NULL;
}

static const char *parse_word(const struct json_value *value, const struct field *field,
                              unsigned *ret_place)
{
    if (value->kind != JSON_TEXT)
        return "the field must be a string";
    for (unsigned i = 0; field->words[i]; i++) {
        if (json_text_equals(value, field->words[i])) {
            *ret_place = i;
            return NULL;
        }
    }
    return "the field has none of the values that it may have";
}

static const char *parse_id(const struct json_value *value, struct request_id *ret_id)
{
    static const struct field number = {.max = LB_INTEGER_MAX};
    static const struct field text = {.min = 1, .max = LB_ID_BYTES_MAX};
    struct request_id id = {.kind = REQUEST_ID_NUMBER};
    const char *wrong;

    if (value->kind == JSON_TEXT) {
        id.kind = REQUEST_ID_TEXT;
        wrong = parse_text(value, &text, id.text);
    } else if (value->kind == JSON_INTEGER) {
        wrong = parse_integer(value, &number, &id.number);
    } else {
        wrong = "the field must be an integer or a string";
    }
    if (!wrong)
        *ret_id = id;
    return wrong;
}

static const char *parse_field(const struct json_value *value, const struct field *field,
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

static int refuse(struct reply *refusal, enum error_code error, const char *field,
                  const char *message)
{
    refusal->error = error;
    refusal->field = field;
    refusal->message = message;
    return REQUEST_E_REFUSED;
}

static const struct field *field_by_name(const struct json_value *name)
{
    for (size_t i = 0; i < LB_ARRAY_LENGTH(fields); i++) {
        if (json_text_equals(name, fields[i].name))
            return &fields[i];
    }
    return NULL;
}

static enum op op_by_name(const struct json_value *name)
{
    for (unsigned i = OP_NONE + 1; i < LB_ARRAY_LENGTH(op_rows); i++) {
        if (json_text_equals(name, op_rows[i].name))
            return (enum op)i;
    }
    return OP_NONE;
}

static int request_take_id(const struct json_value *line, struct request *request,
                           struct reply *refusal)
{
    struct json_value value;

    if (!json_find_member(line, "id", &value))
        return refuse(refusal, ERROR_BAD_FIELD, "id", "the field is missing");

    const char *wrong = parse_id(&value, &request->id);

    if (wrong)
        return refuse(refusal, ERROR_BAD_FIELD, "id", wrong);
    refusal->id = request->id;
    return 0;
}

static int request_take_op(const struct json_value *line, struct request *request,
                           struct reply *refusal)
{
    struct json_value value;

    if (!json_find_member(line, "op", &value))
        return refuse(refusal, ERROR_BAD_FIELD, "op", "the field is missing");
    if (value.kind != JSON_TEXT)
        return refuse(refusal, ERROR_BAD_FIELD, "op", "the field must be a string");
    request->op = op_by_name(&value);
    if (request->op == OP_NONE)
        return refuse(refusal, ERROR_UNKNOWN_OP, NULL, NULL);
    refusal->op = request->op;
    return 0;
}

static int request_take_field(const struct json_value *name, const struct json_value *value,
                              struct request *request, struct reply *refusal)
{
    const struct field *field = field_by_name(name);

    if (!field || !(field->bit & op_rows[request->op].allowed)) {
        (void)json_text_copy(name, request->refused_field, sizeof(request->refused_field));
        return refuse(refusal, ERROR_BAD_FIELD, request->refused_field,
                      "the operation has no such field");
    }

    const char *wrong = parse_field(value, field, request);

    if (wrong)
        return refuse(refusal, ERROR_BAD_FIELD, field->name, wrong);
    request->given |= field->bit;
    return 0;
}

static int request_take_fields(const struct json_value *line, struct request *request,
                               struct reply *refusal)
{
    struct json_cursor cursor;
    struct json_value name;
    struct json_value value;

    json_cursor_init(&cursor, line);
    while (json_next_member(&cursor, &name, &value)) {
        if (json_text_equals(&name, "id") || json_text_equals(&name, "op"))
            continue;

        int r = request_take_field(&name, &value, request, refusal);

        if (r != 0)
            return r;
    }
    return 0;
}

static int request_check_required(const struct request *request, struct reply *refusal)
{
    uint32_t missing = op_rows[request->op].required & ~request->given;

    for (size_t i = 0; missing && i < LB_ARRAY_LENGTH(fields); i++) {
        if (fields[i].bit & missing)
            return refuse(refusal, ERROR_BAD_FIELD, fields[i].name, "the field is missing");
    }
    return 0;
}

int request_parse(const char *line, size_t length, struct request *ret_request,
                  struct reply *ret_refusal)
{
    struct json_value value;

    request_init(ret_request);
    reply_init(ret_refusal);
    if (!json_in_check(line, length, LB_JSON_DEPTH_MAX, LB_JSON_MEMBERS_MAX, &value) ||
        value.kind != JSON_OBJECT || json_has_duplicates(&value))
        return refuse(ret_refusal, ERROR_MALFORMED, NULL, NULL);

    int r = request_take_id(&value, ret_request, ret_refusal);

    if (r == 0)
        r = request_take_op(&value, ret_request, ret_refusal);
    if (r == 0)
        r = request_take_fields(&value, ret_request, ret_refusal);
    if (r == 0)
        r = request_check_required(ret_request, ret_refusal);
    return r;
}

static void request_write_field(struct json_out *out, const struct field *field,
                                const struct request *request)
{
    const char *member = (const char *)request + field->offset;
    int64_t integer;
    unsigned place;

    json_out_name(out, field->name);
    switch (field->form) {
    case FORM_INTEGER:
        memcpy(&integer, member, sizeof(integer));
        json_out_int(out, integer);
        break;
    case FORM_BOOL:
        json_out_bool(out, *(const bool *)member);
        break;
    case FORM_TEXT:
    case FORM_NAME:
        json_out_text(out, member);
        break;
    case FORM_WORD:
        memcpy(&place, member, sizeof(place));
        json_out_text(out, field->words[place]);
        break;
    case FORM_ID:
        json_out_id(out, (const void *)member);
        break;
    }
}

int request_write(struct buf *buf, const struct request *request)
{
    size_t length = buf_length(buf);
    struct json_out out;

    json_out_init(&out, buf);
    json_out_object_begin(&out);
    json_out_name(&out, "id");
    json_out_id(&out, &request->id);
    json_out_member_text(&out, "op", op_name(request->op));
    for (size_t i = 0; i < LB_ARRAY_LENGTH(fields); i++) {
        if (request->given & fields[i].bit)
            request_write_field(&out, &fields[i], request);
    }
    json_out_object_end(&out);
    json_out_newline(&out);
    if (json_out_error(&out) < 0)
        buf_truncate(buf, length);
    return json_out_error(&out);
}
