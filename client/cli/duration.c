// Durations in text. A unit is asked for, since seconds and milliseconds are taken for each other
// too easily where a lock depends on it.
#include "client/cli/duration.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/limits.h"

static const struct {
    const char *name;
    int64_t ms;
} duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 60 * 60 * 1000}, {"d", 24 * 60 * 60 * 1000},
};

static int duration_scale(int64_t number, const char *unit, int64_t *ret_ms)
{
    for (size_t i = 0; i < LB_ARRAY_LENGTH(duration_units); i++) {
        if (strcmp(unit, duration_units[i].name) != 0)
            continue;
        if (number > LB_INTEGER_MAX / duration_units[i].ms)
            return DURATION_E_MALFORMED;
        *ret_ms = number * duration_units[i].ms;
        return 0;
    }
    return DURATION_E_MALFORMED;
}

int duration_parse(const char *text, int64_t *ret_ms)
{
    int64_t number = 0;
    const char *c = text;

    for (; *c >= '0' && *c <= '9'; c++) {
        if (number > LB_INTEGER_MAX / 10)
            return DURATION_E_MALFORMED;
        number = number * 10 + (*c - '0');
    }
    if (c == text)
        return DURATION_E_MALFORMED;
    if (*c == '\0' && number != 0)
        return DURATION_E_NO_UNIT;
    if (*c == '\0')
        c = "ms";
    return duration_scale(number, c, ret_ms);
}

static void duration_put(char *target, size_t size, int64_t large, const char *large_unit,
                         int64_t small, const char *small_unit)
{
    if (small == 0)
        (void)snprintf(target, size, "%" PRId64 "%s", large, large_unit);
    else
        (void)snprintf(target, size, "%" PRId64 "%s %" PRId64 "%s", large, large_unit, small,
                       small_unit);
}

void duration_format(int64_t ms, char *target, size_t size)
{
    int64_t s = ms / 1000;

    if (ms < 1000)
        duration_put(target, size, ms, "ms", 0, "");
    else if (s < 60 && ms % 1000 >= 100)
        (void)snprintf(target, size, "%" PRId64 ".%" PRId64 "s", s, ms % 1000 / 100);
    else if (s < 60)
        duration_put(target, size, s, "s", 0, "");
    else if (s < 60 * 60)
        duration_put(target, size, s / 60, "m", s % 60, "s");
    else if (s < 24 * 60 * 60)
        duration_put(target, size, s / 3600, "h", s % 3600 / 60, "m");
    else
        duration_put(target, size, s / 86400, "d", s % 86400 / 3600, "h");
}

void duration_format_up(int64_t ms, char *target, size_t size)
{
    duration_format(ms > 1000 ? (ms + 999) / 1000 * 1000 : ms, target, size);
}
