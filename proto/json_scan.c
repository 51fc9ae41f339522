// Counts brackets and colons outside of texts: that much can be told without parsing. It may be
// wrong about what is no JSON, since that is refused a moment later.
#include "proto/json_scan.h"

#include <string.h>

// The closing quote of the text that begins at `at`, or `end`.
static const char *json_scan_text(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++) {
        if (*at == '\\' && at + 1 < end)
            at++;
    }
    return at;
}

bool json_scan(const char *line, size_t length, unsigned depth_max, size_t members_max)
{
    const char *end = line + length;
    unsigned depth = 0;
    size_t members = 0;

    if (memchr(line, '\0', length))
        return false;
    for (const char *at = line; at < end; at++) {
        switch (*at) {
        case '"':
            at = json_scan_text(at, end);
            break;
        case '{':
        case '[':
            depth++;
            break;
        case '}':
        case ']':
            depth--; // below 0 it wraps, and is over the limit
            break;
        case ':':
            members++;
            break;
        default:
            break;
        }
        if (depth > depth_max || members > members_max)
            return false;
    }
    return true;
}
