// A broker that does as it is told: it listens on a Unix socket of its own, and answers the lines
// of one connection by a script.
#ifndef LB_TEST_SCRIPTED_BROKER_H
#define LB_TEST_SCRIPTED_BROKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// For the next line that comes in: what it has to contain, and what to write then (NULL: nothing).
// In `write`, $ID is the id of the line, and $D the present time (CLOCK_BOOTTIME, ms) plus the
// broker's `valid_ms`.
struct scripted_step {
    const char *expect;
    const char *write;
};

struct scripted_broker {
    const struct scripted_step *steps; // ended by one whose `expect` is NULL
    int64_t valid_ms;
    size_t chunk;      // how many bytes a write has; 0: all
    size_t dies_after; // closes after so many bytes written; SIZE_MAX: never
    bool closes;       // closes after the last step; else reads on until the client closes

    char directory[64];
    char path[96];
    int listen_fd;
    pthread_t thread;
    size_t written;
    size_t steps_done;
    bool was_wrong; // a line did not contain what it should
};

// Starts it. `steps`, `valid_ms`, `chunk`, `dies_after` and `closes` are set before.
void scripted_broker_start(struct scripted_broker *broker);

// Waits for its end, which comes with that of the connection, and removes the socket.
void scripted_broker_stop(struct scripted_broker *broker);

// CLOCK_BOOTTIME in ms.
int64_t scripted_now_ms(void);

#define SCRIPTED_HELLO                                                                             \
    {                                                                                              \
        "\"hello\"", "{\"id\":$ID,\"ok\":true,\"server\":\"scripted\",\"version\":1,"              \
                     "\"limits\":{\"ttl_max_ms\":30000,\"max_wait_ms\":60000}}\n"                  \
    }
#define SCRIPTED_GRANT                                                                             \
    {                                                                                              \
        "\"acquire\"", "{\"id\":$ID,\"ok\":true,\"key\":\"k\",\"fence\":7,\"ttl_ms\":1000,"        \
                       "\"valid_ms\":900,\"deadline_ms\":$D,\"waited_ms\":3}\n"                    \
    }
#define SCRIPTED_END                                                                               \
    {                                                                                              \
        NULL, NULL                                                                                 \
    }

#endif
