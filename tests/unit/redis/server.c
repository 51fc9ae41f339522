// Starts and ends redis-server by its pid alone.
#include "tests/unit/redis/server.h"

#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVER_ARGS_MAX  48
#define SERVER_TRIES_MAX 3000 // of 10 ms

int server_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

void server_prepare(struct server *server, bool with_tcp, const char *const *extra)
{
    const char *tmp = getenv("TMPDIR");

    *server = (struct server){.extra = extra};
    // A socket's path is short.
    (void)snprintf(server->dir, sizeof(server->dir), "%s/lb-redis-XXXXXX",
                   tmp && strlen(tmp) < 40 ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(server->dir));
    (void)snprintf(server->path, sizeof(server->path), "%s/redis.sock", server->dir);
    if (with_tcp)
        server->port = server_free_port();
}

static void server_exec(const struct server *server)
{
    char port[16];
    const char *args[SERVER_ARGS_MAX] = {
        "redis-server", "--unixsocket", server->path, "--port",      port, "--bind",
        "127.0.0.1",    "--dir",        server->dir,  "--save",      "",   "--appendonly",
        "no",           "--logfile",    "/dev/null",  "--daemonize", "no"};
    size_t count = 17;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)snprintf(port, sizeof(port), "%d", server->port);
    for (const char *const *extra = server->extra; extra && *extra; extra++)
        args[count++] = *extra;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(null, STDOUT_FILENO);
    (void)dup2(null, STDERR_FILENO);
    // execvp() takes its words without const but does not write to them.
    execvp(args[0], (char *const *)(uintptr_t)args);
    _exit(127);
}

void server_launch(struct server *server)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        server_exec(server);
    server->pid = pid;
}

void server_await(struct server *server)
{
    for (int i = 0; i < SERVER_TRIES_MAX; i++) {
        redisContext *context = redisConnectUnix(server->path);
        redisReply *reply = context && !context->err ? redisCommand(context, "PING") : NULL;
        bool is_up = reply != NULL;

        if (reply)
            freeReplyObject(reply);
        if (context)
            redisFree(context);
        if (is_up)
            return;
        usleep(10000);
    }
    ck_abort_msg("redis-server does not answer");
}

void server_start(struct server *server, bool with_tcp, const char *const *extra)
{
    server_prepare(server, with_tcp, extra);
    server_launch(server);
    server_await(server);
}

void server_kill(struct server *server)
{
    if (server->pid == 0)
        return;
    ck_assert_int_eq(kill(server->pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(server->pid, NULL, 0), server->pid);
    server->pid = 0;
    (void)unlink(server->path);
}

void server_pause(struct server *server)
{
    int status;

    ck_assert_int_eq(kill(server->pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(server->pid, &status, WUNTRACED), server->pid);
    ck_assert(WIFSTOPPED(status));
}

void server_resume(struct server *server)
{
    ck_assert_int_eq(kill(server->pid, SIGCONT), 0);
}

void server_stop(struct server *server)
{
    char file[128];

    server_kill(server);
    (void)snprintf(file, sizeof(file), "%s/dump.rdb", server->dir);
    (void)unlink(file);
    ck_assert_int_eq(rmdir(server->dir), 0);
}

redisContext *server_connect(const struct server *server)
{
    redisContext *context = redisConnectUnix(server->path);

    ck_assert_ptr_nonnull(context);
    ck_assert_msg(!context->err, "%s", context->errstr);
    return context;
}

redisReply *server_command(const struct server *server, const char *format, ...)
{
    redisContext *context = server_connect(server);
    redisReply *reply;
    va_list args;

    va_start(args, format);
    reply = redisvCommand(context, format, args);
    va_end(args);
    ck_assert_msg(reply != NULL, "%s", context->errstr);
    ck_assert_msg(reply->type != REDIS_REPLY_ERROR, "%s", reply->str);
    redisFree(context);
    return reply;
}

long long server_number(const struct server *server, const char *command)
{
    redisReply *reply = server_command(server, command);
    long long number = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;

    ck_assert(reply->type == REDIS_REPLY_INTEGER || reply->type == REDIS_REPLY_STRING);
    if (reply->type == REDIS_REPLY_STRING)
        number = strtoll(reply->str, NULL, 10);
    freeReplyObject(reply);
    return number;
}

bool server_text_is(const struct server *server, const char *command, const char *text)
{
    redisReply *reply = server_command(server, command);
    bool is_same = reply->str && strcmp(reply->str, text) == 0;

    freeReplyObject(reply);
    return is_same;
}

void server_run(const struct server *server, const char *command)
{
    freeReplyObject(server_command(server, command));
}

int64_t server_time_ms(const struct server *server)
{
    redisReply *reply = server_command(server, "TIME");
    int64_t now_ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                     strtoll(reply->element[1]->str, NULL, 10) / 1000;

    freeReplyObject(reply);
    return now_ms;
}
