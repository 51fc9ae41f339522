// Checks that a line is well-formed JSON. The only place that looks at untrusted bytes without
// knowing anything of them; its recursion is bounded by `depth_max`.
#include "proto/json_check.h"

#include <string.h>

#include "proto/utf8.h"

struct json_check {
    const char *at;
    const char *end;
    unsigned depth_left;
    size_t members_left;
};

static bool check_value(struct json_check *check);

static void check_blanks(struct json_check *check)
{
    while (check->at < check->end &&
           (*check->at == ' ' || *check->at == '\t' || *check->at == '\r' || *check->at == '\n'))
        check->at++;
}

// Passes over `c` if it comes next.
static bool check_char(struct json_check *check, char c)
{
    if (check->at == check->end || *check->at != c)
        return false;
    check->at++;
    return true;
}

static bool check_word(struct json_check *check, const char *word)
{
    size_t length = strlen(word);

    if ((size_t)(check->end - check->at) < length || memcmp(check->at, word, length) != 0)
        return false;
    check->at += length;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

// Passes over the four digits after \u; returns what they say, or -1.
static int check_hex(struct json_check *check)
{
    int value = 0;

    if (check->end - check->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(*check->at++);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

// Passes over the rest of a \u escape: a whole surrogate pair, or one character but U+0000.
static bool check_unicode(struct json_check *check)
{
    int first = check_hex(check);

    if (first <= 0 || (first >= 0xDC00 && first <= 0xDFFF))
        return false;
    if (first < 0xD800 || first > 0xDBFF)
        return true;
    if (!check_word(check, "\\u"))
        return false;

    int second = check_hex(check);

    return second >= 0xDC00 && second <= 0xDFFF;
}

static bool check_escape(struct json_check *check)
{
    if (check->at == check->end || *check->at == '\0')
        return false;

    char c = *check->at++;

    return c == 'u' ? check_unicode(check) : strchr("\"\\/bfnrt", c) != NULL;
}

static bool check_text(struct json_check *check)
{
    if (!check_char(check, '"'))
        return false;
    while (check->at < check->end) {
        size_t count = utf8_char_bytes(check->at, (size_t)(check->end - check->at));
        char c = *check->at;

        if (count == 0 || (unsigned char)c < 0x20)
            return false;
        check->at += count;
        if (c == '"')
            return true;
        if (c == '\\' && !check_escape(check))
            return false;
    }
    return false;
}

// Passes over digits; false when there is none.
static bool check_digits(struct json_check *check)
{
    const char *start = check->at;

    while (check->at < check->end && *check->at >= '0' && *check->at <= '9')
        check->at++;
    return check->at > start;
}

static bool check_number(struct json_check *check)
{
    (void)check_char(check, '-');
    if (!check_char(check, '0') && !check_digits(check))
        return false;
    if (check_char(check, '.') && !check_digits(check))
        return false;
    if (check_char(check, 'e') || check_char(check, 'E')) {
        if (!check_char(check, '+'))
            (void)check_char(check, '-');
        return check_digits(check);
    }
    return true;
}

static bool check_member(struct json_check *check)
{
    if (check->members_left == 0)
        return false;
    check->members_left--;
    if (!check_text(check))
        return false;
    check_blanks(check);
    if (!check_char(check, ':'))
        return false;
    check_blanks(check);
    return check_value(check);
}

static bool check_container(struct json_check *check, char close, bool (*item)(struct json_check *))
{
    check->at++;
    check_blanks(check);
    if (check_char(check, close))
        return true;
    for (;;) {
        if (!item(check))
            return false;
        check_blanks(check);
        if (check_char(check, close))
            return true;
        if (!check_char(check, ','))
            return false;
        check_blanks(check);
    }
}

static bool check_nested(struct json_check *check)
{
    bool is_object = *check->at == '{';

    if (check->depth_left == 0)
        return false;
    check->depth_left--;
    if (!check_container(check, is_object ? '}' : ']', is_object ? check_member : check_value))
        return false;
    check->depth_left++;
    return true;
}

static bool check_value(struct json_check *check)
{
    if (check->at == check->end)
        return false;
    switch (*check->at) {
    case '{':
    case '[':
        return check_nested(check);
    case '"':
        return check_text(check);
    case 't':
        return check_word(check, "true");
    case 'f':
        return check_word(check, "false");
    case 'n':
        return check_word(check, "null");
    default:
        return check_number(check);
    }
}

bool json_check_line(const char *line, size_t length, unsigned depth_max, size_t members_max)
{
    struct json_check check = {line, line + length, depth_max, members_max};

    check_blanks(&check);
    if (!check_value(&check))
        return false;
    check_blanks(&check);
    return check.at == check.end;
}
