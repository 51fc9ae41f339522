// Runs a harness once on each file of a folder, and on its beginnings, where libFuzzer is not
// there. An empty or unreadable folder is a failure: a replay of nothing must not pass.
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define FILE_BYTES_MAX (1 << 20)
#define PREFIXES       64

static uint8_t bytes[FILE_BYTES_MAX];

// Each run gets a block of its own size, so that the sanitizers see a read past its end.
static int replay_bytes(size_t length)
{
    uint8_t *copy = malloc(length > 0 ? length : 1);

    if (!copy)
        return -ENOMEM;
    memcpy(copy, bytes, length);
    (void)LLVMFuzzerTestOneInput(copy, length);
    free(copy);
    return 0;
}

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t length;
    int r;

    if (!file)
        return -errno;
    length = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    r = replay_bytes(length);
    for (size_t i = 1; r == 0 && i < PREFIXES; i++)
        r = replay_bytes(length * i / PREFIXES);
    return r;
}

// Returns how many files were replayed, or a negative errno.
static int replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char path[PATH_MAX];
    int count = 0;

    if (!dir)
        return -errno;
    while (count >= 0 && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        int length = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        int r = length < (int)sizeof(path) ? replay_file(path) : -ENAMETOOLONG;
        count = r < 0 ? r : count + 1;
    }
    (void)closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    int count;

    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    count = replay_folder(argv[1]);
    if (count < 0) {
        (void)fprintf(stderr, "%s: %s\n", argv[1], strerror(-count));
        return 1;
    }
    printf("replayed %d files\n", count);
    return count > 0 ? 0 : 1;
}
