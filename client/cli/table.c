// Tables for people. Columns are as wide as their widest cell, so all rows are kept until the end.
#include "client/cli/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/text.h"

#define TABLE_CELL_BYTES_MAX 4096

void table_init(struct table *table, size_t columns)
{
    lb_assert(columns > 0 && columns <= TABLE_COLUMNS_MAX);
    *table = (struct table){.columns = columns};
}

void table_deinit(struct table *table)
{
    for (size_t i = 0; i < table->cells_count; i++)
        free(table->cells[i]);
    free(table->cells);
    table_init(table, table->columns);
}

static int table_grow(struct table *table)
{
    size_t capacity = table->cells_capacity ? table->cells_capacity * 2 : 64;
    char **cells;

    if (table->cells_count < table->cells_capacity)
        return 0;
    cells = reallocarray(table->cells, capacity, sizeof(*cells));
    if (!cells)
        return -ENOMEM;
    table->cells = cells;
    table->cells_capacity = capacity;
    return 0;
}

int table_add(struct table *table, const char *text)
{
    size_t column = table->cells_count % table->columns;
    char escaped[TABLE_CELL_BYTES_MAX];
    size_t width;

    text_escape(text, escaped, sizeof(escaped));
    if (table_grow(table) != 0)
        return -ENOMEM;
    table->cells[table->cells_count] = strdup(escaped);
    if (!table->cells[table->cells_count])
        return -ENOMEM;
    table->cells_count++;
    width = text_width(escaped);
    if (width > table->width[column])
        table->width[column] = width;
    return 0;
}

static void table_print_cell(const struct table *table, size_t index)
{
    size_t column = index % table->columns;
    size_t width = text_width(table->cells[index]);

    (void)fputs(table->cells[index], stdout);
    if (column + 1 == table->columns)
        (void)putchar('\n');
    else
        (void)printf("%*s", (int)(table->width[column] - width + 2), "");
}

void table_print(const struct table *table)
{
    size_t complete = table->cells_count - table->cells_count % table->columns;

    for (size_t i = 0; i < complete; i++)
        table_print_cell(table, i);
}
