// `lockbroker break KEY --reason TEXT`: takes a lock away from its holder.
#include <stdio.h>

#include "client/cli/args.h"
#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/holder.h"
#include "client/cli/message.h"
#include "client/cli/session.h"
#include "client/cli/text.h"

static const char break_help[] =
    "Usage: lockbroker break KEY --reason TEXT [--json] [--socket PATH]\n"
    "\n"
    "Takes the lock KEY away from whoever holds it. A client of this broker is told at once and\n"
    "has a short while to stop; any other holder is told nothing. Allowed to root and to the user\n"
    "that the broker runs as. Exit status 0: it was broken; 1: nobody held it.\n"
    "\n"
    "  --reason TEXT  why, for the broker's log; at most 256 bytes\n"
    "  --json         print the broker's answer as it is, one line of JSON\n"
    "  --socket PATH  the broker's socket (default: $LOCKBROKER_SOCKET, /run/lockbroker.sock)\n";

static int break_request(const char *key, const char *reason, struct request *ret_request)
{
    int code = session_request(OP_BREAK, key, ret_request);

    if (code != EXIT_CODE_OK)
        return code;
    if (!reason || reason[0] == '\0') {
        message_print("break needs a --reason TEXT, for the broker's log");
        return EXIT_CODE_USAGE;
    }
    ret_request->given |= REQUEST_F_REASON;
    if (client_set_text(ret_request->reason, sizeof(ret_request->reason), reason))
        return EXIT_CODE_OK;
    message_print("--reason takes at most %d bytes of UTF-8 without control characters",
                  LB_REASON_BYTES_MAX);
    return EXIT_CODE_USAGE;
}

static void break_print(const char *key, const struct reply *reply)
{
    char escaped[TEXT_ESCAPED_BYTES(LB_KEY_BYTES_MAX)];
    char holder[HOLDER_BYTES_MAX] = "nobody known";

    text_escape(key, escaped, sizeof(escaped));
    if (reply->holder)
        holder_describe_former(reply->holder, holder, sizeof(holder));
    if (reply->held)
        (void)printf("%s was taken away from %s\n", escaped, holder);
    else
        (void)printf("%s is free, nothing was broken\n", escaped);
}

static int break_ask(struct lb_client *client, const struct request *request, bool as_json)
{
    struct call *call;
    int code = session_ask(client, request, &call);

    if (code != EXIT_CODE_OK)
        return code;
    if (as_json)
        code = session_print_line(call);
    else
        break_print(request->key, &call->incoming->reply);
    if (code == EXIT_CODE_OK && !call->incoming->reply.held)
        code = EXIT_CODE_FREE;
    calls_free(&client->calls, call);
    return code;
}

int break_main(int argc, char **argv)
{
    const char *path = NULL;
    const char *reason = NULL;
    bool as_json = false;
    const struct arg table[] = {{"--json", ARG_FLAG, &as_json},
                                {"--socket", ARG_TEXT, &path},
                                {"--reason", ARG_TEXT, &reason}};
    const struct args_spec spec = {.command = "break",
                                   .help = break_help,
                                   .args = table,
                                   .args_count = LB_ARRAY_LENGTH(table),
                                   .operand = "key"};
    struct args args;
    struct request request;
    struct lb_client *client;
    int r = args_parse(&spec, argc, argv, &args);
    int code;

    if (r != 0)
        return args_exit_code(r);
    code = break_request(args.operand, reason, &request);
    if (code == EXIT_CODE_OK)
        code = session_open(path, "lockbroker break", &client);
    if (code != EXIT_CODE_OK)
        return code;
    code = break_ask(client, &request, as_json);
    lb_close(client);
    return code;
}
