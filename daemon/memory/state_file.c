// The state file of the table in this process. It guards against the death of the process, not of
// the machine: another boot has no clients of this one. So it is never synced to the disk, and one
// small write in place is as good as atomic.
#include "daemon/memory/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"

// "boot_id ", 19 digits, newline. Every record is of this length, so none leaves a rest of another.
#define DIGITS        19
#define RECORD_LENGTH (STATE_FILE_BOOT_ID_LENGTH + 1 + DIGITS + 1)

static ssize_t descriptor_read(int fd, char *ret_text, size_t size)
{
    ssize_t length;

    do
        length = pread(fd, ret_text, size, 0);
    while (length < 0 && errno == EINTR);
    return length < 0 ? -errno : length;
}

static int boot_id_read(char ret_boot_id[STATE_FILE_BOOT_ID_LENGTH + 1])
{
    int fd = open(BOOT_ID_PATH, O_RDONLY | O_CLOEXEC);
    ssize_t length;

    if (fd < 0)
        return -errno;
    length = descriptor_read(fd, ret_boot_id, STATE_FILE_BOOT_ID_LENGTH);
    (void)close(fd);
    if (length < 0)
        return (int)length;
    if (length != STATE_FILE_BOOT_ID_LENGTH)
        return -EPROTO;
    ret_boot_id[STATE_FILE_BOOT_ID_LENGTH] = '\0';
    return 0;
}

static bool boot_id_is_plausible(const char *text)
{
    return strspn(text, "0123456789abcdef-") == STATE_FILE_BOOT_ID_LENGTH;
}

// Reads a record apart. False when it is none.
static bool record_parse(const struct state_file *file, const char *record, size_t length,
                         int64_t *ret_expires_ms)
{
    const char *digits = record + STATE_FILE_BOOT_ID_LENGTH + 1;
    int64_t expires_ms = 0;

    if (length != RECORD_LENGTH || record[RECORD_LENGTH - 1] != '\n' || digits[-1] != ' ' ||
        !boot_id_is_plausible(record))
        return false;
    for (int i = 0; i < DIGITS; i++) {
        int64_t digit = digits[i] - '0';

        if (digit < 0 || digit > 9 || expires_ms > (INT64_MAX - digit) / 10)
            return false;
        expires_ms = expires_ms * 10 + digit;
    }
    if (memcmp(record, file->boot_id, STATE_FILE_BOOT_ID_LENGTH) != 0)
        expires_ms = 0;
    *ret_expires_ms = expires_ms;
    return true;
}

static int record_write(struct state_file *file, int64_t expires_ms)
{
    char record[RECORD_LENGTH + 2]; // room for a sign, which never comes
    ssize_t written;

    (void)snprintf(record, sizeof(record), "%s %0*" PRId64 "\n", file->boot_id, DIGITS, expires_ms);
    do
        written = pwrite(file->fd, record, RECORD_LENGTH, 0);
    while (written < 0 && errno == EINTR);
    if (written < 0)
        return -errno;
    if (written != RECORD_LENGTH)
        return -EIO;
    file->recorded_ms = expires_ms;
    return 0;
}

// Whoever else could write the file could have locks granted twice, or never.
static int descriptor_check(int fd)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISREG(status.st_mode))
        return -EINVAL;
    if (status.st_uid != geteuid() || status.st_nlink != 1)
        return -EPERM;
    return fchmod(fd, 0600) < 0 ? -errno : 0;
}

static int state_file_load(struct state_file *file, int64_t torn_ms)
{
    char record[RECORD_LENGTH + 1]; // one byte more shows that there is more
    ssize_t length = descriptor_read(file->fd, record, sizeof(record));

    if (length < 0)
        return (int)length;
    if (length == 0 || record_parse(file, record, (size_t)length, &file->recorded_ms))
        return 0;
    // Written anew, so that crash after crash does not put the end off for ever.
    if (ftruncate(file->fd, 0) < 0)
        return -errno;
    return record_write(file, torn_ms);
}

int state_file_open(struct state_file *file, const char *path, int64_t torn_ms)
{
    int rc;

    *file = (struct state_file){.fd = -1, .path = path};
    if (!path)
        return 0;
    rc = boot_id_read(file->boot_id);
    if (rc < 0)
        return rc;
    file->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (file->fd < 0)
        return -errno;
    rc = descriptor_check(file->fd);
    if (rc == 0)
        rc = state_file_load(file, torn_ms);
    if (rc < 0)
        state_file_close(file);
    return rc;
}

int state_file_raise(struct state_file *file, int64_t expires_ms)
{
    if (file->fd < 0 || expires_ms <= file->recorded_ms)
        return 0;
    return record_write(file, expires_ms);
}

void state_file_close(struct state_file *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    file->fd = -1;
}

void state_file_remove(struct state_file *file)
{
    if (file->fd >= 0)
        (void)unlink(file->path);
    state_file_close(file);
}
