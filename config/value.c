// Turns single values into numbers and back. No locale, no floating point: what is printed must
// read back as the same number.
#include "config/value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// The texts and numbers of each type. The plain unit, "", is first when it may be left out.
struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit duration_units[] = {
    {"", 1}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {NULL, 0},
};
static const struct unit bytes_units[] = {{"", 1}, {"KiB", 1024}, {"MiB", 1048576}, {NULL, 0}};
static const struct unit no_units[] = {{"", 1}, {NULL, 0}};

// The words of a type whose values are no numbers, each for its place in the list.
static const char *const levels[] = {"error", "warning", "notice", "info", "debug", NULL};
static const char *const losses[] = {"quarantine", "ignore", NULL};

static const struct {
    const char *name;
    const char *description;
    const char *const *words; // NULL: a number
} types[] = {
    [VALUE_PATH] = {"path", "an absolute path", NULL},
    [VALUE_GROUP] = {"group", "a group name or number", NULL},
    [VALUE_BACKEND] = {"URL", "a backend URL", NULL},
    [VALUE_PREFIX] = {"text", "a text", NULL},
    [VALUE_DURATION] = {"duration", "a duration (for example 30s, 500ms, 1h)", NULL},
    [VALUE_COUNT] = {"number", "a whole number", NULL},
    [VALUE_BYTES] = {"size", "a size (for example 65536, 512KiB, 1MiB)", NULL},
    [VALUE_MODE] = {"mode", "a file mode in octal (for example 0660)", NULL},
    [VALUE_LEVEL] = {"level", "a log level (error, warning, notice, info or debug)", levels},
    [VALUE_LOSS] = {"word", "quarantine or ignore", losses},
};

const char *value_description(enum value_type type)
{
    return types[type].description;
}

const char *value_type_name(enum value_type type)
{
    return types[type].name;
}

static const struct unit *type_units(enum value_type type)
{
    if (type == VALUE_DURATION)
        return duration_units;
    return type == VALUE_BYTES ? bytes_units : no_units;
}

// Reads the leading digits; the number sticks at INT64_MAX, so that too much is out of range and
// not nonsense. Returns what follows, or NULL when there is no digit.
static const char *digits_parse(const char *text, int base, int64_t *ret_number)
{
    int64_t number = 0;
    const char *at = text;

    for (; *at >= '0' && *at < '0' + base; at++) {
        if (__builtin_mul_overflow(number, base, &number) ||
            __builtin_add_overflow(number, *at - '0', &number))
            number = INT64_MAX;
    }
    if (at == text)
        return NULL;
    *ret_number = number;
    return at;
}

static int word_parse(const char *const *words, const char *text, int64_t *ret_value)
{
    for (size_t i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *ret_value = (int64_t)i;
            return 0;
        }
    }
    return -EINVAL;
}

static int number_parse(enum value_type type, const char *text, int64_t *ret_value)
{
    const char *unit_name;
    int64_t number = 0;

    unit_name = digits_parse(text, type == VALUE_MODE ? 8 : 10, &number);
    if (!unit_name)
        return -EINVAL;
    for (const struct unit *unit = type_units(type); unit->name; unit++) {
        if (strcmp(unit_name, unit->name) != 0)
            continue;
        if (__builtin_mul_overflow(number, unit->factor, &number))
            number = INT64_MAX;
        *ret_value = number;
        return 0;
    }
    return -EINVAL;
}

int value_parse(enum value_type type, const char *text, int64_t least, int64_t most,
                int64_t *ret_value)
{
    int64_t value = 0;
    const char *const *words = types[type].words;
    int rc = words ? word_parse(words, text, &value) : number_parse(type, text, &value);

    if (rc < 0)
        return rc;
    if (value < least || value > most)
        return -ERANGE;
    *ret_value = value;
    return 0;
}

void value_format(enum value_type type, int64_t value, char ret_text[VALUE_FORMAT_BYTES_MAX])
{
    const struct unit *best = type_units(type);

    if (types[type].words) {
        (void)snprintf(ret_text, VALUE_FORMAT_BYTES_MAX, "%s", types[type].words[value]);
        return;
    }
    if (type == VALUE_MODE) {
        (void)snprintf(ret_text, VALUE_FORMAT_BYTES_MAX, "%04" PRIo64, (uint64_t)value);
        return;
    }
    // Nothing of a duration is 0s, and not 0h.
    if (type == VALUE_DURATION && value == 0) {
        (void)snprintf(ret_text, VALUE_FORMAT_BYTES_MAX, "0s");
        return;
    }
    for (const struct unit *unit = best; unit->name; unit++) {
        if (value > 0 && value % unit->factor == 0)
            best = unit;
    }
    (void)snprintf(ret_text, VALUE_FORMAT_BYTES_MAX, "%" PRId64 "%s", value / best->factor,
                   best->name);
}
