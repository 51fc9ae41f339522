// Writes log lines to standard error. It may not block, buffer or allocate: the daemon renews
// leases on the same thread, and a reader of its log that stops reading must cost lines, not locks.
#include "daemon/base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/message.h"

// Text goes up to here; the rest is room for the mark of a cut (`..."`) and the newline.
#define LOG_FULL (LOG_LINE_BYTES_MAX - 8)

// The longest escape: \xHH.
#define LOG_ESCAPE_MAX 4

static enum log_level current_level = LOG_LEVEL_INFO;
static int64_t dropped_count;

void log_set_level(enum log_level level)
{
    current_level = level;
}

int64_t log_dropped(void)
{
    return dropped_count;
}

// The journal's priority of a level: syslog's numbers, of which `error` is 3.
static int level_priority(enum log_level level)
{
    return (int)level + 3;
}

static bool line_put(struct log_line *line, const char *text, size_t length)
{
    if (line->length + length > LOG_FULL)
        return false;
    memcpy(line->text + line->length, text, length);
    line->length += length;
    return true;
}

// Marks that something is missing here. `mark` is at most 4 bytes.
static void line_cut(struct log_line *line, const char *mark)
{
    size_t length = strlen(mark);

    if (line->length > LOG_FULL)
        return;
    memcpy(line->text + line->length, mark, length);
    line->length += length;
}

static size_t byte_escape(char byte, char ret_text[LOG_ESCAPE_MAX])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char code = (unsigned char)byte;

    if (byte == '"' || byte == '\\') {
        ret_text[0] = '\\';
        ret_text[1] = byte;
        return 2;
    }
    if (code >= 0x20 && code < 0x7f) {
        ret_text[0] = byte;
        return 1;
    }
    ret_text[0] = '\\';
    ret_text[1] = 'x';
    ret_text[2] = digits[code >> 4];
    ret_text[3] = digits[code & 15];
    return 4;
}

static bool value_put(struct log_line *line, const char *value)
{
    for (; *value; value++) {
        char escaped[LOG_ESCAPE_MAX];
        size_t length = byte_escape(*value, escaped);

        if (!line_put(line, escaped, length))
            return false;
    }
    return true;
}

static bool name_put(struct log_line *line, const char *name)
{
    size_t start = line->length;

    if (line_put(line, " ", 1) && line_put(line, name, strlen(name)) && line_put(line, "=", 1))
        return true;
    line->length = start;
    return false;
}

void log_begin(struct log_line *line, enum log_level level, const char *event)
{
    char head[8];
    int saved_errno = errno;

    line->length = 0;
    line->enabled = level <= current_level;
    if (!line->enabled)
        return;
    if (!isatty(STDERR_FILENO)) {
        int length = snprintf(head, sizeof(head), "<%d>", level_priority(level));

        (void)line_put(line, head, (size_t)length);
    }
    (void)line_put(line, "event=", 6);
    if (!value_put(line, event))
        line_cut(line, "...");
    errno = saved_errno;
}

void log_text(struct log_line *line, const char *name, const char *value)
{
    bool quoted;

    if (!line->enabled || !value)
        return;
    if (!name_put(line, name)) {
        line_cut(line, " ...");
        return;
    }
    quoted = !*value || strpbrk(value, " \"\\");
    if (quoted && !line_put(line, "\"", 1))
        line_cut(line, "...");
    else if (!value_put(line, value))
        line_cut(line, quoted ? "...\"" : "...");
    else if (quoted && !line_put(line, "\"", 1))
        line_cut(line, "\"");
}

void log_number(struct log_line *line, const char *name, int64_t value)
{
    char text[24];

    if (!line->enabled || value == LB_NONE)
        return;
    (void)snprintf(text, sizeof(text), "%" PRId64, value);
    log_text(line, name, text);
}

void log_end(struct log_line *line)
{
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    int saved_errno = errno;

    if (!line->enabled)
        return;
    line->enabled = false;
    line->text[line->length++] = '\n';
    // POLLERR and POLLHUP count as failures too: a write would only raise SIGPIPE.
    if (poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT ||
        write(STDERR_FILENO, line->text, line->length) != (ssize_t)line->length)
        dropped_count++;
    errno = saved_errno;
}

void log_message(enum log_level level, const char *event, const char *format, ...)
{
    char text[LOG_LINE_BYTES_MAX];
    struct log_line line;
    va_list args;

    log_begin(&line, level, event);
    if (!line.enabled)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    log_text(&line, "message", text);
    log_end(&line);
}
