// Telling operators. No line and no figure holds a token or a password: the core knows neither.
#include "daemon/io/report.h"

#include <string.h>

#include "daemon/base/log.h"

#define REPORT_COUNTERS_MAX 64
#define REPORT_GAUGES_MAX   16

void report_fact(const struct fact *fact, const struct conn *conn)
{
    static const enum log_level levels[] = {
        [FACT_WARNING] = LOG_LEVEL_WARNING,
        [FACT_NOTICE] = LOG_LEVEL_NOTICE,
        [FACT_INFO] = LOG_LEVEL_INFO,
        [FACT_DEBUG] = LOG_LEVEL_DEBUG,
    };
    struct log_line line;

    log_begin(&line, levels[fact->level], fact->event);
    log_text(&line, "key", fact->key);
    log_text(&line, "owner", fact->owner);
    log_number(&line, "fence", fact->fence);
    log_text(&line, "reason", fact->reason);
    log_text(&line, "status", fact->status);
    log_number(&line, "ms", fact->ms);
    log_number(&line, "count", fact->count);
    if (conn) {
        log_number(&line, "session", (int64_t)conn->id);
        log_number(&line, "pid", conn->peer.pid);
        log_number(&line, "uid", conn->peer.uid);
    }
    log_end(&line);
}

// Values of ours behind those of the core.
struct figures {
    struct stat_value *values;
    size_t count;
    size_t most;
};

static void add(struct figures *figures, const char *name, int64_t value)
{
    lb_assert(figures->count < figures->most);
    figures->values[figures->count++] = (struct stat_value){name, value};
}

static void add_all(struct figures *figures, const struct stat_value *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        add(figures, values[i].name, values[i].value);
}

static void add_link(struct figures *figures, const struct uplink *uplink)
{
    struct uplink_figures link;

    if (!uplink)
        return;
    uplink_get_figures(uplink, &link);
    add(figures, "redis_connects", link.connects);
    add(figures, "redis_connect_failures", link.connect_failures);
    add(figures, "redis_commands", link.commands);
    add(figures, "redis_renewal_calls", link.renewal_calls);
    add(figures, "redis_command_timeouts", link.command_timeouts);
    add(figures, "redis_refused", link.refused);
    add(figures, "redis_late_outcomes", link.late_outcomes);
}

static void add_channel(struct figures *figures, const struct channel *channel)
{
    struct channel_figures heard;

    if (!channel)
        return;
    channel_get_figures(channel, &heard);
    add(figures, "redis_channel_connects", heard.connects);
    add(figures, "redis_channel_connect_failures", heard.connect_failures);
    add(figures, "redis_channel_messages", heard.messages);
    add(figures, "redis_channel_pings_unanswered", heard.pings_unanswered);
}

void report_stats(struct pump *pump, struct conn *conn, struct reply *reply)
{
    struct stat_value counters[REPORT_COUNTERS_MAX];
    struct stat_value gauges[REPORT_GAUGES_MAX];
    struct figures counter_figures = {counters, 0, REPORT_COUNTERS_MAX};
    struct figures gauge_figures = {gauges, 0, REPORT_GAUGES_MAX};
    struct stats_page page = *reply->stats;

    add_all(&counter_figures, page.counters, page.counters_count);
    add(&counter_figures, "connections_opened", pump->conns->opened_total);
    add(&counter_figures, "connections_refused", pump->conns->refused);
    add(&counter_figures, "output_overflows", pump->conns->overflows);
    add(&counter_figures, "late_effects", pump->late_effects);
    add(&counter_figures, "late_turns", pump->lateness.count);
    add(&counter_figures, "log_lines_dropped", log_dropped());
    add_link(&counter_figures, pump->uplink);
    add_channel(&counter_figures, pump->channel);
    add_all(&gauge_figures, page.gauges, page.gauges_count);
    add(&gauge_figures, "connections", pump->conns->count);
    add(&gauge_figures, "late_max_ms", pump->lateness.most_ms);
    page.counters = counters;
    page.counters_count = counter_figures.count;
    page.gauges = gauges;
    page.gauges_count = gauge_figures.count;
    reply->stats = &page;
    conn_reply(conn, reply);
}
