// What a contender says to Redis, and what it hears, by hand: so that it is compared with the
// broker in the same loop and at the same cost. Each answer is one line: `+OK`, `$-1`, `:1` or
// `-ERR ...`.
#include "tests/bench/bench_load.h"

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char acquire_sha[41];
static char release_sha[41];
static char fence_key[KEY_SIZE + 16];

static void prepare(const struct bench *bench)
{
    redisContext *redis;

    if (!bench->redis)
        die_of(bench->peer, "needs --redis");
    redis = redis_connect(bench->redis);
    script_load(redis, script_fence_acquire, acquire_sha);
    script_load(redis, script_release, release_sha);
    redisFree(redis);
    (void)snprintf(fence_key, sizeof(fence_key), "%s:fence", bench->key);
}

static int write_words(char *text, size_t size, int count, const char **words)
{
    int used = snprintf(text, size, "*%d\r\n", count);

    for (int i = 0; i < count; i++)
        used += snprintf(text + used, size - (size_t)used, "$%zu\r\n%s\r\n", strlen(words[i]),
                         words[i]);
    return used;
}

static int write_set(const struct talk *talk, char *text, size_t size)
{
    char ttl[24];
    const char *words[] = {"SET", talk->key, talk->token, "NX", "PX", ttl};

    (void)snprintf(ttl, sizeof(ttl), "%lld", (long long)talk->bench->ttl_ms);
    return write_words(text, size, 6, words);
}

static int write_fence(const struct talk *talk, char *text, size_t size)
{
    char ttl[24];
    const char *words[] = {"EVALSHA", acquire_sha, "2", talk->key, fence_key, talk->token, ttl};

    (void)snprintf(ttl, sizeof(ttl), "%lld", (long long)talk->bench->ttl_ms);
    return write_words(text, size, 7, words);
}

static int write_release(const struct talk *talk, char *text, size_t size)
{
    const char *words[] = {"EVALSHA", release_sha, "1", talk->key, talk->token};

    return write_words(text, size, 5, words);
}

static enum answer read_line(const struct talk *talk, const char *line)
{
    if (line[0] == '-')
        return ANSWER_FAILED;
    if (strncmp(line, "$-1", 3) == 0 || strncmp(line, ":0", 2) == 0)
        return talk->is_releasing ? ANSWER_LOST : ANSWER_BUSY;
    return ANSWER_DONE;
}

const struct lines_peer raw_lines = {
    .name = "raw",
    .prepare = prepare,
    .write_acquire = write_set,
    .write_release = write_release,
    .read = read_line,
};

const struct lines_peer raw_fence_lines = {
    .name = "raw-fence",
    .prepare = prepare,
    .write_acquire = write_fence,
    .write_release = write_release,
    .read = read_line,
};
