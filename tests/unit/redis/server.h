// Private redis-server processes for tests: a Unix socket in a temporary directory and, if asked
// for, a TCP port on 127.0.0.1. A server dies with the test process that started it.
#ifndef LB_TESTS_REDIS_SERVER_H
#define LB_TESTS_REDIS_SERVER_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct server {
    pid_t pid; // 0: not running
    bool is_stopped;
    char dir[64];
    char path[96]; // of the socket
    int port;      // 0: Unix socket alone
    const char *const *extra;
};

// Starts a server with further arguments (ended by NULL; NULL: none; borrowed) and waits until it
// answers.
void server_start(struct server *server, bool with_tcp, const char *const *extra);

// Starts the process without waiting for it, in the directory that server_prepare() made.
void server_prepare(struct server *server, bool with_tcp, const char *const *extra);
void server_launch(struct server *server);
void server_await(struct server *server);

void server_kill(struct server *server);   // kill -9, and waits for it
void server_pause(struct server *server);  // SIGSTOP
void server_resume(struct server *server); // SIGCONT
void server_stop(struct server *server);   // kills it and removes the directory

// A port on 127.0.0.1 that nobody listens on at the moment.
int server_free_port(void);

// A blocking connection of the test's own. server_command() fails the test on an error reply;
// server_number() and server_text_is() look at its reply.
redisContext *server_connect(const struct server *server);
redisReply *server_command(const struct server *server, const char *format, ...);
long long server_number(const struct server *server, const char *command);
bool server_text_is(const struct server *server, const char *command, const char *text);
void server_run(const struct server *server, const char *command);

// What the server's clock shows.
int64_t server_time_ms(const struct server *server);

#endif
