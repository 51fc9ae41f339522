// Attributes and the assertion used everywhere.
#ifndef LB_PROTO_MACROS_H
#define LB_PROTO_MACROS_H

#include <stdio.h>
#include <stdlib.h>

#define LB_MUST_CHECK                  __attribute__((warn_unused_result))
#define LB_PRINTF(fmt_index, va_index) __attribute__((format(printf, fmt_index, va_index)))
#define LB_CLEANUP(function)           __attribute__((cleanup(function)))

#define LB_ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

// An assertion on our own state, never on input from outside. It stays on in release builds: a
// broker whose books are wrong must stop before it grants a lock twice.
#define lb_assert(condition)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "<2>event=assertion_failed where=%s:%d what=\"%s\"\n", __FILE__, \
                          __LINE__, #condition);                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
