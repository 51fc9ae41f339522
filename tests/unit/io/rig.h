// A broker on the table in memory, with its pump and connections, without a listener: clients are
// one end of a socket pair. All runs in this process, and a turn of the loop at a time.
#ifndef LB_TESTS_UNIT_IO_RIG_H
#define LB_TESTS_UNIT_IO_RIG_H

#include <stdbool.h>

#include "daemon/io/conn.h"
#include "daemon/io/pump.h"

#define RIG_CLIENTS_MAX 8 // at a time
#define RIG_TEXT_MAX    (8 * 1024 * 1024)

struct rig {
    uv_loop_t loop;
    struct broker *broker;
    struct memory_backend *memory;
    struct pump pump;
    struct conn_table conns;
    int turns;
};

// What a test's client has received so far, as one text.
struct rig_client {
    int fd;
    bool ended;
    size_t length;
    char *text;
};

extern struct rig rig;

// For tcase_add_checked_fixture().
void rig_setup(void);
void rig_teardown(void);

// Turns the loop until `condition` holds for the client; the test fails when it never does.
void rig_until(bool (*condition)(struct rig_client *client, const char *text),
               struct rig_client *client, const char *text);

// Turns the loop a few times, for what should not happen.
void rig_turn(void);

// Connects, disconnects; or makes a client of a socket that is connected already.
struct rig_client rig_connect(void);
struct rig_client rig_client_of(int fd);
void rig_disconnect(struct rig_client *client);

// Sends as much of the bytes as the socket takes; returns how much that was.
size_t rig_send(struct rig_client *client, const char *bytes, size_t length);

// Sends a line, its newline added.
void rig_say(struct rig_client *client, const char *line);

// Waits for a line with this in it; or for the end of the connection.
void rig_hear(struct rig_client *client, const char *text);
void rig_hear_end(struct rig_client *client);

// Reads what has come, without waiting.
void rig_read(struct rig_client *client);

// Whether a text is in what was received; and how many lines that was.
bool rig_heard(const struct rig_client *client, const char *text);
int rig_lines(const struct rig_client *client);

// Forgets what was received.
void rig_forget(struct rig_client *client);

#endif
