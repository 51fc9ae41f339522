// A real redis-server on a private socket, and a blocking connection to it.
#ifndef LB_TESTS_SIM_REDIS_REAL_H
#define LB_TESTS_SIM_REDIS_REAL_H

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <sys/types.h>

struct real {
    pid_t pid;
    char dir[64];
    char path[96];
    redisContext *context;
};

// Starts a server that asks for that password, and connects. Fails the program when it cannot.
void real_start(struct real *real, const char *password);
void real_stop(struct real *real);

// Sends bytes or words and waits for the reply, to be given back with freeReplyObject().
redisReply *real_send(struct real *real, const char *bytes, size_t length);
redisReply *real_run(struct real *real, const char *const *words, size_t count);

#endif
