// One line an event on standard error: `<N>event=NAME key=value ...`, N the journal's priority
// (left out when standard error is a terminal). A line is at most LOG_LINE_BYTES_MAX bytes, all but
// printable ASCII is escaped, and a line that cannot be written at once is dropped and counted: a
// blocked log must never hold up a renewal.
#ifndef LB_BASE_LOG_H
#define LB_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/macros.h"

#define LOG_LINE_BYTES_MAX 2048

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_NOTICE,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG
};

// A line under construction, on the caller's stack.
struct log_line {
    bool enabled;
    size_t length;
    char text[LOG_LINE_BYTES_MAX];
};

// Lines above this level are not written. The start value is LOG_LEVEL_INFO.
void log_set_level(enum log_level level);

// How many lines were dropped because standard error would have blocked or failed.
int64_t log_dropped(void);

// Begins a line, adds one `name=value` each, and writes it. Values with blanks, quotes or
// backslashes are put in double quotes; bytes that are not printable ASCII are written as \xHH.
// A NULL text, or LB_NONE as a number, adds nothing.
void log_begin(struct log_line *line, enum log_level level, const char *event);
void log_text(struct log_line *line, const char *name, const char *value);
void log_number(struct log_line *line, const char *name, int64_t value);
void log_end(struct log_line *line);

// A whole line: its event, and `message=` formatted as by printf.
void log_message(enum log_level level, const char *event, const char *format, ...) LB_PRINTF(3, 4);

#endif
