// The simulated wire: one connection, with both directions of what is under way on it. It outlives
// the link when commands are still on their way to the server.
#ifndef LB_TESTS_SIM_LINK_WIRE_H
#define LB_TESTS_SIM_LINK_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/redis/resp.h"
#include "daemon/redis/wire.h"
#include "tests/sim/server.h"
#include "tests/sim/sim.h"

enum wire_item_kind {
    ITEM_OPENED, // connected
    ITEM_REPLY,
    ITEM_END, // the last item of a wire
};

// Something that comes to the broker.
struct wire_item {
    STAILQ_ENTRY(wire_item) entry;
    int64_t arrives_us;
    enum wire_item_kind kind;
    const char *reason; // ITEM_END
    struct resp *reply; // ITEM_REPLY
};

// One command.
struct wire_packet {
    STAILQ_ENTRY(wire_packet) entry;
    int64_t arrives_us;
    size_t length;
    char bytes[];
};

STAILQ_HEAD(wire_items, wire_item);
STAILQ_HEAD(wire_packets, wire_packet);

struct wire {
    struct wire *next; // of all there are
    struct sim *sim;
    struct server *server;
    int node;
    void (*wake)(void *context); // NULL: the broker's side is closed
    void *context;

    struct server_conn *conn;    // NULL: not yet, or closed
    struct wire_packets waiting; // appended, not written
    struct wire_packets sent;    // on their way, in order
    struct wire_items coming;    // on their way, in order
    size_t arrived;              // of them, those that are there
    uint64_t appended;
    uint64_t written;
    int64_t last_sent_us; // when the last one of `sent` arrives
    int64_t last_coming_us;
    int64_t held_until_us; // a partition: nothing arrives before
    size_t greeting;       // commands of the greeting that are not executed yet
    size_t greeting_cut;   // the connection breaks when so many of them are left
    unsigned actions;      // asked for, not done

    bool is_blocked; // writes no more
    bool is_deaf;    // what is written from now on is lost
    bool is_mute;    // what the server says is lost
    bool is_ending;  // ITEM_END is among `coming`
    bool is_zombie;  // what was sent will be executed, whatever happens here
};

// Begins to connect: an ITEM_OPENED or an ITEM_END follows, or nothing ever. NULL without memory.
struct wire *wire_open(struct sim *sim, struct server *server, int node,
                       void (*wake)(void *context), void *context);

// The next commands that are appended are this wire's greeting.
void wire_greet(struct wire *wire, size_t commands);

// Takes the next item that has arrived; its reply is the caller's.
bool wire_take(struct wire *wire, struct wire_item *ret_item);

// Nothing arrives for this node, on any of its wires, before that time.
void wires_hold(int node, int64_t until_us);

#endif
