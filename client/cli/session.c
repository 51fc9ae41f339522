// What the subcommands have in common in talking to the broker: connecting, asking, and turning
// every failure into one sentence and an exit status.
#include "client/cli/session.h"

#include <errno.h>
#include <stdio.h>

#include "client/cli/exit_code.h"
#include "client/cli/message.h"
#include "proto/request.h"

int session_exit_code(int result)
{
    if (result == 0)
        return EXIT_CODE_OK;
    switch (result) {
    case -EINVAL:
    case -ENAMETOOLONG:
    case LB_E_BAD_FIELD:
    case LB_E_TOO_LONG:
        return EXIT_CODE_USAGE;
    case LB_E_BUSY:
    case LB_E_TIMEOUT:
        return EXIT_CODE_BUSY;
    case LB_E_CONFLICT:
        return EXIT_CODE_CONFLICT;
    case -EACCES:
    case -EPERM:
    case LB_E_DENIED:
        return EXIT_CODE_DENIED;
    case LB_E_QUOTA:
    case LB_E_UNAVAILABLE:
    case LB_E_DRAINING:
        return EXIT_CODE_UNAVAILABLE;
    case -EPROTO:
    case -ENOMEM:
        return EXIT_CODE_INTERNAL;
    default:
        return result < 0 ? EXIT_CODE_UNAVAILABLE : EXIT_CODE_INTERNAL;
    }
}

static const char *session_advice(int result)
{
    switch (result) {
    case LB_E_UNAVAILABLE:
        return "; try again later, or see 'lockbroker stats'";
    case LB_E_QUOTA:
    case LB_E_DRAINING:
        return "; try again later";
    case LB_E_CONFLICT:
        return "; use another key, or look at it with redis-cli TYPE";
    case LB_E_DENIED:
        return "; ask root, or the user that the broker runs as";
    default:
        return "";
    }
}

void session_report(int result, const char *path, const char *message)
{
    if (result > 0)
        message_print("%s%s", message && message[0] ? message : lb_error_text(result),
                      session_advice(result));
    else if (session_exit_code(result) == EXIT_CODE_UNAVAILABLE)
        message_print("no answer from a broker at %s: %s; start lockbrokerd, or name its socket "
                      "with --socket",
                      client_socket_path(path), lb_error_text(result));
    else if (session_exit_code(result) == EXIT_CODE_DENIED)
        message_print("%s: %s; ask for access to it", client_socket_path(path),
                      lb_error_text(result));
    else if (result == -ENAMETOOLONG)
        message_print("%s is too long a name for a socket; use a shorter path",
                      client_socket_path(path));
    else
        message_print("%s", lb_error_text(result));
}

int session_open(const char *path, const char *name, struct lb_client **ret_client)
{
    struct lb_connect_options options = {.size = sizeof(options), .client = name};
    int r = lb_connect(path, &options, ret_client);

    if (r != 0)
        session_report(r, path, NULL);
    return session_exit_code(r);
}

int session_ask(struct lb_client *client, const struct request *request, struct call **ret_call)
{
    struct call *call = NULL;
    int r = client_request(client, request, 0, &call);

    if (r == 0) {
        *ret_call = call;
        return EXIT_CODE_OK;
    }
    calls_free(&client->calls, call);
    if (r > 0)
        session_report(r, NULL, lb_last_message(client));
    else
        message_print("%s: %s; try again", op_name(request->op), lb_error_text(r));
    return session_exit_code(r);
}

int session_out_of_memory(void)
{
    message_print("out of memory; free some and try again");
    return EXIT_CODE_INTERNAL;
}

int session_print_line(const struct call *call)
{
    if (!call->line)
        return session_out_of_memory();
    (void)puts(call->line);
    return EXIT_CODE_OK;
}

int session_request(enum op op, const char *key, struct request *ret_request)
{
    request_init(ret_request);
    ret_request->op = op;
    if (!key)
        return EXIT_CODE_OK;
    ret_request->given = REQUEST_F_KEY;
    if (key[0] != '\0' && client_set_text(ret_request->key, sizeof(ret_request->key), key))
        return EXIT_CODE_OK;
    message_print("a key is 1 to %d bytes of UTF-8 without control characters; '%.64s' is not",
                  LB_KEY_BYTES_MAX, key);
    return EXIT_CODE_USAGE;
}
