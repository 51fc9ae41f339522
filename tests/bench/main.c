// The load program of the benchmarks, for the peers in C: all contenders of one case go round
// acquire, hold, release, think, and what each saw is written down.
//
//     bench_load --peer NAME --redis ADDRESS --broker SOCKET... --records FILE --key KEY
//                --contenders N --shape processes|connections [--keys distinct|one]
//                [--hold-us N] [--think-us N] [--ttl-ms N] [--warm-ms N] --run-ms N
//     bench_load --peer lockbroker --broker SOCKET... --key KEY --hold-many N [--ttl-ms N]
//
// The first form writes records of five 64-bit numbers, in the machine's byte order, for each cycle
// that began after the warm-up: contender, asked, granted, releasing, released, all CLOCK_MONOTONIC
// in ns. A line of JSON tells the rest. The second form acquires N locks, tells so, holds them
// until its standard input ends, and tells how many were lost.
#include "tests/bench/bench_load.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "proto/macros.h"

static const struct blocking_peer *const blocking_peers[] = {
    &broker_peer, &raw_peer, &raw_fence_peer, &blpop_peer, &flock_peer,
};
static const struct lines_peer *const lines_peers[] = {&broker_lines, &raw_lines, &raw_fence_lines};

static const struct option known[] = {
    {"peer", required_argument, NULL, 'p'},
    {"redis", required_argument, NULL, 'r'},
    {"broker", required_argument, NULL, 'b'},
    {"records", required_argument, NULL, 'f'},
    {"key", required_argument, NULL, 'k'},
    {"keys", required_argument, NULL, 'K'},
    {"contenders", required_argument, NULL, 'c'},
    {"shape", required_argument, NULL, 's'},
    {"hold-us", required_argument, NULL, 'h'},
    {"think-us", required_argument, NULL, 't'},
    {"ttl-ms", required_argument, NULL, 'T'},
    {"warm-ms", required_argument, NULL, 'w'},
    {"run-ms", required_argument, NULL, 'R'},
    {"hold-many", required_argument, NULL, 'm'},
    {0},
};

static int64_t number_of(const char *text)
{
    char *end;
    long long number = strtoll(text, &end, 10);

    if (end == text || *end || number < 0)
        die_of(text, "not a number");
    return number;
}

static bool is_second(const char *text, const char *first, const char *second)
{
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
        die_of(text, "neither of the two values that are known");
    return strcmp(text, second) == 0;
}

static void take_broker(struct bench *bench, const char *path)
{
    if (bench->brokers_count == BROKERS_MAX)
        die_of(path, "too many brokers");
    bench->brokers[bench->brokers_count++] = path;
}

static void take_option(struct bench *bench, int option, const char *text)
{
    switch (option) {
    case 'p':
        bench->peer = text;
        break;
    case 'r':
        bench->redis = text;
        break;
    case 'b':
        take_broker(bench, text);
        break;
    case 'f':
        bench->records_path = text;
        break;
    case 'k':
        bench->key = text;
        break;
    case 'K':
        bench->is_one_key = is_second(text, "distinct", "one");
        break;
    case 'c':
        bench->contenders = (int)number_of(text);
        break;
    case 's':
        bench->is_connections = is_second(text, "processes", "connections");
        break;
    case 'h':
        bench->hold_ns = number_of(text) * 1000;
        break;
    case 't':
        bench->think_ns = number_of(text) * 1000;
        break;
    case 'T':
        bench->ttl_ms = number_of(text);
        break;
    case 'w':
        bench->warm_ms = number_of(text);
        break;
    case 'R':
        bench->run_ms = number_of(text);
        break;
    case 'm':
        bench->hold_many = (int)number_of(text);
        break;
    default:
        exit(EXIT_FAILURE);
    }
}

static void check(const struct bench *bench)
{
    if (!bench->peer || !bench->key)
        die_of("the options", "--peer and --key are needed");
    if (bench->hold_many == 0 &&
        (!bench->records_path || bench->contenders < 1 || bench->run_ms < 1))
        die_of("the options", "--records, --contenders and --run-ms are needed");
    if (strcmp(bench->peer, broker_peer.name) == 0 && bench->brokers_count == 0)
        die_of("the options", "--broker is needed");
}

// A socket for each contender.
static void raise_limit_of_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int run(const struct bench *bench)
{
    for (size_t i = 0; bench->is_connections && i < LB_ARRAY_LENGTH(lines_peers); i++)
        if (strcmp(lines_peers[i]->name, bench->peer) == 0) {
            run_connections(bench, lines_peers[i]);
            return EXIT_SUCCESS;
        }
    for (size_t i = 0; i < LB_ARRAY_LENGTH(blocking_peers); i++)
        if (strcmp(blocking_peers[i]->name, bench->peer) == 0) {
            if (bench->is_connections)
                return EXIT_NO_SHAPE;
            run_processes(bench, blocking_peers[i]);
            return EXIT_SUCCESS;
        }
    die_of(bench->peer, "no such peer");
}

int main(int argc, char **argv)
{
    static struct bench bench = {.ttl_ms = 10000};
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        take_option(&bench, option, optarg);
    check(&bench);
    raise_limit_of_files();
    if (bench.hold_many == 0)
        return run(&bench);
    if (strcmp(bench.peer, broker_peer.name) != 0)
        die_of(bench.peer, "--hold-many is not for it");
    run_hold(&bench);
    return EXIT_SUCCESS;
}
