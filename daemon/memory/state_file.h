// What must outlive a crash of the table in this process: the largest expiry ever set, in a small
// text file of one line, `lockbroker-memory 1 boot_id expiry_ms checksum`.
#ifndef LB_MEMORY_STATE_FILE_H
#define LB_MEMORY_STATE_FILE_H

#include <stdint.h>

#include "proto/macros.h"

#define STATE_FILE_BOOT_ID_LENGTH 36

struct state_file {
    int fd;              // -1: there is no file
    const char *path;    // borrowed
    int64_t recorded_ms; // what the file says, CLOCK_BOOTTIME; 0: nothing
    char boot_id[STATE_FILE_BOOT_ID_LENGTH + 1];
};

// Opens or creates the file, which must be a regular file of our own and no link. What it says of
// this boot is in `recorded_ms` afterwards: 0 when it is new or of another boot, `torn_ms` when it
// cannot be read or understood, and never more than `highest_ms`, whatever it says; in these two
// cases it is written anew. `path` may be NULL: then nothing is ever written. Returns 0 or a
// negative errno; a file that was there blocks the next start then no less than it would have.
int state_file_open(struct state_file *file, const char *path, int64_t torn_ms,
                    int64_t highest_ms) LB_MUST_CHECK;

// Writes the expiry down if it is larger than what is written. Returns 0 or a negative errno.
int state_file_raise(struct state_file *file, int64_t expires_ms) LB_MUST_CHECK;

// Closes the file and leaves it where it is.
void state_file_close(struct state_file *file);

// Removes the file, and closes it.
void state_file_remove(struct state_file *file);

#endif
