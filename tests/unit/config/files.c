// Files in a directory of the test's own.
#include "tests/unit/config/files.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];

void files_setup(void)
{
    (void)snprintf(directory, sizeof(directory), "/tmp/lockbroker-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

void files_teardown(void)
{
    DIR *entries = opendir(directory);
    const struct dirent *entry;

    ck_assert_ptr_nonnull(entries);
    while ((entry = readdir(entries)))
        (void)unlinkat(dirfd(entries), entry->d_name, 0);
    closedir(entries);
    (void)rmdir(directory);
}

const char *files_path(const char *name)
{
    static char path[320];

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

const char *files_write(const char *name, const char *text, size_t length)
{
    const char *path = files_path(name);
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}
