// A queue of the connections that have used up their share of a turn, served round robin. libuv
// would read megabytes from one busy socket before it looks at another, and everything that is
// queued for Redis and for clients waits for the end of the turn: so a turn must be short.
#include "daemon/io/conn_turn.h"

#include "daemon/base/clock.h"

#define LINES_A_TURN 128

// Well below the least margin of a lease, 100 ms, and above a few of the most expensive requests.
#define TURN_MS 5

// The time runs from the first line on: before it the loop may have slept for long.
static bool time_is_over(struct conn_table *table)
{
    int64_t now_ms = clock_now_ms();

    if (!table->turn_ends_ms)
        table->turn_ends_ms = now_ms + TURN_MS;
    return now_ms >= table->turn_ends_ms;
}

// Those that yielded before this turn go on, in order; those that yield again come after them.
static void on_idle(uv_idle_t *idle)
{
    struct conn_table *table = idle->data;
    struct conn *last = TAILQ_LAST(&table->yielded, conn_queue);
    struct conn *conn = NULL;

    while (conn != last && (conn = TAILQ_FIRST(&table->yielded)) && !time_is_over(table)) {
        conn_turn_forget(conn);
        conn_go_on(conn);
    }
}

void conn_turn_init(struct conn_table *table)
{
    TAILQ_INIT(&table->yielded);
    table->idle.data = table;
    conn_turn_begin(table);
    (void)uv_idle_init(table->loop, &table->idle);
}

void conn_turn_close(struct conn_table *table)
{
    uv_close((uv_handle_t *)&table->idle, NULL);
}

void conn_turn_begin(struct conn_table *table)
{
    table->turn_ends_ms = 0;
}

bool conn_turn_is_used_up(struct conn *conn, int lines)
{
    return lines >= LINES_A_TURN || time_is_over(conn->table);
}

void conn_turn_yield(struct conn *conn)
{
    struct conn_table *table = conn->table;

    conn->yielded = true;
    (void)uv_read_stop((uv_stream_t *)&conn->pipe);
    TAILQ_INSERT_TAIL(&table->yielded, conn, turn_link);
    (void)uv_idle_start(&table->idle, on_idle);
}

void conn_turn_forget(struct conn *conn)
{
    struct conn_table *table = conn->table;

    if (!conn->yielded)
        return;
    conn->yielded = false;
    TAILQ_REMOVE(&table->yielded, conn, turn_link);
    if (TAILQ_EMPTY(&table->yielded))
        (void)uv_idle_stop(&table->idle);
}
