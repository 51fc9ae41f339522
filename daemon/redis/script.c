// The Lua sources. No key, token or fence may ever be part of a text: they travel as KEYS and ARGV
// alone, or a client could write its own script, and every key would make a script of its own.
//
// They must run on Redis 5 and later, where `PEXPIRE ... GT` is not known before 7 and TIME may be
// followed by writes only once effects are replicated.
#include "daemon/redis/script.h"

#include "proto/macros.h"

// What GET says about a key of another type is the one error that is an answer.
#define SCRIPT_GET                                                                                 \
    "local value = redis.pcall('GET', KEYS[1])\n"                                                  \
    "if type(value) == 'table' then\n"                                                             \
    "  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end\n"

// KEYS: lock, fence counter. ARGV: token, ttl in ms, fence floor.
// Lua's own conversion of numbers to text cuts them at 14 digits, hence %.0f.
static const char acquire_text[] =
    "if redis.replicate_commands then redis.replicate_commands() end\n" SCRIPT_GET "  return {3}\n"
    "end\n"
    "if value and value ~= ARGV[1] then\n"
    "  return {0, redis.call('PTTL', KEYS[1]), string.sub(value, 1, 256)}\n"
    "end\n"
    "local pttl = value and redis.call('PTTL', KEYS[1])\n"
    "local ttl = tonumber(ARGV[2])\n"
    "local floor = tonumber(ARGV[3])\n"
    "local stored = tonumber(redis.call('GET', KEYS[2]) or '')\n"
    "local time = redis.call('TIME')\n"
    "local fence = tonumber(time[1]) * 1000000 + tonumber(time[2])\n"
    "if stored and stored >= fence and stored <= 9007199254740991 then\n"
    "  fence = math.floor(stored) + 1\n"
    "end\n"
    "if floor >= fence then fence = floor + 1 end\n"
    "if fence > 9007199254740991 then return redis.error_reply('NOFENCE no fence is left') end\n"
    "redis.call('SET', KEYS[2], string.format('%.0f', fence))\n"
    "if not value then\n"
    "  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n"
    "elseif pttl < ttl then\n"
    "  redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"
    "end\n"
    "return {1, fence}\n";

// KEYS: locks. ARGV: their tokens, then their ttls in ms.
// GT never touches a key without expiry, and answers 0 also when the key has longer to live.
static const char renew_text[] =
    "local count = #KEYS\n"
    "local call = redis.call\n"
    "local values = call('MGET', unpack(KEYS))\n"
    "local has_gt = true\n"
    "local results = {}\n"
    "for i = 1, count do\n"
    "  local key, value = KEYS[i], values[i]\n"
    "  if value == ARGV[i] then\n"
    "    local ttl = ARGV[count + i]\n"
    "    local set = 0\n"
    "    if has_gt then\n"
    "      set = redis.pcall('PEXPIRE', key, ttl, 'GT')\n"
    "      has_gt = type(set) ~= 'table'\n"
    "    end\n"
    "    if set ~= 1 and call('PTTL', key) < tonumber(ttl) then call('PEXPIRE', key, ttl) end\n"
    "    results[i] = 1\n"
    "  elseif value then\n"
    "    results[i] = 2\n"
    "  elseif call('TYPE', key).ok == 'none' then\n"
    "    results[i] = 0\n"
    "  else\n"
    "    results[i] = 3\n"
    "  end\n"
    "end\n"
    "return results\n";

// KEYS: lock. ARGV: token.
static const char release_text[] = SCRIPT_GET "  return 3\n"
                                              "end\n"
                                              "if not value then return 0 end\n"
                                              "if value ~= ARGV[1] then return 2 end\n"
                                              "redis.call('DEL', KEYS[1])\n"
                                              "return 1\n";

// KEYS: lock.
#define SCRIPT_LOOK                                                                                \
    SCRIPT_GET "  return {3}\n"                                                                    \
               "end\n"                                                                             \
               "if not value then return {0} end\n"                                                \
               "local pttl = redis.call('PTTL', KEYS[1])\n"

#define SCRIPT_TELL "return {1, pttl, string.sub(value, 1, 256)}\n"

static const char query_text[] = SCRIPT_LOOK SCRIPT_TELL;

static const char break_text[] = SCRIPT_LOOK "redis.call('DEL', KEYS[1])\n" SCRIPT_TELL;

static const struct {
    const char *label;
    const char *text;
} scripts[SCRIPT_COUNT] = {
    [BACKEND_ACQUIRE] = {"acquire", acquire_text}, [BACKEND_RENEW] = {"renew", renew_text},
    [BACKEND_RELEASE] = {"release", release_text}, [BACKEND_QUERY] = {"query", query_text},
    [BACKEND_BREAK] = {"break", break_text},
};

const char *script_text(enum backend_op_kind kind)
{
    lb_assert((unsigned)kind < SCRIPT_COUNT);
    return scripts[kind].text;
}

const char *script_label(enum backend_op_kind kind)
{
    lb_assert((unsigned)kind < SCRIPT_COUNT);
    return scripts[kind].label;
}
