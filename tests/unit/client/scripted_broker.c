// The scripted broker of these tests: one thread, one connection, one script.
#include "tests/unit/client/scripted_broker.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int64_t scripted_now_ms(void)
{
    struct timespec now;

    ck_assert_int_eq(clock_gettime(CLOCK_BOOTTIME, &now), 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Copies `text` with $ID and $D filled in.
static void scripted_fill(const struct scripted_broker *broker, const char *text, int64_t id,
                          char *target, size_t size)
{
    size_t used = 0;

    while (*text) {
        if (strncmp(text, "$ID", 3) == 0) {
            used += (size_t)snprintf(target + used, size - used, "%" PRId64, id);
            text += 3;
        } else if (strncmp(text, "$D", 2) == 0) {
            used += (size_t)snprintf(target + used, size - used, "%" PRId64,
                                     scripted_now_ms() + broker->valid_ms);
            text += 2;
        } else {
            target[used++] = *text++;
        }
    }
    target[used] = '\0';
}

// Returns false when it is time to die.
static bool scripted_write(struct scripted_broker *broker, int fd, const char *text)
{
    size_t length = strlen(text);
    size_t piece;

    while (length > 0) {
        piece = broker->chunk && broker->chunk < length ? broker->chunk : length;
        if (piece > broker->dies_after - broker->written)
            piece = broker->dies_after - broker->written;
        if (piece == 0 || send(fd, text, piece, MSG_NOSIGNAL) != (ssize_t)piece)
            return false;
        broker->written += piece;
        text += piece;
        length -= piece;
    }
    return broker->written < broker->dies_after;
}

static bool scripted_answer(struct scripted_broker *broker, int fd, const char *line)
{
    const struct scripted_step *step = &broker->steps[broker->steps_done];
    const char *id = strstr(line, "\"id\":");
    char text[4096];

    if (!step->expect)
        return true;
    broker->steps_done++;
    if (!id || !strstr(line, step->expect)) {
        broker->was_wrong = true;
        return false;
    }
    if (!step->write)
        return true;
    scripted_fill(broker, step->write, strtoll(id + 5, NULL, 10), text, sizeof(text));
    return scripted_write(broker, fd, text);
}

static void *scripted_main(void *data)
{
    struct scripted_broker *broker = data;
    int fd = accept(broker->listen_fd, NULL, NULL);
    FILE *lines = fdopen(dup(fd), "r");
    char *line = NULL;
    size_t size = 0;

    while (broker->dies_after > 0 && getline(&line, &size, lines) > 0) {
        if (!scripted_answer(broker, fd, line))
            break;
        if (broker->closes && !broker->steps[broker->steps_done].expect)
            break;
    }
    free(line);
    (void)fclose(lines);
    close(fd);
    return NULL;
}

void scripted_broker_start(struct scripted_broker *broker)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(broker->directory, sizeof(broker->directory), "/tmp/lb-unit-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(broker->directory));
    (void)snprintf(broker->path, sizeof(broker->path), "%s/s", broker->directory);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", broker->path);
    broker->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(broker->listen_fd, 0);
    ck_assert_int_eq(bind(broker->listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(broker->listen_fd, 1), 0);
    ck_assert_int_eq(pthread_create(&broker->thread, NULL, scripted_main, broker), 0);
}

void scripted_broker_stop(struct scripted_broker *broker)
{
    ck_assert_int_eq(pthread_join(broker->thread, NULL), 0);
    close(broker->listen_fd);
    (void)unlink(broker->path);
    (void)rmdir(broker->directory);
    ck_assert_msg(!broker->was_wrong, "line %zu was not as the script says", broker->steps_done);
}
