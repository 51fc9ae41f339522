// The Lua sources. No key, token or fence may ever be part of a text: they travel as KEYS and ARGV
// alone, or a client could write its own script, and every key would make a script of its own.
//
// They must run on Redis 5 and later, where `PEXPIRE ... GT` is not known before 7 and TIME may be
// followed by writes only once effects are replicated.
#include "daemon/redis/script.h"

#include "proto/macros.h"

// Every script begins so: effects are replicated, and `now` is the server's time in ms.
#define SCRIPT_BEGIN                                                                               \
    "if redis.replicate_commands then redis.replicate_commands() end\n"                            \
    "local time = redis.call('TIME')\n"                                                            \
    "local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)\n"

// True when the script is executed too late: its sender has given it up.
#define SCRIPT_LATE(not_after) "tonumber(" not_after ") and now > tonumber(" not_after ")"

// What GET says about a key of another type is the one error that is an answer.
#define SCRIPT_GET                                                                                 \
    "local value = redis.pcall('GET', KEYS[1])\n"                                                  \
    "if type(value) == 'table' then\n"                                                             \
    "  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end\n"                \
    "  return {now, 3}\n"                                                                          \
    "end\n"

// A server that restarted, was emptied or restored may lack locks that somebody still relies on.
// The epoch marker, "<run id> <since, ms> <longest ttl, ms>", tells: it is missing, or names
// another run. From then on free keys wait until no unknown lock can be left. This function returns
// for how long that still is, in ms; `longest` is the longest ttl that this broker allows, and
// `saw` is "1" when it has seen a marker before. With a second value, an error, nothing is known
// and the marker could not be written. A broker that never did knows nothing of a loss: for it the
// time counts from the start of the server. A clock that was set back starts the wait anew.
#define SCRIPT_EPOCH                                                                               \
    "local function epoch_wait(key, longest, saw)\n"                                               \
    "  longest = tonumber(longest)\n"                                                              \
    "  if longest == 0 then return 0 end\n"                                                        \
    "  local info = redis.call('INFO', 'server')\n"                                                \
    "  local run = string.match(info, 'run_id:(%w+)') or '?'\n"                                    \
    "  local marker = redis.pcall('GET', key)\n"                                                   \
    "  if type(marker) ~= 'string' then marker = '' end\n"                                         \
    "  local seen_run, since, ttl = string.match(marker, '^(%S+) (%d+) (%d+)$')\n"                 \
    "  since = tonumber(since) or now\n"                                                           \
    "  ttl = tonumber(ttl) or 0\n"                                                                 \
    "  if ttl > 3600000 then seen_run, ttl = nil, 0 end\n"                                         \
    "  if ttl < longest then ttl = longest end\n"                                                  \
    "  if not seen_run and saw == '0' then\n"                                                      \
    "    local uptime = tonumber(string.match(info, 'uptime_in_seconds:(%d+)')) or 0\n"            \
    "    since = now - uptime * 1000 + 1000\n"                                                     \
    "  elseif seen_run ~= run then\n"                                                              \
    "    since = now\n"                                                                            \
    "  end\n"                                                                                      \
    "  if since > now then since = now end\n"                                                      \
    "  local wanted = string.format('%s %.0f %.0f', run, since, ttl)\n"                            \
    "  if wanted ~= marker then\n"                                                                 \
    "    local done = redis.pcall('SET', key, wanted)\n"                                           \
    "    if done.err then return ttl, done end\n"                                                  \
    "  end\n"                                                                                      \
    "  local left = since + ttl + math.ceil(ttl / 100) + 2 - now\n"                                \
    "  return left > 0 and left or 0\n"                                                            \
    "end\n"

// The fence counter's value; nil when it has none, or one that no clock shows before the year 2223:
// if whatever somebody wrote there were believed, there would soon be no fence left.
#define SCRIPT_FENCE                                                                               \
    "local function fence_of(key)\n"                                                               \
    "  local stored = redis.pcall('GET', key)\n"                                                   \
    "  stored = type(stored) == 'string' and tonumber(stored)\n"                                   \
    "  if stored and stored <= 8000000000000000 then return math.floor(stored) end\n"              \
    "end\n"

// KEYS: lock, fence counter, epoch marker. ARGV: token, ttl in ms, fence floor, not after, longest
// ttl, whether a marker was seen.
// Lua's own conversion of numbers to text cuts them at 14 digits, hence %.0f.
static const char acquire_text[] = SCRIPT_BEGIN SCRIPT_EPOCH SCRIPT_FENCE "if " SCRIPT_LATE(
    "ARGV[4]") " then return {now, 4} end\n"
               "local wait, failure = epoch_wait(KEYS[3], ARGV[5], ARGV[6])\n"
               "if failure then return failure end\n" SCRIPT_GET
               "if value and value ~= ARGV[1] then\n"
               "  return {now, 0, redis.call('PTTL', KEYS[1]), string.sub(value, 1, 256)}\n"
               "end\n"
               "if not value and wait > 0 then return {now, 5, wait} end\n"
               "local pttl = value and redis.call('PTTL', KEYS[1])\n"
               "local ttl = tonumber(ARGV[2])\n"
               "local floor = tonumber(ARGV[3])\n"
               "local stored = fence_of(KEYS[2])\n"
               "local fence = tonumber(time[1]) * 1000000 + tonumber(time[2])\n"
               "if stored and stored >= fence then\n"
               "  fence = stored + 1\n"
               "end\n"
               "if floor >= fence then fence = floor + 1 end\n"
               "if fence > 9007199254740991 then return redis.error_reply('NOFENCE no fence is "
               "left') end\n"
               "redis.call('SET', KEYS[2], string.format('%.0f', fence))\n"
               "if not value then\n"
               "  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n"
               "elseif pttl < ttl then\n"
               "  redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"
               "end\n"
               "return {now, 1, fence}\n";

// KEYS: fence counter, epoch marker, then locks. ARGV: fence floor, not after, longest ttl, whether
// a marker was seen, then the locks' tokens, then their ttls in ms.
// Without memory in the server what is there is still renewed: that needs none.
// GT never touches a key without expiry, and answers 0 also when the key has longer to live.
static const char renew_text[] = SCRIPT_BEGIN SCRIPT_EPOCH SCRIPT_FENCE
    "local count = #KEYS - 2\n"
    "local results = {now}\n"
    "if " SCRIPT_LATE(
        "ARGV[2]") " then\n"
                   "  for i = 1, count do results[1 + i] = 4 end\n"
                   "  return results\n"
                   "end\n"
                   "local wait, failure = epoch_wait(KEYS[2], ARGV[3], ARGV[4])\n"
                   "if failure and not string.find(failure.err, 'OOM', 1, true) then return "
                   "failure end\n"
                   "local call = redis.call\n"
                   "local function raise_fence()\n"
                   "  local stored = fence_of(KEYS[1])\n"
                   "  local floor = tonumber(ARGV[1])\n"
                   "  if floor > 0 and (not stored or stored < floor) then\n"
                   "    call('SET', KEYS[1], string.format('%.0f', floor))\n"
                   "  end\n"
                   "end\n"
                   "local function set_again(key, token, ttl)\n"
                   "  local raised = pcall(raise_fence)\n"
                   "  local done = raised and redis.pcall('SET', key, token, 'PX', ttl)\n"
                   "  return done and not done.err and 6 or 7\n"
                   "end\n"
                   "local values = call('MGET', unpack(KEYS, 3))\n"
                   "local has_gt = true\n"
                   "for i = 1, count do\n"
                   "  local key, value, token, ttl = KEYS[2 + i], values[i], ARGV[4 + i], ARGV[4 + "
                   "count + i]\n"
                   "  if value == token then\n"
                   "    local set = 0\n"
                   "    if has_gt then\n"
                   "      set = redis.pcall('PEXPIRE', key, ttl, 'GT')\n"
                   "      has_gt = type(set) ~= 'table'\n"
                   "    end\n"
                   "    if set ~= 1 and call('PTTL', key) < tonumber(ttl) then call('PEXPIRE', "
                   "key, ttl) end\n"
                   "    results[1 + i] = 1\n"
                   "  elseif value then\n"
                   "    results[1 + i] = 2\n"
                   "  elseif call('TYPE', key).ok ~= 'none' then\n"
                   "    results[1 + i] = 3\n"
                   "  elseif wait > 0 then\n"
                   "    results[1 + i] = set_again(key, token, ttl)\n"
                   "  else\n"
                   "    results[1 + i] = 0\n"
                   "  end\n"
                   "end\n"
                   "return results\n";

// KEYS: lock. ARGV: token.
static const char release_text[] =
    SCRIPT_BEGIN SCRIPT_GET "if not value then return {now, 0} end\n"
                            "if value ~= ARGV[1] then return {now, 2} end\n"
                            "redis.call('DEL', KEYS[1])\n"
                            "return {now, 1}\n";

// KEYS: lock.
#define SCRIPT_LOOK                                                                                \
    SCRIPT_GET "if not value then return {now, 0} end\n"                                           \
               "local pttl = redis.call('PTTL', KEYS[1])\n"

#define SCRIPT_TELL "return {now, 1, pttl, string.sub(value, 1, 256)}\n"

static const char query_text[] = SCRIPT_BEGIN SCRIPT_LOOK SCRIPT_TELL;

// ARGV: not after.
static const char break_text[] =
    SCRIPT_BEGIN "if " SCRIPT_LATE("ARGV[1]") " then return {now, 4} end\n" SCRIPT_LOOK
                                              "redis.call('DEL', KEYS[1])\n" SCRIPT_TELL;

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
