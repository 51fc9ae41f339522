// What clients hear, and their contract with it.
#ifndef LB_TESTS_SIM_CLIENT_HEAR_H
#define LB_TESTS_SIM_CLIENT_HEAR_H

#include "tests/sim/client.h"

// Reads what was written to it so far.
void client_read(struct client *client);

// Its connection is over: nothing that it asked for will be answered.
void client_forget(struct client *client);

struct holding client_holding(struct client *client, int key, char owner);

#endif
