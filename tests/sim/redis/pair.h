// A real server and the simulated one, asked the same things; they have to answer the same.
#ifndef LB_TESTS_SIM_REDIS_PAIR_H
#define LB_TESTS_SIM_REDIS_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/redis/real.h"
#include "tests/sim/server.h"

struct pair {
    struct real real;
    struct sim sim;
    struct server *server;
    struct server_conn *conn;
    char what[512]; // what is being asked, for whoever reads of a difference
    uint64_t asked;
    uint64_t changes; // that the watcher was told of
    int64_t status;   // the first one of the last answer that began with the time; -1: none
};

void pair_start(struct pair *pair, uint64_t seed);
void pair_stop(struct pair *pair);

// The real server's time; the simulated one's is set to it.
int64_t pair_now_ms(struct pair *pair);

// Asks both with the same bytes, or words, and compares. The answer to bytes begins with the time
// when `has_time`: the simulated server executes at that time.
void pair_send(struct pair *pair, const char *bytes, size_t length, bool has_time);
void pair_run(struct pair *pair, const char *const *words, size_t count);

// The answer to an acquire holds a fence.
void pair_acquire(struct pair *pair, const char *bytes, size_t length, int64_t fence_floor);

// Asks the real server alone for what the simulated one has no command for.
void pair_run_real(struct pair *pair, const char *line);

// Both lack this key, or have the same in it.
void pair_compare_key(struct pair *pair, const char *key);

#endif
