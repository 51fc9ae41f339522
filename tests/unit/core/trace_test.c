// Golden traces: stories in tests/unit/core/traces/. Each is played, and the transcript of that
// must be the very file. TRACE_UPDATE=1 in the environment rewrites the files: read what changed.
#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/core/suites.h"
#include "tests/unit/core/world.h"

static char *names[256];
static int names_count;

static char *file_read(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t size = 0;

    ck_assert_msg(file != NULL, "cannot open %s", path);
    if (getdelim(&text, &size, '\0', file) < 0)
        text[0] = '\0';
    (void)fclose(file);
    return text;
}

static void file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    ck_assert_msg(file != NULL, "cannot write %s", path);
    (void)fputs(text, file);
    (void)fclose(file);
}

// Points at the first line that differs, and prints it as it is and as it should be.
static void compare(const char *path, const char *got, const char *wanted)
{
    int line = 1;

    while (*got || *wanted) {
        size_t got_length = strcspn(got, "\n");
        size_t wanted_length = strcspn(wanted, "\n");

        ck_assert_msg(got_length == wanted_length && memcmp(got, wanted, got_length) == 0,
                      "%s:%d\n  the story says: %.*s\n  the broker did: %.*s", path, line,
                      (int)wanted_length, wanted, (int)got_length, got);
        got += got_length + (got[got_length] == '\n');
        wanted += wanted_length + (wanted[wanted_length] == '\n');
        line++;
    }
}

START_TEST(trace)
{
    struct world world;
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", LB_TRACES, names[_i]);
    char *wanted = file_read(path);

    world_init(&world, 1, true);
    world_play_all(&world, wanted);
    if (getenv("TRACE_UPDATE"))
        file_write(path, world_text(&world));
    else
        compare(path, world_text(&world), wanted);
    world_deinit(&world);
    free(wanted);
}
END_TEST

static int is_trace(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');

    return end && strcmp(end, ".trace") == 0;
}

static void traces_find(void)
{
    struct dirent **entries;
    int count = scandir(LB_TRACES, &entries, is_trace, alphasort);

    for (int i = 0; i < count; i++) {
        if (names_count < (int)LB_ARRAY_LENGTH(names))
            names[names_count++] = strdup(entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

START_TEST(traces_are_found)
{
    ck_assert_int_gt(names_count, 20);
}
END_TEST

Suite *trace_suite(void)
{
    Suite *suite = suite_create("trace");
    TCase *stories = tcase_create("stories");

    traces_find();
    tcase_add_test(stories, traces_are_found);
    tcase_add_loop_test(stories, trace, 0, names_count);
    suite_add_tcase(suite, stories);
    return suite;
}
