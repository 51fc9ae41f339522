// The Lua interpreter of the simulated Redis: compiles scripts once, runs them with KEYS and ARGV
// and the library `redis`, and turns what they return into an answer, as Redis 7 does.
#ifndef LB_TESTS_SIM_LUA_HOST_H
#define LB_TESTS_SIM_LUA_HOST_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/redis/resp.h"

struct call;
struct lua_host;
struct script;
struct word;

struct lua_host *lua_host_new(void);
void lua_host_free(struct lua_host *host);

// Forgets all scripts (what was compiled is kept aside).
void lua_host_flush(struct lua_host *host);

// The script of that text, known from now on; NULL when it does not compile, and *ret_problem says
// why, until the next call.
const struct script *lua_host_load(struct lua_host *host, const struct word *text,
                                   const char **ret_problem);

// The script of that name, NULL when it is not known.
const struct script *lua_host_find(const struct lua_host *host, const struct word *sha);

// 40 hex digits. Redis takes the SHA1 of the text; any name will do that the text alone decides.
const char *script_sha(const struct script *script);

// Runs a script for a call whose words are EVAL or EVALSHA, the script, the number of keys, the
// keys, the arguments. `keys` is that number.
void lua_host_run(struct lua_host *host, const struct script *script, struct call *call,
                  size_t keys);

// Takes what the script returned into a reply that is all nil yet.
void lua_host_answer(struct lua_host *host, struct resp *reply);

#endif
