// The entry of `lockbroker`: finds the subcommand and hands over.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/message.h"
#include "client/lib/lockbroker.h"
#include "proto/macros.h"

static const char main_help[] =
    "Usage: lockbroker COMMAND [OPTION]...\n"
    "\n"
    "  run KEY [OPTION]... -- CMD [ARG]...  run a command while holding the lock KEY\n"
    "  ping                                 ask the broker whether it and Redis are up\n"
    "  query KEY                            who holds KEY? exit 0: held, 1: free\n"
    "  list                                 the locks of this broker, with holders and waiters\n"
    "  stats                                the broker's figures\n"
    "  break KEY --reason TEXT              take a lock away from its holder\n"
    "\n"
    "  --help, --version                    and 'lockbroker COMMAND --help' for its options\n"
    "\n"
    "The broker's socket is $LOCKBROKER_SOCKET, or else /run/lockbroker.sock. See lockbroker(1).\n";

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
} main_commands[] = {
    {"run", run_main},   {"ping", ping_main},   {"query", query_main},
    {"list", list_main}, {"stats", stats_main}, {"break", break_main},
};

static int main_dispatch(int argc, char **argv)
{
    if (argc < 2) {
        message_print("a command is missing; see 'lockbroker --help'");
        return EXIT_CODE_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        (void)fputs(main_help, stdout);
        return EXIT_CODE_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("lockbroker %s\n", lb_version());
        return EXIT_CODE_OK;
    }
    for (size_t i = 0; i < LB_ARRAY_LENGTH(main_commands); i++) {
        if (strcmp(argv[1], main_commands[i].name) == 0)
            return main_commands[i].main(argc - 1, argv + 1);
    }
    message_print("there is no command '%s'; see 'lockbroker --help'", argv[1]);
    return EXIT_CODE_USAGE;
}

int main(int argc, char **argv)
{
    int code = main_dispatch(argc, argv);

    if (fflush(stdout) != 0 || ferror(stdout)) {
        message_print("cannot write to standard output: %s; make room, or write elsewhere",
                      strerror(errno));
        return code == EXIT_CODE_OK ? EXIT_CODE_INTERNAL : code;
    }
    return code;
}
