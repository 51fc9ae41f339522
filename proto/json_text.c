// Texts of a checked line without their escapes: compared and copied character by character, so
// that they need no memory of their own.
#include "proto/json_text.h"

#include <stdint.h>
#include <string.h>

#include "proto/utf8.h"

// One character as UTF-8.
struct json_char {
    char bytes[4];
    size_t count; // 0: the text is over
};

// A walk over the characters of a text.
struct json_walk {
    const char *at;
    const char *end; // the closing quote
};

static struct json_walk json_walk_begin(const struct json_value *text)
{
    lb_assert(text->kind == JSON_TEXT);
    return (struct json_walk){text->text + 1, text->text + text->length - 1};
}

static struct json_char json_char_encode(uint32_t code)
{
    struct json_char c = {.count = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4};
    static const unsigned char leads[] = {0, 0, 0xC0, 0xE0, 0xF0};

    for (size_t i = c.count - 1; i > 0; i--) {
        c.bytes[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    c.bytes[0] = (char)(leads[c.count] | code);
    return c;
}

static uint32_t json_hex(const char *digits)
{
    uint32_t value = 0;

    for (int i = 0; i < 4; i++) {
        char c = digits[i];
        uint32_t digit = (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
        value = value * 16 + digit;
    }
    return value;
}

// The character after a backslash at walk->at - 1.
static struct json_char json_walk_escape(struct json_walk *walk)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    char c = *walk->at++;

    if (c != 'u')
        return json_char_encode((uint32_t)to[strchr(from, c) - from]);

    uint32_t code = json_hex(walk->at);

    walk->at += 4;
    if (code >= 0xD800 && code <= 0xDBFF) {
        code = 0x10000 + ((code - 0xD800) << 10) + (json_hex(walk->at + 2) - 0xDC00);
        walk->at += 6;
    }
    return json_char_encode(code);
}

static struct json_char json_walk_next(struct json_walk *walk)
{
    struct json_char c = {.count = 0};

    if (walk->at == walk->end)
        return c;
    if (*walk->at == '\\') {
        walk->at++;
        return json_walk_escape(walk);
    }
    c.count = utf8_char_bytes(walk->at, (size_t)(walk->end - walk->at));
    memcpy(c.bytes, walk->at, c.count);
    walk->at += c.count;
    return c;
}

bool json_text_equals(const struct json_value *text, const char *other)
{
    struct json_walk walk = json_walk_begin(text);

    for (;;) {
        struct json_char c = json_walk_next(&walk);
        if (c.count == 0)
            return *other == '\0';
        if (strncmp(other, c.bytes, c.count) != 0)
            return false;
        other += c.count;
    }
}

bool json_text_same(const struct json_value *a, const struct json_value *b)
{
    struct json_walk walk_a = json_walk_begin(a);
    struct json_walk walk_b = json_walk_begin(b);

    for (;;) {
        struct json_char char_a = json_walk_next(&walk_a);
        struct json_char char_b = json_walk_next(&walk_b);
        if (char_a.count != char_b.count)
            return false;
        if (char_a.count == 0)
            return true;
        if (memcmp(char_a.bytes, char_b.bytes, char_a.count) != 0)
            return false;
    }
}

size_t json_text_copy(const struct json_value *text, char *space, size_t space_bytes)
{
    struct json_walk walk = json_walk_begin(text);
    size_t length = 0;

    for (;;) {
        struct json_char c = json_walk_next(&walk);
        if (c.count == 0 || c.count >= space_bytes - length) {
            space[length] = '\0';
            return c.count == 0 ? length : SIZE_MAX;
        }
        memcpy(space + length, c.bytes, c.count);
        length += c.count;
    }
}
