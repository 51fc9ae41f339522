// The parts of the load program: what it is asked for, peers that wait in calls (a process a
// contender), peers as lines on sockets (all contenders in one loop), and what is told at the end.
#ifndef LB_BENCH_LOAD_H
#define LB_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BROKERS_MAX     16
#define ERRORS_MAX      8
#define ERROR_NAME_SIZE 96
#define KEY_SIZE        256
#define TOKEN_SIZE      40

// The exit status for a shape that a peer does not have.
#define EXIT_NO_SHAPE 3

// Who polls a lock asks again after that; who met an error, too, only later.
#define POLL_NS  5000000
#define PAUSE_NS 20000000

struct bench {
    const char *peer;
    const char *redis;
    const char *brokers[BROKERS_MAX];
    int brokers_count;
    const char *records_path;
    const char *key;
    int contenders;
    bool is_connections; // the shape; else processes
    bool is_one_key;
    int hold_many;
    int64_t hold_ns;
    int64_t think_ns;
    int64_t ttl_ms;
    int64_t warm_ms;
    int64_t run_ms;
};

// As it is in the file of records.
struct record {
    int64_t contender;
    int64_t asked_ns;
    int64_t granted_ns;
    int64_t releasing_ns;
    int64_t released_ns;
};

struct error_count {
    char name[ERROR_NAME_SIZE];
    int64_t count;
};

// What is told beside the records.
struct summary {
    int64_t cycles;
    int64_t lost;
    struct error_count errors[ERRORS_MAX];
};

struct tally {
    struct record *records;
    size_t room;
    struct summary summary;
};

// When it is measured: from `began` to `ended`, after the warm-up.
struct span {
    int64_t start_ns;
    int64_t began_ns;
    int64_t ended_ns;
};

// util.c
int64_t clock_ns(void);
void sleep_until(int64_t until_ns);
void *memory(void *old, size_t size);
_Noreturn void die(const char *what);
_Noreturn void die_of(const char *what, const char *why);
int address_connect(const char *address);
bool address_is_path(const char *address, char *host, size_t host_size, int *ret_port);
void key_name(const struct bench *bench, int contender, char *name);
void token_make(int contender, char *token);
struct span span_from(const struct bench *bench, int64_t start_ns);

// tally.c
void tally_add(struct tally *tally, const struct span *span, const struct record *record);
void tally_error(struct tally *tally, const char *name);
void summary_merge(struct summary *into, const struct summary *from);
int records_open(const struct bench *bench);
bool records_write(const struct tally *tally, int fd);
void summary_print(const struct bench *bench, const struct span *span,
                   const struct summary *summary);

// scripts.c: Lua sources, and what `SCRIPT LOAD` says they are called.
extern const char script_release[];
extern const char script_fence_acquire[];
extern const char script_signal_release[];
struct redisContext;
struct redisContext *redis_connect(const char *address);
void script_load(struct redisContext *redis, const char *source, char sha[41]);

// A peer whose calls wait: a contender is a process. The functions return NULL, or what went wrong
// in a word or a sentence.
struct blocking_peer {
    const char *name;
    void *(*open)(const struct bench *bench, int contender);
    const char *(*acquire)(void *self);
    const char *(*release)(void *self);
};

// What `release` returns for a lock that had been lost.
extern const char error_lost[];

// The peers, in peer_broker.c, peer_redis.c and peer_flock.c.
extern const struct blocking_peer broker_peer;
extern const struct blocking_peer raw_peer;
extern const struct blocking_peer raw_fence_peer;
extern const struct blocking_peer blpop_peer;
extern const struct blocking_peer flock_peer;

void run_processes(const struct bench *bench, const struct blocking_peer *peer);

// A socket and what came from it.
struct wire {
    int fd;
    char *in;
    size_t in_used;
};

#define WIRE_ROOM 65536

// wire.c. wire_receive() returns false when nothing had come. wire_line() gives one line after
// another, without its end, from `*position` on; wire_consume() drops those before it.
void wire_open(struct wire *wire, const char *address);
void wire_send(const struct wire *wire, const char *text, size_t length);
bool wire_receive(struct wire *wire, int flags);
char *wire_line(struct wire *wire, size_t *position);
void wire_consume(struct wire *wire, size_t position);

enum answer {
    ANSWER_DONE,    // granted, or released
    ANSWER_BUSY,    // to be asked again
    ANSWER_LOST,    // released, but it had been lost
    ANSWER_FAILED,  // an error
    ANSWER_NOTHING, // no answer: an event
};

// What a contender of one loop says and hears.
struct talk {
    const struct bench *bench;
    const char *key;
    int contender;
    bool is_releasing;
    char token[TOKEN_SIZE];
};

// A peer as lines: each request is answered by one line.
struct lines_peer {
    const char *name;
    bool is_broker;
    void (*prepare)(const struct bench *bench);
    int (*write_acquire)(const struct talk *talk, char *text, size_t size);
    int (*write_release)(const struct talk *talk, char *text, size_t size);
    enum answer (*read)(const struct talk *talk, const char *line);
};

// lines_broker.c, lines_redis.c
bool broker_line_is_lost(const char *line);
extern const struct lines_peer broker_lines;
extern const struct lines_peer raw_lines;
extern const struct lines_peer raw_fence_lines;

void run_connections(const struct bench *bench, const struct lines_peer *peer);

// hold.c
void run_hold(const struct bench *bench);

#endif
