// The broker through its C library: calls that wait, one connection a process.
#include "client/lib/lockbroker.h"
#include "tests/bench/bench_load.h"

#include <stdlib.h>

struct broker_user {
    struct lb_client *client;
    struct lb_grant *grant;
    struct lb_acquire_options options;
    char key[KEY_SIZE];
};

static void *broker_open(const struct bench *bench, int contender)
{
    struct broker_user *user = memory(NULL, sizeof(*user));
    const char *path = bench->brokers[contender % bench->brokers_count];
    int r = lb_connect(path, NULL, &user->client);

    if (r != 0)
        die_of(path, lb_error_text(r));
    user->options = (struct lb_acquire_options){
        .size = sizeof(user->options), .ttl_ms = bench->ttl_ms, .wait_ms = LB_WAIT_FOREVER};
    key_name(bench, contender, user->key);
    return user;
}

static const char *broker_acquire(void *self)
{
    struct broker_user *user = self;
    int r = lb_acquire(user->client, user->key, &user->options, &user->grant);

    return r == 0 ? NULL : lb_error_text(r);
}

static const char *broker_release(void *self)
{
    struct broker_user *user = self;
    struct lb_release_result result;
    int r = lb_release(user->grant, NULL, &result);

    if (r != 0)
        return lb_error_text(r);
    return result.outcome == LB_RELEASED   ? NULL
           : result.outcome == LB_WAS_LOST ? error_lost
                                           : "unconfirmed";
}

const struct blocking_peer broker_peer = {"lockbroker", broker_open, broker_acquire,
                                          broker_release};
