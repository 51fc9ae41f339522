// Requests: the tables that reading and writing share, and writing. It may not read JSON, so that a
// client, which only writes requests, has none of the broker's reader in it.
#include "proto/request.h"

#include <string.h>

#include "proto/json_out.h"
#include "proto/request_field.h"

static const char *const bind_words[] = {"connection", "process", NULL};
static const char *const on_lost_words[] = {"event", "term", "kill", NULL};

#define AT(member) offsetof(struct request, member)
const struct field request_fields[] = {
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

const struct op_row request_ops[] = {
    [OP_NONE] = {NULL, 0, 0},
#define X(symbol, name, allowed, required) [OP_##symbol] = {name, allowed, required},
#include "proto/ops.def"
#undef X
};

const size_t request_fields_count = LB_ARRAY_LENGTH(request_fields);
const size_t request_ops_count = LB_ARRAY_LENGTH(request_ops);

const char *op_name(enum op op)
{
    return request_ops[op].name;
}

void request_init(struct request *request)
{
    // Member by member: what follows the end of a text is never looked at, and is most of it.
    request->id = (struct request_id){.kind = REQUEST_ID_NONE};
    request->op = OP_NONE;
    request->given = 0;
    request->renew = true;
    request->bind = BIND_CONNECTION;
    request->on_lost = ON_LOST_EVENT;
    request->ttl_ms = LB_NONE;
    request->wait_ms = 0;
    request->max_hold_ms = LB_NONE;
    request->fence = LB_NONE;
    request->limit = LB_LIST_LIMIT;
    request->version = LB_PROTOCOL_VERSION;
    request->target = (struct request_id){.kind = REQUEST_ID_NONE};
    request->key[0] = '\0';
    request->owner[0] = '\0';
    request->note[0] = '\0';
    request->status[0] = '\0';
    request->reason[0] = '\0';
    request->client[0] = '\0';
    request->prefix[0] = '\0';
    request->after[0] = '\0';
    request->refused_field[0] = '\0';
    request->refused_message[0] = '\0';
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
    for (size_t i = 0; i < request_fields_count; i++) {
        if (request->given & request_fields[i].bit)
            request_write_field(&out, &request_fields[i], request);
    }
    json_out_object_end(&out);
    json_out_newline(&out);
    if (json_out_error(&out) < 0)
        buf_truncate(buf, length);
    return json_out_error(&out);
}
