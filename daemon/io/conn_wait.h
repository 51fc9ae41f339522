// What connections are waited for, and until when.
#ifndef LB_IO_CONN_WAIT_H
#define LB_IO_CONN_WAIT_H

#include "daemon/io/conn.h"

// Sets up the table's queues and timer.
void conn_wait_init(struct conn_table *table);

// Begins to wait, unless it does already.
void conn_wait_begin(struct conn *conn, enum conn_wait wait);

void conn_wait_end(struct conn *conn, enum conn_wait wait);
void conn_wait_end_all(struct conn *conn);

// Called when the time is over; the connection is not waited for any more. Implemented by conn.c.
void conn_overdue(struct conn *conn, enum conn_wait wait);

#endif
