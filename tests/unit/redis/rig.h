// An uplink on a loop of its own, with every event it posts kept for the test to look at.
#ifndef LB_TESTS_REDIS_RIG_H
#define LB_TESTS_REDIS_RIG_H

#include <stdbool.h>
#include <uv.h>

#include "daemon/redis/uplink.h"
#include "tests/unit/redis/server.h"

#define RIG_OPS_MAX     4096
#define RIG_INSTANCE    "0123456789abcdef0123456789abcdef"
#define RIG_HOST        "thishost"
#define RIG_TOKEN(n)    "lb1:" RIG_HOST ":" RIG_INSTANCE ":" #n
#define RIG_TIMEOUT_MS  20000
#define RIG_PATIENCE_MS 30000

// True while the code under test runs, rather than the test's own.
extern bool rig_is_inside;

struct rig_outcome {
    int count; // how often it was posted
    struct backend_outcome outcome;
    char host[LB_HOST_BYTES_MAX + 1];
};

struct rig {
    uv_loop_t loop;
    uv_timer_t tick;
    struct uplink *uplink;
    struct uplink_options options;
    int ups;
    int downs;
    bool is_up;
    bool may_evict;
    char version[64];
    char policy[64];
    char role[64];
    char run_id[64];
    int64_t server_ms; // as the last up told it
    int64_t asked_ms;
    int64_t timeout_ms; // of each operation, as are the next three
    int64_t not_after_ms;
    bool wants_time;
    int64_t loss_ttl_ms;
    bool saw_epoch;
    int64_t fences;   // as are these four
    int64_t queue_ms; // of all but releases
    int64_t again_ms; // of releases
    bool barges;
    uint64_t ops_count; // op_id 1.. is given out
    uint64_t ended;
    struct rig_outcome outcomes[RIG_OPS_MAX + 1];
};

// A rig for that server, by its Unix socket or by TCP; not opened yet. The options may be changed
// before rig_open().
void rig_init(struct rig *rig, const struct server *server);
void rig_use_tcp(struct rig *rig, const char *host, int port);
void rig_open(struct rig *rig);

// Opens it and waits for the link.
void rig_open_up(struct rig *rig);

// Closes everything; the loop must end by itself.
void rig_close(struct rig *rig);

// Runs the loop until the condition holds; the test fails when it does not within RIG_PATIENCE_MS.
void rig_await(struct rig *rig, bool (*is_met)(const struct rig *rig, int64_t number),
               int64_t number);
void rig_await_up(struct rig *rig, int ups); // that many ups in all, and the link is up
void rig_await_down(struct rig *rig, int downs);
void rig_await_ended(struct rig *rig); // all operations

// Submits an operation without a flush; returns its op_id.
uint64_t rig_submit(struct rig *rig, enum backend_op_kind kind, const char *key, uint64_t serial,
                    int64_t ttl_ms, int64_t fence_floor);
void rig_flush(struct rig *rig);
const struct backend_outcome *rig_outcome(const struct rig *rig, uint64_t op_id);

// One operation from beginning to end.
const struct backend_outcome *rig_run(struct rig *rig, enum backend_op_kind kind, const char *key,
                                      uint64_t serial, int64_t ttl_ms, int64_t fence_floor);
const struct backend_outcome *rig_acquire(struct rig *rig, const char *key, uint64_t serial,
                                          int64_t ttl_ms);
const struct backend_outcome *rig_renew(struct rig *rig, const char *key, uint64_t serial,
                                        int64_t ttl_ms);
const struct backend_outcome *rig_release(struct rig *rig, const char *key, uint64_t serial);
const struct backend_outcome *rig_query(struct rig *rig, const char *key);
const struct backend_outcome *rig_break(struct rig *rig, const char *key);

#endif
