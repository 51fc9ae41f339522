// What a contender saw: a record for each cycle, kept in memory until the end, and counts. Writing
// is done with write(2) alone, since a contender that waits is ended by a signal, and writes then.
#include "tests/bench/bench_load.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void tally_add(struct tally *tally, const struct span *span, const struct record *record)
{
    size_t count = (size_t)tally->summary.cycles;

    if (record->asked_ns < span->began_ns)
        return;
    if (count == tally->room) {
        tally->room = 2 * tally->room + 4096;
        tally->records = memory(tally->records, tally->room * sizeof(*tally->records));
    }
    tally->records[count] = *record;
    tally->summary.cycles++;
}

static void count_error(struct summary *summary, const char *name, int64_t count)
{
    size_t i = 0;

    while (i < ERRORS_MAX - 1 && summary->errors[i].count > 0 &&
           strncmp(summary->errors[i].name, name, ERROR_NAME_SIZE - 1) != 0)
        i++;
    (void)snprintf(summary->errors[i].name, ERROR_NAME_SIZE, "%s", name);
    summary->errors[i].count += count;
}

void tally_error(struct tally *tally, const char *name)
{
    count_error(&tally->summary, name, 1);
}

void summary_merge(struct summary *into, const struct summary *from)
{
    into->cycles += from->cycles;
    into->lost += from->lost;
    for (size_t i = 0; i < ERRORS_MAX; i++)
        if (from->errors[i].count > 0)
            count_error(into, from->errors[i].name, from->errors[i].count);
}

int records_open(const struct bench *bench)
{
    int fd = open(bench->records_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);

    if (fd < 0)
        die(bench->records_path);
    return fd;
}

// In one piece, so that the parts of several processes do not mix.
bool records_write(const struct tally *tally, int fd)
{
    size_t size = (size_t)tally->summary.cycles * sizeof(*tally->records);

    return size == 0 || write(fd, tally->records, size) == (ssize_t)size;
}

static void print_text(const char *text)
{
    (void)putchar('"');
    for (; *text; text++)
        (void)putchar(*text == '"' || *text == '\\' || (unsigned char)*text < ' ' ? '?' : *text);
    (void)putchar('"');
}

void summary_print(const struct bench *bench, const struct span *span,
                   const struct summary *summary)
{
    const char *separator = "";

    printf("{\"peer\":");
    print_text(bench->peer);
    printf(",\"began_ns\":%" PRId64 ",\"ended_ns\":%" PRId64 ",\"cycles\":%" PRId64 ",\"errors\":{",
           span->began_ns, span->ended_ns, summary->cycles);
    for (size_t i = 0; i < ERRORS_MAX && summary->errors[i].count > 0; i++) {
        printf("%s", separator);
        print_text(summary->errors[i].name);
        printf(":%" PRId64, summary->errors[i].count);
        separator = ",";
    }
    printf("},\"lost\":%" PRId64 "}\n", summary->lost);
}
