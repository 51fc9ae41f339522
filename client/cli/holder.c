// Who holds a lock, in words. What is known depends on whose it is: much of a client of this
// broker, next to nothing of a stranger that set the key by itself.
#include "client/cli/holder.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/duration.h"
#include "client/cli/text.h"
#include "proto/macros.h"

LB_PRINTF(3, 4)
static void holder_add(char *target, size_t size, const char *format, ...)
{
    size_t used = strlen(target);
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(target + used, size - used, format, arguments);
    va_end(arguments);
}

static void holder_add_duration(char *target, size_t size, const char *format_prefix, int64_t ms)
{
    char duration[DURATION_BYTES_MAX];

    if (ms == LB_NONE)
        return;
    duration_format(ms, duration, sizeof(duration));
    holder_add(target, size, "%s%s", format_prefix, duration);
}

static void holder_add_escaped(char *target, size_t size, const char *before, const char *text,
                               const char *after)
{
    char escaped[TEXT_ESCAPED_BYTES(LB_CLIENT_BYTES_MAX)];

    if (!text || text[0] == '\0')
        return;
    text_escape(text, escaped, sizeof(escaped));
    holder_add(target, size, "%s%s%s", before, escaped, after);
}

static void holder_add_note(char *target, size_t size, const char *note)
{
    char quoted[TEXT_ESCAPED_BYTES(LB_NOTE_BYTES_MAX) + 2];

    if (!note || note[0] == '\0')
        return;
    text_quote(note, quoted, sizeof(quoted));
    holder_add(target, size, ", %s", quoted);
}

static void holder_add_who(const struct holder *holder, char *target, size_t size)
{
    if (holder->kind == HOLDER_BROKER)
        holder_add(target, size, "another lockbroker");
    else if (holder->kind == HOLDER_FOREIGN)
        holder_add(target, size, "a program that does not use the broker");
    else if (holder->pid != LB_NONE)
        holder_add(target, size, "pid %" PRId64, holder->pid);
    else
        holder_add(target, size, "a client of this broker");
    if (holder->uid != LB_NONE)
        holder_add(target, size, " of uid %" PRId64, holder->uid);
    if (holder->kind != HOLDER_LOCAL)
        holder_add_escaped(target, size, " on host ", holder->host, "");
    holder_add_escaped(target, size, " (", holder->client, ")");
    holder_add_note(target, size, holder->note);
}

void holder_describe(const struct holder *holder, char *target, size_t size)
{
    target[0] = '\0';
    holder_add_who(holder, target, size);
    holder_add_duration(target, size, ", for ", holder->held_ms);
    if (holder->without_expiry)
        holder_add(target, size, ", without expiry");
    else
        holder_add_duration(target, size, ", expires in ", holder->ttl_left_ms);
}

void holder_describe_former(const struct holder *holder, char *target, size_t size)
{
    target[0] = '\0';
    holder_add_who(holder, target, size);
    holder_add_duration(target, size, ", which held it for ", holder->held_ms);
}
