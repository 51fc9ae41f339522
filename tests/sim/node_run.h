// Running a broker's process.
#ifndef LB_TESTS_SIM_NODE_RUN_H
#define LB_TESTS_SIM_NODE_RUN_H

#include "tests/sim/node.h"

// Lets the process run soon, if it is not stopped then.
void node_wake(struct node *node);

#endif
