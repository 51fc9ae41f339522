// A client of a broker on its own host: asks for anything at any time, keeps to the contract, and
// may die, stall, or go on after `lost` until its deadline.
#ifndef LB_TESTS_SIM_CLIENT_H
#define LB_TESTS_SIM_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/grant.h"
#include "proto/message.h"
#include "tests/sim/node.h"
#include "tests/sim/truth.h"

#define CLIENT_OWNERS      2
#define CLIENT_PENDING_MAX 24
#define CLIENT_LINES_MAX   64

enum slot_state {
    SLOT_IDLE,
    SLOT_WAITING, // its acquire is not answered
    SLOT_HOLDING,
    SLOT_LOST, // told, and not given back yet
};

struct slot {
    enum slot_state state;
    int64_t fence;
    int64_t acquire_id;
    struct lb_grant grant; // as the client library has it
};

// A request that is not answered.
struct pending {
    struct ask ask;
    uint64_t arrival; // in which order its broker stepped it; 0: not yet
    int64_t stepped_us;
    int64_t asked_us;
};

// A line that was written to the client and not read by it yet.
struct line {
    bool is_notice;
    enum notice_kind notice;
    enum error_code error;
    int64_t id;
    enum op op;
    int key;
    char owner;
    bool held;
    int64_t fence;
    int64_t ttl_ms;
    int64_t deadline_ms;
};

struct client {
    struct world *world;
    struct node *node;
    int id;
    uint64_t session; // 0: not connected
    int64_t next_id;
    int64_t think_us;
    int64_t stalled_until_us;
    bool is_holder; // it keeps what it has for long
    bool is_ending; // it only waits for what it asked for, and gives it back
    struct slot slots[TRUTH_KEYS_MAX][CLIENT_OWNERS];
    struct pending pending[CLIENT_PENDING_MAX];
    int pending_count;
    struct line lines[CLIENT_LINES_MAX];
    int lines_count;
};

void client_init(struct client *client, struct world *world, struct node *node, int id);

// From the broker's process.
void client_hears_reply(struct client *client, const struct reply *reply);
void client_hears_notice(struct client *client, const struct notice *notice);
void client_is_asking(struct client *client, int64_t id, uint64_t arrival);
void client_ended_by_broker(struct client *client);

// The clients of that node do nothing until then.
void clients_stall(struct world *world, const struct node *node, int64_t until_us);

// I18: a waiter is answered at its own deadline, whatever becomes of the server.
void clients_judge_waits(struct world *world, const struct node *node);

// Faults are over: asks once more for each key, gives back at once what it gets, and asks for no
// more.
void client_heal(struct client *client);
void client_leave(struct client *client);

#endif
