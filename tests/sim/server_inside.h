// What the files of the simulated Redis share: the server itself, one command's words and answer,
// and who acts.
#ifndef LB_TESTS_SIM_SERVER_INSIDE_H
#define LB_TESTS_SIM_SERVER_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/keyspace.h"
#include "tests/sim/lua_host.h"
#include "tests/sim/server.h"

#define SERVER_RUN_ID_LENGTH 40
#define CALL_WORDS_MAX       512
#define ANSWER_ITEMS_MAX     256

struct word {
    const char *text; // not ended by NUL
    size_t length;
};

enum answer_kind {
    ANSWER_NIL,
    ANSWER_INTEGER,
    ANSWER_STATUS,
    ANSWER_ERROR,
    ANSWER_TEXT,
    ANSWER_TEXTS,  // of `count` items, text NULL: nil
    ANSWER_SCRIPT, // what the Lua state has on its stack, taken by lua_host_answer()
};

// The answer to a command. Its texts are good until the next command.
struct answer {
    enum answer_kind kind;
    int64_t integer;
    struct word text;
    size_t count;
    struct word items[ANSWER_ITEMS_MAX];
    char room[1024]; // for texts that are nowhere else
};

// One command: at the top level, or of a script.
struct call {
    struct server *server;
    struct server_conn *conn;
    size_t count;
    struct word words[CALL_WORDS_MAX];
    struct answer answer;
};

struct server_conn {
    struct server *server;
    struct server_conn *next;
    bool is_open;
    bool is_authenticated;
    int database;
    int writer;
    void (*on_closed)(void *context);
    void *context;
};

struct server {
    struct sim *sim;
    struct server_watcher watcher;
    struct sim_clock clock;
    int64_t started_ms; // by the clock as it was then
    int64_t stopped_until_us;
    int64_t listens_from_us;
    enum refusing refusing;
    int64_t refusing_until_us;
    char run_id[SERVER_RUN_ID_LENGTH + 1];
    struct server_conn *conns; // the newest first
    struct server_ear *ears;

    int64_t now_us; // the wall clock's time that the present command is executed at
    int64_t now_ms;
    bool is_in_script;
    bool script_wrote; // the present script asked for a write
    const char *script_label;
    struct call top;   // the present command
    struct call inner; // that of the present script

    int64_t info_uptime_s; // of `info`
    char info[512];
    struct lua_host *lua;
    struct keyspace keys;
};

// server.c: reads the clock for what is done next; nothing else moves now_us and now_ms.
void server_read_clock(struct server *server);
bool server_refuses(const struct server *server, enum refusing refusing);

// Tells a message to all that listen to the channel; returns how many do.
size_t server_publish(struct server *server, const struct word *channel, const struct word *text);

// What is under a key, and changes of it, told to the watcher. An `expires_ms` that is over is
// fine.
struct key_value *server_find(struct server *server, int database, size_t number);
void server_put(struct server *server, const struct server_conn *conn, size_t number,
                const struct word *value, int64_t expires_ms);
void server_put_list(struct server *server, size_t number);
void server_expire_at(struct server *server, const struct server_conn *conn, size_t number,
                      int64_t expires_ms);
void server_drop(struct server *server, const struct server_conn *conn, size_t number, int writer);

// server_commands.c: executes call->words and sets call->answer.
void command_execute(struct call *call);

void answer_error(struct answer *answer, const char *format, ...) LB_PRINTF(2, 3);

#endif
