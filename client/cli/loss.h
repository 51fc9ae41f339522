// Why a lock is lost or in doubt, in words.
#ifndef LB_CLI_LOSS_H
#define LB_CLI_LOSS_H

// What this tool decides by itself: the deadline is near, and the broker has told no later one.
#define LOSS_UNCONFIRMED "unconfirmed"

// A clause for the reason of a loss, such as "its key was deleted from Redis". Also for a reason
// that is not known here.
const char *loss_clause(const char *reason);

// The same for a grant that is suspect.
const char *loss_doubt_clause(const char *reason);

#endif
