// What the tool says on standard error: always one line, `lockbroker: ...`.
#ifndef LB_CLI_MESSAGE_H
#define LB_CLI_MESSAGE_H

#include "proto/macros.h"

// Prints one line, formatted as by printf. Control characters in it are escaped.
void message_print(const char *format, ...) LB_PRINTF(1, 2);

// The same for texts that are escaped already.
void message_print_escaped(const char *format, ...) LB_PRINTF(1, 2);

#endif
