// `lockbroker query KEY`: who holds it?
#include <inttypes.h>
#include <stdio.h>

#include "client/cli/args.h"
#include "client/cli/command.h"
#include "client/cli/duration.h"
#include "client/cli/exit_code.h"
#include "client/cli/message.h"
#include "client/cli/session.h"
#include "client/cli/table.h"

static const char query_help[] =
    "Usage: lockbroker query KEY [--json] [--socket PATH]\n"
    "\n"
    "Asks Redis who holds the lock KEY. Exit status 0: it is held; 1: it is free.\n"
    "\n"
    "  --json         print the broker's answer as it is, one line of JSON\n"
    "  --socket PATH  the broker's socket (default: $LOCKBROKER_SOCKET, /run/lockbroker.sock)\n";

static int query_add_text(struct table *table, const char *name, const char *value)
{
    int r = 0;

    if (!value || value[0] == '\0')
        return 0;
    r = table_add(table, name);
    return r == 0 ? table_add(table, value) : r;
}

static int query_add_number(struct table *table, const char *name, int64_t value)
{
    char text[32];

    if (value == LB_NONE)
        return 0;
    (void)snprintf(text, sizeof(text), "%" PRId64, value);
    return query_add_text(table, name, text);
}

static int query_add_duration(struct table *table, const char *name, int64_t ms)
{
    char text[DURATION_BYTES_MAX];

    if (ms == LB_NONE)
        return 0;
    duration_format(ms, text, sizeof(text));
    return query_add_text(table, name, text);
}

static int query_add_holder(struct table *table, const struct holder *holder)
{
    static const char *const kinds[] = {
        [HOLDER_NONE] = "nobody known",
        [HOLDER_LOCAL] = "a client of this broker",
        [HOLDER_BROKER] = "another lockbroker",
        [HOLDER_FOREIGN] = "a program that does not use the broker",
    };
    int r = query_add_text(table, "held by", kinds[holder->kind]);

    if (r == 0)
        r = query_add_text(table, "host", holder->host);
    if (r == 0)
        r = query_add_number(table, "pid", holder->pid);
    if (r == 0)
        r = query_add_number(table, "uid", holder->uid);
    if (r == 0)
        r = query_add_text(table, "client", holder->client);
    if (r == 0)
        r = query_add_text(table, "note", holder->note);
    if (r == 0)
        r = query_add_number(table, "fence", holder->fence);
    if (r == 0)
        r = query_add_duration(table, "held for", holder->held_ms);
    if (r == 0 && holder->without_expiry)
        r = query_add_text(table, "expires", "never");
    if (r == 0)
        r = query_add_duration(table, "expires in", holder->ttl_left_ms);
    return r;
}

static int query_print(const char *key, const struct reply *reply)
{
    struct table table;
    int r;

    table_init(&table, 2);
    r = query_add_text(&table, "key", key);
    if (r == 0)
        r = query_add_text(&table, "state", reply->held ? "held" : "free");
    if (r == 0 && reply->holder)
        r = query_add_holder(&table, reply->holder);
    if (r == 0)
        r = query_add_number(&table, "waiters on this host", reply->waiters);
    if (r == 0)
        table_print(&table);
    table_deinit(&table);
    return r == 0 ? EXIT_CODE_OK : session_out_of_memory();
}

static int query_ask(struct lb_client *client, const char *key, bool as_json)
{
    struct request request;
    struct call *call;
    int code = session_request(OP_QUERY, key, &request);

    if (code == EXIT_CODE_OK)
        code = session_ask(client, &request, &call);
    if (code != EXIT_CODE_OK)
        return code;
    if (as_json)
        code = session_print_line(call);
    else
        code = query_print(key, &call->incoming->reply);
    if (code == EXIT_CODE_OK && !call->incoming->reply.held)
        code = EXIT_CODE_FREE;
    calls_free(&client->calls, call);
    return code;
}

int query_main(int argc, char **argv)
{
    const char *path = NULL;
    bool as_json = false;
    const struct arg table[] = {{"--json", ARG_FLAG, &as_json}, {"--socket", ARG_TEXT, &path}};
    const struct args_spec spec = {.command = "query",
                                   .help = query_help,
                                   .args = table,
                                   .args_count = LB_ARRAY_LENGTH(table),
                                   .operand = "key"};
    struct args args;
    struct lb_client *client;
    int r = args_parse(&spec, argc, argv, &args);
    int code;

    if (r != 0)
        return args_exit_code(r);
    code = session_open(path, "lockbroker query", &client);
    if (code != EXIT_CODE_OK)
        return code;
    code = query_ask(client, args.operand, as_json);
    lb_close(client);
    return code;
}
