// What a contender says to the broker, and what it hears. The broker writes without blanks, so that
// looking for texts is enough here.
#include "tests/bench/bench_load.h"

#include <stdio.h>
#include <string.h>

static int write_acquire(const struct talk *talk, char *text, size_t size)
{
    return snprintf(text, size,
                    "{\"id\":1,\"op\":\"acquire\",\"key\":\"%s\",\"ttl_ms\":%lld,\"wait_ms\":-1}\n",
                    talk->key, (long long)talk->bench->ttl_ms);
}

static int write_release(const struct talk *talk, char *text, size_t size)
{
    return snprintf(text, size, "{\"id\":2,\"op\":\"release\",\"key\":\"%s\"}\n", talk->key);
}

bool broker_line_is_lost(const char *line)
{
    return strstr(line, "\"event\":\"lost\"") != NULL;
}

static enum answer read_line(const struct talk *talk, const char *line)
{
    if (strstr(line, "\"event\":"))
        return ANSWER_NOTHING;
    if (!strstr(line, "\"ok\":true"))
        return ANSWER_FAILED;
    if (talk->is_releasing && !strstr(line, "\"outcome\":\"released\""))
        return ANSWER_LOST;
    return ANSWER_DONE;
}

const struct lines_peer broker_lines = {
    .name = "lockbroker",
    .is_broker = true,
    .write_acquire = write_acquire,
    .write_release = write_release,
    .read = read_line,
};
