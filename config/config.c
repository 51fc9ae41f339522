// The whole set of options: defaults, single assignments, checks across options, comparison. It
// reads no file and no environment.
#include "config/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/error.h"
#include "config/option.h"

void config_init_defaults(struct config *config)
{
    char message[CONFIG_MESSAGE_BYTES_MAX];

    // Zeroed wholly, so that members can be compared as bytes.
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        int rc = option_set(option_at(i), option_at(i)->fallback, config, message);

        lb_assert(rc == 0);
    }
}

// Copies the text without the blanks around it, cut to what fits.
static void text_trim(const char *text, size_t length, char *ret_text, size_t size)
{
    while (length > 0 && (*text == ' ' || *text == '\t')) {
        text++;
        length--;
    }
    while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t'))
        length--;
    (void)snprintf(ret_text, size, "%.*s", (int)(length < size ? length : size - 1), text);
}

int config_set(struct config *config, const char *assignment, struct config_error *ret_error)
{
    const char *equals = strchr(assignment, '=');
    char message[CONFIG_MESSAGE_BYTES_MAX];
    const struct option *option;
    char name[64] = "";
    char value[OPTION_TEXT_BYTES_MAX + 1]; // room for one byte too much, which is then refused

    if (equals)
        text_trim(assignment, (size_t)(equals - assignment), name, sizeof(name));
    // What is no assignment may be a misplaced password, so it is not repeated.
    if (strlen(name) + 1 == sizeof(name) || !option_name_is_plain(name, strlen(name))) {
        error_fill(ret_error, "--set", 0, "", "an option's name, = and its value are wanted");
        return -EINVAL;
    }
    option = option_find(name);
    if (!option) {
        error_fill_unknown(ret_error, "--set", 0, name);
        return -EINVAL;
    }
    text_trim(equals + 1, strlen(equals + 1), value, sizeof(value));
    if (option_set(option, value, config, message) < 0) {
        error_fill(ret_error, "--set", 0, name, "%s", message);
        return -EINVAL;
    }
    return 0;
}

int config_set_flag(struct config *config, const char *flag, const char *key, const char *value,
                    struct config_error *ret_error)
{
    const struct option *option = option_find(key);
    char message[CONFIG_MESSAGE_BYTES_MAX];

    lb_assert(option);
    if (option_set(option, value, config, message) == 0)
        return 0;
    error_fill(ret_error, flag, 0, "", "%s", message);
    return -EINVAL;
}

int config_validate(const struct config *config, struct config_error *ret_error)
{
    bool has_file = *config->backend_password_file != '\0';
    struct backend_url url;
    const char *problem;
    int rc = backend_url_parse(config->backend, &url, &problem);

    lb_assert(rc == 0);
    if (has_file && *url.password) {
        error_fill(ret_error, "", 0, "backend_password_file",
                   "the URL in backend has a password too; give one of them");
        return -EINVAL;
    }
    if (!has_file && *url.user && !*url.password) {
        error_fill(ret_error, "", 0, "backend",
                   "the URL has a user but no password, and backend_password_file is not set");
        return -EINVAL;
    }
    return 0;
}

size_t config_diff_needs_restart(const struct config *old_config, const struct config *new_config,
                                 void (*callback)(void *context, const char *option), void *context)
{
    size_t count = 0;

    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        const struct option *option = option_at(i);

        if (option->reloadable || option_is_equal(option, old_config, new_config))
            continue;
        count++;
        if (callback)
            callback(context, option->name);
    }
    return count;
}

void config_apply_reloadable(struct config *config, const struct config *from)
{
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        if (option_at(i)->reloadable)
            option_copy(option_at(i), from, config);
    }
}

bool config_key_is_reserved(const char *prefix, const char *key)
{
    static const char reserved[] = CONFIG_RESERVED_PREFIX;
    size_t reserved_length = sizeof(reserved) - 1;
    size_t prefix_length = strlen(prefix);

    if (prefix_length >= reserved_length)
        return strncmp(prefix, reserved, reserved_length) == 0;
    if (strncmp(prefix, reserved, prefix_length) != 0)
        return false;
    return strncmp(key, reserved + prefix_length, reserved_length - prefix_length) == 0;
}
