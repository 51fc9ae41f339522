// The keys of the simulated Redis: strings and lists (of which nothing is known but that they are
// lists) in a few databases, with expiry times. A key, once named, keeps its number for good.
#ifndef LB_TESTS_SIM_KEYSPACE_H
#define LB_TESTS_SIM_KEYSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/server.h"

#define KEYSPACE_DATABASES 2
#define KEYSPACE_KEYS_MAX  128
#define KEYSPACE_SLOTS     512 // of the hash table of names
#define KEYSPACE_SAVES_MAX 4

// How often what is there goes to disk, so that a restart may bring it back.
#define KEYSPACE_JOURNAL_US 1000000
#define KEYSPACE_SAVE_US    3000000

struct key_value {
    bool is_there;
    bool is_list;
    uint16_t length;
    int64_t expires_ms; // SERVER_FOREVER: never
    char value[SERVER_VALUE_BYTES_MAX + 1];
};

// What is there, or was there at some time.
struct key_values {
    int64_t period; // which second, or which save
    struct key_value of[KEYSPACE_DATABASES][KEYSPACE_KEYS_MAX];
};

struct key_name {
    size_t length;
    char text[SERVER_VALUE_BYTES_MAX + 1];
};

struct keyspace {
    size_t count;
    struct key_name names[KEYSPACE_KEYS_MAX];
    uint8_t slots[KEYSPACE_SLOTS]; // number + 1; 0: free
    struct key_values now;
    struct key_values journal; // as of the beginning of its period
    struct key_values saves[KEYSPACE_SAVES_MAX];
    size_t saves_count;
    size_t saves_next;
};

// A zeroed keyspace is empty. The number of a key, whether it is there or not.
size_t keyspace_number(struct keyspace *keyspace, const char *name, size_t length);

// What is there under that key at that time of the wall clock, or NULL. What has expired is
// deleted on this occasion.
struct key_value *keyspace_find(struct keyspace *keyspace, int database, size_t number,
                                int64_t now_ms);

// The same of the locks' database for whoever only looks.
const struct key_value *keyspace_look(const struct keyspace *keyspace, const char *name,
                                      int64_t now_ms);
bool keyspace_is_there(const struct keyspace *keyspace, size_t number, int64_t now_ms);

// To be called before each write, at that true time: what a restart may bring back is kept.
void keyspace_keep(struct keyspace *keyspace, int64_t true_us);

// A restart that goes back to the last whole second, to the save `age` saves ago (0: the last one),
// or to nothing.
void keyspace_restore_second(struct keyspace *keyspace, int64_t true_us);
void keyspace_restore_save(struct keyspace *keyspace, size_t age, int64_t true_us);
void keyspace_restore_nothing(struct keyspace *keyspace, int64_t true_us);

// Deletes all.
void keyspace_clear(struct keyspace *keyspace, int64_t true_us);

// Deletes what has expired.
void keyspace_expire(struct keyspace *keyspace, int64_t now_ms);

// The number of keys in the locks' database.
size_t keyspace_size(const struct keyspace *keyspace, int64_t now_ms);

#endif
