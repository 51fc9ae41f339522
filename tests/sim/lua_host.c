// Runs the broker's real scripts in a real Lua 5.1, which is what Redis has inside. Values cross
// the line between Lua and Redis as in Redis 7.0: numbers lose their fraction, nil and false are
// nil, an array ends at its first nil, {ok=} is a status and {err=} an error.
#include "tests/sim/lua_host.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <sha1.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/redis/script.h"
#include "tests/sim/memory.h"
#include "tests/sim/server_inside.h"

#define SCRIPTS_MAX       64
#define SHA_LENGTH        SCRIPT_SHA_LENGTH
#define NUMBER_BYTES_MAX  40
#define NUMBERS_MAX       16 // of one call from a script
#define RESULT_DEPTH_MAX  8
#define EVAL_WORDS_BEFORE 3 // the command, the script, the number of keys

struct script {
    char *text;
    size_t length;
    char sha[SHA_LENGTH + 1];
    const char *label;
    int function; // where the registry has it
    bool is_known;
};

struct lua_host {
    lua_State *lua;
    int error_handler; // where the registry has it
    struct call *call; // whose script is running
    size_t scripts_count;
    struct script scripts[SCRIPTS_MAX];
    char problem[256];
    char numbers[NUMBERS_MAX][NUMBER_BYTES_MAX];
};

static struct lua_host *host_of(lua_State *lua)
{
    return lua_touserdata(lua, lua_upvalueindex(1));
}

static void field_set(lua_State *lua, const char *name, const char *text, size_t length)
{
    lua_createtable(lua, 0, 1);
    lua_pushstring(lua, name);
    lua_pushlstring(lua, text, length);
    lua_rawset(lua, -3);
}

static void texts_push(lua_State *lua, const struct answer *answer)
{
    lua_createtable(lua, (int)answer->count, 0);
    for (size_t i = 0; i < answer->count; i++) {
        if (answer->items[i].text)
            lua_pushlstring(lua, answer->items[i].text, answer->items[i].length);
        else
            lua_pushboolean(lua, false);
        lua_rawseti(lua, -2, (int)i + 1);
    }
}

static void answer_push(lua_State *lua, const struct answer *answer)
{
    switch (answer->kind) {
    case ANSWER_INTEGER:
        lua_pushnumber(lua, (lua_Number)answer->integer);
        break;
    case ANSWER_TEXT:
        lua_pushlstring(lua, answer->text.text, answer->text.length);
        break;
    case ANSWER_TEXTS:
        texts_push(lua, answer);
        break;
    case ANSWER_STATUS:
        field_set(lua, "ok", answer->text.text, answer->text.length);
        break;
    case ANSWER_ERROR:
        field_set(lua, "err", answer->text.text, answer->text.length);
        break;
    case ANSWER_NIL:
    case ANSWER_SCRIPT:
        lua_pushboolean(lua, false);
        break;
    }
}

static void error_push(lua_State *lua, const char *text)
{
    field_set(lua, "err", text, strlen(text));
}

// Takes the arguments of redis.call as words of the inner command.
static bool words_take(struct lua_host *host, lua_State *lua, struct call *call)
{
    size_t numbers = 0;
    int count = lua_gettop(lua);

    call->count = (size_t)count;
    for (int i = 0; i < count; i++) {
        struct word *word = &call->words[i];
        int type = lua_type(lua, i + 1);

        if (type == LUA_TSTRING) {
            word->text = lua_tolstring(lua, i + 1, &word->length);
        } else if (type == LUA_TNUMBER && numbers < NUMBERS_MAX) {
            char *text = host->numbers[numbers++];

            word->length =
                (size_t)snprintf(text, NUMBER_BYTES_MAX, "%.17g", lua_tonumber(lua, i + 1));
            word->text = text;
        } else {
            return false;
        }
    }
    return true;
}

// Executes a command for a script and pushes what it answered.
static void inner_execute(lua_State *lua)
{
    struct lua_host *host = host_of(lua);
    struct call *inner = &host->call->server->inner;

    if (lua_gettop(lua) == 0) {
        error_push(lua, "ERR Please specify at least one argument for this redis lib call");
    } else if (lua_gettop(lua) > CALL_WORDS_MAX || !words_take(host, lua, inner)) {
        error_push(lua, "ERR Lua redis lib command arguments must be strings or integers");
    } else {
        inner->server = host->call->server;
        inner->conn = host->call->conn;
        command_execute(inner);
        answer_push(lua, &inner->answer);
    }
}

static bool is_error(lua_State *lua)
{
    bool result;

    if (!lua_istable(lua, -1))
        return false;
    lua_pushliteral(lua, "err");
    lua_rawget(lua, -2);
    result = lua_isstring(lua, -1);
    lua_pop(lua, 1);
    return result;
}

static int redis_call(lua_State *lua)
{
    inner_execute(lua);
    if (is_error(lua))
        return lua_error(lua);
    return 1;
}

static int redis_pcall(lua_State *lua)
{
    inner_execute(lua);
    return 1;
}

static int redis_sha1hex(lua_State *lua)
{
    char digits[SHA1_DIGEST_STRING_LENGTH];
    size_t length;
    const char *text;

    if (lua_gettop(lua) != 1) {
        lua_pushliteral(lua, "wrong number of arguments");
        return lua_error(lua);
    }
    text = lua_tolstring(lua, 1, &length);
    (void)SHA1Data((const uint8_t *)(text ? text : ""), text ? length : 0, digits);
    lua_pushstring(lua, digits);
    return 1;
}

// A text without '-' before it is taken as it is; its first word is the code.
static int redis_error_reply(lua_State *lua)
{
    size_t length;
    const char *text = luaL_checklstring(lua, 1, &length);
    bool is_marked = length > 0 && text[0] == '-';

    field_set(lua, "err", text + is_marked, length - is_marked);
    return 1;
}

static int redis_status_reply(lua_State *lua)
{
    size_t length;
    const char *text = luaL_checklstring(lua, 1, &length);

    field_set(lua, "ok", text, length);
    return 1;
}

static int redis_replicate_commands(lua_State *lua)
{
    lua_pushboolean(lua, true);
    return 1;
}

static int global_set_refuse(lua_State *lua)
{
    return luaL_error(lua, "Attempt to modify a readonly table");
}

static int global_refuse(lua_State *lua)
{
    const char *name = lua_tostring(lua, 2);

    return luaL_error(lua, "Script attempted to access nonexistent global variable '%s'",
                      name ? name : "?");
}

// Makes a table of every error and adds where it was, as the handler in Redis does.
static int error_handle(lua_State *lua)
{
    lua_Debug info;
    bool is_known = lua_getstack(lua, 1, &info) && lua_getinfo(lua, "Sl", &info);

    if (is_known && strcmp(info.what, "C") == 0)
        is_known = lua_getstack(lua, 2, &info) && lua_getinfo(lua, "Sl", &info);
    if (!lua_istable(lua, 1)) {
        lua_pushfstring(lua, "ERR %s", lua_tostring(lua, 1) ? lua_tostring(lua, 1) : "?");
        error_push(lua, lua_tostring(lua, -1));
        lua_replace(lua, 1);
    }
    lua_settop(lua, 1);
    if (is_known) {
        lua_pushstring(lua, info.source);
        lua_setfield(lua, 1, "source");
        lua_pushinteger(lua, info.currentline);
        lua_setfield(lua, 1, "line");
    }
    return 1;
}

static void library_open(lua_State *lua, lua_CFunction open, const char *name)
{
    lua_pushcfunction(lua, open);
    lua_pushstring(lua, name);
    lua_call(lua, 1, 0);
}

static void redis_add(struct lua_host *host, const char *name, lua_CFunction function)
{
    lua_pushlightuserdata(host->lua, host);
    lua_pushcclosure(host->lua, function, 1);
    lua_setfield(host->lua, -2, name);
}

static void libraries_open(struct lua_host *host)
{
    lua_State *lua = host->lua;

    library_open(lua, luaopen_base, "");
    library_open(lua, luaopen_table, LUA_TABLIBNAME);
    library_open(lua, luaopen_string, LUA_STRLIBNAME);
    library_open(lua, luaopen_math, LUA_MATHLIBNAME);
    lua_newtable(lua);
    redis_add(host, "call", redis_call);
    redis_add(host, "pcall", redis_pcall);
    redis_add(host, "sha1hex", redis_sha1hex);
    redis_add(host, "error_reply", redis_error_reply);
    redis_add(host, "status_reply", redis_status_reply);
    redis_add(host, "replicate_commands", redis_replicate_commands);
    lua_setglobal(lua, "redis");
}

struct lua_host *lua_host_new(void)
{
    struct lua_host *host = sim_alloc(sizeof(*host));

    host->lua = luaL_newstate();
    lb_assert(host->lua);
    libraries_open(host);
    lua_pushcfunction(host->lua, error_handle);
    host->error_handler = luaL_ref(host->lua, LUA_REGISTRYINDEX);
    lua_newtable(host->lua);
    lua_pushcfunction(host->lua, global_refuse);
    lua_setfield(host->lua, -2, "__index");
    lua_pushcfunction(host->lua, global_set_refuse);
    lua_setfield(host->lua, -2, "__newindex");
    lua_setmetatable(host->lua, LUA_GLOBALSINDEX);
    return host;
}

void lua_host_free(struct lua_host *host)
{
    lua_close(host->lua);
    for (size_t i = 0; i < host->scripts_count; i++)
        free(host->scripts[i].text);
    free(host);
}

void lua_host_flush(struct lua_host *host)
{
    for (size_t i = 0; i < host->scripts_count; i++)
        host->scripts[i].is_known = false;
}

static void sha_make(const struct word *text, char ret_sha[SHA_LENGTH + 1])
{
    uint64_t hash = 14695981039346656037U;

    for (size_t i = 0; i < text->length; i++)
        hash = (hash ^ (unsigned char)text->text[i]) * 1099511628211U;
    for (size_t i = 0; i < SHA_LENGTH; i++) {
        ret_sha[i] = "0123456789abcdef"[hash >> 60];
        hash = (hash ^ hash >> 29) * 0x9e3779b97f4a7c15U + i;
    }
    ret_sha[SHA_LENGTH] = '\0';
}

static const char *label_of(const struct word *text)
{
    for (int kind = 0; kind < SCRIPT_COUNT; kind++) {
        const char *known = script_text((enum backend_op_kind)kind);

        if (strlen(known) == text->length && memcmp(known, text->text, text->length) == 0)
            return script_label((enum backend_op_kind)kind);
    }
    return "";
}

static struct script *script_of_text(struct lua_host *host, const struct word *text)
{
    for (size_t i = 0; i < host->scripts_count; i++) {
        struct script *script = &host->scripts[i];

        if (script->length == text->length && memcmp(script->text, text->text, text->length) == 0)
            return script;
    }
    return NULL;
}

static struct script *script_add(struct lua_host *host, const struct word *text)
{
    struct script *script = &host->scripts[host->scripts_count++];

    lb_assert(host->scripts_count <= SCRIPTS_MAX);
    script->text = sim_alloc(text->length + 1);
    memcpy(script->text, text->text, text->length);
    script->length = text->length;
    script->label = label_of(text);
    sha_make(text, script->sha);
    script->function = luaL_ref(host->lua, LUA_REGISTRYINDEX);
    return script;
}

const struct script *lua_host_load(struct lua_host *host, const struct word *text,
                                   const char **ret_problem)
{
    struct script *script = script_of_text(host, text);

    if (!script) {
        if (luaL_loadbuffer(host->lua, text->text, text->length, "@user_script") != 0) {
            (void)snprintf(host->problem, sizeof(host->problem), "%s", lua_tostring(host->lua, -1));
            lua_pop(host->lua, 1);
            *ret_problem = host->problem;
            return NULL;
        }
        script = script_add(host, text);
    }
    script->is_known = true;
    return script;
}

const struct script *lua_host_find(const struct lua_host *host, const struct word *sha)
{
    if (sha->length != SHA_LENGTH)
        return NULL;
    for (size_t i = 0; i < host->scripts_count; i++) {
        const struct script *script = &host->scripts[i];

        if (script->is_known && memcmp(script->sha, sha->text, SHA_LENGTH) == 0)
            return script;
    }
    return NULL;
}

const char *script_sha(const struct script *script)
{
    return script->sha;
}

static void words_set(lua_State *lua, const char *name, const struct word *words, size_t count)
{
    lua_pushstring(lua, name);
    lua_createtable(lua, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        lua_pushlstring(lua, words[i].text, words[i].length);
        lua_rawseti(lua, -2, (int)i + 1);
    }
    lua_rawset(lua, LUA_GLOBALSINDEX);
}

static const char *field_text(lua_State *lua, const char *name)
{
    const char *text;

    lua_pushstring(lua, name);
    lua_rawget(lua, -2);
    text = lua_tostring(lua, -1);
    lua_pop(lua, 1); // the table still has it
    return text;
}

// What an error that nobody caught is answered as: its own text first, so its code leads.
static void failure_answer(lua_State *lua, const struct script *script, struct answer *answer)
{
    const char *text, *source, *line;

    if (!lua_istable(lua, -1)) {
        answer_error(answer, "ERR Error running script %s: execution failure", script->sha);
        return;
    }
    text = field_text(lua, "err");
    source = field_text(lua, "source");
    line = field_text(lua, "line");
    if (source && line)
        answer_error(answer, "%s script: %s, on %s:%s.", text ? text : "ERR unknown error",
                     script->sha, source, line);
    else
        answer_error(answer, "%s", text ? text : "ERR unknown error");
}

void lua_host_run(struct lua_host *host, const struct script *script, struct call *call,
                  size_t keys)
{
    const struct word *words = &call->words[EVAL_WORDS_BEFORE];
    struct server *server = call->server;
    lua_State *lua = host->lua;
    int failure;

    host->call = call;
    lua_settop(lua, 0);
    words_set(lua, "KEYS", words, keys);
    words_set(lua, "ARGV", words + keys, call->count - EVAL_WORDS_BEFORE - keys);
    server->is_in_script = true;
    server->script_wrote = false;
    server->script_label = script->label;
    lua_rawgeti(lua, LUA_REGISTRYINDEX, host->error_handler);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, script->function);
    failure = lua_pcall(lua, 0, 1, 1);
    server->is_in_script = false;
    server->script_label = "";
    if (failure)
        failure_answer(lua, script, &call->answer);
    else
        call->answer.kind = ANSWER_SCRIPT;
}

static void text_set(struct resp *reply, enum resp_kind kind, const char *text, size_t length)
{
    reply->text = sim_alloc(length + 1);
    memcpy(reply->text, text, length);
    reply->length = length;
    reply->kind = kind;
}

// Takes the field of the table on top, if it has such a text.
static bool field_take(lua_State *lua, const char *name, enum resp_kind kind, struct resp *reply)
{
    bool is_there;

    lua_pushstring(lua, name);
    lua_rawget(lua, -2);
    is_there = lua_type(lua, -1) == LUA_TSTRING;
    if (is_there) {
        size_t length;
        const char *text = lua_tolstring(lua, -1, &length);

        text_set(reply, kind, text, length);
    }
    lua_pop(lua, 1);
    return is_there;
}

static void value_take(lua_State *lua, int depth, struct resp *reply);

static void array_take(lua_State *lua, int depth, struct resp *reply)
{
    size_t room = lua_objlen(lua, -1);

    reply->kind = RESP_ARRAY;
    if (room > 0)
        reply->items = sim_alloc(room * sizeof(reply->items[0]));
    while (reply->count < room) {
        lua_rawgeti(lua, -1, (int)reply->count + 1);
        if (lua_isnil(lua, -1)) {
            lua_pop(lua, 1);
            return;
        }
        value_take(lua, depth + 1, &reply->items[reply->count++]);
        lua_pop(lua, 1);
    }
}

// Of a value on top of the stack, which stays there. `reply` is zeroed, and so is nil.
static void value_take(lua_State *lua, int depth, struct resp *reply)
{
    size_t length;
    const char *text;

    switch (lua_type(lua, -1)) {
    case LUA_TSTRING:
        text = lua_tolstring(lua, -1, &length);
        text_set(reply, RESP_TEXT, text, length);
        break;
    case LUA_TNUMBER:
        reply->kind = RESP_INTEGER;
        reply->integer = (int64_t)lua_tonumber(lua, -1);
        break;
    case LUA_TBOOLEAN:
        if (lua_toboolean(lua, -1)) {
            reply->kind = RESP_INTEGER;
            reply->integer = 1;
        }
        break;
    case LUA_TTABLE:
        lb_assert(depth < RESULT_DEPTH_MAX);
        if (!field_take(lua, "err", RESP_ERROR, reply) &&
            !field_take(lua, "ok", RESP_STATUS, reply))
            array_take(lua, depth, reply);
        break;
    default:
        break;
    }
}

void lua_host_answer(struct lua_host *host, struct resp *reply)
{
    value_take(host->lua, 0, reply);
    lua_settop(host->lua, 0);
}
