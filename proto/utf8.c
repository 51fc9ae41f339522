// Strict decoding of UTF-8, by the table of well-formed sequences in the Unicode standard.
#include "proto/utf8.h"

#include <stdbool.h>

static bool utf8_is_tail(unsigned char byte)
{
    return (byte & 0xC0) == 0x80;
}

// How many bytes a character has that begins with `first`, and the range of its second byte, which
// is what rules out overlong forms, surrogates and all above U+10FFFF.
static size_t utf8_lead(unsigned char first, unsigned char *ret_low, unsigned char *ret_high)
{
    *ret_low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    *ret_high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        return 2;
    if (first >= 0xE0 && first <= 0xEF)
        return 3;
    if (first >= 0xF0 && first <= 0xF4)
        return 4;
    return 0;
}

size_t utf8_char_bytes(const char *bytes, size_t length)
{
    const unsigned char *at = (const unsigned char *)bytes;
    unsigned char low;
    unsigned char high;

    if (length == 0)
        return 0;

    size_t count = utf8_lead(at[0], &low, &high);

    if (count <= 1)
        return count;
    if (count > length || at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < count; i++) {
        if (!utf8_is_tail(at[i]))
            return 0;
    }
    return count;
}
