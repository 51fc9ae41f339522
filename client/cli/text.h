// Text from outside made fit for a terminal.
#ifndef LB_CLI_TEXT_H
#define LB_CLI_TEXT_H

#include <stddef.h>

// Copies `text`, with control characters, marks that turn the direction of writing and bytes that
// are no UTF-8 written as \xHH each byte, and a backslash doubled. What does not fit is cut off.
void text_escape(const char *text, char *target, size_t size);

// How many columns the text takes: its number of characters.
size_t text_width(const char *text);

#endif
