// Messages for the person or the log at the other end of standard error.
#include "client/cli/message.h"

#include <stdarg.h>
#include <stdio.h>

#include "client/cli/text.h"

#define MESSAGE_BYTES_MAX 8192

void message_print(const char *format, ...)
{
    char message[MESSAGE_BYTES_MAX];
    char escaped[TEXT_ESCAPED_BYTES(MESSAGE_BYTES_MAX)];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    text_escape(message, escaped, sizeof(escaped));
    (void)fprintf(stderr, "lockbroker: %s\n", escaped);
}

void message_print_escaped(const char *format, ...)
{
    char message[MESSAGE_BYTES_MAX];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "lockbroker: %s\n", message);
}
