// The Lua scripts of those who use Redis directly.
#include "tests/bench/bench_load.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

// KEYS: the lock. ARGV: the token.
const char script_release[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
                              "return redis.call('DEL', KEYS[1])\n";

// What a direct client would have to run to get what the broker gives: the lock, and a number that
// rises with every grant, also when the counter was lost. KEYS: the lock, the counter. ARGV: the
// token, the ttl in ms.
const char script_fence_acquire[] =
    "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end\n"
    "local time = redis.call('TIME')\n"
    "local fence = time[1] * 1000000 + time[2]\n"
    "local last = tonumber(redis.call('GET', KEYS[2]) or 0)\n"
    "if last >= fence then fence = last + 1 end\n"
    "redis.call('SET', KEYS[2], string.format('%.0f', fence))\n"
    "return fence\n";

// Wakes one who waits in BLPOP. KEYS: the lock, the list of signals. ARGV: the token.
const char script_signal_release[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
                                     "redis.call('DEL', KEYS[1])\n"
                                     "redis.call('LPUSH', KEYS[2], '1')\n"
                                     "redis.call('LTRIM', KEYS[2], 0, 0)\n"
                                     "return 1\n";

redisContext *redis_connect(const char *address)
{
    char host[64];
    int port;
    redisContext *redis = address_is_path(address, host, sizeof(host), &port)
                              ? redisConnectUnix(address)
                              : redisConnect(host, port);

    if (!redis || redis->err)
        die_of(address, redis ? redis->errstr : "no memory");
    return redis;
}

void script_load(redisContext *redis, const char *source, char sha[41])
{
    redisReply *reply = redisCommand(redis, "SCRIPT LOAD %s", source);

    if (!reply || reply->type != REDIS_REPLY_STRING || reply->len != 40)
        die_of("SCRIPT LOAD", reply && reply->type == REDIS_REPLY_ERROR ? reply->str : "no reply");
    memcpy(sha, reply->str, 41);
    freeReplyObject(reply);
}
