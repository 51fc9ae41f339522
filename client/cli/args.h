// The command line of a subcommand: long options, operands, and for `run` a command that follows.
#ifndef LB_CLI_ARGS_H
#define LB_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/macros.h"

#define ARGS_WAIT_FOREVER (-1)

enum arg_kind {
    ARG_FLAG,      // bool
    ARG_TEXT,      // const char *
    ARG_DURATION,  // int64_t, ms, at least 1
    ARG_WAIT,      // int64_t, ms, 0, or ARGS_WAIT_FOREVER for "forever"
    ARG_EXIT_CODE, // int, 0..255
};

struct arg {
    const char *name; // with its dashes
    enum arg_kind kind;
    void *target; // what it is put into; left alone when the option is not given
};

struct args_spec {
    const char *command;
    const char *help;
    const struct arg *args;
    size_t args_count;
    const char *operand; // what to call the one operand in messages; NULL when there is none
    bool takes_command;  // a second operand, or what follows `--`, is a command with its arguments
};

struct args {
    const char *operand;
    char **command; // NULL-terminated
};

#define ARGS_E_HELP 1 // the help was asked for, and is printed

// Returns 0, ARGS_E_HELP, or -EINVAL after a message that says what is wrong.
int args_parse(const struct args_spec *spec, int argc, char **argv,
               struct args *ret_args) LB_MUST_CHECK;

// The exit status for a result of args_parse() other than 0.
int args_exit_code(int result);

#endif
