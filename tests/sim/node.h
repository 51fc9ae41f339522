// One host with a broker process: the real broker stepped as the daemon's pump does it, the
// connections of its clients, and a link to the simulated Redis. The process can be stopped, killed
// and started again; the host's clock goes on.
#ifndef LB_TESTS_SIM_NODE_H
#define LB_TESTS_SIM_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/broker.h"
#include "tests/sim/channel.h"
#include "tests/sim/link.h"
#include "tests/sim/sim.h"

#define NODES_MAX           3
#define NODE_SESSIONS_MAX   16
#define NODE_INPUTS_MAX     1024
#define NODE_TEXT_BYTES_MAX 80
#define NODE_KINDS          4096 // more than ever are in flight

struct client;
struct world;

// A request as a client sends it. Times at LB_NONE are left out.
struct ask {
    int64_t id;
    enum op op;
    int key; // -1: none
    char owner;
    bool renew;
    int64_t ttl_ms;
    int64_t wait_ms;
    int64_t max_hold_ms;
    int64_t fence;
    int64_t target; // of a cancel
};

// Something that came in and is to be stepped.
struct node_input {
    struct event event;
    struct ask ask;
    char texts[4][NODE_TEXT_BYTES_MAX];
};

struct node {
    struct sim *sim;
    struct world *world;
    int id;
    uint64_t run; // the process's number, of all that ever ran; 0: none runs
    struct sim_clock clock;
    struct broker *broker;
    struct link *link;
    struct channel channel;
    struct broker_config config;
    bool saw_marker; // this process has
    int64_t saw_us;  // since when
    bool is_draining;
    int64_t drain_until_ms;
    int64_t stopped_until_us; // in true time
    int64_t ran_us;           // when it last had done all that there was to do
    uint64_t run_wanted;      // the number of the action that is still wanted
    int64_t run_at_us;        // when it comes

    struct {
        uint64_t id; // 0: none
        struct client *client;
    } sessions[NODE_SESSIONS_MAX];
    uint64_t ended[NODE_SESSIONS_MAX]; // sessions whose end was stepped in this run
    int ended_count;

    struct node_input *inputs; // a ring
    size_t inputs_first;
    size_t inputs_count;

    struct effects effects; // of the last step, carried out up to `carried`
    size_t carried;
    bool is_write_late; // the next grant has had its delay
    struct event stale[EFFECTS_MAX];
    size_t stale_count;
    bool is_unhandled; // the event being stepped is not handled yet
    struct node_input current;
    uint64_t serials[8]; // of each key: the token that an acquire was sent with last
    uint64_t tokens[8];  // of each key: that token's name
    int64_t asked_us[8]; // of each key: when an acquire was sent last
    bool barges[8];      // of each key: the last acquire passes by those who queue
    uint64_t asking[8];  // of each key: the acquire or renewal that has no outcome yet; 0: none
    struct {
        bool is_known;  // that another broker queues, since the last acquire was sent
        int64_t grants; // since then
    } contended[8];     // of each key
    int64_t written[8]; // of each key: the fence of the last grant, whoever was there to hear of it
    int64_t fences[8];  // of each key: the highest that this process granted it with
    int64_t breaks_us[8];      // of each key: when it was told to break it last
    int64_t heard_ms;          // the latest time of the server's that an answer brought
    uint8_t kinds[NODE_KINDS]; // of operations, by their id
    uint64_t next_arrival;
};

void node_init(struct node *node, struct world *world, int id);

// Starts a process; ends it at once (kill -9): its clients see an end of file.
void node_start(struct node *node);
void node_kill(struct node *node);
void node_deinit(struct node *node);

// SIGTERM: the process drains and ends by itself.
void node_drain(struct node *node);

// Stops the process for a while; with `suspended` the host's clock stands still meanwhile, and so
// do the clients on it.
void node_stop(struct node *node, int64_t for_us, bool suspended);

// Cuts the way between the node and the server until then.
void node_partition(struct node *node, int64_t until_us);

void node_configure(struct node *node, int64_t ttl_max_ms);

bool node_is_running(const struct node *node);
bool node_has_session(const struct node *node, uint64_t session);
int64_t node_now_ms(const struct node *node);

// What clients do. Opening fails when no process runs or it drains.
bool node_open(struct node *node, struct client *client, uint64_t session);
void node_ask(struct node *node, uint64_t session, const struct ask *ask);
void node_close(struct node *node, uint64_t session);

// The broker closes a connection.
void node_cut(struct node *node, uint64_t session);

// The node with that number, in the world of that sim.
struct node *node_of(struct sim *sim, int id);

#endif
