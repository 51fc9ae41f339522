// Recursive descent, as deep as LB_JSON_DEPTH_MAX. Each function below reads one thing at `at` and
// moves on behind it, or returns false: then the line is malformed, and nothing else counts.
#include "proto/json_in.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/utf8.h"

// A name of any object of the line, to find those that an object has twice.
struct name {
    const char *text;
    unsigned object; // objects are numbered as they begin
};

struct reader {
    const char *at;
    const char *end;
    char *space; // where the next text goes
    unsigned depth;
    unsigned objects;
    size_t names_count;
    struct name names[LB_JSON_MEMBERS_MAX];
};

static bool take_value(struct reader *reader, struct json_value *ret_value);

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\t' ||
                                        *reader->at == '\n' || *reader->at == '\r'))
        reader->at++;
}

// The next byte, or NUL at the end; a NUL in the line fits nowhere either.
static char peek(const struct reader *reader)
{
    return reader->at < reader->end ? *reader->at : '\0';
}

static bool take_char(struct reader *reader, char wanted)
{
    if (peek(reader) != wanted)
        return false;
    reader->at++;
    return true;
}

static bool take_word(struct reader *reader, const char *word)
{
    size_t length = strlen(word);

    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

static bool char_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int hex_value(char c)
{
    if (char_is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

// The four digits after \u.
static bool take_code_unit(struct reader *reader, unsigned *ret_unit)
{
    unsigned unit = 0;

    for (int i = 0; i < 4; i++) {
        int digit = hex_value(peek(reader));

        if (digit < 0)
            return false;
        unit = unit * 16 + (unsigned)digit;
        reader->at++;
    }
    *ret_unit = unit;
    return true;
}

static char *utf8_put(char *to, unsigned code)
{
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    if (code < 0x800) {
        *to++ = (char)(0xC0 | code >> 6);
    } else {
        if (code < 0x10000) {
            *to++ = (char)(0xE0 | code >> 12);
        } else {
            *to++ = (char)(0xF0 | code >> 18);
            *to++ = (char)(0x80 | (code >> 12 & 0x3F));
        }
        *to++ = (char)(0x80 | (code >> 6 & 0x3F));
    }
    *to++ = (char)(0x80 | (code & 0x3F));
    return to;
}

// A character by its number, or by the two halves of one above U+FFFF.
static bool take_unicode(struct reader *reader, char **to)
{
    unsigned code, low;

    if (!take_code_unit(reader, &code) || code == 0)
        return false;
    if (code >= 0xDC00 && code <= 0xDFFF)
        return false;
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (!take_char(reader, '\\') || !take_char(reader, 'u') || !take_code_unit(reader, &low) ||
            low < 0xDC00 || low > 0xDFFF)
            return false;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    *to = utf8_put(*to, code);
    return true;
}

static bool take_escape(struct reader *reader, char **to)
{
    static const char from[] = "\"\\/bfnrt";
    static const char into[] = "\"\\/\b\f\n\r\t";
    char c = peek(reader);
    const char *found = c ? strchr(from, c) : NULL;

    if (take_char(reader, 'u'))
        return take_unicode(reader, to);
    if (!found)
        return false;
    reader->at++;
    *(*to)++ = into[found - from];
    return true;
}

static bool char_is_plain(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

// A text without its opening quote.
static bool take_text(struct reader *reader, const char **ret_text, size_t *ret_length)
{
    char *to = reader->space;

    for (;;) {
        size_t count;

        while (reader->at < reader->end && char_is_plain(*reader->at))
            *to++ = *reader->at++;
        if (take_char(reader, '"'))
            break;
        if (take_char(reader, '\\')) {
            if (!take_escape(reader, &to))
                return false;
            continue;
        }
        count = utf8_char_bytes(reader->at, (size_t)(reader->end - reader->at));
        if (count < 2) // no UTF-8, a control character, or the end
            return false;
        memcpy(to, reader->at, count);
        to += count;
        reader->at += count;
    }
    *to++ = '\0';
    *ret_text = reader->space;
    *ret_length = (size_t)(to - reader->space) - 1;
    reader->space = to;
    return true;
}

static bool take_digits(struct reader *reader)
{
    if (!char_is_digit(peek(reader)))
        return false;
    while (char_is_digit(peek(reader)))
        reader->at++;
    return true;
}

static bool integer_read(const char *digits, size_t length, bool is_negative, int64_t *ret_integer)
{
    uint64_t most = (uint64_t)INT64_MAX + is_negative;
    uint64_t number = 0;

    for (size_t i = 0; i < length; i++) {
        unsigned digit = (unsigned)(digits[i] - '0');

        if (number > (most - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *ret_integer = is_negative ? (int64_t)-number : (int64_t)number;
    return true;
}

// Only whether a double can hold it is of interest.
static bool real_fits(struct reader *reader, const char *text, size_t length)
{
    memcpy(reader->space, text, length);
    reader->space[length] = '\0';
    return isfinite(strtod(reader->space, NULL));
}

static bool take_number(struct reader *reader, struct json_value *ret_value)
{
    const char *start = reader->at;
    bool is_negative = take_char(reader, '-');
    const char *digits = reader->at;

    if (!take_char(reader, '0') && !take_digits(reader))
        return false;
    ret_value->kind = JSON_KIND_INTEGER;
    if (peek(reader) != '.' && peek(reader) != 'e' && peek(reader) != 'E')
        return integer_read(digits, (size_t)(reader->at - digits), is_negative,
                            &ret_value->integer);
    ret_value->kind = JSON_KIND_REAL;
    if (take_char(reader, '.') && !take_digits(reader))
        return false;
    if (take_char(reader, 'e') || take_char(reader, 'E')) {
        (void)(take_char(reader, '+') || take_char(reader, '-'));
        if (!take_digits(reader))
            return false;
    }
    return real_fits(reader, start, (size_t)(reader->at - start));
}

// Reads a name and keeps it, to tell it from those that the same object has further on.
static bool take_name(struct reader *reader, unsigned object, const char **ret_name)
{
    size_t length;

    if (reader->names_count == LB_JSON_MEMBERS_MAX || !take_char(reader, '"') ||
        !take_text(reader, ret_name, &length))
        return false;
    for (size_t i = 0; i < reader->names_count; i++) {
        if (reader->names[i].object == object && strcmp(reader->names[i].text, *ret_name) == 0)
            return false;
    }
    reader->names[reader->names_count++] = (struct name){*ret_name, object};
    return true;
}

static bool take_member(struct reader *reader, unsigned object, struct json_member *ret_member)
{
    skip_blanks(reader);
    if (!take_name(reader, object, &ret_member->name))
        return false;
    skip_blanks(reader);
    return take_char(reader, ':') && take_value(reader, &ret_member->value);
}

// An object without its opening bracket. Its members are of interest for the outermost one alone.
static bool take_object(struct reader *reader, struct json_object *ret_object)
{
    unsigned object = reader->objects++;
    struct json_member ignored;

    skip_blanks(reader);
    if (take_char(reader, '}'))
        return true;
    do {
        if (!take_member(reader, object,
                         ret_object ? &ret_object->members[ret_object->count++] : &ignored))
            return false;
        skip_blanks(reader);
    } while (take_char(reader, ','));
    return take_char(reader, '}');
}

static bool take_array(struct reader *reader)
{
    struct json_value ignored;

    skip_blanks(reader);
    if (take_char(reader, ']'))
        return true;
    do {
        if (!take_value(reader, &ignored))
            return false;
        skip_blanks(reader);
    } while (take_char(reader, ','));
    return take_char(reader, ']');
}

static bool take_inner(struct reader *reader, bool is_object)
{
    bool is_good;

    if (reader->depth == LB_JSON_DEPTH_MAX)
        return false;
    reader->depth++;
    is_good = is_object ? take_object(reader, NULL) : take_array(reader);
    reader->depth--;
    return is_good;
}

static bool take_constant(struct reader *reader, struct json_value *ret_value)
{
    if (take_word(reader, "true"))
        ret_value->kind = JSON_KIND_TRUE;
    else if (take_word(reader, "false"))
        ret_value->kind = JSON_KIND_FALSE;
    else if (take_word(reader, "null"))
        ret_value->kind = JSON_KIND_NULL;
    else
        return false;
    return true;
}

static bool take_value(struct reader *reader, struct json_value *ret_value)
{
    char c;

    skip_blanks(reader);
    c = peek(reader);
    if (c == '-' || char_is_digit(c))
        return take_number(reader, ret_value);
    if (c == 't' || c == 'f' || c == 'n')
        return take_constant(reader, ret_value);
    if (take_char(reader, '"')) {
        ret_value->kind = JSON_KIND_TEXT;
        return take_text(reader, &ret_value->text, &ret_value->length);
    }
    ret_value->kind = c == '{' ? JSON_KIND_OBJECT : JSON_KIND_ARRAY;
    return (take_char(reader, '{') || take_char(reader, '[')) && take_inner(reader, c == '{');
}

bool json_in(const char *line, size_t length, char *space, struct json_object *ret_object)
{
    struct reader reader = {.at = line, .end = line + length, .space = space, .depth = 1};

    ret_object->count = 0;
    skip_blanks(&reader);
    if (!take_char(&reader, '{') || !take_object(&reader, ret_object))
        return false;
    skip_blanks(&reader);
    return reader.at == reader.end;
}
