// The rows of options.def as a table, and access to the member of struct config behind each. Shared
// by the files of this folder and by nobody else.
#ifndef LB_CONFIG_OPTION_H
#define LB_CONFIG_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "config/value.h"

struct option {
    const char *name;
    enum value_type type;
    const char *fallback;
    int64_t least;
    int64_t most;
    bool reloadable;
    const char *help;
    size_t offset; // of the member in struct config
    size_t size;
};

enum {
#define X(key, type, fallback, least, most, reloadable, help) OPTION_##key,
#include "config/options.def"
#undef X
    OPTIONS_COUNT
};

// Enough for the text of any option.
#define OPTION_TEXT_BYTES_MAX 1024

const struct option *option_at(size_t index);

// The option of that name, or NULL.
const struct option *option_find(const char *name) LB_MUST_CHECK;

// The name most like `name`, or NULL when none is like it.
const char *option_suggest(const char *name) LB_MUST_CHECK;

bool option_is_text(const struct option *option);

// Sets the option from a text. Returns 0, or -EINVAL with the sentence about it in `ret_message`.
int option_set(const struct option *option, const char *text, struct config *config,
               char ret_message[CONFIG_MESSAGE_BYTES_MAX]) LB_MUST_CHECK;

// Writes the option's value as option_set() reads it.
void option_get(const struct option *option, const struct config *config,
                char ret_text[OPTION_TEXT_BYTES_MAX]);

bool option_is_equal(const struct option *option, const struct config *left,
                     const struct config *right) LB_MUST_CHECK;

void option_copy(const struct option *option, const struct config *from, struct config *to);

// Whether a name has letters, digits, _ and - alone: then it may be repeated in a message.
bool option_name_is_plain(const char *name, size_t length) LB_MUST_CHECK;

#endif
