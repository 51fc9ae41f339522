// Writes JSON without blanks. It may not allocate but through the buffer, whose cap bounds it.
#include "proto/json_out.h"

#include <stdio.h>
#include <string.h>

#include "proto/decimal.h"
#include "proto/utf8.h"

void json_out_init(struct json_out *out, struct buf *buf)
{
    *out = (struct json_out){.buf = buf};
}

int json_out_error(const struct json_out *out)
{
    return out->error;
}

static void json_out_bytes(struct json_out *out, const char *bytes, size_t length)
{
    if (out->error == 0)
        out->error = buf_append(out->buf, bytes, length);
}

static void json_out_string(struct json_out *out, const char *text)
{
    json_out_bytes(out, text, strlen(text));
}

// Where a value of at most `length` bytes goes, the comma before it written already; NULL after a
// failure. One look at the buffer for each value, and none for its parts. json_out_commit() ends
// it.
//
// Not to be inlined: the tests let each allocation fail by its place in the code, and so there is
// one of them, not one for each caller.
__attribute__((noinline)) static char *json_out_reserve(struct json_out *out, size_t length)
{
    char *at = NULL;

    if (out->error == 0)
        out->error = buf_reserve(out->buf, length + 1, &at);
    if (out->error < 0)
        return NULL;
    if (out->needs_comma)
        *at++ = ',';
    return at;
}

// The value goes up to `end`.
static void json_out_commit(struct json_out *out, const char *at, const char *end)
{
    buf_commit(out->buf, (size_t)(end - at) + out->needs_comma);
    out->needs_comma = true;
}

// Writes bytes that are a value, or begin one.
static void json_out_value(struct json_out *out, const char *bytes, size_t length)
{
    char *at = json_out_reserve(out, length);

    if (!at)
        return;
    memcpy(at, bytes, length);
    json_out_commit(out, at, at + length);
}

static void json_out_begin(struct json_out *out, const char *bracket)
{
    json_out_value(out, bracket, 1);
    out->needs_comma = false;
}

static void json_out_end(struct json_out *out, const char *bracket)
{
    json_out_bytes(out, bracket, 1);
    out->needs_comma = true;
}

void json_out_object_begin(struct json_out *out)
{
    json_out_begin(out, "{");
}

void json_out_object_end(struct json_out *out)
{
    json_out_end(out, "}");
}

void json_out_array_begin(struct json_out *out)
{
    json_out_begin(out, "[");
}

void json_out_array_end(struct json_out *out)
{
    json_out_end(out, "]");
}

void json_out_name(struct json_out *out, const char *name)
{
    size_t length = strlen(name);
    char *at = json_out_reserve(out, length + 3);

    if (at) {
        at[0] = '"';
        memcpy(at + 1, name, length);
        at[length + 1] = '"';
        at[length + 2] = ':';
        json_out_commit(out, at, at + length + 3);
    }
    out->needs_comma = false;
}

void json_out_int(struct json_out *out, int64_t value)
{
    char *at = json_out_reserve(out, DECIMAL_BYTES_MAX);

    if (at)
        json_out_commit(out, at, at + decimal_write(value, at));
}

void json_out_bool(struct json_out *out, bool value)
{
    if (value)
        json_out_value(out, "true", 4);
    else
        json_out_value(out, "false", 5);
}

void json_out_null(struct json_out *out)
{
    json_out_value(out, "null", 4);
}

// Writes one ASCII character that can't stand for itself in a string.
static void json_out_escape(struct json_out *out, char c)
{
    static const char from[] = "\"\\\b\f\n\r\t";
    static const char to[] = "\"\\bfnrt";
    const char *found = strchr(from, c);
    char escape[8];

    if (found)
        (void)snprintf(escape, sizeof(escape), "\\%c", to[found - from]);
    else
        (void)snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)(unsigned char)c);
    json_out_string(out, escape);
}

static bool json_out_is_plain(char c)
{
    return (unsigned char)c >= 0x20 && c != '"' && c != '\\' && c != 0x7F;
}

void json_out_text(struct json_out *out, const char *text)
{
    size_t left = strlen(text);
    size_t plain = 0; // bytes at `text` that go out as they are

    json_out_value(out, "\"", 1);
    while (plain < left) {
        size_t count = utf8_char_bytes(text + plain, left - plain);

        if (count > 1 || (count == 1 && json_out_is_plain(text[plain]))) {
            plain += count;
            continue;
        }
        json_out_bytes(out, text, plain);
        if (count == 0)
            json_out_string(out, "\xEF\xBF\xBD");
        else
            json_out_escape(out, text[plain]);
        text += plain + 1;
        left -= plain + 1;
        plain = 0;
    }
    json_out_bytes(out, text, plain);
    json_out_bytes(out, "\"", 1);
}

void json_out_id(struct json_out *out, const struct request_id *id)
{
    switch (id->kind) {
    case REQUEST_ID_NONE:
        json_out_null(out);
        break;
    case REQUEST_ID_NUMBER:
        json_out_int(out, id->number);
        break;
    case REQUEST_ID_TEXT:
        json_out_text(out, id->text);
        break;
    }
}

void json_out_newline(struct json_out *out)
{
    json_out_bytes(out, "\n", 1);
    out->needs_comma = false;
}

void json_out_member_int(struct json_out *out, const char *name, int64_t value)
{
    json_out_name(out, name);
    json_out_int(out, value);
}

void json_out_member_bool(struct json_out *out, const char *name, bool value)
{
    json_out_name(out, name);
    json_out_bool(out, value);
}

void json_out_member_text(struct json_out *out, const char *name, const char *text)
{
    json_out_name(out, name);
    json_out_text(out, text);
}
