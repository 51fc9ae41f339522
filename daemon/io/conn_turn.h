// Each connection's share of a turn of the loop, so that no client that asks without end holds up
// its neighbours, the link to Redis, or a `lost` that is due.
#ifndef LB_IO_CONN_TURN_H
#define LB_IO_CONN_TURN_H

#include <stdbool.h>

#include "daemon/io/conn.h"

// Sets up the table's queue.
void conn_turn_init(struct conn_table *table);
void conn_turn_close(struct conn_table *table);

// What was brought in so far has been carried out: the time for requests begins anew.
void conn_turn_begin(struct conn_table *table);

// Counts one line of the connection. True when its share, or the time for all, is used up.
bool conn_turn_is_used_up(struct conn *conn, int lines);

// Puts the connection off to the next turn: it is not read from until then.
void conn_turn_yield(struct conn *conn);

// Takes an ended connection out of the queue.
void conn_turn_forget(struct conn *conn);

// Called when the connection's turn has come. Implemented by conn.c.
void conn_go_on(struct conn *conn);

#endif
