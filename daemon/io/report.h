// What the broker reports: facts become log lines, and `stats` gets the figures of the edge.
#ifndef LB_IO_REPORT_H
#define LB_IO_REPORT_H

#include "daemon/core/effect.h"
#include "daemon/io/conn.h"
#include "daemon/io/pump.h"

// Logs the fact, about that client unless it is NULL.
void report_fact(const struct fact *fact, const struct conn *conn);

// Sends a `stats` reply with the figures of connections, log and link beside the broker's own.
void report_stats(struct pump *pump, struct conn *conn, struct reply *reply);

#endif
