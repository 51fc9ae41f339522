// Cuts a byte stream into lines. It may not look at what a line says, and it copies nothing but
// half lines: thousands of idle clients share one read buffer and must not each hold memory.
#include "proto/framing.h"

#include <errno.h>
#include <string.h>

void framing_init(struct framing *framing, size_t line_bytes_max)
{
    *framing = (struct framing){.line_bytes_max = line_bytes_max};
    // One byte more: a CR in that place may turn out to be half of the newline.
    buf_init(&framing->partial, line_bytes_max + 1);
}

void framing_deinit(struct framing *framing)
{
    buf_clear(&framing->partial);
    framing->is_skipping = false;
    framing->is_told = false;
}

bool framing_has_partial(const struct framing *framing)
{
    return !framing->is_told && buf_length(&framing->partial) > 0;
}

static void framing_skip(struct framing *framing)
{
    buf_clear(&framing->partial);
    framing->is_skipping = true;
}

void framing_drop_partial(struct framing *framing)
{
    if (framing_has_partial(framing))
        framing_skip(framing);
}

static int framing_keep(struct framing *framing, const char *bytes, size_t length)
{
    int r = buf_append(&framing->partial, bytes, length);

    if (r < 0)
        framing_skip(framing);
    return r;
}

// Whether `length` bytes, the last of them `last`, can't be the start of a line within the limit.
static bool framing_is_over(const struct framing *framing, size_t length, char last)
{
    return length > framing->line_bytes_max + (last == '\r' ? 1 : 0);
}

// The bytes end before a newline comes: keep them as (more of) a half line.
static int framing_take_partial(struct framing *framing, const char *bytes, size_t length)
{
    if (framing->is_skipping)
        return 0;
    if (framing_is_over(framing, buf_length(&framing->partial) + length, bytes[length - 1])) {
        framing_skip(framing);
        return FRAMING_E_TOO_LONG;
    }
    return framing_keep(framing, bytes, length);
}

// The bytes end right before a newline: they end a line.
static int framing_take_line(struct framing *framing, const char *bytes, size_t length,
                             const char **ret_line, size_t *ret_length)
{
    bool is_pending = buf_length(&framing->partial) > 0;

    if (is_pending && buf_length(&framing->partial) + length > framing->line_bytes_max + 1) {
        buf_clear(&framing->partial);
        return FRAMING_E_TOO_LONG;
    }
    if (is_pending) {
        int r = framing_keep(framing, bytes, length);
        if (r < 0) {
            framing->is_skipping = false; // the newline is here
            return r;
        }
        bytes = buf_bytes(&framing->partial);
        length = buf_length(&framing->partial);
    }
    if (length > 0 && bytes[length - 1] == '\r')
        length--;
    if (length > framing->line_bytes_max) {
        buf_clear(&framing->partial);
        return FRAMING_E_TOO_LONG;
    }
    framing->is_told = is_pending;
    *ret_line = bytes;
    *ret_length = length;
    return FRAMING_E_LINE;
}

int framing_next(struct framing *framing, const char **bytes, size_t *length, const char **ret_line,
                 size_t *ret_length)
{
    if (framing->is_told) {
        buf_clear(&framing->partial);
        framing->is_told = false;
    }
    while (*length > 0) {
        const char *start = *bytes;
        const char *newline = memchr(start, '\n', *length);
        size_t line_bytes = newline ? (size_t)(newline - start) : *length;
        size_t used = newline ? line_bytes + 1 : line_bytes;
        bool was_skipping = framing->is_skipping;

        *bytes += used;
        *length -= used;
        if (!newline)
            return framing_take_partial(framing, start, line_bytes);
        framing->is_skipping = false;
        if (!was_skipping)
            return framing_take_line(framing, start, line_bytes, ret_line, ret_length);
    }
    return 0;
}
