// Changes of keys, each told to the watcher: those that commands ask for, and those that anybody
// with a plain client, or eviction, makes.
#include <string.h>

#include "tests/sim/server_inside.h"

struct key_value *server_find(struct server *server, int database, size_t number)
{
    return keyspace_find(&server->keys, database, number, server->now_ms);
}

static const char *text_of(const struct key_value *value)
{
    return value->is_there && !value->is_list ? value->value : NULL;
}

static int64_t expiry_of(const struct key_value *value)
{
    return value->is_there ? value->expires_ms : SERVER_FOREVER;
}

// `conn` is NULL for whoever has none; `old` is what was there, `is_there` false for nothing.
static void change_tell(struct server *server, const struct server_conn *conn, size_t number,
                        const struct key_value *old, int writer)
{
    const struct key_value *after = &server->keys.now.of[SERVER_DATABASE][number];
    struct server_write write = {
        .key = server->keys.names[number].text,
        .old_value = text_of(old),
        .new_value = text_of(after),
        .new_is_list = after->is_there && after->is_list,
        .old_expires_ms = expiry_of(old),
        .new_expires_ms = expiry_of(after),
        .writer = writer,
        .script = conn ? server->script_label : "",
    };

    if (!conn || conn->database == SERVER_DATABASE)
        server->watcher.on_write(server->watcher.context, &write);
}

static struct key_value *place_of(struct server *server, const struct server_conn *conn,
                                  size_t number)
{
    int database = conn ? conn->database : SERVER_DATABASE;

    return &server->keys.now.of[database][number];
}

// Where to write, and what is there as yet.
static struct key_value *write_begin(struct server *server, const struct server_conn *conn,
                                     size_t number, struct key_value *ret_old)
{
    struct key_value *place = place_of(server, conn, number);

    (void)server_find(server, conn ? conn->database : SERVER_DATABASE, number);
    keyspace_keep(&server->keys, server->sim->now_us);
    *ret_old = *place;
    return place;
}

static int writer_of(const struct server_conn *conn)
{
    return conn ? conn->writer : WRITER_STRANGER;
}

void server_put(struct server *server, const struct server_conn *conn, size_t number,
                const struct word *value, int64_t expires_ms)
{
    struct key_value old;
    struct key_value *place = write_begin(server, conn, number, &old);

    lb_assert(value->length <= SERVER_VALUE_BYTES_MAX);
    place->is_there = true;
    place->is_list = false;
    place->length = (uint16_t)value->length;
    place->expires_ms = expires_ms;
    memcpy(place->value, value->text, value->length);
    place->value[value->length] = '\0';
    change_tell(server, conn, number, &old, writer_of(conn));
}

void server_put_list(struct server *server, size_t number)
{
    struct key_value old;
    struct key_value *place = write_begin(server, NULL, number, &old);

    *place = (struct key_value){.is_there = true, .is_list = true, .expires_ms = SERVER_FOREVER};
    change_tell(server, NULL, number, &old, WRITER_STRANGER);
}

void server_expire_at(struct server *server, const struct server_conn *conn, size_t number,
                      int64_t expires_ms)
{
    struct key_value old;
    struct key_value *place = write_begin(server, conn, number, &old);

    place->expires_ms = expires_ms;
    if (old.expires_ms != expires_ms)
        change_tell(server, conn, number, &old, writer_of(conn));
}

void server_drop(struct server *server, const struct server_conn *conn, size_t number, int writer)
{
    struct key_value old;

    write_begin(server, conn, number, &old)->is_there = false;
    change_tell(server, conn, number, &old, writer);
}

// What strangers do goes through the same door: it is shut while the server does not run.
static bool stranger_may(struct server *server)
{
    server_read_clock(server);
    return server_stopped_until_us(server) == 0 && server->sim->now_us >= server->listens_from_us &&
           !server_refuses(server, REFUSING_LOADING) && !server_refuses(server, REFUSING_BUSY) &&
           !server_refuses(server, REFUSING_READONLY);
}

static size_t number_of(struct server *server, const char *key)
{
    return keyspace_number(&server->keys, key, strlen(key));
}

static struct key_value *stranger_find(struct server *server, const char *key)
{
    return server_find(server, SERVER_DATABASE, number_of(server, key));
}

bool server_set(struct server *server, const char *key, const char *value, int64_t ttl_ms)
{
    struct word text = {value, strlen(value)};

    if (!stranger_may(server) || server_refuses(server, REFUSING_OOM))
        return false;
    server_put(server, NULL, number_of(server, key), &text,
               ttl_ms == SERVER_FOREVER ? SERVER_FOREVER : server->now_ms + ttl_ms);
    return true;
}

bool server_set_if_free(struct server *server, const char *key, const char *value, int64_t ttl_ms)
{
    server_read_clock(server);
    return !stranger_find(server, key) && server_set(server, key, value, ttl_ms);
}

bool server_delete(struct server *server, const char *key)
{
    if (!stranger_may(server) || !stranger_find(server, key))
        return false;
    server_drop(server, NULL, number_of(server, key), WRITER_STRANGER);
    return true;
}

bool server_evict(struct server *server, const char *key)
{
    server_read_clock(server);
    if (server_stopped_until_us(server) != 0 || !stranger_find(server, key))
        return false;
    server_drop(server, NULL, number_of(server, key), WRITER_SERVER);
    return true;
}

bool server_make_list(struct server *server, const char *key)
{
    const struct key_value *value;

    if (!stranger_may(server) || server_refuses(server, REFUSING_OOM))
        return false;
    value = stranger_find(server, key);
    if (value && value->is_list)
        return false;
    server_put_list(server, number_of(server, key));
    return true;
}

bool server_rename(struct server *server, const char *key, const char *new_key)
{
    const struct key_value *value;
    struct key_value moved;
    struct word text;

    if (!stranger_may(server) || strcmp(key, new_key) == 0)
        return false;
    value = stranger_find(server, key);
    if (!value || value->is_list)
        return false;
    moved = *value;
    text = (struct word){moved.value, moved.length};
    server_drop(server, NULL, number_of(server, key), WRITER_STRANGER);
    server_put(server, NULL, number_of(server, new_key), &text, moved.expires_ms);
    return true;
}

bool server_persist(struct server *server, const char *key)
{
    const struct key_value *value;

    if (!stranger_may(server))
        return false;
    value = stranger_find(server, key);
    if (!value || value->expires_ms == SERVER_FOREVER)
        return false;
    server_expire_at(server, NULL, number_of(server, key), SERVER_FOREVER);
    return true;
}

bool server_expire(struct server *server, const char *key, int64_t ttl_ms)
{
    if (!stranger_may(server) || !stranger_find(server, key))
        return false;
    if (ttl_ms <= 0)
        server_drop(server, NULL, number_of(server, key), WRITER_STRANGER);
    else
        server_expire_at(server, NULL, number_of(server, key), server->now_ms + ttl_ms);
    return true;
}

bool server_look(const struct server *server, const char *key, const char **ret_value,
                 int64_t *ret_expires_ms)
{
    const struct key_value *value = keyspace_look(&server->keys, key, server_wall_ms(server));

    if (!value)
        return false;
    *ret_value = text_of(value);
    *ret_expires_ms = value->expires_ms;
    return true;
}

const char *server_key_at(const struct server *server, size_t index, size_t *ret_next)
{
    int64_t now_ms = server_wall_ms(server);

    for (; index < server->keys.count; index++) {
        if (keyspace_is_there(&server->keys, index, now_ms)) {
            *ret_next = index + 1;
            return server->keys.names[index].text;
        }
    }
    return NULL;
}
