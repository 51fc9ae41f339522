// The parts of the load program: contenders that go round and round for a lock, links to brokers
// that carry their lines, the store that the lock guards, and the report at the end.
#ifndef LB_WAITING_LOAD_H
#define LB_WAITING_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum contender_state {
    CONTENDER_IDLE,      // asks again when its pause is over
    CONTENDER_WAITING,   // its acquire is under way
    CONTENDER_HOLDING,   // is in the critical section
    CONTENDER_RELEASING, // its release is under way
    CONTENDER_DONE,
};

struct link {
    int fd;
    int broker;        // which of the sockets on the command line
    uint64_t arrivals; // acquires sent so far
    char *in;
    size_t in_used;
    char *out;
    size_t out_used;
    size_t out_room;
};

struct contender {
    struct link *link;
    int number; // over all
    enum contender_state state;
    uint64_t arrival; // its acquire was the link's how many-th
    int64_t sent_us;
    int64_t granted_us;
    int64_t due_us; // when the pause or the hold is over
    int64_t fence;
    int64_t base; // what it read in the store
    int64_t grants;
    bool is_inside;
    bool was_lost;
};

struct record {
    int64_t fence;
    int64_t sent_us;
    int64_t granted_us;
    int64_t valid_ms;
    int broker;
    int contender;
    int passed; // how many that had come before on the same link still waited
};

// Errors that an acquire may be answered with, counted by name.
struct error_count {
    char name[32];
    int64_t count;
};

struct load {
    const char *key;
    const char *store_path;
    int connections; // to each broker
    int owners;      // contenders on each connection
    int keys;
    int64_t rounds; // of each contender; 0: until the time is over
    int64_t run_ms; // 0: until all rounds are done
    int64_t hold_us;
    int64_t ttl_ms;
    int64_t wait_ms;
    bool no_renew;
    bool shows_records;

    struct link *links;
    int links_count;
    struct contender *contenders;
    int contenders_count;
    struct record *records;
    size_t records_count;
    size_t records_room;
    struct error_count errors[16];
    int64_t lost;
    int64_t began_us;
    int64_t ended_us;
};

// load_link.c: lines in and out.
void link_open(struct link *link, const char *path, int broker);
void link_send(struct link *link, const char *line, size_t length);
void link_flush(struct link *link);
void link_read(struct link *link, void (*take)(void *context, char *line), void *context);

// The number or text after `"name":`, or `otherwise`; lines are written without blanks.
int64_t line_number(const char *line, const char *name, int64_t otherwise);
bool line_text(const char *line, const char *name, char *text, size_t size);

// load_store.c: shared by processes.
void store_open(const char *path);
int64_t store_enter(int64_t who, int64_t fence);
void store_leave(int64_t who, int64_t fence, int64_t base);

// load_report.c
void report(const struct load *load);

int64_t clock_us(void);
void *memory(void *old, size_t size);
void die(const char *what);

#endif
