// Messages for the person or the log at the other end of standard error.
#include "client/cli/message.h"

#include <stdarg.h>
#include <stdio.h>

#include "client/cli/text.h"

#define MESSAGE_BYTES_MAX 2048

void message_print(const char *format, ...)
{
    char message[MESSAGE_BYTES_MAX];
    char escaped[MESSAGE_BYTES_MAX];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    text_escape(message, escaped, sizeof(escaped));
    (void)fprintf(stderr, "lockbroker: %s\n", escaped);
}
