// What can happen to the bytes of a connection. A command is one packet and a reply one item; both
// directions keep their order, and each is drawn a delay and its share of misfortune when it sets
// out. Actions that were asked for cannot be taken back, so a wire lives until the last is done.
#include "tests/sim/link_wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/link.h"
#include "tests/sim/memory.h"

#define DELAY_US       1000
#define DELAYED_US     400000
#define DELAYED_MAX_US 4000000
#define ZOMBIE_MAX_US  4000000

static struct wire *wires; // all of them

static void serve(void *subject, uint64_t argument);
static void arrive(void *subject, uint64_t argument);

static void ask(struct wire *wire, int64_t at_us, void (*act)(void *subject, uint64_t argument))
{
    wire->actions++;
    sim_at(wire->sim, at_us, act, wire, 0);
}

static void packets_free(struct wire_packets *packets)
{
    struct wire_packet *packet;

    while ((packet = STAILQ_FIRST(packets))) {
        STAILQ_REMOVE_HEAD(packets, entry);
        free(packet);
    }
}

static void items_free(struct wire *wire)
{
    struct wire_item *item;

    while ((item = STAILQ_FIRST(&wire->coming))) {
        STAILQ_REMOVE_HEAD(&wire->coming, entry);
        resp_free(item->reply);
        free(item);
    }
    wire->arrived = 0;
}

static void conn_close(struct wire *wire)
{
    if (wire->conn)
        server_conn_free(wire->conn);
    wire->conn = NULL;
}

static void wire_free(struct wire *wire)
{
    struct wire **place = &wires;

    while (*place != wire)
        place = &(*place)->next;
    *place = wire->next;
    packets_free(&wire->waiting);
    packets_free(&wire->sent);
    items_free(wire);
    conn_close(wire);
    free(wire);
}

void links_end(void)
{
    while (wires)
        wire_free(wires);
}

// The server sees the end of a closed connection once it has executed what came before.
static void wire_settle(struct wire *wire)
{
    if (wire->wake)
        return;
    if (STAILQ_EMPTY(&wire->sent))
        conn_close(wire);
    if (wire->actions == 0)
        wire_free(wire);
}

void wires_hold(int node, int64_t until_us)
{
    for (struct wire *wire = wires; wire; wire = wire->next) {
        if (wire->node == node && wire->held_until_us < until_us)
            wire->held_until_us = until_us;
    }
}

// True when nothing gets through at present: `act` is asked for again.
static bool is_held(struct wire *wire, void (*act)(void *subject, uint64_t argument))
{
    if (wire->sim->now_us >= wire->held_until_us)
        return false;
    ask(wire, wire->held_until_us, act);
    return true;
}

static void item_send(struct wire *wire, const struct wire_item *item, int64_t delay_us)
{
    struct wire_item *coming = sim_alloc(sizeof(*coming));
    int64_t arrives_us = wire->sim->now_us + delay_us;

    *coming = *item;
    if (arrives_us < wire->last_coming_us)
        arrives_us = wire->last_coming_us;
    coming->arrives_us = wire->last_coming_us = arrives_us;
    STAILQ_INSERT_TAIL(&wire->coming, coming, entry);
    ask(wire, arrives_us, arrive);
}

static void end_send(struct wire *wire, const char *reason, int64_t delay_us)
{
    struct wire_item item = {.kind = ITEM_END, .reason = reason};

    if (!wire->wake || wire->is_ending || wire->is_mute)
        return;
    wire->is_ending = true;
    item_send(wire, &item, delay_us);
}

// Nearly always at once; now and then nobody notices for a while.
static int64_t news_delay_us(struct sim *sim)
{
    return sim_below(sim, 4) != 0 ? sim_below(sim, 2 * DELAY_US) : sim_below(sim, DELAYED_US);
}

static void on_conn_closed(void *context)
{
    struct wire *wire = context;

    end_send(wire, "closed by the server", sim_below(wire->sim, DELAY_US));
}

static void connect_arrive(void *subject, uint64_t argument)
{
    struct wire *wire = subject;
    struct wire_item opened = {.kind = ITEM_OPENED};

    (void)argument;
    wire->actions--;
    if (is_held(wire, connect_arrive))
        return;
    if (wire->wake) {
        wire->conn = server_connect(wire->server, wire->node);
        if (wire->conn) {
            server_conn_watch(wire->conn, on_conn_closed, wire);
            item_send(wire, &opened, sim_below(wire->sim, DELAY_US));
        } else {
            end_send(wire, "connection refused", sim_below(wire->sim, DELAY_US));
        }
    }
    wire_settle(wire);
}

struct wire *wire_open(struct sim *sim, struct server *server, int node,
                       void (*wake)(void *context), void *context)
{
    struct wire *wire = calloc(1, sizeof(*wire));

    if (!wire)
        return NULL;
    wire->sim = sim;
    wire->server = server;
    wire->node = node;
    wire->wake = wake;
    wire->context = context;
    STAILQ_INIT(&wire->waiting);
    STAILQ_INIT(&wire->sent);
    STAILQ_INIT(&wire->coming);
    wire->next = wires;
    wires = wire;
    if (sim_fault(sim, FAULT_CONNECT_REFUSED))
        end_send(wire, "connection refused", sim_below(sim, 2 * DELAY_US));
    else if (!sim_fault(sim, FAULT_CONNECT_HANGS))
        ask(wire, sim->now_us + sim_below(sim, DELAY_US), connect_arrive);
    return wire;
}

void wire_greet(struct wire *wire, size_t commands)
{
    wire->greeting = commands;
    wire->greeting_cut = SIZE_MAX;
    if (sim_fault(wire->sim, FAULT_GREETING_CUT))
        wire->greeting_cut = (size_t)sim_below(wire->sim, (int64_t)commands);
}

int wire_append(struct wire *wire, const char *bytes, size_t length, uint64_t *ret_start)
{
    struct wire_packet *packet = malloc(sizeof(*packet) + length);

    if (!packet)
        return -ENOMEM;
    packet->length = length;
    memcpy(packet->bytes, bytes, length);
    STAILQ_INSERT_TAIL(&wire->waiting, packet, entry);
    *ret_start = wire->appended;
    wire->appended += length;
    return 0;
}

uint64_t wire_written(const struct wire *wire)
{
    return wire->written;
}

static int64_t command_delay_us(struct sim *sim)
{
    if (sim_fault(sim, FAULT_COMMAND_DELAYED))
        return sim_below(sim, DELAYED_US);
    if (sim_fault(sim, FAULT_COMMAND_DELAYED_LONG))
        return DELAYED_US + sim_below(sim, DELAYED_MAX_US - DELAYED_US);
    return sim_below(sim, DELAY_US);
}

static int64_t reply_delay_us(struct sim *sim)
{
    if (sim_fault(sim, FAULT_REPLY_DELAYED))
        return sim_below(sim, DELAYED_US);
    if (sim_fault(sim, FAULT_REPLY_DELAYED_LONG))
        return DELAYED_US + sim_below(sim, DELAYED_MAX_US - DELAYED_US);
    return sim_below(sim, DELAY_US);
}

static void packet_send(struct wire *wire, struct wire_packet *packet, int64_t delay_us)
{
    int64_t arrives_us = wire->sim->now_us + delay_us;

    wire->written += packet->length;
    if (arrives_us < wire->last_sent_us)
        arrives_us = wire->last_sent_us;
    packet->arrives_us = wire->last_sent_us = arrives_us;
    STAILQ_INSERT_TAIL(&wire->sent, packet, entry);
    ask(wire, arrives_us, serve);
}

static void packet_lose(struct wire *wire, struct wire_packet *packet)
{
    wire->written += packet->length;
    free(packet);
}

// The broker sees the connection break now. What was sent is executed up to seconds later, when the
// next connection may be at work.
static void packet_send_as_zombie(struct wire *wire, struct wire_packet *packet)
{
    struct sim *sim = wire->sim;
    bool is_soon = sim_below(sim, 2) == 0;
    int64_t max_us = 2000 * sim->ttl_max_ms + 1000000;
    int64_t delay_us;
    struct wire_packet *earlier;

    if (max_us < ZOMBIE_MAX_US)
        max_us = ZOMBIE_MAX_US;
    delay_us = sim_below(sim, is_soon ? DELAYED_US : max_us);
    packet_send(wire, packet, delay_us);
    STAILQ_FOREACH(earlier, &wire->sent, entry)
    earlier->arrives_us = packet->arrives_us;
    wire->is_blocked = true;
    wire->is_zombie = true;
    end_send(wire, "broken (zombie)", 0);
}

// Both directions at once, with all that is under way.
static void wire_reset(struct wire *wire)
{
    struct wire_item *item, *next;
    size_t index = 0;

    packets_free(&wire->sent);
    for (item = STAILQ_FIRST(&wire->coming); item; item = next) {
        next = STAILQ_NEXT(item, entry);
        if (index++ < wire->arrived)
            continue;
        STAILQ_REMOVE(&wire->coming, item, wire_item, entry);
        resp_free(item->reply);
        free(item);
    }
    wire->is_deaf = true;
    wire->last_coming_us = 0;
    conn_close(wire);
    end_send(wire, "reset", 0);
}

// A command that belongs to no greeting sets out, or does not get far. Returns false when it was
// not written: it waits for good then.
static bool packet_depart(struct wire *wire, struct wire_packet *packet)
{
    struct sim *sim = wire->sim;

    if (sim_fault(sim, FAULT_COMMAND_NOT_WRITTEN)) {
        wire->is_blocked = true;
        end_send(wire, "broken (not written)", news_delay_us(sim));
        return false;
    }
    STAILQ_REMOVE_HEAD(&wire->waiting, entry);
    if (sim_fault(sim, FAULT_COMMAND_LOST)) {
        wire->is_deaf = true;
        packet_lose(wire, packet);
        end_send(wire, "broken (command lost)", news_delay_us(sim));
    } else if (sim_fault(sim, FAULT_COMMAND_ZOMBIE)) {
        packet_send_as_zombie(wire, packet);
    } else if (sim_fault(sim, FAULT_LINK_RESET)) {
        packet_lose(wire, packet);
        wire_reset(wire);
    } else if (sim_fault(sim, FAULT_COMMANDS_SWALLOWED)) {
        wire->is_deaf = true;
        packet_lose(wire, packet);
        sim_tell(sim, "n%d: commands are swallowed from now on", wire->node);
    } else {
        packet_send(wire, packet, command_delay_us(sim));
    }
    return true;
}

// The commands of a greeting travel together.
static void greeting_depart(struct wire *wire)
{
    int64_t delay_us = command_delay_us(wire->sim);
    struct wire_packet *packet;

    while ((packet = STAILQ_FIRST(&wire->waiting))) {
        STAILQ_REMOVE_HEAD(&wire->waiting, entry);
        packet_send(wire, packet, delay_us);
    }
}

void wire_flush(struct wire *wire)
{
    struct wire_packet *packet;

    if (wire->greeting > 0)
        greeting_depart(wire);
    while (!wire->is_blocked && (packet = STAILQ_FIRST(&wire->waiting))) {
        if (wire->is_deaf || wire->is_ending) {
            STAILQ_REMOVE_HEAD(&wire->waiting, entry);
            packet_lose(wire, packet);
        } else if (!packet_depart(wire, packet)) {
            return;
        }
    }
}

static void reply_send(struct wire *wire, struct resp *reply, int64_t delay_us)
{
    struct wire_item item = {.kind = ITEM_REPLY, .reply = reply};

    if (!wire->wake || wire->is_ending || wire->is_mute)
        resp_free(reply);
    else
        item_send(wire, &item, delay_us);
}

static void greeting_answer(struct wire *wire, struct resp *reply)
{
    bool is_first = wire->last_coming_us < wire->sim->now_us;

    wire->greeting--;
    reply_send(wire, reply, is_first ? reply_delay_us(wire->sim) : 0);
    if (wire->greeting != wire->greeting_cut)
        return;
    conn_close(wire);
    end_send(wire, "broken (greeting cut)", news_delay_us(wire->sim));
}

static void wire_answer(struct wire *wire, struct resp *reply)
{
    struct sim *sim = wire->sim;

    if (!wire->wake) {
        sim_tell(sim, "n%d: a command of an ended connection was executed", wire->node);
        resp_free(reply);
    } else if (wire->greeting > 0) {
        greeting_answer(wire, reply);
    } else if (sim_fault(sim, FAULT_REPLY_LOST)) {
        resp_free(reply);
        wire->is_deaf = true;
        conn_close(wire);
        end_send(wire, "broken (reply lost)", news_delay_us(sim));
    } else if (!wire->is_mute && sim_fault(sim, FAULT_REPLIES_SWALLOWED)) {
        wire->is_mute = true;
        resp_free(reply);
        sim_tell(sim, "n%d: replies are swallowed from now on", wire->node);
    } else {
        reply_send(wire, reply, reply_delay_us(sim));
    }
}

// Executes what has reached the server by now, once it runs.
static void serve(void *subject, uint64_t argument)
{
    struct wire *wire = subject;
    int64_t stopped_us = server_stopped_until_us(wire->server);
    struct wire_packet *packet;

    (void)argument;
    wire->actions--;
    if (is_held(wire, serve))
        return;
    if (stopped_us != 0) {
        ask(wire, stopped_us, serve);
        return;
    }
    while ((packet = STAILQ_FIRST(&wire->sent)) && packet->arrives_us <= wire->sim->now_us) {
        struct resp *reply;
        size_t consumed;

        STAILQ_REMOVE_HEAD(&wire->sent, entry);
        if (wire->conn &&
            server_execute(wire->conn, packet->bytes, packet->length, &consumed, &reply)) {
            lb_assert(consumed == packet->length);
            wire_answer(wire, reply);
        }
        free(packet);
    }
    wire_settle(wire);
}

// Counts what has reached the broker by now.
static void arrive(void *subject, uint64_t argument)
{
    struct wire *wire = subject;
    size_t before = wire->arrived, index = 0;
    struct wire_item *item;

    (void)argument;
    wire->actions--;
    if (is_held(wire, arrive))
        return;
    STAILQ_FOREACH(item, &wire->coming, entry)
    {
        if (item->arrives_us > wire->sim->now_us)
            break;
        index++;
    }
    wire->arrived = index;
    if (wire->wake && index > before)
        wire->wake(wire->context);
    wire_settle(wire);
}

bool wire_take(struct wire *wire, struct wire_item *ret_item)
{
    struct wire_item *item = STAILQ_FIRST(&wire->coming);

    if (wire->arrived == 0)
        return false;
    STAILQ_REMOVE_HEAD(&wire->coming, entry);
    wire->arrived--;
    *ret_item = *item;
    free(item);
    return true;
}

// The broker's side closes. What it has sent is on its way, but a server that cannot answer any
// more may drop it unread.
void wire_close(struct wire *wire)
{
    wire->wake = NULL;
    packets_free(&wire->waiting);
    items_free(wire);
    if (!wire->is_zombie && !STAILQ_EMPTY(&wire->sent) && sim_below(wire->sim, 4) == 0)
        packets_free(&wire->sent);
    wire_settle(wire);
}
