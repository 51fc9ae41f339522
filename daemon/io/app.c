// Build-up, signals, drain and tear-down. Whatever a signal starts goes through the pump like any
// other event.
#include "daemon/io/app.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/io/hearing.h"
#include "daemon/io/identity.h"
#include "daemon/io/listener.h"
#include "daemon/io/loop.h"
#include "daemon/io/notify.h"
#include "daemon/io/pump.h"

#define APP_SERVER_NAME "lockbrokerd " LB_VERSION

// Descriptors for everything but clients: standard streams, epoll, timers, Redis, log, spares.
#define DESCRIPTORS_RESERVED 64

// Turns of the loop in which closed handles are gone: one for each layer of them, and to spare.
#define CLOSING_TURNS 4

static const int signal_numbers[] = {SIGTERM, SIGINT, SIGHUP};

struct app {
    const struct launch *launch;
    struct config config;
    struct identity identity;
    uv_loop_t loop;
    struct broker *broker;
    struct pump pump;
    struct conn_table conns;
    struct listener listener;
    struct uplink *uplink;
    struct channel *channel; // with the uplink, never without it
    bool is_channel_open;
    struct hearing hearing;
    struct memory_backend *memory;
    uv_signal_t signals[LB_ARRAY_LENGTH(signal_numbers)];
    uv_timer_t drain_timer;
    uv_timer_t watchdog_timer;
    struct notifier notifier;
    bool draining;
    bool stopping;
    bool backend_up;
};

static int64_t wall_us(void *context)
{
    struct timespec now;

    (void)context;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t boottime_ms(void *context)
{
    (void)context;
    return clock_now_ms();
}

// The channel begins after the uplink: the first look-up of a name must be the only one (loop.c),
// and without an uplink there is nothing to hear.
static void app_lead_channel(struct app *app, const struct event *event)
{
    if (event->kind == EVENT_BACKEND_UP) {
        channel_follow(app->channel, event->facts.run_id);
        if (!app->is_channel_open)
            channel_open(app->channel);
        app->is_channel_open = true;
    } else if (event->kind == EVENT_BACKEND_DOWN) {
        channel_follow(app->channel, NULL);
    }
}

// The pump's post, with an ear for the backend's state. The link itself logs its changes.
static void app_post(void *context, const struct event *event)
{
    struct app *app = context;

    if (event->kind == EVENT_BACKEND_UP || event->kind == EVENT_BACKEND_DOWN)
        app->backend_up = event->kind == EVENT_BACKEND_UP;
    pump_post(&app->pump, event);
    if (app->channel)
        app_lead_channel(app, event);
}

static struct broker_config broker_config_of(const struct app *app)
{
    const struct config *config = &app->config;

    return (struct broker_config){
        .ttl_max_ms = config->ttl_max_ms,
        .max_wait_ms = config->max_wait_ms,
        .retry_max_ms = config->retry_max_ms,
        .requests_max = config->requests_max,
        .waits_after_loss = !app->memory && config->data_loss == CONFIG_LOSS_QUARANTINE,
        .own_uid = geteuid(),
        .fence_block = config->fence_block,
        .handoff_grants_max = config->handoff_grants_max,
        .handoff_time_max_ms = config->handoff_time_max_ms,
        .yield_after_ms = app->memory ? 0 : config->yield_after_ms, // nobody else is there
        .linger_ms = config->linger_ms,
        .busy_cache_ms = config->busy_cache_ms,
        .waiters_key_max = config->waiters_key_max,
        .waiters_client_max = config->waiters_client_max,
        .slow_wait_ms = config->slow_wait_ms,
        .slow_hold_ms = config->slow_hold_ms,
        .server = APP_SERVER_NAME,
        .instance = app->identity.public_instance,
        .host = app->identity.host,
        .backend_kind = app->memory ? "memory" : "redis",
    };
}

// Raises the limit of descriptors as far as allowed, and lowers connections_max to what fits: a
// daemon without descriptors could not reconnect to Redis.
static int64_t connections_that_fit(int64_t wanted)
{
    struct rlimit limit;
    int64_t fit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return wanted;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    fit =
        limit.rlim_cur > DESCRIPTORS_RESERVED ? (int64_t)limit.rlim_cur - DESCRIPTORS_RESERVED : 1;
    if (limit.rlim_cur == RLIM_INFINITY || wanted <= fit)
        return wanted;
    log_message(LOG_LEVEL_WARNING, "connections_lowered",
                "connections_max is lowered to %lld, which is what the descriptor limit allows",
                (long long)fit);
    return fit;
}

static void app_apply_config(struct app *app)
{
    app->conns.limits = (struct conn_limits){
        .connections_max = connections_that_fit(app->config.connections_max),
        .output_max_bytes = app->config.output_max_bytes,
        .idle_timeout_ms = app->config.idle_timeout_ms,
        .line_timeout_ms = app->config.line_timeout_ms,
    };
    log_set_level((enum log_level)app->config.log_level);
    if (app->config.data_loss == CONFIG_LOSS_IGNORE)
        log_message(LOG_LEVEL_WARNING, "data_loss_ignored",
                    "data_loss = ignore: when Redis loses data, one lock may have two holders");
}

static void log_needs_restart(void *context, const char *option)
{
    (void)context;
    log_message(LOG_LEVEL_WARNING, "reload_ignored", "%s can only be changed by a restart", option);
}

// All or nothing: with any error the old configuration stays in force whole.
static void app_reload(struct app *app)
{
    struct config config;
    struct config_error error;

    notify_reloading(&app->notifier);
    if (launch_config(app->launch, &config, &error) < 0) {
        char text[CONFIG_MESSAGE_BYTES_MAX + 512];

        config_error_format(&error, text, sizeof(text));
        log_message(LOG_LEVEL_ERROR, "reload_failed", "%s; the old configuration stays", text);
    } else {
        (void)config_diff_needs_restart(&app->config, &config, log_needs_restart, NULL);
        config_apply_reloadable(&app->config, &config);
        app_apply_config(app);

        struct broker_config broker_config = broker_config_of(app);
        struct event event = {.kind = EVENT_CONFIGURE, .config = &broker_config};

        if (pump_submit(&app->pump, &event))
            log_message(LOG_LEVEL_NOTICE, "reload", "the configuration is in force");
        else
            log_message(LOG_LEVEL_ERROR, "reload_failed", "out of memory: reload again");
    }
    notify_ready(&app->notifier);
}

// Holds back the signals that are handled here: at the start until they can be handled, so that the
// socket is never left behind, and for good at the end, when a second one must not kill the daemon.
static void signals_mask(int how)
{
    sigset_t set;

    (void)sigemptyset(&set);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(signal_numbers); i++)
        (void)sigaddset(&set, signal_numbers[i]);
    (void)sigprocmask(how, &set, NULL);
}

static void app_close_handles(struct app *app)
{
    signals_mask(SIG_BLOCK);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(app->signals); i++)
        uv_close((uv_handle_t *)&app->signals[i], NULL);
    uv_close((uv_handle_t *)&app->drain_timer, NULL);
    uv_close((uv_handle_t *)&app->watchdog_timer, NULL);
    listener_stop(&app->listener);
    conn_table_close(&app->conns);
    if (app->uplink) {
        uplink_flush(app->uplink);
        uplink_close(app->uplink);
        channel_close(app->channel);
    }
    app->uplink = NULL;
    app->pump.uplink = NULL;
    app->channel = NULL;
    app->pump.channel = NULL;
    pump_close(&app->pump);
    notifier_close(&app->notifier);
}

static void app_stop(struct app *app)
{
    lb_assert(!app->stopping);
    app->stopping = true;
    log_message(LOG_LEVEL_NOTICE, "stop", "the broker ends");
    app_close_handles(app);
    uv_stop(&app->loop);
}

static void on_drain_timeout(uv_timer_t *timer)
{
    struct app *app = timer->data;

    struct log_line line;

    log_begin(&line, LOG_LEVEL_WARNING, "drain_incomplete");
    log_number(&line, "count", (int64_t)broker_kept_count(app->broker));
    log_text(&line, "message", "these locks are left to expire");
    log_end(&line);
    app_stop(app);
}

static void app_drain(struct app *app)
{
    struct event event = {.kind = EVENT_DRAIN};

    if (app->draining)
        return;
    app->draining = true;
    notify_stopping(&app->notifier);
    log_message(LOG_LEVEL_NOTICE, "drain", "no new locks; holders are told");
    (void)uv_timer_start(&app->drain_timer, on_drain_timeout,
                         (uint64_t)app->config.drain_timeout_ms, 0);
    pump_post(&app->pump, &event);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct app *app = signal->data;

    if (number == SIGHUP)
        app_reload(app);
    else
        app_drain(app);
}

static void app_after_turn(void *context)
{
    struct app *app = context;
    size_t owed = broker_kept_count(app->broker);

    lb_assert(!app->stopping);
    if (app->uplink) {
        uplink_set_urgent(app->uplink, owed > 0);
        hearing_retry(&app->hearing);
    }
    notify_status(&app->notifier, app->backend_up, owed);
    if (app->draining && broker_is_drained(app->broker))
        app_stop(app);
}

// Fed from a turn of the loop, after a sweep: a loop that hangs, or sweeps no more, is killed.
static void on_watchdog(uv_timer_t *timer)
{
    struct app *app = timer->data;

    pump_run(&app->pump);
    notify_watchdog(&app->notifier);
}

static int app_init_signals(struct app *app)
{
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(signal_numbers); i++) {
        (void)uv_signal_init(&app->loop, &app->signals[i]);
        app->signals[i].data = app;

        int r = uv_signal_start(&app->signals[i], on_signal, signal_numbers[i]);

        if (r < 0)
            return r;
    }
    return 0;
}

static int app_init_timers(struct app *app)
{
    uint64_t watchdog_ms = notify_watchdog_ms();

    app->drain_timer.data = app;
    app->watchdog_timer.data = app;
    (void)uv_timer_init(&app->loop, &app->drain_timer);
    (void)uv_timer_init(&app->loop, &app->watchdog_timer);
    if (!watchdog_ms)
        return 0;
    return uv_timer_start(&app->watchdog_timer, on_watchdog, watchdog_ms, watchdog_ms);
}

static int open_memory(struct app *app)
{
    char state_path[sizeof(app->config.socket) + 16];
    int64_t blocked_until_ms = 0;
    struct memory_backend_options options = {
        .state_path = state_path,
        .ttl_max_ms = app->config.ttl_max_ms,
        .now_ms = boottime_ms,
        .wall_us = wall_us,
        .post = app_post,
        .context = app,
    };

    (void)snprintf(state_path, sizeof(state_path), "%s.memory", app->config.socket);

    int r = memory_backend_new(&options, &blocked_until_ms, &app->memory);

    if (r < 0) {
        log_message(LOG_LEVEL_ERROR, "start_failed", "%s, where memory:// keeps its time: %s",
                    state_path, strerror(-r));
        return r;
    }
    log_message(LOG_LEVEL_NOTICE, "memory_backend",
                "locks are kept in this process: they exclude clients of this socket only, no "
                "other host, and there is no Redis");
    if (blocked_until_ms > clock_now_ms())
        log_message(LOG_LEVEL_WARNING, "memory_quarantine",
                    "a crashed broker's grants may last for another %lld ms: none is made before",
                    (long long)(blocked_until_ms - clock_now_ms()));
    return 0;
}

static const char *text_or_null(const char *text)
{
    return *text ? text : NULL;
}

static struct redis_address address_of(const struct backend_url *url)
{
    return (struct redis_address){
        .host = text_or_null(url->host),
        .port = url->port,
        .path = text_or_null(url->path),
        .user = text_or_null(url->user),
        .password = text_or_null(url->password),
        .database = url->database,
    };
}

static int open_channel(struct app *app, const struct backend_url *url)
{
    struct channel_options options = {
        .address = address_of(url),
        .prefix = app->config.prefix,
        .host = app->identity.host,
        .instance = app->identity.secret_instance,
        .connect_timeout_ms = app->config.connect_timeout_ms,
        .quiet_ms = CHANNEL_QUIET_MS,
        .answer_ms = CHANNEL_ANSWER_MS,
        .seed = app->identity.seed + 1, // not in step with the uplink
        .post = hearing_take,
        .context = &app->hearing,
    };

    return channel_new(&app->loop, &options, &app->channel);
}

static int open_redis(struct app *app, const struct backend_url *url)
{
    struct uplink_options options = {
        .address = address_of(url),
        .prefix = app->config.prefix,
        .host = app->identity.host,
        .instance = app->identity.secret_instance,
        .connect_timeout_ms = app->config.connect_timeout_ms,
        .seed = app->identity.seed,
        .post = app_post,
        .context = app,
    };

    int r = uplink_new(&app->loop, &options, &app->uplink);

    if (r == 0)
        r = open_channel(app, url);
    if (r < 0 || !url->host[0])
        return r;
    r = loop_start_threads(&app->loop);
    if (r < 0)
        log_message(LOG_LEVEL_ERROR, "start_failed", "no threads to look up %s with: %s", url->host,
                    strerror(-r));
    return r;
}

static int app_open_backend(struct app *app)
{
    struct backend_url url;
    struct config_error error;
    int r = config_read_backend(&app->config, &url, &error);

    if (r < 0) {
        char text[CONFIG_MESSAGE_BYTES_MAX + 512];

        config_error_format(&error, text, sizeof(text));
        log_message(LOG_LEVEL_ERROR, "start_failed", "%s", text);
        return r;
    }
    r = url.kind == BACKEND_KIND_MEMORY ? open_memory(app) : open_redis(app, &url);
    explicit_bzero(&url, sizeof(url));
    return r;
}

static int app_build(struct app *app)
{
    int r = app_open_backend(app);

    if (r < 0)
        return r;

    struct broker_config config = broker_config_of(app);

    r = broker_new(&config, app->identity.seed, &app->broker);
    if (r == 0)
        r = pump_init(&app->pump, &app->loop, app->broker);
    if (r < 0)
        return r;
    app->pump.conns = &app->conns;
    app->pump.uplink = app->uplink;
    app->pump.channel = app->channel;
    app->hearing.pump = &app->pump;
    app->pump.memory = app->memory;
    app->pump.after_turn = app_after_turn;
    app->pump.context = app;
    conn_table_init(&app->conns, &app->loop, &app->pump);
    app->conns.prefix = app->config.prefix;
    r = app_init_signals(app);
    if (r == 0)
        r = app_init_timers(app);
    if (r == 0)
        r = notifier_init(&app->notifier, &app->loop);
    if (r == 0)
        r = listener_start(&app->listener, &app->loop, &app->conns);
    return r;
}

static void app_begin(struct app *app)
{
    char backend[BACKEND_URL_BYTES_MAX + 4];
    struct log_line line;

    signals_mask(SIG_UNBLOCK);
    app_apply_config(app);
    backend_url_mask(app->config.backend, backend, sizeof(backend));
    log_begin(&line, LOG_LEVEL_NOTICE, "start");
    log_text(&line, "version", LB_VERSION);
    log_text(&line, "socket", app->config.socket);
    log_text(&line, "backend", backend);
    log_number(&line, "pid", getpid());
    log_end(&line);
    if (app->uplink)
        uplink_open(app->uplink);
    else
        memory_backend_open(app->memory);
    notify_ready(&app->notifier);
}

// Lets the loop close what it can. A name that is still being resolved holds a thread, which cannot
// be ended and which libuv would wait for at exit: then the process ends without it.
static void app_end(struct app *app)
{
    for (int i = 0; i < CLOSING_TURNS; i++)
        (void)uv_run(&app->loop, UV_RUN_NOWAIT);

    bool is_resolving = uv_loop_close(&app->loop) == UV_EBUSY;

    broker_free(app->broker);
    memory_backend_free(app->memory);
    pump_deinit(&app->pump);
    listener_close(&app->listener);
    if (is_resolving)
        _exit(0);
}

static int start_failed(const char *what, int error)
{
    log_message(LOG_LEVEL_ERROR, "start_failed", "%s: %s", what, strerror(-error));
    return 1;
}

int app_run(const struct launch *launch, const struct config *config)
{
    static struct app app; // a 64 KiB read buffer is part of it
    char problem[LISTENER_PROBLEM_BYTES_MAX];
    struct rlimit no_core = {0, 0};

    app.launch = launch;
    app.config = *config;
    (void)prctl(PR_SET_DUMPABLE, 0); // a core would hold the Redis password
    (void)setrlimit(RLIMIT_CORE, &no_core);
    signals_mask(SIG_BLOCK);

    int r = identity_init(&app.identity);

    if (r < 0)
        return start_failed("no random numbers", r);
    r = listener_open(&app.listener, config->socket, (mode_t)config->socket_mode,
                      config->socket_group, problem);
    if (r < 0) {
        log_message(LOG_LEVEL_ERROR, "start_failed", "%s", problem);
        return 1;
    }
    r = loop_init(&app.loop);
    if (r == 0)
        r = app_build(&app);
    if (r < 0) {
        listener_close(&app.listener);
        return start_failed("cannot start", r);
    }
    app_begin(&app);
    (void)uv_run(&app.loop, UV_RUN_DEFAULT);
    app_end(&app);
    return 0;
}
