// Starts and ends redis-server by its pid alone; it dies with this process.
#include "tests/sim/redis/real.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/macros.h"

#define TRIES_MAX 6000 // of 10 ms

static void real_exec(const struct real *real, const char *password)
{
    const char *args[] = {"redis-server",
                          "--port",
                          "0",
                          "--unixsocket",
                          real->path,
                          "--dir",
                          real->dir,
                          "--save",
                          "",
                          "--logfile",
                          "/dev/null",
                          "--databases",
                          "2",
                          "--requirepass",
                          password,
                          NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(null, STDOUT_FILENO);
    // execvp() takes its words without const but does not write to them.
    execvp(args[0], (char *const *)(uintptr_t)args);
    _exit(127);
}

static void real_await(struct real *real)
{
    for (int i = 0; i < TRIES_MAX; i++) {
        real->context = redisConnectUnix(real->path);
        if (real->context && !real->context->err)
            return;
        if (real->context)
            redisFree(real->context);
        usleep(10000);
    }
    (void)fprintf(stderr, "redis-server does not answer\n");
    exit(1);
}

void real_start(struct real *real, const char *password)
{
    const char *tmp = getenv("TMPDIR");

    // A socket's path is short.
    (void)snprintf(real->dir, sizeof(real->dir), "%s/lb-sim-XXXXXX",
                   tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    lb_assert(mkdtemp(real->dir));
    (void)snprintf(real->path, sizeof(real->path), "%s/redis.sock", real->dir);
    real->pid = fork();
    lb_assert(real->pid >= 0);
    if (real->pid == 0)
        real_exec(real, password);
    real_await(real);
}

void real_stop(struct real *real)
{
    redisFree(real->context);
    (void)kill(real->pid, SIGKILL);
    (void)waitpid(real->pid, NULL, 0);
    (void)unlink(real->path);
    (void)rmdir(real->dir);
}

static redisReply *reply_await(struct real *real)
{
    void *reply = NULL;

    if (redisGetReply(real->context, &reply) != REDIS_OK) {
        (void)fprintf(stderr, "redis-server: %s\n", real->context->errstr);
        exit(1);
    }
    return reply;
}

redisReply *real_send(struct real *real, const char *bytes, size_t length)
{
    int rc = redisAppendFormattedCommand(real->context, bytes, length);

    lb_assert(rc == REDIS_OK);
    return reply_await(real);
}

redisReply *real_run(struct real *real, const char *const *words, size_t count)
{
    // hiredis takes its words without const but does not write to them.
    int rc =
        redisAppendCommandArgv(real->context, (int)count, (const char **)(uintptr_t)words, NULL);

    lb_assert(rc == REDIS_OK);
    return reply_await(real);
}
