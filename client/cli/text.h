// Text from outside made fit for a terminal.
#ifndef LB_CLI_TEXT_H
#define LB_CLI_TEXT_H

#include <stddef.h>

// How much room an escaped text of so many bytes takes at most, its NUL included.
#define TEXT_ESCAPED_BYTES(bytes) (4 * (bytes) + 1)

// Copies `text`, with control characters, marks that turn the direction of writing and bytes that
// are no UTF-8 written as \xHH each byte, and a backslash doubled. What does not fit is cut off.
void text_escape(const char *text, char *target, size_t size);

// The same in double quotes, those within the text written as \". `size` is at least 3.
void text_quote(const char *text, char *target, size_t size);

// How many columns the text takes: its number of characters.
size_t text_width(const char *text);

#endif
