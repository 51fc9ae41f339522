// Walks over JSON that json_in_check() has found good, so nothing in here checks again. It may not
// take memory: texts are unescaped straight into the caller's space.
#include "proto/json_in.h"

#include <string.h>

#include "proto/json_check.h"
#include "proto/json_text.h"

// Passes over blanks and the separators of a container.
static void json_cursor_skip(struct json_cursor *cursor)
{
    while (cursor->at < cursor->end && strchr(" \t\r\n,:", *cursor->at) && *cursor->at != '\0')
        cursor->at++;
}

// The first byte after the text whose opening quote is at `at`.
static const char *json_text_end(const char *at)
{
    for (at++; *at != '"'; at++) {
        if (*at == '\\')
            at++;
    }
    return at + 1;
}

// The first byte after the object or array that begins at `at`.
static const char *json_container_end(const char *at)
{
    size_t depth = 0;

    do {
        if (*at == '"') {
            at = json_text_end(at);
            continue;
        }
        if (*at == '{' || *at == '[')
            depth++;
        if (*at == '}' || *at == ']')
            depth--;
        at++;
    } while (depth > 0);
    return at;
}

static const char *json_word_end(const char *at, const char *end)
{
    while (at < end && !strchr(" \t\r\n,:]}", *at))
        at++;
    return at;
}

static enum json_kind json_number_kind(const char *at, const char *end)
{
    for (; at < end; at++) {
        if (*at == '.' || *at == 'e' || *at == 'E')
            return JSON_REAL;
    }
    return JSON_INTEGER;
}

// Cuts the value that begins at `at` out of a checked line that ends at `end`.
static struct json_value json_cut_value(const char *at, const char *end)
{
    struct json_value value = {.text = at};
    const char *after;

    if (*at == '"') {
        value.kind = JSON_TEXT;
        after = json_text_end(at);
    } else if (*at == '{' || *at == '[') {
        value.kind = *at == '{' ? JSON_OBJECT : JSON_ARRAY;
        after = json_container_end(at);
    } else {
        after = json_word_end(at, end);
        value.kind = *at == 'n'                 ? JSON_NULL
                     : *at == 't' || *at == 'f' ? JSON_BOOL
                                                : json_number_kind(at, after);
    }
    value.length = (size_t)(after - at);
    return value;
}

bool json_in_check(const char *line, size_t length, unsigned depth_max, size_t members_max,
                   struct json_value *ret_value)
{
    struct json_cursor cursor = {.at = line, .end = line + length};

    if (!json_check_line(line, length, depth_max, members_max))
        return false;
    json_cursor_skip(&cursor);
    *ret_value = json_cut_value(cursor.at, cursor.end);
    return true;
}

void json_cursor_init(struct json_cursor *cursor, const struct json_value *container)
{
    lb_assert(container->kind == JSON_OBJECT || container->kind == JSON_ARRAY);
    cursor->at = container->text + 1;
    cursor->end = container->text + container->length - 1;
}

bool json_next_element(struct json_cursor *cursor, struct json_value *ret_value)
{
    json_cursor_skip(cursor);
    if (cursor->at == cursor->end)
        return false;
    *ret_value = json_cut_value(cursor->at, cursor->end);
    cursor->at += ret_value->length;
    return true;
}

bool json_next_member(struct json_cursor *cursor, struct json_value *ret_name,
                      struct json_value *ret_value)
{
    return json_next_element(cursor, ret_name) && json_next_element(cursor, ret_value);
}

bool json_find_member(const struct json_value *object, const char *name,
                      struct json_value *ret_value)
{
    struct json_cursor cursor;
    struct json_value member;
    struct json_value value;

    json_cursor_init(&cursor, object);
    while (json_next_member(&cursor, &member, &value)) {
        if (json_text_equals(&member, name)) {
            *ret_value = value;
            return true;
        }
    }
    return false;
}

// Whether a name like `name` is among the members that follow.
static bool json_is_repeated(struct json_cursor rest, const struct json_value *name)
{
    struct json_value other;
    struct json_value value;

    while (json_next_member(&rest, &other, &value)) {
        if (json_text_same(name, &other))
            return true;
    }
    return false;
}

bool json_has_duplicates(const struct json_value *value)
{
    struct json_cursor cursor;
    struct json_value name;
    struct json_value inner;

    if (value->kind != JSON_OBJECT && value->kind != JSON_ARRAY)
        return false;
    json_cursor_init(&cursor, value);
    if (value->kind == JSON_ARRAY) {
        while (json_next_element(&cursor, &inner)) {
            if (json_has_duplicates(&inner))
                return true;
        }
        return false;
    }
    while (json_next_member(&cursor, &name, &inner)) {
        if (json_is_repeated(cursor, &name) || json_has_duplicates(&inner))
            return true;
    }
    return false;
}

bool json_integer(const struct json_value *value, int64_t *ret_integer)
{
    bool is_negative = value->text[0] == '-';
    int64_t integer = 0;

    lb_assert(value->kind == JSON_INTEGER);
    // Counted downwards: the negative side has room for one more.
    for (size_t i = is_negative ? 1 : 0; i < value->length; i++) {
        if (__builtin_mul_overflow(integer, 10, &integer) ||
            __builtin_sub_overflow(integer, value->text[i] - '0', &integer))
            return false;
    }
    if (!is_negative && __builtin_sub_overflow(0, integer, &integer))
        return false;
    *ret_integer = integer;
    return true;
}

bool json_bool(const struct json_value *value)
{
    lb_assert(value->kind == JSON_BOOL);
    return value->text[0] == 't';
}
