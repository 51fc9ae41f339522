// Client connections: lines in become events, replies and notices become lines out.
#ifndef LB_IO_CONN_H
#define LB_IO_CONN_H

#include <bsd/sys/queue.h>
#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/core/event.h"
#include "proto/buf.h"
#include "proto/framing.h"
#include "proto/macros.h"

struct pump;
struct conn_table;

#define CONN_READ_BYTES 65536

// What a connection may be waited for. Each kind has one time for all, so its queue is in order of
// the deadlines, and one timer serves all connections.
enum conn_wait {
    CONN_WAIT_SPEAK, // to send its first line
    CONN_WAIT_LINE,  // to end the line it began
    CONN_WAIT_READ,  // to read what it was sent, while it is paused
    CONN_WAIT_WRITE, // to read what is left for it after it ended
};
#define CONN_WAITS 4

struct conn_waiting {
    TAILQ_ENTRY(conn_waiting) link;
    struct conn *conn;
    int64_t since_ms;
    bool queued;
};

TAILQ_HEAD(conn_waiting_list, conn_waiting);

struct conn {
    RB_ENTRY(conn) entry;
    LIST_ENTRY(conn) dirty_link;
    TAILQ_ENTRY(conn) turn_link;
    struct conn_table *table;
    uint64_t id;
    struct peer peer;
    bool dirty;   // in the list of those to be flushed
    bool paused;  // not read from until it has read its output
    bool yielded; // not read from until its turn comes
    bool ended;   // its session is over; what is written still goes out
    bool closing; // its handle is being closed
    bool is_writing;
    uv_pipe_t pipe;
    uv_write_t write;
    struct framing framing;
    struct buf held;    // read before it was paused or yielded, to be looked at after
    struct buf out;     // to be written
    struct buf writing; // handed to the loop
    struct conn_waiting waiting[CONN_WAITS];
};

RB_HEAD(conn_tree, conn);
LIST_HEAD(conn_list, conn);
TAILQ_HEAD(conn_queue, conn);

struct conn_limits {
    int64_t connections_max;
    int64_t output_max_bytes;
    int64_t idle_timeout_ms;
    int64_t line_timeout_ms;
};

struct conn_table {
    struct pump *pump;
    uv_loop_t *loop;
    const char *prefix; // of lock keys; borrowed
    struct conn_limits limits;
    struct conn_tree tree;
    struct conn_list dirty;
    struct conn_waiting_list waiting[CONN_WAITS];
    uv_timer_t timer;
    struct conn_queue yielded; // by when they yielded
    uv_idle_t idle;            // runs while one is yielded
    int64_t turn_ends_ms;      // the time for requests; 0: not begun
    int64_t count;
    uint64_t next_id;
    int64_t opened_total;
    int64_t overflows; // connections cut because their client did not read
    int64_t refused;   // connections over connections_max
    char read_buffer[CONN_READ_BYTES];
};

// Makes an empty table.
void conn_table_init(struct conn_table *table, uv_loop_t *loop, struct pump *pump);

// Takes over an accepted socket, whatever becomes of it.
void conn_table_accept(struct conn_table *table, int fd);

// The connection of that session, while it is open, or NULL.
struct conn *conn_table_find(struct conn_table *table, uint64_t id);

// Writes what the turn brought.
void conn_table_flush(struct conn_table *table);

// Closes every connection, after one more attempt to write, and the timer.
void conn_table_close(struct conn_table *table);

// Queues a line for the client. A client that does not read what it is sent is cut off.
void conn_reply(struct conn *conn, const struct reply *reply);
void conn_notify(struct conn *conn, const struct notice *notice);

// Ends the connection on the broker's account: its session's keys are kept until the deadlines that
// it was told. `reason` goes to the log.
void conn_cut(struct conn *conn, const char *reason);

#endif
