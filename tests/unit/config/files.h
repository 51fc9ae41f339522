// Files in a directory of the test's own.
#ifndef LB_TESTS_UNIT_CONFIG_FILES_H
#define LB_TESTS_UNIT_CONFIG_FILES_H

#include <stddef.h>

// Fixtures: make the directory, and remove it with what is in it.
void files_setup(void);
void files_teardown(void);

// The path of `name` in the directory; good until the next call.
const char *files_path(const char *name);

// Writes a file and returns its path, as files_path().
const char *files_write(const char *name, const char *text, size_t length);

#endif
