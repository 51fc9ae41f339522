// `lockbroker list`: the locks that clients of this host's broker hold or wait for.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/args.h"
#include "client/cli/command.h"
#include "client/cli/duration.h"
#include "client/cli/exit_code.h"
#include "client/cli/message.h"
#include "client/cli/session.h"
#include "client/cli/table.h"

static const char list_help[] =
    "Usage: lockbroker list [--prefix TEXT] [--json] [--socket PATH]\n"
    "\n"
    "Shows the locks of this broker: those that its clients hold or wait for, with their holder "
    "and\n"
    "the number of waiters. Locks of other hosts are not among them; see 'lockbroker query'.\n"
    "\n"
    "  --prefix TEXT  only keys that begin with TEXT\n"
    "  --json         print the broker's answers as they are: one line of JSON for each page\n"
    "  --socket PATH  the broker's socket (default: $LOCKBROKER_SOCKET, /run/lockbroker.sock)\n";

#define LIST_COLUMNS 8

static int list_add_cells(struct table *table, const char *const cells[LIST_COLUMNS])
{
    int r = 0;

    for (size_t i = 0; i < LIST_COLUMNS && r == 0; i++)
        r = table_add(table, cells[i] && cells[i][0] ? cells[i] : "-");
    return r;
}

static int list_add_heading(struct table *table)
{
    static const char *const heading[LIST_COLUMNS] = {"KEY", "STATE", "HELD",   "WAITERS",
                                                      "PID", "UID",   "CLIENT", "NOTE"};

    return list_add_cells(table, heading);
}

static void list_format(int64_t number, char *target, size_t size)
{
    (void)snprintf(target, size, "%" PRId64, number);
    if (number == LB_NONE)
        target[0] = '\0';
}

static int list_add_row(struct table *table, const struct lock_row *row)
{
    char held[DURATION_BYTES_MAX] = "";
    char waiters[32];
    char pid[32];
    char uid[32];
    const char *const cells[LIST_COLUMNS] = {
        row->key, row->state, held, waiters, pid, uid, row->holder.client, row->holder.note};

    if (row->holder.held_ms != LB_NONE)
        duration_format(row->holder.held_ms, held, sizeof(held));
    list_format(row->waiters, waiters, sizeof(waiters));
    list_format(row->holder.pid, pid, sizeof(pid));
    list_format(row->holder.uid, uid, sizeof(uid));
    return list_add_cells(table, cells);
}

// Takes one page. Sets `request` up for the next one, and *ret_more to whether there is any.
static int list_take_page(const struct call *call, bool as_json, struct table *table,
                          struct request *request, bool *ret_more)
{
    const struct reply *reply = &call->incoming->reply;
    const char *last = reply->rows_count > 0 ? reply->rows[reply->rows_count - 1].key : NULL;

    *ret_more = reply->more;
    if (*ret_more) {
        // A page that does not lead on would be asked for without end.
        if (!last || strcmp(last, request->after) == 0 ||
            !client_set_text(request->after, sizeof(request->after), last)) {
            message_print("the broker's list does not go on after its last page; report it");
            return EXIT_CODE_INTERNAL;
        }
        request->given |= REQUEST_F_AFTER;
    }
    if (as_json)
        return session_print_line(call);
    for (size_t i = 0; i < reply->rows_count; i++) {
        if (list_add_row(table, &reply->rows[i]) != 0)
            return session_out_of_memory();
    }
    return EXIT_CODE_OK;
}

static int list_ask(struct lb_client *client, struct request *request, bool as_json)
{
    int code = EXIT_CODE_OK;
    struct table table;
    struct call *call;
    bool more = true;

    table_init(&table, LIST_COLUMNS);
    if (list_add_heading(&table) != 0)
        code = session_out_of_memory();
    while (more && code == EXIT_CODE_OK) {
        code = session_ask(client, request, &call);
        if (code != EXIT_CODE_OK)
            break;
        code = list_take_page(call, as_json, &table, request, &more);
        calls_free(&client->calls, call);
    }
    if (code == EXIT_CODE_OK && !as_json)
        table_print(&table);
    table_deinit(&table);
    return code;
}

static int list_request(const char *prefix, struct request *ret_request)
{
    int code = session_request(OP_LIST, NULL, ret_request);

    if (code != EXIT_CODE_OK)
        return code;
    ret_request->given |= REQUEST_F_LIMIT;
    ret_request->limit = LB_LIST_LIMIT_MAX;
    if (!prefix)
        return EXIT_CODE_OK;
    ret_request->given |= REQUEST_F_PREFIX;
    if (client_set_text(ret_request->prefix, sizeof(ret_request->prefix), prefix))
        return EXIT_CODE_OK;
    message_print("--prefix takes at most %d bytes of UTF-8 without control characters",
                  LB_KEY_BYTES_MAX);
    return EXIT_CODE_USAGE;
}

int list_main(int argc, char **argv)
{
    const char *path = NULL;
    const char *prefix = NULL;
    bool as_json = false;
    const struct arg table[] = {{"--json", ARG_FLAG, &as_json},
                                {"--socket", ARG_TEXT, &path},
                                {"--prefix", ARG_TEXT, &prefix}};
    const struct args_spec spec = {
        .command = "list", .help = list_help, .args = table, .args_count = LB_ARRAY_LENGTH(table)};
    struct args args;
    struct request request;
    struct lb_client *client;
    int r = args_parse(&spec, argc, argv, &args);
    int code;

    if (r != 0)
        return args_exit_code(r);
    code = list_request(prefix, &request);
    if (code == EXIT_CODE_OK)
        code = session_open(path, "lockbroker list", &client);
    if (code != EXIT_CODE_OK)
        return code;
    code = list_ask(client, &request, as_json);
    lb_close(client);
    return code;
}
