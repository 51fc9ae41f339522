// Parsing of command lines, one table a subcommand. Not getopt: options may stand before and after
// the key, but nothing in the command to run may ever be taken for one of ours.
#include "client/cli/args.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/duration.h"
#include "client/cli/exit_code.h"
#include "client/cli/message.h"

static int args_take_duration(const struct arg *arg, const char *value)
{
    int64_t ms = 0;
    int r;

    if (arg->kind == ARG_WAIT && strcmp(value, "forever") == 0) {
        *(int64_t *)arg->target = ARGS_WAIT_FOREVER;
        return 0;
    }
    r = duration_parse(value, &ms);
    if (r == DURATION_E_NO_UNIT) {
        message_print("%s needs a unit: write %sms, %ss, %sm, %sh or %sd", arg->name, value, value,
                      value, value, value);
        return -EINVAL;
    }
    if (r != 0 || (arg->kind == ARG_DURATION && ms == 0)) {
        message_print("%s needs a duration such as 500ms, 30s, 5m, 2h or 1d%s, not '%s'", arg->name,
                      arg->kind == ARG_WAIT ? ", 0 or 'forever'" : "", value);
        return -EINVAL;
    }
    *(int64_t *)arg->target = ms;
    return 0;
}

static int args_take_exit_code(const struct arg *arg, const char *value)
{
    char *end;
    long code = strtol(value, &end, 10);

    if (value[0] < '0' || value[0] > '9' || *end != '\0' || code > 255) {
        message_print("%s needs an exit status from 0 to 255, not '%s'", arg->name, value);
        return -EINVAL;
    }
    *(int *)arg->target = (int)code;
    return 0;
}

static int args_take_value(const struct arg *arg, const char *value)
{
    switch (arg->kind) {
    case ARG_FLAG:
        *(bool *)arg->target = true;
        return 0;
    case ARG_TEXT:
        *(const char **)arg->target = value;
        return 0;
    case ARG_DURATION:
    case ARG_WAIT:
        return args_take_duration(arg, value);
    case ARG_EXIT_CODE:
        return args_take_exit_code(arg, value);
    }
    return -EINVAL;
}

static const struct arg *args_find(const struct args_spec *spec, const char *name, size_t length)
{
    for (size_t i = 0; i < spec->args_count; i++) {
        if (strlen(spec->args[i].name) == length && strncmp(spec->args[i].name, name, length) == 0)
            return &spec->args[i];
    }
    return NULL;
}

// Takes the option at argv[*index] and leaves *index at the last word that belongs to it.
static int args_take_option(const struct args_spec *spec, char **argv, int *index)
{
    const char *word = argv[*index];
    size_t length = strcspn(word, "=");
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    const struct arg *arg = args_find(spec, word, length);

    if (!arg) {
        message_print("%s has no option '%.*s'; see 'lockbroker %s --help'", spec->command,
                      (int)length, word, spec->command);
        return -EINVAL;
    }
    if (arg->kind == ARG_FLAG && value) {
        message_print("%s takes no value; leave out '=%s'", arg->name, value);
        return -EINVAL;
    }
    if (arg->kind != ARG_FLAG && !value) {
        value = argv[*index + 1];
        if (!value) {
            message_print("%s needs a value; see 'lockbroker %s --help'", arg->name, spec->command);
            return -EINVAL;
        }
        (*index)++;
    }
    return args_take_value(arg, value);
}

static int args_take_operand(const struct args_spec *spec, const char *word, struct args *args)
{
    if (!spec->operand || args->operand) {
        message_print("%s does not know what to do with '%s'; see 'lockbroker %s --help'",
                      spec->command, word, spec->command);
        return -EINVAL;
    }
    args->operand = word;
    return 0;
}

static int args_check(const struct args_spec *spec, struct args *args)
{
    if (spec->operand && !args->operand) {
        message_print("%s needs a %s; see 'lockbroker %s --help'", spec->command, spec->operand,
                      spec->command);
        return -EINVAL;
    }
    if (args->command && args->command[0] && strcmp(args->command[0], "--") == 0)
        args->command++;
    if (spec->takes_command && (!args->command || !args->command[0])) {
        message_print("%s needs a command to run: lockbroker %s %s -- CMD [ARG]...", spec->command,
                      spec->command, args->operand);
        return -EINVAL;
    }
    return 0;
}

static bool args_is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

int args_parse(const struct args_spec *spec, int argc, char **argv, struct args *ret_args)
{
    struct args args = {0};
    bool takes_options = true;
    int r = 0;

    for (int i = 1; i < argc && r == 0; i++) {
        if (takes_options && args_is_help(argv[i])) {
            (void)fputs(spec->help, stdout);
            return ARGS_E_HELP;
        }
        if (takes_options && strcmp(argv[i], "--") == 0) {
            takes_options = false;
        } else if (takes_options && argv[i][0] == '-' && argv[i][1] != '\0') {
            r = args_take_option(spec, argv, &i);
        } else if (spec->takes_command && args.operand) {
            args.command = argv + i;
            break;
        } else {
            r = args_take_operand(spec, argv[i], &args);
        }
    }
    if (r == 0)
        r = args_check(spec, &args);
    if (r == 0)
        *ret_args = args;
    return r;
}

int args_exit_code(int result)
{
    return result == ARGS_E_HELP ? EXIT_CODE_OK : EXIT_CODE_USAGE;
}
