// The server as a whole: its clock, its life and its connections, what becomes of its data, and the
// one way in for commands. What commands do is in server_commands.c.
#include "tests/sim/server.h"

#include <stdlib.h>
#include <string.h>

#include "tests/sim/memory.h"
#include "tests/sim/server_inside.h"

#define SERVER_DRIFT_PPM_MAX 400 // two clocks may drift apart by 1000

// Some time in 2025 or 2026.
#define SERVER_DATE_S     1750000000
#define SERVER_DATE_RANGE 30000000

#define SERVER_EXPIRES_MS 100 // how often expired keys are looked for

// A restart takes at most so long, in which nobody listens.
#define SERVER_DOWN_US_MAX 300000

static int64_t wall_us(const struct server *server)
{
    return sim_clock_us(&server->clock, server->sim->now_us);
}

void server_read_clock(struct server *server)
{
    server->now_us = wall_us(server);
    server->now_ms = server->now_us / 1000;
}

int64_t server_wall_ms(const struct server *server)
{
    return wall_us(server) / 1000;
}

int64_t server_true_us(const struct server *server, int64_t wall_ms)
{
    return sim_clock_true_us(&server->clock, wall_ms * 1000);
}

static void run_id_draw(struct server *server)
{
    for (size_t i = 0; i < SERVER_RUN_ID_LENGTH; i++)
        server->run_id[i] = "0123456789abcdef"[sim_below(server->sim, 16)];
    server->info[0] = '\0';
}

struct server *server_new(struct sim *sim, int64_t up_for_ms, const struct server_watcher *watcher)
{
    struct server *server = sim_alloc(sizeof(*server));

    server->sim = sim;
    server->watcher = *watcher;
    server->clock = (struct sim_clock){
        .anchor_true_us = sim->now_us,
        .anchor_us =
            (SERVER_DATE_S + sim_below(sim, SERVER_DATE_RANGE)) * 1000000 + sim_below(sim, 1000000),
        .ppm = sim_below(sim, 2 * SERVER_DRIFT_PPM_MAX + 1) - SERVER_DRIFT_PPM_MAX,
    };
    server->script_label = "";
    server->lua = lua_host_new();
    server_read_clock(server);
    server->started_ms = server->now_ms - up_for_ms;
    run_id_draw(server);
    return server;
}

void server_free(struct server *server)
{
    for (struct server_conn *conn = server->conns; conn; conn = conn->next)
        conn->server = NULL;
    lua_host_free(server->lua);
    free(server);
}

static bool listens(const struct server *server)
{
    return server->sim->now_us >= server->listens_from_us;
}

struct server_conn *server_connect(struct server *server, int writer)
{
    struct server_conn *conn;

    if (!listens(server))
        return NULL;
    conn = sim_alloc(sizeof(*conn));
    conn->server = server;
    conn->writer = writer;
    conn->is_open = true;
    conn->next = server->conns;
    server->conns = conn;
    return conn;
}

void server_conn_watch(struct server_conn *conn, void (*on_closed)(void *context), void *context)
{
    conn->on_closed = on_closed;
    conn->context = context;
}

bool server_conn_is_open(const struct server_conn *conn)
{
    return conn->is_open;
}

void server_conn_free(struct server_conn *conn)
{
    struct server_conn **place = conn->server ? &conn->server->conns : NULL;

    while (place && *place != conn)
        place = &(*place)->next;
    if (place)
        *place = conn->next;
    free(conn);
}

bool server_listen(struct server *server, struct server_ear *ear)
{
    if (!listens(server) || server_stopped_until_us(server))
        return false;
    ear->next = server->ears;
    server->ears = ear;
    return true;
}

void server_unlisten(struct server *server, struct server_ear *ear)
{
    struct server_ear **place = &server->ears;

    while (*place && *place != ear)
        place = &(*place)->next;
    if (*place)
        *place = ear->next;
}

size_t server_publish(struct server *server, const struct word *channel, const struct word *text)
{
    char message[SERVER_VALUE_BYTES_MAX + 1];
    size_t count = 0;

    (void)snprintf(message, sizeof(message), "%.*s", (int)text->length, text->text);
    for (struct server_ear *ear = server->ears; ear; ear = ear->next) {
        if (strlen(ear->channel) != channel->length ||
            memcmp(ear->channel, channel->text, channel->length) != 0)
            continue;
        ear->on_message(ear->context, message);
        count++;
    }
    return count;
}

bool server_is_heard(const struct server *server, const char *end)
{
    const struct server_ear *ear = server->ears;

    while (ear && (strlen(ear->channel) < strlen(end) ||
                   strcmp(ear->channel + strlen(ear->channel) - strlen(end), end) != 0))
        ear = ear->next;
    return ear != NULL;
}

static void ears_close(struct server *server)
{
    struct server_ear *ear;

    while ((ear = server->ears)) {
        server->ears = ear->next;
        ear->on_closed(ear->context);
    }
}

void server_kill_clients(struct server *server)
{
    ears_close(server);
    for (struct server_conn *conn = server->conns; conn; conn = conn->next) {
        if (!conn->is_open)
            continue;
        conn->is_open = false;
        if (conn->on_closed)
            conn->on_closed(conn->context);
    }
}

// Takes "<sign>NUMBER\r\n" off the front.
static size_t number_take(const char **at, const char *end, char sign)
{
    size_t number = 0;

    lb_assert(*at < end && **at == sign);
    for ((*at)++; *at < end && **at >= '0' && **at <= '9'; (*at)++)
        number = 10 * number + (size_t)(**at - '0');
    lb_assert(end - *at >= 2 && (*at)[0] == '\r' && (*at)[1] == '\n');
    *at += 2;
    return number;
}

static size_t words_parse(struct call *call, const char *bytes, size_t length)
{
    const char *at = bytes, *end = bytes + length;

    call->count = number_take(&at, end, '*');
    lb_assert(call->count >= 1 && call->count <= CALL_WORDS_MAX);
    for (size_t i = 0; i < call->count; i++) {
        struct word *word = &call->words[i];

        word->length = number_take(&at, end, '$');
        lb_assert(word->length + 2 <= (size_t)(end - at));
        word->text = at;
        at += word->length + 2;
    }
    return (size_t)(at - bytes);
}

static void text_fill(struct resp *reply, enum resp_kind kind, const struct word *text)
{
    if (!text->text)
        return;
    reply->text = sim_alloc(text->length + 1);
    memcpy(reply->text, text->text, text->length);
    reply->length = text->length;
    reply->kind = kind;
}

static void texts_fill(struct resp *reply, const struct answer *answer)
{
    reply->kind = RESP_ARRAY;
    reply->items = sim_alloc(answer->count * sizeof(reply->items[0]));
    reply->count = answer->count;
    for (size_t i = 0; i < answer->count; i++)
        text_fill(&reply->items[i], RESP_TEXT, &answer->items[i]);
}

static struct resp *reply_make(struct server *server, const struct answer *answer)
{
    struct resp *reply = sim_alloc(sizeof(*reply));

    switch (answer->kind) {
    case ANSWER_NIL:
        break;
    case ANSWER_INTEGER:
        reply->kind = RESP_INTEGER;
        reply->integer = answer->integer;
        break;
    case ANSWER_STATUS:
        text_fill(reply, RESP_STATUS, &answer->text);
        break;
    case ANSWER_ERROR:
        text_fill(reply, RESP_ERROR, &answer->text);
        break;
    case ANSWER_TEXT:
        text_fill(reply, RESP_TEXT, &answer->text);
        break;
    case ANSWER_TEXTS:
        texts_fill(reply, answer);
        break;
    case ANSWER_SCRIPT:
        lua_host_answer(server->lua, reply);
        break;
    }
    return reply;
}

bool server_execute(struct server_conn *conn, const char *bytes, size_t length,
                    size_t *ret_consumed, struct resp **ret_reply)
{
    struct server *server = conn->server;
    struct call *call = &server->top;

    lb_assert(server_stopped_until_us(server) == 0);
    if (!conn->is_open)
        return false;
    server_read_clock(server);
    call->server = server;
    call->conn = conn;
    *ret_consumed = words_parse(call, bytes, length);
    command_execute(call);
    *ret_reply = reply_make(server, &call->answer);
    return true;
}

int64_t server_stopped_until_us(const struct server *server)
{
    return server->stopped_until_us > server->sim->now_us ? server->stopped_until_us : 0;
}

void server_stop(struct server *server, int64_t for_us)
{
    int64_t until_us = server->sim->now_us + for_us;

    if (until_us > server->stopped_until_us)
        server->stopped_until_us = until_us;
}

void server_refuse(struct server *server, enum refusing refusing, int64_t for_us)
{
    server->refusing = refusing;
    server->refusing_until_us = server->sim->now_us + for_us;
}

bool server_refuses(const struct server *server, enum refusing refusing)
{
    return server->refusing == refusing && server->sim->now_us < server->refusing_until_us;
}

// Redis looks for expired keys ten times a second, if it runs: hardly any of them comes back when
// the clock goes backwards.
void server_step_clock(struct server *server, int64_t by_ms)
{
    int64_t unseen_ms = sim_below(server->sim, SERVER_EXPIRES_MS);

    server_read_clock(server);
    if (server_stopped_until_us(server) == 0)
        keyspace_expire(&server->keys, server->now_ms - unseen_ms);
    sim_clock_step(&server->clock, server->sim->now_us, by_ms * 1000);
    sim_tell(server->sim, "server: the clock steps by %lld ms", (long long)by_ms);
}

static void loss_tell(struct server *server)
{
    size_t kept = keyspace_size(&server->keys, server->now_ms);

    server->watcher.on_loss(server->watcher.context, kept > 0);
}

static void data_restore(struct server *server, enum restart restart)
{
    int64_t now_us = server->sim->now_us;
    size_t age;

    switch (restart) {
    case RESTART_WITH_NOTHING:
        keyspace_restore_nothing(&server->keys, now_us);
        break;
    case RESTART_WITHOUT_LAST_SECOND:
        keyspace_restore_second(&server->keys, now_us);
        break;
    case RESTART_FROM_SNAPSHOT:
        age = (size_t)sim_below(server->sim, KEYSPACE_SAVES_MAX);
        keyspace_restore_save(&server->keys, age, now_us);
        break;
    case RESTART_WITH_ALL:
        break;
    }
    keyspace_expire(&server->keys, server->now_ms);
}

void server_restart(struct server *server, enum restart restart)
{
    static const char *const with[] = {"nothing", "all but the last second", "an older snapshot",
                                       "all"};

    server_read_clock(server);
    sim_tell(server->sim, "server: restarts with %s", with[restart]);
    server->stopped_until_us = 0;
    server->refusing = REFUSING_NOTHING;
    server->listens_from_us = server->sim->now_us + sim_below(server->sim, SERVER_DOWN_US_MAX);
    server->started_ms = server->now_ms;
    run_id_draw(server);
    lua_host_flush(server->lua);
    server_kill_clients(server);
    data_restore(server, restart);
    if (restart != RESTART_WITH_ALL)
        loss_tell(server);
}

void server_flush_all(struct server *server)
{
    server_read_clock(server);
    sim_tell(server->sim, "server: FLUSHALL");
    keyspace_clear(&server->keys, server->sim->now_us);
    loss_tell(server);
}

void server_flush_scripts(struct server *server)
{
    sim_tell(server->sim, "server: SCRIPT FLUSH");
    lua_host_flush(server->lua);
}
