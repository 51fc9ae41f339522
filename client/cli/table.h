// A table of texts with aligned columns.
#ifndef LB_CLI_TABLE_H
#define LB_CLI_TABLE_H

#include <stddef.h>

#include "proto/macros.h"

#define TABLE_COLUMNS_MAX 12

struct table {
    size_t columns;
    size_t width[TABLE_COLUMNS_MAX];
    char **cells; // row by row
    size_t cells_count;
    size_t cells_capacity;
};

// An empty table of so many columns, at most TABLE_COLUMNS_MAX. It takes no memory yet.
void table_init(struct table *table, size_t columns);
void table_deinit(struct table *table);

// Adds the next cell of the row under construction: a copy of the text, escaped. Returns 0 or
// -ENOMEM.
int table_add(struct table *table, const char *text) LB_MUST_CHECK;

// Prints all complete rows to standard output.
void table_print(const struct table *table);

#endif
