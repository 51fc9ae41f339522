// Shows the options: with their values in the form of a file, or with their meaning. The password
// of the backend is never shown.
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "config/option.h"

void config_print(FILE *file, const struct config *config)
{
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        const struct option *option = option_at(i);
        char text[OPTION_TEXT_BYTES_MAX];
        char masked[BACKEND_URL_BYTES_MAX + 4];

        option_get(option, config, text);
        if (option->type == VALUE_BACKEND) {
            backend_url_mask(text, masked, sizeof(masked));
            (void)fprintf(file, "%s = %s\n", option->name, masked);
        } else {
            (void)fprintf(file, "%s =%s%s\n", option->name, *text ? " " : "", text);
        }
    }
}

static void range_print(FILE *file, const struct option *option)
{
    char least[VALUE_FORMAT_BYTES_MAX], most[VALUE_FORMAT_BYTES_MAX];

    if (option_is_text(option)) {
        (void)fprintf(file, "at most %d bytes", (int)option->most);
        return;
    }
    value_format(option->type, option->least, least);
    value_format(option->type, option->most, most);
    (void)fprintf(file, "%s to %s", least, most);
}

void config_print_help(FILE *file)
{
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        const struct option *option = option_at(i);

        (void)fprintf(file, "  %s (%s, default %s, ", option->name, value_type_name(option->type),
                      *option->fallback ? option->fallback : "empty");
        range_print(file, option);
        (void)fprintf(file, "%s)\n      %s\n", option->reloadable ? "" : "; needs a restart",
                      option->help);
    }
}
