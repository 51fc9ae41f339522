// The commands, each as Redis 7.0 executes and refuses it, and the checks before any of them. It
// does not know where a command came from or where its answer goes.
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "tests/sim/server_inside.h"

#define WRONG_TYPE     "WRONGTYPE Operation against a key holding the wrong kind of value"
#define NO_INTEGER     "ERR value is not an integer or out of range"
#define EVAL_WORDS_MIN 3

enum command_flags {
    FLAG_WRITE = 1,
    FLAG_NEEDS_MEMORY = 2,
    FLAG_NO_AUTH = 4, // served before AUTH
    FLAG_WHILE_LOADING = 8,
    FLAG_WHILE_BUSY = 16,
    FLAG_NOT_IN_SCRIPT = 32,
    FLAG_SCRIPT = 64, // what REFUSING_NOPERM takes away
};

struct command {
    const char *name;
    int words; // with the name; below 0: at least so many
    unsigned flags;
    void (*execute)(struct call *call);
};

static void answer_text(struct answer *answer, enum answer_kind kind, const char *text)
{
    answer->kind = kind;
    answer->text = (struct word){text, strlen(text)};
}

static void answer_integer(struct answer *answer, int64_t integer)
{
    answer->kind = ANSWER_INTEGER;
    answer->integer = integer;
}

void answer_error(struct answer *answer, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(answer->room, sizeof(answer->room), format, arguments);
    va_end(arguments);
    answer_text(answer, ANSWER_ERROR, answer->room);
}

static void answer_ok(struct answer *answer)
{
    answer_text(answer, ANSWER_STATUS, "OK");
}

static bool word_is(const struct word *word, const char *text)
{
    return strlen(text) == word->length && strncasecmp(word->text, text, word->length) == 0;
}

static bool word_equals(const struct word *word, const char *text)
{
    return strlen(text) == word->length && memcmp(word->text, text, word->length) == 0;
}

// As string2ll() of Redis for numbers of up to 18 digits: nothing but a sign and digits, no
// needless zeroes.
static bool word_number(const struct word *word, int64_t *ret_number)
{
    bool is_negative = word->length > 0 && word->text[0] == '-';
    size_t at = is_negative;
    int64_t number = 0;

    if (word->length == at || word->length - at > 18)
        return false;
    if (word->text[at] == '0' && (is_negative || word->length > 1))
        return false;
    for (; at < word->length; at++) {
        if (word->text[at] < '0' || word->text[at] > '9')
            return false;
        number = 10 * number + (word->text[at] - '0');
    }
    *ret_number = is_negative ? -number : number;
    return true;
}

static struct word text_of(const struct key_value *value)
{
    return (struct word){value->value, value->length};
}

static size_t key_of(struct call *call, size_t index)
{
    return keyspace_number(&call->server->keys, call->words[index].text, call->words[index].length);
}

static struct key_value *value_of(struct call *call, size_t index)
{
    return server_find(call->server, call->conn->database, key_of(call, index));
}

static void execute_ping(struct call *call)
{
    answer_text(&call->answer, ANSWER_STATUS, "PONG");
}

static void execute_auth(struct call *call)
{
    const struct word *password = &call->words[call->count - 1];
    bool is_user = call->count == 2 || word_equals(&call->words[1], "default");

    if (call->count > 3) {
        answer_error(&call->answer, "ERR syntax error");
    } else if (is_user && word_equals(password, SERVER_PASSWORD)) {
        call->conn->is_authenticated = true;
        answer_ok(&call->answer);
    } else {
        answer_error(&call->answer,
                     "WRONGPASS invalid username-password pair or user is disabled.");
    }
}

static void execute_select(struct call *call)
{
    int64_t database;

    if (!word_number(&call->words[1], &database)) {
        answer_error(&call->answer, NO_INTEGER);
    } else if (database < 0 || database >= KEYSPACE_DATABASES) {
        answer_error(&call->answer, "ERR DB index is out of range");
    } else {
        call->conn->database = (int)database;
        answer_ok(&call->answer);
    }
}

static void execute_client(struct call *call)
{
    if (word_is(&call->words[1], "SETNAME") && call->count == 3)
        answer_ok(&call->answer);
    else
        answer_error(&call->answer, "ERR unknown subcommand. Try CLIENT HELP.");
}

// The uptime is counted by the wall clock, and so steps with it.
static void info_make(struct server *server)
{
    int64_t uptime_s = server->now_ms / 1000 - server->started_ms / 1000;

    if (server->info[0] && server->info_uptime_s == uptime_s)
        return;
    server->info_uptime_s = uptime_s;
    (void)snprintf(server->info, sizeof(server->info),
                   "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n"
                   "run_id:%s\r\ntcp_port:6379\r\nuptime_in_seconds:%" PRId64 "\r\nhz:10\r\n",
                   server->run_id, uptime_s);
}

static void execute_info(struct call *call)
{
    struct server *server = call->server;
    bool is_replica = server_refuses(server, REFUSING_READONLY);
    const struct word *section = &call->words[1];

    if (call->count != 2) {
        answer_error(&call->answer, "ERR syntax error");
    } else if (word_is(section, "server")) {
        info_make(server);
        answer_text(&call->answer, ANSWER_TEXT, server->info);
    } else if (word_is(section, "replication")) {
        answer_text(&call->answer, ANSWER_TEXT,
                    is_replica ? "# Replication\r\nrole:slave\r\nmaster_link_status:up\r\n"
                               : "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n");
    } else if (word_is(section, "memory")) {
        answer_text(&call->answer, ANSWER_TEXT,
                    "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n");
    } else {
        answer_text(&call->answer, ANSWER_TEXT, "");
    }
}

static struct word digits_write(char *room, size_t size, int64_t number)
{
    char *at = room + size;

    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return (struct word){at, (size_t)(room + size - at)};
}

static void execute_time(struct call *call)
{
    struct answer *answer = &call->answer;

    answer->kind = ANSWER_TEXTS;
    answer->count = 2;
    answer->items[0] = digits_write(answer->room, 24, call->server->now_us / 1000000);
    answer->items[1] = digits_write(answer->room + 24, 24, call->server->now_us % 1000000);
}

static void execute_get(struct call *call)
{
    const struct key_value *value = value_of(call, 1);

    if (!value) {
        call->answer.kind = ANSWER_NIL;
    } else if (value->is_list) {
        answer_error(&call->answer, WRONG_TYPE);
    } else {
        call->answer.kind = ANSWER_TEXT;
        call->answer.text = text_of(value);
    }
}

static void execute_mget(struct call *call)
{
    struct answer *answer = &call->answer;

    lb_assert(call->count - 1 <= ANSWER_ITEMS_MAX);
    answer->kind = ANSWER_TEXTS;
    answer->count = call->count - 1;
    for (size_t i = 1; i < call->count; i++) {
        const struct key_value *value = value_of(call, i);

        answer->items[i - 1] = value && !value->is_list ? text_of(value) : (struct word){0};
    }
}

// SET key value [NX] [PX milliseconds].
static void execute_set(struct call *call)
{
    bool only_new = call->count > 3 && word_is(&call->words[3], "NX");
    size_t options = only_new ? 4 : 3;
    bool has_ttl = call->count == options + 2;
    int64_t ttl_ms = 0;

    if (call->count != options && (!has_ttl || !word_is(&call->words[options], "PX"))) {
        answer_error(&call->answer, "ERR syntax error");
    } else if (has_ttl && !word_number(&call->words[options + 1], &ttl_ms)) {
        answer_error(&call->answer, NO_INTEGER);
    } else if (has_ttl && (ttl_ms <= 0 || ttl_ms > INT64_MAX / 2)) {
        answer_error(&call->answer, "ERR invalid expire time in 'set' command");
    } else if (only_new && value_of(call, 1)) {
        call->answer.kind = ANSWER_NIL;
    } else {
        server_put(call->server, call->conn, key_of(call, 1), &call->words[2],
                   has_ttl ? call->server->now_ms + ttl_ms : SERVER_FOREVER);
        answer_ok(&call->answer);
    }
}

static void execute_del(struct call *call)
{
    int64_t deleted = 0;

    for (size_t i = 1; i < call->count; i++) {
        if (!value_of(call, i))
            continue;
        server_drop(call->server, call->conn, key_of(call, i), call->conn->writer);
        deleted++;
    }
    answer_integer(&call->answer, deleted);
}

// A key without expiry lives longer than any time.
static void execute_pexpire(struct call *call)
{
    struct server *server = call->server;
    bool only_later = call->count == 4;
    const struct key_value *value;
    int64_t ttl_ms;

    if (call->count > 4 || (only_later && !word_is(&call->words[3], "GT"))) {
        answer_error(&call->answer, "ERR Unsupported option %.*s", (int)call->words[3].length,
                     call->words[3].text);
        return;
    }
    if (!word_number(&call->words[2], &ttl_ms)) {
        answer_error(&call->answer, NO_INTEGER);
        return;
    }
    value = value_of(call, 1);
    answer_integer(&call->answer, 0);
    if (!value || (only_later && server->now_ms + ttl_ms <= value->expires_ms))
        return;
    answer_integer(&call->answer, 1);
    if (ttl_ms <= 0)
        server_drop(server, call->conn, key_of(call, 1), call->conn->writer);
    else
        server_expire_at(server, call->conn, key_of(call, 1), server->now_ms + ttl_ms);
}

static void execute_pttl(struct call *call)
{
    const struct key_value *value = value_of(call, 1);

    if (!value)
        answer_integer(&call->answer, -2);
    else if (value->expires_ms == SERVER_FOREVER)
        answer_integer(&call->answer, -1);
    else
        answer_integer(&call->answer, value->expires_ms - call->server->now_ms);
}

static void execute_publish(struct call *call)
{
    size_t count = server_publish(call->server, &call->words[1], &call->words[2]);

    answer_integer(&call->answer, (int64_t)count);
}

static void execute_type(struct call *call)
{
    const struct key_value *value = value_of(call, 1);
    const char *there = value && value->is_list ? "list" : "string";

    answer_text(&call->answer, ANSWER_STATUS, value ? there : "none");
}

static void execute_script(struct call *call)
{
    const struct script *script;
    const char *problem;

    if (!word_is(&call->words[1], "LOAD") || call->count != 3) {
        answer_error(&call->answer, "ERR unknown subcommand. Try SCRIPT HELP.");
        return;
    }
    script = lua_host_load(call->server->lua, &call->words[2], &problem);
    if (script)
        answer_text(&call->answer, ANSWER_TEXT, script_sha(script));
    else
        answer_error(&call->answer, "ERR Error compiling script (new function): %s", problem);
}

static bool keys_count(struct call *call, size_t *ret_count)
{
    int64_t count;

    if (!word_number(&call->words[2], &count)) {
        answer_error(&call->answer, NO_INTEGER);
        return false;
    }
    if (count < 0) {
        answer_error(&call->answer, "ERR Number of keys can't be negative");
        return false;
    }
    if ((size_t)count > call->count - EVAL_WORDS_MIN) {
        answer_error(&call->answer, "ERR Number of keys can't be greater than number of args");
        return false;
    }
    *ret_count = (size_t)count;
    return true;
}

static void execute_eval(struct call *call)
{
    const struct script *script;
    const char *problem;
    size_t keys;

    if (!keys_count(call, &keys))
        return;
    script = lua_host_load(call->server->lua, &call->words[1], &problem);
    if (script)
        lua_host_run(call->server->lua, script, call, keys);
    else
        answer_error(&call->answer, "ERR Error compiling script (new function): %s", problem);
}

static void execute_evalsha(struct call *call)
{
    const struct script *script;
    size_t keys;

    if (!keys_count(call, &keys))
        return;
    script = lua_host_find(call->server->lua, &call->words[1]);
    if (script)
        lua_host_run(call->server->lua, script, call, keys);
    else
        answer_error(&call->answer, "NOSCRIPT No matching script. Please use EVAL.");
}

// Those that scripts use come first.
static const struct command commands[] = {
    {"get", 2, 0, execute_get},
    {"set", -3, FLAG_WRITE | FLAG_NEEDS_MEMORY, execute_set},
    {"time", 1, FLAG_WHILE_LOADING, execute_time},
    {"info", -1, FLAG_WHILE_LOADING, execute_info},
    {"pttl", 2, 0, execute_pttl},
    {"pexpire", -3, FLAG_WRITE, execute_pexpire},
    {"mget", -2, 0, execute_mget},
    {"del", -2, FLAG_WRITE, execute_del},
    {"type", 2, 0, execute_type},
    {"publish", 3, FLAG_WHILE_LOADING, execute_publish},
    {"evalsha", -3, FLAG_NOT_IN_SCRIPT | FLAG_SCRIPT, execute_evalsha},
    {"eval", -3, FLAG_NOT_IN_SCRIPT | FLAG_SCRIPT, execute_eval},
    {"script", -2, FLAG_NOT_IN_SCRIPT, execute_script},
    {"auth", -2, FLAG_NOT_IN_SCRIPT | FLAG_NO_AUTH | FLAG_WHILE_LOADING | FLAG_WHILE_BUSY,
     execute_auth},
    {"select", 2, FLAG_NOT_IN_SCRIPT | FLAG_WHILE_LOADING, execute_select},
    {"client", -2, FLAG_NOT_IN_SCRIPT | FLAG_WHILE_LOADING, execute_client},
    {"ping", -1, 0, execute_ping},
};

static const struct command *command_find(const struct word *name)
{
    for (size_t i = 0; i < LB_ARRAY_LENGTH(commands); i++) {
        if (word_is(name, commands[i].name))
            return &commands[i];
    }
    return NULL;
}

static bool words_fit(const struct command *command, size_t count)
{
    return command->words < 0 ? (int)count >= -command->words : (int)count == command->words;
}

// What a script may call, beyond what anybody may. A script that has written goes on without
// memory: stopping it midway would be worse.
static bool script_is_refused(struct call *call, const struct command *command)
{
    struct server *server = call->server;

    if (command->flags & FLAG_NOT_IN_SCRIPT)
        answer_error(&call->answer, "ERR This Redis command is not allowed from script");
    else if (command->flags & FLAG_WRITE && server_refuses(server, REFUSING_READONLY))
        answer_error(&call->answer, "READONLY You can't write against a read only replica.");
    else if (command->flags & FLAG_NEEDS_MEMORY && !server->script_wrote &&
             server_refuses(server, REFUSING_OOM))
        answer_error(&call->answer, "OOM command not allowed when used memory > 'maxmemory'.");
    else
        return false;
    return true;
}

static bool client_is_refused(struct call *call, const struct command *command)
{
    struct server *server = call->server;
    struct answer *answer = &call->answer;

    if (!call->conn->is_authenticated && !(command->flags & FLAG_NO_AUTH))
        answer_error(answer, "NOAUTH Authentication required.");
    else if (command->flags & FLAG_SCRIPT && server_refuses(server, REFUSING_NOPERM))
        answer_error(answer, "NOPERM this user has no permissions to run the '%s' command",
                     command->name);
    else if (command->flags & FLAG_NEEDS_MEMORY && server_refuses(server, REFUSING_OOM))
        answer_error(answer, "OOM command not allowed when used memory > 'maxmemory'.");
    else if (command->flags & FLAG_WRITE && server_refuses(server, REFUSING_READONLY))
        answer_error(answer, "READONLY You can't write against a read only replica.");
    else if (!(command->flags & FLAG_WHILE_LOADING) && server_refuses(server, REFUSING_LOADING))
        answer_error(answer, "LOADING Redis is loading the dataset in memory");
    else if (!(command->flags & FLAG_WHILE_BUSY) && server_refuses(server, REFUSING_BUSY))
        answer_error(answer, "BUSY Redis is busy running a script. You can only call SCRIPT KILL "
                             "or SHUTDOWN NOSAVE.");
    else
        return false;
    return true;
}

static void unknown_answer(struct call *call)
{
    struct answer *answer = &call->answer;
    size_t length;

    answer_error(answer, "ERR unknown command '%.*s', with args beginning with: ",
                 (int)call->words[0].length, call->words[0].text);
    for (size_t i = 1; i < call->count && (length = strlen(answer->room)) < 128; i++)
        (void)snprintf(answer->room + length, sizeof(answer->room) - length, "'%.*s' ",
                       (int)call->words[i].length, call->words[i].text);
    answer->text.length = strlen(answer->room);
}

void command_execute(struct call *call)
{
    const struct command *command = command_find(&call->words[0]);
    bool is_inner = call->server->is_in_script;

    if (!command && is_inner) {
        answer_error(&call->answer, "ERR Unknown Redis command called from script");
    } else if (!command) {
        unknown_answer(call);
    } else if (!words_fit(command, call->count) && is_inner) {
        answer_error(&call->answer, "ERR Wrong number of args calling Redis command from script");
    } else if (!words_fit(command, call->count)) {
        answer_error(&call->answer, "ERR wrong number of arguments for '%s' command",
                     command->name);
    } else if (is_inner ? !script_is_refused(call, command) : !client_is_refused(call, command)) {
        call->server->script_wrote |= is_inner && command->flags & FLAG_WRITE;
        command->execute(call);
    }
}
