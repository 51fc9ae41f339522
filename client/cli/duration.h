// Durations as people write them: a whole number and a unit, such as 500ms, 30s, 5m, 2h or 1d.
#ifndef LB_CLI_DURATION_H
#define LB_CLI_DURATION_H

#include <stddef.h>
#include <stdint.h>

#include "proto/macros.h"

#define DURATION_BYTES_MAX 32

#define DURATION_E_NO_UNIT   1 // a bare number other than 0
#define DURATION_E_MALFORMED 2 // no duration at all, or longer than can be counted

// Returns 0, DURATION_E_NO_UNIT or DURATION_E_MALFORMED.
int duration_parse(const char *text, int64_t *ret_ms) LB_MUST_CHECK;

// Writes a duration in its two largest units: "350ms", "30s", "4.2s", "3m 5s", "2h", "5d 3h".
void duration_format(int64_t ms, char *target, size_t size);

// The same for a time to wait: from a second on, rounded up to whole ones.
void duration_format_up(int64_t ms, char *target, size_t size);

#endif
