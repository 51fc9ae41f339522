// Text from outside made fit for a terminal: keys and notes are chosen by others, and may not move
// the cursor, colour the screen or reverse the line.
#include "client/cli/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/utf8.h"

static bool text_is_plain(const char *bytes, size_t char_bytes)
{
    const unsigned char *c = (const unsigned char *)bytes;

    if (char_bytes == 0)
        return false;
    if (char_bytes == 1)
        return c[0] >= 0x20 && c[0] != 0x7f;
    if (char_bytes == 2)
        return c[0] != 0xc2 || c[1] >= 0xa0;             // U+0080..U+009F
    if (char_bytes == 3 && c[0] == 0xe2 && c[1] == 0x80) // U+200E, U+200F, U+2028..U+202E
        return c[2] != 0x8e && c[2] != 0x8f && (c[2] < 0xa8 || c[2] > 0xae);
    if (char_bytes == 3 && c[0] == 0xe2 && c[1] == 0x81) // U+2066..U+2069
        return c[2] < 0xa6 || c[2] > 0xa9;
    return true;
}

static bool text_needs_backslash(char c, bool is_quoted)
{
    return c == '\\' || (is_quoted && c == '"');
}

static void text_copy(const char *text, char *target, size_t size, bool is_quoted)
{
    size_t length = strlen(text);
    size_t used = 0;
    size_t char_bytes;
    bool is_plain;
    char piece[16];

    for (size_t i = 0; i < length; i += char_bytes) {
        char_bytes = utf8_char_bytes(text + i, length - i);
        is_plain = text_is_plain(text + i, char_bytes);
        if (!is_plain)
            char_bytes = 1;
        if (!is_plain)
            (void)snprintf(piece, sizeof(piece), "\\x%02x", (unsigned char)text[i]);
        else
            (void)snprintf(piece, sizeof(piece), "%s%.*s",
                           text_needs_backslash(text[i], is_quoted) ? "\\" : "", (int)char_bytes,
                           text + i);
        if (used + strlen(piece) >= size)
            break;
        memcpy(target + used, piece, strlen(piece));
        used += strlen(piece);
    }
    target[used] = '\0';
}

void text_escape(const char *text, char *target, size_t size)
{
    text_copy(text, target, size, false);
}

void text_quote(const char *text, char *target, size_t size)
{
    if (size < sizeof("\"\"")) {
        target[0] = '\0';
        return;
    }
    target[0] = '"';
    text_copy(text, target + 1, size - 2, true);
    strcat(target, "\"");
}

size_t text_width(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}
