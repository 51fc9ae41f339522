// Holding many locks at the broker: one connection to each, all locks acquired by pipelined lines,
// kept by the broker, which renews them by itself and tells of those that are lost. So the program
// has nothing to do but to listen until its standard input ends.
#include "tests/bench/bench_load.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Acquires under way at a time on a connection.
#define WINDOW    256
#define LINE_SIZE 600

struct holder {
    struct wire wire;
    int asked;
    int held;
    int lost;
};

static void ask(struct holder *holder, const struct bench *bench, int number)
{
    char line[LINE_SIZE];
    int length = snprintf(line, sizeof(line),
                          "{\"id\":%d,\"op\":\"acquire\",\"key\":\"%s-%d\",\"ttl_ms\":%lld,"
                          "\"wait_ms\":-1}\n",
                          number, bench->key, number, (long long)bench->ttl_ms);

    if (length < 0 || (size_t)length >= sizeof(line))
        die_of(bench->key, "the key is too long");
    wire_send(&holder->wire, line, (size_t)length);
    holder->asked++;
}

// Returns how many answers came.
static int listen_once(struct holder *holder)
{
    size_t position = 0;
    int answers = 0;
    char *line;

    (void)wire_receive(&holder->wire, 0);
    while ((line = wire_line(&holder->wire, &position))) {
        if (broker_line_is_lost(line))
            holder->lost++;
        if (strstr(line, "\"event\":"))
            continue;
        answers++;
        if (strstr(line, "\"ok\":true"))
            holder->held++;
        else
            (void)fprintf(stderr, "bench_load: %s\n", line);
    }
    wire_consume(&holder->wire, position);
    return answers;
}

// Lock i is at the broker i modulo their number.
static void acquire_all(struct holder *holder, const struct bench *bench, int broker)
{
    int answers = 0;

    for (int i = broker; i < bench->hold_many; i += bench->brokers_count) {
        ask(holder, bench, i);
        while (holder->asked - answers >= WINDOW)
            answers += listen_once(holder);
    }
    while (answers < holder->asked)
        answers += listen_once(holder);
}

static void listen_until_told(struct holder *holders, int count)
{
    struct pollfd polls[BROKERS_MAX + 1];

    for (int i = 0; i < count; i++)
        polls[i] = (struct pollfd){.fd = holders[i].wire.fd, .events = POLLIN};
    polls[count] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        char bytes[256];

        if (poll(polls, (nfds_t)count + 1, -1) < 0)
            continue;
        for (int i = 0; i < count; i++)
            if (polls[i].revents)
                (void)listen_once(&holders[i]);
        if (polls[count].revents && read(STDIN_FILENO, bytes, sizeof(bytes)) <= 0)
            return;
    }
}

void run_hold(const struct bench *bench)
{
    static struct holder holders[BROKERS_MAX];
    int held = 0;
    int lost = 0;

    for (int i = 0; i < bench->brokers_count; i++) {
        wire_open(&holders[i].wire, bench->brokers[i]);
        acquire_all(&holders[i], bench, i);
        held += holders[i].held;
    }
    printf("{\"peer\":\"%s\",\"held\":%d}\n", bench->peer, held);
    (void)fflush(stdout);
    listen_until_told(holders, bench->brokers_count);
    for (int i = 0; i < bench->brokers_count; i++)
        lost += holders[i].lost;
    printf("{\"peer\":\"%s\",\"lost\":%d}\n", bench->peer, lost);
}
