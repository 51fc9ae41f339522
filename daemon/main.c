// The command line of lockbrokerd.
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/config.h"
#include "daemon/io/app.h"
#include "daemon/io/launch.h"

#define EXIT_USAGE 2

enum flag {
    FLAG_SOCKET = 1,
    FLAG_BACKEND,
    FLAG_CONFIG,
    FLAG_SET,
    FLAG_CHECK,
    FLAG_PRINT,
    FLAG_VERSION,
    FLAG_HELP,
};

enum task {
    TASK_RUN,
    TASK_CHECK,
    TASK_PRINT,
    TASK_VERSION,
    TASK_HELP,
    TASK_REFUSE
};

static const struct option options[] = {
    {"socket", required_argument, NULL, FLAG_SOCKET},
    {"backend", required_argument, NULL, FLAG_BACKEND},
    {"config", required_argument, NULL, FLAG_CONFIG},
    {"set", required_argument, NULL, FLAG_SET},
    {"check-config", no_argument, NULL, FLAG_CHECK},
    {"print-config", no_argument, NULL, FLAG_PRINT},
    {"version", no_argument, NULL, FLAG_VERSION},
    {"help", no_argument, NULL, FLAG_HELP},
    {NULL, 0, NULL, 0},
};

static void print_help(void)
{
    (void)printf("Usage: lockbrokerd [--socket PATH] [--backend URL] [--config FILE]\n"
                 "                   [--set key=value]... [--check-config | --print-config]\n"
                 "       lockbrokerd --version | --help\n\n"
                 "Holds Redis locks on behalf of local clients.\n\n"
                 "  --socket PATH     the Unix socket that clients connect to\n"
                 "  --backend URL     redis://[user[:password]@]host[:port][/db],\n"
                 "                    redis+unix:///path.sock[?db=N] or memory://\n"
                 "  --config FILE     read options from FILE (default " CONFIG_PATH_DEFAULT ",\n"
                 "                    if it exists)\n"
                 "  --set key=value   set one option; wins over the file\n"
                 "  --check-config    check the configuration and exit\n"
                 "  --print-config    print every option with the value in force and exit\n"
                 "  --version         print the version and exit\n"
                 "  --help            print this and exit\n\n"
                 "Options (a duration has the unit ms, s, m or h; without one it is ms):\n");
    config_print_help(stdout);
}

static enum task parse_flag(int flag, struct launch *launch, enum task task)
{
    switch (flag) {
    case FLAG_SOCKET:
        launch->socket = optarg;
        return task;
    case FLAG_BACKEND:
        launch->backend = optarg;
        return task;
    case FLAG_CONFIG:
        launch->config_path = optarg;
        return task;
    case FLAG_SET:
        launch->assignments[launch->assignments_count++] = optarg;
        return task;
    case FLAG_CHECK:
        return TASK_CHECK;
    case FLAG_PRINT:
        return TASK_PRINT;
    case FLAG_VERSION:
        return TASK_VERSION;
    case FLAG_HELP:
        return TASK_HELP;
    default: // getopt has said what is wrong
        return TASK_REFUSE;
    }
}

static enum task parse_arguments(int argc, char **argv, struct launch *launch)
{
    enum task task = TASK_RUN;
    int flag;

    while (task != TASK_REFUSE && (flag = getopt_long(argc, argv, "", options, NULL)) != -1)
        task = parse_flag(flag, launch, task);
    if (task != TASK_REFUSE && optind < argc) {
        (void)fprintf(stderr, "lockbrokerd: unexpected argument '%s'\n", argv[optind]);
        return TASK_REFUSE;
    }
    return task;
}

static int refuse_config(int r, const struct config_error *error)
{
    char text[CONFIG_MESSAGE_BYTES_MAX + 512];

    config_error_format(error, text, sizeof(text));
    (void)fprintf(stderr, "lockbrokerd: %s\n", text);
    return r == -ENOMEM ? 1 : EXIT_USAGE;
}

static int run_task(const struct launch *launch, enum task task)
{
    static struct config config;
    struct config_error error;
    int r = launch_config(launch, &config, &error);

    if (r < 0)
        return refuse_config(r, &error);
    if (task == TASK_PRINT) {
        config_print(stdout, &config);
        return 0;
    }
    r = launch_check(&config, &error);
    if (r < 0)
        return refuse_config(r, &error);
    if (task == TASK_CHECK)
        return 0;
    return app_run(launch, &config);
}

int main(int argc, char **argv)
{
    struct launch launch = {0};

    launch.assignments = calloc((size_t)argc, sizeof(*launch.assignments));
    if (!launch.assignments) {
        (void)fprintf(stderr, "lockbrokerd: out of memory\n");
        return 1;
    }

    enum task task = parse_arguments(argc, argv, &launch);
    int code = 0;

    if (task == TASK_HELP)
        print_help();
    else if (task == TASK_VERSION)
        (void)printf("lockbrokerd " LB_VERSION "\n");
    else if (task == TASK_REFUSE)
        (void)fprintf(stderr, "lockbrokerd: see lockbrokerd --help\n");
    else
        code = run_task(&launch, task);
    free(launch.assignments);
    return task == TASK_REFUSE ? EXIT_USAGE : code;
}
