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

// "lockbroker-memory 1 BOOT_ID EXPIRY CHECKSUM\n", all of it of fixed length, so that no record
// leaves a rest of another.
#define MAGIC         "lockbroker-memory 1 "
#define MAGIC_LENGTH  (sizeof(MAGIC) - 1)
#define DIGITS        19
#define DIGITS_OFFSET (MAGIC_LENGTH + STATE_FILE_BOOT_ID_LENGTH + 1)
#define SUM_DIGITS    16
#define SUM_OFFSET    (DIGITS_OFFSET + DIGITS + 1)
#define RECORD_LENGTH (SUM_OFFSET + SUM_DIGITS + 1)

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

// FNV-1a. It tells a record that was written by halves; it is no protection against forgery.
static uint64_t checksum(const char *text, size_t length)
{
    uint64_t sum = 0xcbf29ce484222325u;

    for (size_t i = 0; i < length; i++)
        sum = (sum ^ (unsigned char)text[i]) * 0x100000001b3u;
    return sum;
}

static void record_format(const char *boot_id, int64_t expires_ms,
                          char ret_record[RECORD_LENGTH + 1])
{
    (void)snprintf(ret_record, RECORD_LENGTH + 1, MAGIC "%.*s %0*" PRIu64 " ",
                   STATE_FILE_BOOT_ID_LENGTH, boot_id, DIGITS, (uint64_t)expires_ms);
    (void)snprintf(ret_record + SUM_OFFSET, SUM_DIGITS + 2, "%0*" PRIx64 "\n", SUM_DIGITS,
                   checksum(ret_record, SUM_OFFSET));
}

static bool boot_id_is_plausible(const char *text)
{
    for (size_t i = 0; i < STATE_FILE_BOOT_ID_LENGTH; i++)
        if (!text[i] || !strchr("0123456789abcdef-", text[i]))
            return false;
    return true;
}

static bool digits_parse(const char *digits, int64_t *ret_number)
{
    int64_t number = 0;

    for (int i = 0; i < DIGITS; i++) {
        int64_t digit = digits[i] - '0';

        if (digit < 0 || digit > 9 || number > (INT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *ret_number = number;
    return true;
}

// Reads a record apart; one of another boot says nothing: 0. False when it is none.
static bool record_parse(const struct state_file *file, const char *record, size_t length,
                         int64_t *ret_expires_ms)
{
    char again[RECORD_LENGTH + 1];
    const char *boot_id = record + MAGIC_LENGTH;
    int64_t expires_ms;

    if (length != RECORD_LENGTH || !boot_id_is_plausible(boot_id) ||
        !digits_parse(record + DIGITS_OFFSET, &expires_ms))
        return false;
    record_format(boot_id, expires_ms, again);
    if (memcmp(record, again, RECORD_LENGTH) != 0)
        return false;
    if (memcmp(boot_id, file->boot_id, STATE_FILE_BOOT_ID_LENGTH) != 0)
        expires_ms = 0;
    *ret_expires_ms = expires_ms;
    return true;
}

static int record_write(struct state_file *file, int64_t expires_ms)
{
    char record[RECORD_LENGTH + 1];
    ssize_t written;

    record_format(file->boot_id, expires_ms, record);
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

// What was found is written anew where it was not to be believed, so that crash after crash does
// not put the end off for ever. Written over, and cut to length only then: a file that was emptied
// first would say nothing if the write failed.
static int state_file_load(struct state_file *file, int64_t torn_ms, int64_t highest_ms)
{
    char record[RECORD_LENGTH + 1]; // one byte more shows that there is more
    ssize_t length = descriptor_read(file->fd, record, sizeof(record));
    int64_t expires_ms = torn_ms;
    int rc;

    if (length >= 0 && record_parse(file, record, (size_t)length, &expires_ms) &&
        expires_ms <= highest_ms) {
        file->recorded_ms = expires_ms;
        return 0;
    }
    rc = record_write(file, expires_ms < highest_ms ? expires_ms : highest_ms);
    if (rc < 0)
        return rc;
    return ftruncate(file->fd, RECORD_LENGTH) < 0 ? -errno : 0;
}

static int descriptor_open(const char *path, bool *ret_is_new)
{
    int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = open(path, flags);

    *ret_is_new = fd < 0 && errno == ENOENT;
    if (*ret_is_new)
        fd = open(path, flags | O_CREAT | O_EXCL, 0600);
    return fd < 0 ? -errno : fd;
}

int state_file_open(struct state_file *file, const char *path, int64_t torn_ms, int64_t highest_ms)
{
    bool is_new;
    int rc;

    *file = (struct state_file){.fd = -1, .path = path};
    if (!path)
        return 0;
    rc = boot_id_read(file->boot_id);
    if (rc < 0)
        return rc;
    rc = descriptor_open(path, &is_new);
    if (rc < 0)
        return rc;
    file->fd = rc;
    rc = descriptor_check(file->fd);
    if (rc == 0) // an empty file is a torn one, so a new one says at once that there is nothing
        rc = is_new ? record_write(file, 0) : state_file_load(file, torn_ms, highest_ms);
    if (rc < 0 && is_new)
        state_file_remove(file);
    else if (rc < 0)
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
