// What the subcommands have in common in talking to the broker: connecting, asking, and turning
// every failure into one sentence and an exit status.
#include "client/cli/session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/duration.h"
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
    case LB_E_QUOTA:
        return "; try again later";
    case LB_E_CONFLICT:
        return "; use another key, or look at it with redis-cli TYPE";
    case LB_E_DENIED:
        return "; ask root, or the user that the broker runs as";
    default:
        return "";
    }
}

// The broker's own sentence covers every reason and operation at once; the reason says more.
static void session_report_unavailable(const struct client_refusal *refusal)
{
    const char *advice = "try again later, or see 'lockbroker stats'";
    char blocked[DURATION_BYTES_MAX + 64] = "";
    char time[DURATION_BYTES_MAX] = "some time";

    if (refusal->may_block_ms > 0) {
        duration_format_up(refusal->may_block_ms, time, sizeof(time));
        (void)snprintf(blocked, sizeof(blocked), "the lock may be blocked for up to %s; ", time);
    }
    if (refusal->retry_ms >= 0)
        duration_format_up(refusal->retry_ms, time, sizeof(time));
    if (strcmp(refusal->reason, "down") == 0)
        message_print("Redis cannot be reached; %s%s", blocked, advice);
    else if (strcmp(refusal->reason, "refused") == 0)
        message_print("Redis refuses (see the broker's log); %s%s", blocked, advice);
    else if (strcmp(refusal->reason, "quarantine") == 0)
        message_print("new locks wait for another %s: Redis has just started or lost its data (or, "
                      "with memory://, the broker crashed); %stry again then",
                      time, blocked);
    else
        message_print("%s; %s%s",
                      refusal->message[0] ? refusal->message : lb_error_text(LB_E_UNAVAILABLE),
                      blocked, advice);
}

void session_report_refusal(int result, const struct client_refusal *refusal)
{
    if (result == LB_E_UNAVAILABLE)
        session_report_unavailable(refusal);
    else
        message_print("%s%s", refusal->message[0] ? refusal->message : lb_error_text(result),
                      session_advice(result));
}

void session_report_failure(int result, const char *path)
{
    path = client_socket_path(path);
    if (result == -ETIMEDOUT)
        message_print("the broker at %s is there but does not answer; see its log", path);
    else if (result == -ENOTCONN)
        message_print("the broker at %s ended the connection; try again, or see its log", path);
    else if (result == -ENOTSOCK)
        message_print("%s is not a socket; name the broker's with --socket", path);
    else if (session_exit_code(result) == EXIT_CODE_UNAVAILABLE)
        message_print("no broker at %s: %s; start lockbrokerd, or name its socket with --socket",
                      path, lb_error_text(result));
    else if (session_exit_code(result) == EXIT_CODE_DENIED)
        message_print("%s: %s; ask for access to it", path, lb_error_text(result));
    else if (result == -ENAMETOOLONG)
        message_print("%s is too long a name for a socket; use a shorter path", path);
    else
        message_print("%s", lb_error_text(result));
}

int session_open(const char *path, const char *name, struct lb_client **ret_client)
{
    struct client_refusal refusal = {.retry_ms = -1};
    struct lb_connect_options options = {.size = sizeof(options),
                                         .client = name,
                                         .message = refusal.message,
                                         .message_size = sizeof(refusal.message)};
    int r = lb_connect(path, &options, ret_client);

    if (r > 0)
        session_report_refusal(r, &refusal);
    else if (r < 0)
        session_report_failure(r, path);
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
        session_report_refusal(r, &client->refusal);
    else if (r == -ETIMEDOUT)
        message_print("%s: the broker does not answer; see its log", op_name(request->op));
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
    if (key[0] == '\0')
        message_print("the key is empty; it has to have 1 to %d bytes", LB_KEY_BYTES_MAX);
    else if (strlen(key) > LB_KEY_BYTES_MAX)
        message_print("the key has %zu bytes; %d are the most", strlen(key), LB_KEY_BYTES_MAX);
    else
        message_print("the key '%s' is not UTF-8 without control characters", key);
    return EXIT_CODE_USAGE;
}
