// Locks in Redis without a broker, through hiredis: by SET NX alone, with a fence, and with a list
// in which the next one waits to be woken.
#include "tests/bench/bench_load.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

struct redis_user {
    redisContext *redis;
    int contender;
    char key[KEY_SIZE];
    char other_key[KEY_SIZE + 16]; // the fence counter, or the list of signals
    char token[TOKEN_SIZE];
    char ttl[24];
    char acquire_sha[41];
    char release_sha[41];
    char error[ERROR_NAME_SIZE];
};

enum outcome {
    OUTCOME_NO,
    OUTCOME_YES,
    OUTCOME_ERROR,
};

// An answer is "no" when it is nil or zero.
static enum outcome ask(struct redis_user *user, int count, const char **words)
{
    redisReply *reply = redisCommandArgv(user->redis, count, words, NULL);
    enum outcome outcome = OUTCOME_YES;

    if (!reply)
        die_of("Redis", user->redis->errstr);
    if (reply->type == REDIS_REPLY_NIL || (reply->type == REDIS_REPLY_INTEGER && !reply->integer))
        outcome = OUTCOME_NO;
    if (reply->type == REDIS_REPLY_ERROR) {
        outcome = OUTCOME_ERROR;
        (void)snprintf(user->error, sizeof(user->error), "%s", reply->str);
    }
    freeReplyObject(reply);
    return outcome;
}

static struct redis_user *user_new(const struct bench *bench, int contender)
{
    struct redis_user *user = memory(NULL, sizeof(*user));

    memset(user, 0, sizeof(*user));
    if (!bench->redis)
        die_of(bench->peer, "needs --redis");
    user->redis = redis_connect(bench->redis);
    user->contender = contender;
    key_name(bench, contender, user->key);
    (void)snprintf(user->ttl, sizeof(user->ttl), "%lld", (long long)bench->ttl_ms);
    return user;
}

static void *raw_open(const struct bench *bench, int contender)
{
    struct redis_user *user = user_new(bench, contender);

    script_load(user->redis, script_release, user->release_sha);
    return user;
}

static enum outcome set_once(struct redis_user *user)
{
    const char *words[] = {"SET", user->key, user->token, "NX", "PX", user->ttl};

    return ask(user, 6, words);
}

static enum outcome fence_once(struct redis_user *user)
{
    const char *words[] = {"EVALSHA",       user->acquire_sha, "2",      user->key,
                           user->other_key, user->token,       user->ttl};

    return ask(user, 7, words);
}

// Asks again and again, as those do whom nobody wakes.
static const char *acquire_by(struct redis_user *user, enum outcome (*once)(struct redis_user *))
{
    enum outcome outcome;

    token_make(user->contender, user->token);
    while ((outcome = once(user)) == OUTCOME_NO)
        sleep_until(clock_ns() + POLL_NS);
    return outcome == OUTCOME_ERROR ? user->error : NULL;
}

static const char *raw_acquire(void *self)
{
    return acquire_by(self, set_once);
}

static const char *release_by(struct redis_user *user, int count, const char **words)
{
    enum outcome outcome = ask(user, count, words);

    return outcome == OUTCOME_YES ? NULL : outcome == OUTCOME_NO ? error_lost : user->error;
}

static const char *raw_release(void *self)
{
    struct redis_user *user = self;
    const char *words[] = {"EVALSHA", user->release_sha, "1", user->key, user->token};

    return release_by(user, 5, words);
}

static void *fence_open(const struct bench *bench, int contender)
{
    struct redis_user *user = raw_open(bench, contender);

    script_load(user->redis, script_fence_acquire, user->acquire_sha);
    (void)snprintf(user->other_key, sizeof(user->other_key), "%s:fence", bench->key);
    return user;
}

static const char *fence_acquire(void *self)
{
    return acquire_by(self, fence_once);
}

static void *blpop_open(const struct bench *bench, int contender)
{
    struct redis_user *user = user_new(bench, contender);

    script_load(user->redis, script_signal_release, user->release_sha);
    (void)snprintf(user->other_key, sizeof(user->other_key), "%s:signal", user->key);
    return user;
}

// Whoever takes the signal has to win the lock all the same. It waits a second at most, since the
// signal of a holder that died never comes.
static const char *blpop_acquire(void *self)
{
    struct redis_user *user = self;
    const char *words[] = {"BLPOP", user->other_key, "1"};
    enum outcome outcome;

    token_make(user->contender, user->token);
    while ((outcome = set_once(user)) == OUTCOME_NO)
        if (ask(user, 3, words) == OUTCOME_ERROR)
            return user->error;
    return outcome == OUTCOME_ERROR ? user->error : NULL;
}

static const char *blpop_release(void *self)
{
    struct redis_user *user = self;
    const char *words[] = {"EVALSHA", user->release_sha, "2",
                           user->key, user->other_key,   user->token};

    return release_by(user, 6, words);
}

const struct blocking_peer raw_peer = {"raw", raw_open, raw_acquire, raw_release};
const struct blocking_peer raw_fence_peer = {"raw-fence", fence_open, fence_acquire, raw_release};
const struct blocking_peer blpop_peer = {"blpop", blpop_open, blpop_acquire, blpop_release};
