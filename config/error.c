// Errors of the options as text. Callers see to it that no secret gets into a message.
#include "config/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/option.h"

void config_error_format(const struct config_error *error, char *ret_text, size_t size)
{
    bool is_flag = strncmp(error->place, "--", 2) == 0;
    char line[16] = "";

    if (error->line > 0)
        (void)snprintf(line, sizeof(line), ":%d", error->line);
    (void)snprintf(ret_text, size, "%s%s%s%s%s%s", error->place, line,
                   !*error->place                ? ""
                   : (is_flag && *error->option) ? " "
                                                 : ": ",
                   error->option, *error->option ? ": " : "", error->message);
}

void error_fill(struct config_error *ret_error, const char *place, int line, const char *option,
                const char *format, ...)
{
    struct config_error error = {.line = line};
    va_list args;

    (void)snprintf(error.place, sizeof(error.place), "%s", place);
    (void)snprintf(error.option, sizeof(error.option), "%s", option);
    va_start(args, format);
    (void)vsnprintf(error.message, sizeof(error.message), format, args);
    va_end(args);
    *ret_error = error;
}

void error_fill_unknown(struct config_error *ret_error, const char *place, int line,
                        const char *name)
{
    const char *nearest = option_suggest(name);

    if (nearest)
        error_fill(ret_error, place, line, "", "`%s` is no option; did you mean %s?", name,
                   nearest);
    else
        error_fill(ret_error, place, line, "", "`%s` is no option", name);
}
