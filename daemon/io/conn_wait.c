// Queues in order of their deadlines and one timer for their heads: waiting for a connection
// needs no timer and no memory of its own.
#include "daemon/io/conn_wait.h"

#include "daemon/base/clock.h"

#define WRITE_TIMEOUT_MS 2000

static int64_t wait_time_ms(const struct conn_table *table, enum conn_wait wait)
{
    switch (wait) {
    case CONN_WAIT_SPEAK:
        return table->limits.idle_timeout_ms;
    case CONN_WAIT_LINE:
        return table->limits.line_timeout_ms;
    case CONN_WAIT_READ:
        return table->limits.idle_timeout_ms;
    case CONN_WAIT_WRITE:
    default:
        return WRITE_TIMEOUT_MS;
    }
}

static int64_t due_ms_of(const struct conn_table *table, enum conn_wait wait)
{
    const struct conn_waiting *first = TAILQ_FIRST(&table->waiting[wait]);

    return first ? first->since_ms + wait_time_ms(table, wait) : INT64_MAX;
}

static void on_timer(uv_timer_t *timer);

static void arm(struct conn_table *table)
{
    int64_t due_ms = INT64_MAX;

    for (int i = 0; i < CONN_WAITS; i++) {
        int64_t first_ms = due_ms_of(table, (enum conn_wait)i);

        if (first_ms < due_ms)
            due_ms = first_ms;
    }
    if (due_ms == INT64_MAX)
        return;

    int64_t left_ms = due_ms - clock_now_ms();

    (void)uv_timer_start(&table->timer, on_timer, left_ms > 0 ? (uint64_t)left_ms : 1, 0);
}

static void sweep(struct conn_table *table, enum conn_wait wait, int64_t now_ms)
{
    while (due_ms_of(table, wait) <= now_ms) {
        struct conn *conn = TAILQ_FIRST(&table->waiting[wait])->conn;

        conn_wait_end(conn, wait);
        conn_overdue(conn, wait);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct conn_table *table = timer->data;
    int64_t now_ms = clock_now_ms();

    for (int i = 0; i < CONN_WAITS; i++)
        sweep(table, (enum conn_wait)i, now_ms);
    arm(table);
}

void conn_wait_init(struct conn_table *table)
{
    for (int i = 0; i < CONN_WAITS; i++)
        TAILQ_INIT(&table->waiting[i]);
    table->timer.data = table;
    (void)uv_timer_init(table->loop, &table->timer);
}

void conn_wait_begin(struct conn *conn, enum conn_wait wait)
{
    struct conn_waiting *waiting = &conn->waiting[wait];

    if (waiting->queued)
        return;
    waiting->conn = conn;
    waiting->queued = true;
    waiting->since_ms = clock_now_ms();
    TAILQ_INSERT_TAIL(&conn->table->waiting[wait], waiting, link);
    if (!uv_is_active((uv_handle_t *)&conn->table->timer) ||
        TAILQ_FIRST(&conn->table->waiting[wait]) == waiting)
        arm(conn->table);
}

void conn_wait_end(struct conn *conn, enum conn_wait wait)
{
    struct conn_waiting *waiting = &conn->waiting[wait];

    if (!waiting->queued)
        return;
    waiting->queued = false;
    TAILQ_REMOVE(&conn->table->waiting[wait], waiting, link);
}

void conn_wait_end_all(struct conn *conn)
{
    for (int i = 0; i < CONN_WAITS; i++)
        conn_wait_end(conn, (enum conn_wait)i);
}
