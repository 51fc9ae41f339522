// `lockbroker ping`: is the broker there, and does it reach Redis?
#include <string.h>
#include <stdio.h>

#include "client/cli/args.h"
#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/session.h"

static const char ping_help[] =
    "Usage: lockbroker ping [--json] [--socket PATH]\n"
    "\n"
    "Asks the broker for a sign of life. Exit status 0: the broker and Redis are up; 69: one of\n"
    "them is not.\n"
    "\n"
    "  --json         print the broker's answer as it is, one line of JSON\n"
    "  --socket PATH  the broker's socket (default: $LOCKBROKER_SOCKET, /run/lockbroker.sock)\n";

static int ping_ask(struct lb_client *client, bool as_json)
{
    struct request request;
    struct call *call;
    const char *backend;
    int code = session_request(OP_PING, NULL, &request);

    if (code == EXIT_CODE_OK)
        code = session_ask(client, &request, &call);
    if (code != EXIT_CODE_OK)
        return code;
    backend = call->incoming->reply.backend ? call->incoming->reply.backend : "unknown";
    if (as_json)
        code = session_print_line(call);
    else
        (void)printf("broker up, backend %s\n", backend);
    if (code == EXIT_CODE_OK && strcmp(backend, "up") != 0)
        code = EXIT_CODE_UNAVAILABLE;
    calls_free(&client->calls, call);
    return code;
}

int ping_main(int argc, char **argv)
{
    const char *path = NULL;
    bool as_json = false;
    const struct arg table[] = {{"--json", ARG_FLAG, &as_json}, {"--socket", ARG_TEXT, &path}};
    const struct args_spec spec = {
        .command = "ping", .help = ping_help, .args = table, .args_count = LB_ARRAY_LENGTH(table)};
    struct args args;
    struct lb_client *client;
    int r = args_parse(&spec, argc, argv, &args);
    int code;

    if (r != 0)
        return args_exit_code(r);
    code = session_open(path, "lockbroker ping", &client);
    if (code != EXIT_CODE_OK)
        return code;
    code = ping_ask(client, as_json);
    lb_close(client);
    return code;
}
