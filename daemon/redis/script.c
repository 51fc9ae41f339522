// The Lua sources. No key, token or fence may ever be part of a text: they travel as KEYS and ARGV
// alone, or a client could write its own script, and every key would make a script of its own.
//
// They must run on Redis 5 and later, where `PEXPIRE ... GT` is not known before 7 and TIME may be
// followed by writes only once effects are replicated.
#include "daemon/redis/script.h"

#include "daemon/redis/command.h"
#include "proto/macros.h"

// Every script begins so: effects are replicated, and `now` is the server's time in ms. What a call
// costs the server most are the words that come with it, the redis.call()s, and numbers made of
// texts: that is why usual cases come first, apart, and in few of these.
#define SCRIPT_TIME                                                                                \
    "if redis.replicate_commands then redis.replicate_commands() end\n"                            \
    "local time = redis.call('TIME')\n"
#define SCRIPT_NOW                                                                                 \
    "local seconds, micros = tonumber(time[1]), tonumber(time[2])\n"                               \
    "local now = seconds * 1000 + math.floor(micros / 1000)\n"
#define SCRIPT_BEGIN SCRIPT_TIME SCRIPT_NOW

// True when the script is executed too late: its sender has given it up.
#define SCRIPT_LATE(not_after) "now > (tonumber(" not_after ") or now)"

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
//
// INFO costs more than all the rest. So what is returned third, when nothing is to be waited for
// any more, is the marker; whoever sends it back as `known` on the same connection, which is to the
// same run of the server, spares it.
#define SCRIPT_EPOCH                                                                               \
    "local function epoch_wait(key, longest, saw, known)\n"                                        \
    "  longest = tonumber(longest)\n"                                                              \
    "  if longest == 0 then return 0 end\n"                                                        \
    "  local marker = redis.pcall('GET', key)\n"                                                   \
    "  if known ~= '' and marker == known then return 0 end\n"                                     \
    "  local info = redis.call('INFO', 'server')\n"                                                \
    "  local run = string.match(info, 'run_id:(%w+)') or '?'\n"                                    \
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
    "  local over = since + ttl + math.ceil(ttl / 100) + 2\n"                                      \
    "  if over > now then return over - now end\n"                                                 \
    "  return 0, nil, wanted\n"                                                                    \
    "end\n"

// The fence counter's value; nil when it has none, or one that no clock shows before the year 2223:
// if whatever somebody wrote there were believed, there would soon be no fence left.
//
// fences_reserve() sets so many fences aside, all above every one before, and returns the first. A
// block never runs further ahead of the clock than half a second: were the counter lost, fences
// would go on from the clock, and nothing new is granted for longer than that after a loss.
// Lua's own conversion of numbers to text cuts them at 14 digits, hence %.0f.
#define SCRIPT_FENCE                                                                               \
    "local function fence_of(key)\n"                                                               \
    "  local stored = redis.pcall('GET', key)\n"                                                   \
    "  stored = type(stored) == 'string' and tonumber(stored)\n"                                   \
    "  if stored and stored <= 8000000000000000 then return math.floor(stored) end\n"              \
    "end\n"                                                                                        \
    "local function fence_set(key, last)\n"                                                        \
    "  redis.call('SET', key, string.format('%.0f', last))\n"                                      \
    "end\n"                                                                                        \
    "local function fences_reserve(key, floor, count)\n"                                           \
    "  local stored = fence_of(key)\n"                                                             \
    "  local clock = seconds * 1000000 + micros\n"                                                 \
    "  local first = clock\n"                                                                      \
    "  if stored and stored >= first then first = stored + 1 end\n"                                \
    "  if floor >= first then first = floor + 1 end\n"                                             \
    "  local last = first + (count - 1)\n"                                                         \
    "  if last > 9007199254740991 then return nil end\n"                                           \
    "  if count > 1 and last > clock + 500000 then return nil end\n"                               \
    "  fence_set(key, last)\n"                                                                     \
    "  return first\n"                                                                             \
    "end\n"

// The brokers that queue for a lock, in order of arrival: "<id>:<place kept until>:<turn until>",
// times in ms, apart by blanks, in one key that expires with the last of them. It is only a matter
// of fairness: whatever fails here must not keep a lock from being taken or given back, hence
// pcall. A turn is given by word on the broker's channel, and ends when it was not taken in time;
// who does not hear it is not there any more. queue_advance() gives it to the first in the queue
// unless that is `me`, and returns whether somebody was told.
#define SCRIPT_QUEUE                                                                               \
    "local function queue_read(key)\n"                                                             \
    "  local text = redis.pcall('GET', key)\n"                                                     \
    "  local queue = {text = type(text) == 'string' and text or ''}\n"                             \
    "  for id, kept, turn in string.gmatch(queue.text, '(%x+):(%d+):(%d+)') do\n"                  \
    "    kept, turn = tonumber(kept), tonumber(turn)\n"                                            \
    "    if kept > now and kept <= now + 60000 then\n"                                             \
    "      queue[#queue + 1] = {id = id, kept = kept, turn = turn}\n"                              \
    "    end\n"                                                                                    \
    "  end\n"                                                                                      \
    "  return queue\n"                                                                             \
    "end\n"                                                                                        \
    "local function queue_write(key, queue)\n"                                                     \
    "  local words, last = {}, now\n"                                                              \
    "  for i, place in ipairs(queue) do\n"                                                         \
    "    words[i] = string.format('%s:%.0f:%.0f', place.id, place.kept, place.turn)\n"             \
    "    if place.kept > last then last = place.kept end\n"                                        \
    "  end\n"                                                                                      \
    "  local text = table.concat(words, ' ')\n"                                                    \
    "  if text == queue.text then return end\n"                                                    \
    "  if text == '' then\n"                                                                       \
    "    redis.pcall('DEL', key)\n"                                                                \
    "  else\n"                                                                                     \
    "    redis.pcall('SET', key, text, 'PX', string.format('%.0f', last - now))\n"                 \
    "  end\n"                                                                                      \
    "end\n"                                                                                        \
    "local function queue_join(queue, me, ms)\n"                                                   \
    "  for _, place in ipairs(queue) do\n"                                                         \
    "    if place.id == me then\n"                                                                 \
    "      place.kept, place.turn = now + ms, 0\n"                                                 \
    "      return\n"                                                                               \
    "    end\n"                                                                                    \
    "  end\n"                                                                                      \
    "  queue[#queue + 1] = {id = me, kept = now + ms, turn = 0}\n"                                 \
    "end\n"                                                                                        \
    "local function queue_leave(queue, me)\n"                                                      \
    "  for i = #queue, 1, -1 do\n"                                                                 \
    "    if queue[i].id == me then table.remove(queue, i) end\n"                                   \
    "  end\n"                                                                                      \
    "end\n"                                                                                        \
    "local function queue_tell(id, text)\n"                                                        \
    "  return redis.pcall('PUBLISH', '" COMMAND_CHANNEL_START "' .. id, text)\n"                   \
    "end\n"                                                                                        \
    "local function queue_advance(queue, lock, me)\n"                                              \
    "  while queue[1] and queue[1].id ~= me do\n"                                                  \
    "    local first = queue[1]\n"                                                                 \
    "    if first.turn > now and first.turn <= now + 250 then return false end\n"                  \
    "    if first.turn == 0 and queue_tell(first.id, 'turn ' .. lock) ~= 0 then\n"                 \
    "      first.turn = now + 250\n"                                                               \
    "      return true\n"                                                                          \
    "    end\n"                                                                                    \
    "    table.remove(queue, 1)\n"                                                                 \
    "  end\n"                                                                                      \
    "  return false\n"                                                                             \
    "end\n"

// KEYS: lock, fence counter, epoch marker, queue. ARGV: token, ttl in ms, not after, fence floor,
// known marker, number of fences, and in one word: longest ttl, whether a marker was seen, our name
// in queues, for how long to queue in ms or 0, whether to pass those by who queue.

// The usual case: the lock is free, nobody queues for it, one fence is wanted, no loss of data is
// waited out (`known` is "-" for who never does, else the marker as it still is). Then the fence is
// the time in microseconds, and is all that is answered. Such numbers all have 16 digits, and so
// compare as texts do. What is not so, or not certainly, is left to the rest. A key of another type
// is nil to MGET, and stops the SET.
#define ACQUIRE_FREE                                                                               \
    "local clock = time[1] .. string.sub('000000' .. time[2], -6)\n"                               \
    "local function has_passed(number) return #number == #clock and number < clock end\n"          \
    "local limit, floor, known = ARGV[3] .. '999', ARGV[4], ARGV[5]\n"                             \
    "if #limit == #clock and clock <= limit and has_passed(floor) and ARGV[6] == '1' then\n"       \
    "  local found = redis.pcall('MGET', KEYS[1], KEYS[4], KEYS[3], KEYS[2])\n"                    \
    "  local marker, fence = found[3], found[4]\n"                                                 \
    "  if not found.err and not found[1] and not found[2] and\n"                                   \
    "     (known == '-' or known ~= '' and marker == known) and\n"                                 \
    "     (not fence or has_passed(fence)) then\n"                                                 \
    "    redis.call('SET', KEYS[2], clock)\n"                                                      \
    "    if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return clock end\n"      \
    "  end\n"                                                                                      \
    "end\n"

// The holder is told by `wait` that somebody queues, by `poll` that somebody who passes by wants
// the lock.
static const char acquire_text[] = SCRIPT_TIME ACQUIRE_FREE SCRIPT_NOW "if " SCRIPT_LATE(
    "ARGV[3]") " then return {now, 4} end\n" SCRIPT_FENCE SCRIPT_EPOCH SCRIPT_QUEUE
               "local longest, saw, me, queue_ms, barges =\n"
               "  string.match(ARGV[7], '^(%d+) (%d) (%x+) (%d+) (%d)$')\n"
               "queue_ms = tonumber(queue_ms)\n"
               "local wait, failure, marker = epoch_wait(KEYS[3], longest, saw, known)\n"
               "if failure then return failure end\n" SCRIPT_GET
               "if value and value ~= ARGV[1] then\n"
               "  if queue_ms > 0 then\n"
               "    local queue = queue_read(KEYS[4])\n"
               "    queue_join(queue, me, queue_ms)\n"
               "    queue_write(KEYS[4], queue)\n"
               "  end\n"
               "  if queue_ms > 0 or barges == '1' then\n"
               "    local holder = string.match(value, '^lb1:[^:]+:(%x+):%d+$')\n"
               "    if holder then\n"
               "      local word = queue_ms > 0 and 'wait ' or 'poll '\n"
               "      queue_tell(string.sub(redis.sha1hex(holder), 1, 16), word .. KEYS[1])\n"
               "    end\n"
               "  end\n"
               "  return {now, 0, redis.call('PTTL', KEYS[1]), string.sub(value, 1, 256)}\n"
               "end\n"
               "if not value and wait > 0 then return {now, 5, wait} end\n"
               "local queue = queue_read(KEYS[4])\n"
               "if not value and barges == '0' then\n"
               "  queue_advance(queue, KEYS[1], me)\n"
               "  local first = queue[1]\n"
               "  if first and first.id ~= me then\n"
               "    if queue_ms > 0 then queue_join(queue, me, queue_ms) end\n"
               "    queue_write(KEYS[4], queue)\n"
               "    return {now, 6, first.turn - now}\n"
               "  end\n"
               "end\n"
               "local pttl = value and redis.call('PTTL', KEYS[1])\n"
               "local ttl, count = tonumber(ARGV[2]), tonumber(ARGV[6])\n"
               "floor = tonumber(floor)\n"
               "local fence = fences_reserve(KEYS[2], floor, count)\n"
               "if not fence then\n"
               "  count = 1\n"
               "  fence = fences_reserve(KEYS[2], floor, count)\n"
               "end\n"
               "if not fence then return redis.error_reply('NOFENCE no fence is left') end\n"
               "if not value then\n"
               "  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])\n"
               "elseif pttl < ttl then\n"
               "  redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"
               "end\n"
               "queue_leave(queue, me)\n"
               "for _, place in ipairs(queue) do place.turn = 0 end\n"
               "queue_write(KEYS[4], queue)\n"
               "return {now, 1, fence, count, #queue, marker}\n";

// KEYS: fence counter, epoch marker, then locks. ARGV: fence floor, not after, longest ttl, whether
// a marker was seen, known marker, the ttl in ms that all have or "", then the locks' tokens, then
// their ttls unless all have the same, then how many fences each wants unless none does. A lock
// that got fences is answered with the first of them in place of its status. Without memory in the
// server what is there is still renewed: that needs none. GT never touches a key without expiry,
// and answers 0 also when the key has longer to live. The usual case: all have the same ttl, none
// wants fences, and all are renewed; only the time is answered.
static const char renew_text[] = SCRIPT_BEGIN SCRIPT_EPOCH SCRIPT_FENCE
    "local count = #KEYS - 2\n"
    "local results = {now}\n"
    "if " SCRIPT_LATE(
        "ARGV[2]") " then\n"
                   "  for i = 1, count do results[1 + i] = 4 end\n"
                   "  return results\n"
                   "end\n"
                   "local wait, failure = epoch_wait(KEYS[2], ARGV[3], ARGV[4], "
                   "ARGV[5])\n"
                   "if failure and not string.find(failure.err, 'OOM', 1, true) then return "
                   "failure end\n"
                   "local call = redis.call\n"
                   "local floor = tonumber(ARGV[1])\n"
                   "local function raise_fence()\n"
                   "  local stored = fence_of(KEYS[1])\n"
                   "  if floor > 0 and (not stored or stored < floor) then\n"
                   "    fence_set(KEYS[1], floor)\n"
                   "  end\n"
                   "end\n"
                   "local function set_again(key, token, ttl)\n"
                   "  local raised = pcall(raise_fence)\n"
                   "  local done = raised and redis.pcall('SET', key, token, 'PX', ttl)\n"
                   "  return done and not done.err and 6 or 7\n"
                   "end\n"
                   "local function fences_first(wanted)\n"
                   "  local done, first = pcall(fences_reserve, KEYS[1], floor, wanted)\n"
                   "  return done and first\n"
                   "end\n"
                   "local values = call('MGET', unpack(KEYS, 3))\n"
                   "local has_gt = true\n"
                   "local common = ARGV[6] ~= '' and ARGV[6]\n"
                   "local ttls = 6 + count\n"
                   "local fences = common and ttls or ttls + count\n"
                   "local done = 0\n"
                   "if common and not ARGV[fences + 1] then\n"
                   "  while done < count and values[done + 1] == ARGV[7 + done] and\n"
                   "        redis.pcall('PEXPIRE', KEYS[3 + done], common, 'GT') == 1 do\n"
                   "    done = done + 1\n"
                   "  end\n"
                   "  if done == count then return now end\n"
                   "end\n"
                   "for i = 1, done do results[1 + i] = 1 end\n"
                   "for i = done + 1, count do\n"
                   "  local key, value, token = KEYS[2 + i], values[i], ARGV[6 + i]\n"
                   "  local ttl = common or ARGV[ttls + i]\n"
                   "  local wanted = ARGV[fences + i]\n"
                   "  if value == token then\n"
                   "    local set = 0\n"
                   "    if has_gt then\n"
                   "      set = redis.pcall('PEXPIRE', key, ttl, 'GT')\n"
                   "      has_gt = type(set) ~= 'table'\n"
                   "    end\n"
                   "    if set ~= 1 and call('PTTL', key) < tonumber(ttl) then call('PEXPIRE', "
                   "key, ttl) end\n"
                   "    results[1 + i] = wanted and wanted ~= '0' and "
                   "fences_first(tonumber(wanted)) or "
                   "1\n"
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

// KEYS: lock, queue. ARGV: token, our name in queues, and unless neither that nor the time is
// wanted, for how long to queue anew in ms or 0. The third in the answer is 1 when another broker
// was given its turn. The usual case: the lock is ours and nobody queues; only that is answered.
static const char release_text[] =
    "if not ARGV[3] then\n"
    "  local found = redis.pcall('MGET', KEYS[1], KEYS[2])\n"
    "  if not found.err and found[1] == ARGV[1] and not found[2] then\n"
    "    redis.call('DEL', KEYS[1])\n"
    "    return 1\n"
    "  end\n"
    "end\n" SCRIPT_BEGIN SCRIPT_QUEUE SCRIPT_GET
    "local status = value == ARGV[1] and 1 or value and 2 or 0\n"
    "if status == 1 then redis.call('DEL', KEYS[1]) end\n"
    "local queue = queue_read(KEYS[2])\n"
    "queue_leave(queue, ARGV[2])\n"
    "local again_ms = tonumber(ARGV[3] or 0)\n"
    "if again_ms > 0 then queue_join(queue, ARGV[2], again_ms) end\n"
    "local gave = status < 2 and queue_advance(queue, KEYS[1], ARGV[2])\n"
    "queue_write(KEYS[2], queue)\n"
    "return {now, status, gave and 1 or 0}\n";

// KEYS: lock.
#define SCRIPT_LOOK                                                                                \
    SCRIPT_GET "if not value then return {now, 0} end\n"                                           \
               "local pttl = redis.call('PTTL', KEYS[1])\n"

#define SCRIPT_TELL "return {now, 1, pttl, string.sub(value, 1, 256)}\n"

static const char query_text[] = SCRIPT_BEGIN SCRIPT_LOOK SCRIPT_TELL;

// KEYS: lock, queue. ARGV: not after.
static const char break_text[] = SCRIPT_BEGIN SCRIPT_QUEUE
    "if " SCRIPT_LATE("ARGV[1]") " then return {now, 4} end\n" SCRIPT_LOOK
                                 "redis.call('DEL', KEYS[1])\n"
                                 "local queue = queue_read(KEYS[2])\n"
                                 "queue_advance(queue, KEYS[1])\n"
                                 "queue_write(KEYS[2], queue)\n" SCRIPT_TELL;

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
