// Options by name: their checks, and the members behind them. A message about a value may quote it
// only where the value cannot be a secret, so never a backend URL or what stands in for a name.
#include "config/option.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

// So much of a wrong value is repeated in the message about it.
#define QUOTED_BYTES_MAX 64

// Names longer than this get no suggestion.
#define SUGGEST_BYTES_MAX 32

#define MEMBER_PATH(key)     key
#define MEMBER_GROUP(key)    key
#define MEMBER_BACKEND(key)  key
#define MEMBER_PREFIX(key)   key
#define MEMBER_DURATION(key) key##_ms
#define MEMBER_COUNT(key)    key
#define MEMBER_BYTES(key)    key##_bytes
#define MEMBER_MODE(key)     key
#define MEMBER_LEVEL(key)    key
#define MEMBER_LOSS(key)     key

static const struct option options[OPTIONS_COUNT] = {
#define X(key, type, fallback, least, most, reloadable, help)                                      \
    {#key,                                                                                         \
     VALUE_##type,                                                                                 \
     fallback,                                                                                     \
     least,                                                                                        \
     most,                                                                                         \
     reloadable,                                                                                   \
     help,                                                                                         \
     offsetof(struct config, MEMBER_##type(key)),                                                  \
     sizeof(((struct config *)0)->MEMBER_##type(key))},
#include "config/options.def"
#undef X
};

const struct option *option_at(size_t index)
{
    lb_assert(index < OPTIONS_COUNT);
    return &options[index];
}

const struct option *option_find(const char *name)
{
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    }
    return NULL;
}

static size_t least_of(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;

    return least < c ? least : c;
}

// The letter as names of options have it: TTL-MAX is as good as ttl_max for a suggestion.
static char letter_fold(char letter)
{
    if (letter >= 'A' && letter <= 'Z')
        return (char)(letter - 'A' + 'a');
    return letter == '-' ? '_' : letter;
}

// How many letters must be put in, left out or changed to make one name of the other.
static size_t name_distance(const char *option, const char *name)
{
    size_t row[SUGGEST_BYTES_MAX + 1];
    size_t name_length = strlen(name);

    for (size_t j = 0; j <= name_length; j++)
        row[j] = j;
    for (size_t i = 0; option[i]; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < name_length; j++) {
            size_t above = row[j + 1];
            size_t change = diagonal + (option[i] != letter_fold(name[j]));

            row[j + 1] = least_of(change, above + 1, row[j] + 1);
            diagonal = above;
        }
    }
    return row[name_length];
}

const char *option_suggest(const char *name)
{
    size_t length = strlen(name);
    size_t nearest = length / 3 + 2;
    const char *found = NULL;

    if (length > SUGGEST_BYTES_MAX)
        return NULL;
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        size_t distance = name_distance(options[i].name, name);

        if (distance < nearest) {
            nearest = distance;
            found = options[i].name;
        }
    }
    return found;
}

bool option_is_text(const struct option *option)
{
    return option->type < VALUE_DURATION;
}

bool option_name_is_plain(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bool plain = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
                     (name[i] >= '0' && name[i] <= '9') || name[i] == '_' || name[i] == '-';

        if (!plain)
            return false;
    }
    return length > 0;
}

static char *member_of(const struct option *option, struct config *config)
{
    return (char *)config + option->offset;
}

static const char *member_view(const struct option *option, const struct config *config)
{
    return (const char *)config + option->offset;
}

// The value with all but printable ASCII as ?, cut if it is long.
static void text_quote(const char *text, char ret_text[QUOTED_BYTES_MAX + 4])
{
    size_t length = 0;

    for (; *text && length < QUOTED_BYTES_MAX; text++)
        ret_text[length++] = *text >= ' ' && *text <= '~' ? *text : '?';
    (void)snprintf(ret_text + length, 4, "%s", *text ? "..." : "");
}

static int number_set(const struct option *option, const char *text, struct config *config,
                      char ret_message[CONFIG_MESSAGE_BYTES_MAX])
{
    char least[VALUE_FORMAT_BYTES_MAX], most[VALUE_FORMAT_BYTES_MAX];
    char quoted[QUOTED_BYTES_MAX + 4];
    int64_t value;
    int rc = value_parse(option->type, text, option->least, option->most, &value);

    if (rc == 0) {
        memcpy(member_of(option, config), &value, sizeof(value));
        return 0;
    }
    text_quote(text, quoted);
    value_format(option->type, option->least, least);
    value_format(option->type, option->most, most);
    if (rc == -ERANGE)
        (void)snprintf(ret_message, CONFIG_MESSAGE_BYTES_MAX, "\"%s\" is not within %s to %s",
                       quoted, least, most);
    else
        (void)snprintf(ret_message, CONFIG_MESSAGE_BYTES_MAX, "\"%s\" is not %s", quoted,
                       value_description(option->type));
    return -EINVAL;
}

// What is wrong with the bytes of a text. It must be able to stand in a file, where blanks at its
// ends would go and a ; after a blank begins a comment. `text` is not empty.
static const char *text_problem(const char *text)
{
    char before = ' ';

    if (*text == ' ')
        return "the value begins with a blank";
    for (; *text; text++) {
        if ((*text > 0 && *text < ' ') || *text == 0x7f)
            return "the value has a control character";
        if (*text == ';' && before == ' ')
            return "the value has a ; at its start or after a blank, which begins a comment";
        before = *text;
    }
    return before == ' ' ? "the value ends with a blank" : NULL;
}

static const char *path_problem(const char *path)
{
    return *path && *path != '/' ? "the path must be absolute" : NULL;
}

static const char *group_problem(const char *group)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_.-$";

    return group[strspn(group, allowed)] || *group == '-'
               ? "a group may have letters, digits, _ . $ and - alone, and no - at its start"
               : NULL;
}

static const char *prefix_problem(const char *prefix)
{
    return config_key_is_reserved(prefix, "") ? "Redis keys that begin with " CONFIG_RESERVED_PREFIX
                                                " are the broker's own"
                                              : NULL;
}

static const char *backend_problem(const char *backend)
{
    struct backend_url url;
    const char *problem = NULL;

    return backend_url_parse(backend, &url, &problem) < 0 ? problem : NULL;
}

static const char *type_problem(enum value_type type, const char *text)
{
    if (type == VALUE_PATH)
        return path_problem(text);
    if (type == VALUE_GROUP)
        return group_problem(text);
    if (type == VALUE_PREFIX)
        return prefix_problem(text);
    return backend_problem(text);
}

static int text_set(const struct option *option, const char *text, struct config *config,
                    char ret_message[CONFIG_MESSAGE_BYTES_MAX])
{
    size_t length = strlen(text);
    const char *problem = NULL;

    if ((int64_t)length > option->most) {
        (void)snprintf(ret_message, CONFIG_MESSAGE_BYTES_MAX, "the value is longer than %d bytes",
                       (int)option->most);
        return -EINVAL;
    }
    if ((int64_t)length < option->least)
        problem = "the value must not be empty";
    if (!problem && length > 0)
        problem = text_problem(text);
    if (!problem)
        problem = type_problem(option->type, text);
    if (problem) {
        (void)snprintf(ret_message, CONFIG_MESSAGE_BYTES_MAX, "%s", problem);
        return -EINVAL;
    }
    lb_assert(length < option->size);
    memset(member_of(option, config), 0, option->size);
    memcpy(member_of(option, config), text, length);
    return 0;
}

int option_set(const struct option *option, const char *text, struct config *config,
               char ret_message[CONFIG_MESSAGE_BYTES_MAX])
{
    if (option_is_text(option))
        return text_set(option, text, config, ret_message);
    return number_set(option, text, config, ret_message);
}

void option_get(const struct option *option, const struct config *config,
                char ret_text[OPTION_TEXT_BYTES_MAX])
{
    char number[VALUE_FORMAT_BYTES_MAX];
    int64_t value;

    if (option_is_text(option)) {
        (void)snprintf(ret_text, OPTION_TEXT_BYTES_MAX, "%s", member_view(option, config));
        return;
    }
    memcpy(&value, member_view(option, config), sizeof(value));
    value_format(option->type, value, number);
    (void)snprintf(ret_text, OPTION_TEXT_BYTES_MAX, "%s", number);
}

bool option_is_equal(const struct option *option, const struct config *left,
                     const struct config *right)
{
    return memcmp(member_view(option, left), member_view(option, right), option->size) == 0;
}

void option_copy(const struct option *option, const struct config *from, struct config *to)
{
    memcpy(member_of(option, to), member_view(option, from), option->size);
}
