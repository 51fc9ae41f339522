// `lockbroker stats`: the broker's figures.
#include <inttypes.h>
#include <stdio.h>

#include "client/cli/args.h"
#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/message.h"
#include "client/cli/session.h"
#include "client/cli/table.h"

static const char stats_help[] =
    "Usage: lockbroker stats [--json] [--socket PATH]\n"
    "\n"
    "Shows the broker's counters, gauges and histograms, and its link to Redis.\n"
    "\n"
    "  --json         print the broker's answer as it is, one line of JSON\n"
    "  --socket PATH  the broker's socket (default: $LOCKBROKER_SOCKET, /run/lockbroker.sock)\n";

#define STATS_TEXT_BYTES_MAX 256

static int stats_add(struct table *table, const char *name, const char *value)
{
    int r = table_add(table, name);

    return r == 0 ? table_add(table, value && value[0] ? value : "-") : r;
}

static int stats_add_values(struct table *table, const struct stat_value *values, size_t count)
{
    char text[32];
    int r = 0;

    for (size_t i = 0; i < count && r == 0; i++) {
        (void)snprintf(text, sizeof(text), "%" PRId64, values[i].value);
        r = stats_add(table, values[i].name, text);
    }
    return r;
}

// One line a histogram: how many, their mean, and the bound below which nine of ten lie.
static int stats_add_histogram(struct table *table, const struct stat_histogram *histogram)
{
    char text[STATS_TEXT_BYTES_MAX];
    int64_t count = 0;
    int64_t seen = 0;
    size_t i;

    for (i = 0; i <= histogram->bounds_count; i++)
        count += histogram->counts[i];
    if (count <= 0)
        return stats_add(table, histogram->name, "none");
    for (i = 0; i < histogram->bounds_count; i++) {
        seen += histogram->counts[i];
        if (seen >= count - count / 10)
            break;
    }
    if (i < histogram->bounds_count)
        (void)snprintf(text, sizeof(text), "%" PRId64 ", mean %" PRId64 ", 90%% within %" PRId64,
                       count, histogram->sum / count, histogram->bounds[i]);
    else
        (void)snprintf(text, sizeof(text), "%" PRId64 ", mean %" PRId64, count,
                       histogram->sum / count);
    return stats_add(table, histogram->name, text);
}

static int stats_add_backend(struct table *table, const struct stats_page *stats)
{
    int r = stats_add(table, "backend", stats->backend_kind);

    if (r == 0)
        r = stats_add(table, "backend state", stats->backend_state);
    if (r == 0 && stats->backend_role)
        r = stats_add(table, "backend role", stats->backend_role);
    if (r == 0 && stats->backend_version)
        r = stats_add(table, "backend version", stats->backend_version);
    if (r == 0 && stats->backend_policy)
        r = stats_add(table, "backend policy", stats->backend_policy);
    if (r == 0 && stats->backend_may_evict)
        r = stats_add(table, "warning", "this policy may evict a lock: set noeviction");
    return r;
}

static int stats_print(const struct stats_page *stats)
{
    struct table table;
    int r;

    table_init(&table, 2);
    r = stats_add_backend(&table, stats);
    if (r == 0)
        r = stats_add_values(&table, stats->gauges, stats->gauges_count);
    if (r == 0)
        r = stats_add_values(&table, stats->counters, stats->counters_count);
    for (size_t i = 0; i < stats->histograms_count && r == 0; i++)
        r = stats_add_histogram(&table, &stats->histograms[i]);
    if (r == 0)
        table_print(&table);
    table_deinit(&table);
    return r == 0 ? EXIT_CODE_OK : session_out_of_memory();
}

static int stats_ask(struct lb_client *client, bool as_json)
{
    struct request request;
    struct call *call;
    int code = session_request(OP_STATS, NULL, &request);

    if (code == EXIT_CODE_OK)
        code = session_ask(client, &request, &call);
    if (code != EXIT_CODE_OK)
        return code;
    if (as_json) {
        code = session_print_line(call);
    } else if (call->incoming->reply.stats) {
        code = stats_print(call->incoming->reply.stats);
    } else {
        message_print("the broker's answer has no figures; its version may not fit this tool's");
        code = EXIT_CODE_INTERNAL;
    }
    calls_free(&client->calls, call);
    return code;
}

int stats_main(int argc, char **argv)
{
    const char *path = NULL;
    bool as_json = false;
    const struct arg table[] = {{"--json", ARG_FLAG, &as_json}, {"--socket", ARG_TEXT, &path}};
    const struct args_spec spec = {.command = "stats",
                                   .help = stats_help,
                                   .args = table,
                                   .args_count = LB_ARRAY_LENGTH(table)};
    struct args args;
    struct lb_client *client;
    int r = args_parse(&spec, argc, argv, &args);
    int code;

    if (r != 0)
        return args_exit_code(r);
    code = session_open(path, "lockbroker stats", &client);
    if (code != EXIT_CODE_OK)
        return code;
    code = stats_ask(client, as_json);
    lb_close(client);
    return code;
}
