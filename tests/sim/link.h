// A broker's link to the simulated Redis: the real exchange, commands, scripts and handshake of
// daemon/redis over a simulated wire, with the connecting, pausing and giving up that
// daemon/redis/uplink.c does, and with everything that can happen to bytes on their way.
#ifndef LB_TESTS_SIM_LINK_H
#define LB_TESTS_SIM_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/backend.h"
#include "daemon/core/event.h"
#include "tests/sim/server.h"
#include "tests/sim/sim.h"

struct link;

struct link_options {
    int node;                      // its number, 0.. ; the host in its tokens is "n<number>"
    const char *instance;          // 32 hex digits: the secret part of its tokens; copied
    const char *prefix;            // of lock keys; borrowed
    const struct sim_clock *clock; // CLOCK_BOOTTIME of the node; borrowed

    // Posts an event to the broker (texts in it are borrowed until it returns).
    void (*post)(void *context, const struct event *event);
    // Asks for the node to run soon: something came in for it.
    void (*wake)(void *context);
    void *context;
};

// A link that does not connect yet.
struct link *link_new(struct sim *sim, struct server *server, const struct link_options *options);

// The process ended: its connection closes; what was sent may still be executed. Nothing is posted
// any more.
void link_free(struct link *link);

void link_open(struct link *link);

// As uplink_submit() and uplink_flush().
void link_submit(struct link *link, const struct backend_op *op);
void link_flush(struct link *link);
void link_set_urgent(struct link *link, bool urgent);

// The node's process runs: does what is due on its clock by now (connects, gives up a command that
// was not answered in time, as uplink.c does with its timers: after the replies that are here) and
// takes in what has arrived. While the process is stopped nobody calls this, and replies wait.
void link_run(struct link *link);

// When it wants to run next by itself, on the node's clock in ms; INT64_MAX: when it is woken.
int64_t link_next_ms(const struct link *link);

// Cuts the way between this node and the server until then (true time): nothing arrives on either
// side, and connects hang.
void link_partition(struct link *link, int64_t until_true_us);

bool link_is_up(const struct link *link);

// The world is over, its queue is gone and its links are freed: gives back what was still on its
// way.
void links_end(void);

#endif
