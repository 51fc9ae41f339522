// The simulated Redis: a keyspace with expiry by its own wall clock, the commands that the broker
// and its scripts use, and a real Lua interpreter that runs the broker's real scripts on it. It is
// a whole server: it restarts, with all, some or none of its data, stops, forgets its scripts, runs
// out of memory and has its clock stepped. What its clients do to keys is told to a watcher.
#ifndef LB_TESTS_SIM_SERVER_H
#define LB_TESTS_SIM_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/redis/resp.h"
#include "tests/sim/sim.h"

#define SERVER_DATABASE        1        // the one that the locks are in; there are two
#define SERVER_PASSWORD        "secret" // nothing but AUTH is served before it
#define SERVER_VALUE_BYTES_MAX 255
#define SERVER_FOREVER         INT64_MAX

enum server_writer {
    WRITER_STRANGER = -1, // anything that is no broker
    WRITER_SERVER = -2,   // eviction, restart
};

// A change of a key of SERVER_DATABASE. Texts are borrowed, NULL: the key is not there.
struct server_write {
    const char *key; // the prefix included
    const char *old_value;
    const char *new_value;
    bool new_is_list;       // the key is of another type; new_value is NULL
    int64_t old_expires_ms; // by the server's wall clock; SERVER_FOREVER: never
    int64_t new_expires_ms;
    int writer;         // a broker's node number, or enum server_writer
    const char *script; // script_label() of the script that did it; "" for none
};

struct server_watcher {
    // After each change by a command; an expiry by time alone is not told.
    void (*on_write)(void *context, const struct server_write *write);
    // Data was lost: a restart without all of it, or FLUSHALL. `kept` says whether any is left.
    void (*on_loss)(void *context, bool kept);
    void *context;
};

enum restart {
    RESTART_WITH_NOTHING,
    RESTART_WITHOUT_LAST_SECOND, // as from an append-only file that is synced once a second
    RESTART_FROM_SNAPSHOT,       // as from a file that was saved some seconds ago
    RESTART_WITH_ALL,
};

// Answers that the server gives instead of doing what it is asked, for a while.
enum refusing {
    REFUSING_NOTHING,
    REFUSING_OOM,      // of writes that need memory, also inside of scripts, as Redis does
    REFUSING_LOADING,  // of everything
    REFUSING_BUSY,     // of everything
    REFUSING_NOPERM,   // of EVAL and EVALSHA
    REFUSING_READONLY, // of writes, also inside of scripts; INFO replication says slave
};

struct server;
struct server_conn;

// A server with a wall clock of its own (some date, some drift) and no data, up since `up_for_ms`.
struct server *server_new(struct sim *sim, int64_t up_for_ms, const struct server_watcher *watcher);
void server_free(struct server *server);

// Its wall clock now, and the true time at which it will show a time if it is not stepped.
int64_t server_wall_ms(const struct server *server);
int64_t server_true_us(const struct server *server, int64_t wall_ms);

// A new connection of node `writer`, or NULL when nobody listens (it is restarting). The server may
// have closed it since: every use of a closed one is an end of file.
struct server_conn *server_connect(struct server *server, int writer);
bool server_conn_is_open(const struct server_conn *conn);

// Asks to be told when the server closes the connection.
void server_conn_watch(struct server_conn *conn, void (*on_closed)(void *context), void *context);
void server_conn_free(struct server_conn *conn);

// Executes the first command in `bytes` (RESP, whole commands only) at the present true time and
// says how long it was. The reply is owned by the caller (resp_free(), so it is laid out as
// resp_reader_next() would). The server must not be stopped. Returns false when the connection is
// closed.
bool server_execute(struct server_conn *conn, const char *bytes, size_t length,
                    size_t *ret_consumed, struct resp **ret_reply);

// Who listens to a channel, on a connection of its own: filled in by the listener, which owns it.
struct server_ear {
    const char *channel;
    void (*on_message)(void *context, const char *text);
    void (*on_closed)(void *context); // by the server; it listens no more
    void *context;
    struct server_ear *next;
};

// False when nobody accepts connections. An ear that does not listen may stop listening.
bool server_listen(struct server *server, struct server_ear *ear);
void server_unlisten(struct server *server, struct server_ear *ear);

// Whether anybody listens to the channel whose name ends so.
bool server_is_heard(const struct server *server, const char *end);

// While it is stopped it executes nothing; what was sent waits. The true time at which it goes on,
// or 0 when it runs.
int64_t server_stopped_until_us(const struct server *server);
void server_stop(struct server *server, int64_t for_us);

// Restarts at once, with another run id; connections are closed.
void server_restart(struct server *server, enum restart restart);
void server_flush_all(struct server *server);
void server_flush_scripts(struct server *server);
void server_kill_clients(struct server *server);
void server_refuse(struct server *server, enum refusing refusing, int64_t for_us);
void server_step_clock(struct server *server, int64_t by_ms);

// What anybody may do with a plain client, and what eviction does. False when it does not apply
// (the key is not free, not there, ...).
bool server_set_if_free(struct server *server, const char *key, const char *value, int64_t ttl_ms);
bool server_set(struct server *server, const char *key, const char *value, int64_t ttl_ms);
bool server_delete(struct server *server, const char *key);
bool server_evict(struct server *server, const char *key);
bool server_make_list(struct server *server, const char *key);
bool server_rename(struct server *server, const char *key, const char *new_key);
bool server_persist(struct server *server, const char *key);
bool server_expire(struct server *server, const char *key, int64_t ttl_ms);

// What is there now. False when there is no such key. A list has no value.
bool server_look(const struct server *server, const char *key, const char **ret_value,
                 int64_t *ret_expires_ms);

// The first key at or after position `index` (in no order that means anything) that is there, or
// NULL; *ret_next is where to go on.
const char *server_key_at(const struct server *server, size_t index, size_t *ret_next);

#endif
