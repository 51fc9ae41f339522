// What the load program prints at its end: one object of JSON.
#include "tests/integration/waiting/load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;

    return (left > right) - (left < right);
}

static void print_waits(const struct load *load)
{
    static const struct {
        const char *name;
        int percent;
    } rows[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"max", 100}};
    int64_t *waits = memory(NULL, (load->records_count + 1) * sizeof(*waits));

    for (size_t i = 0; i < load->records_count; i++)
        waits[i] = load->records[i].granted_us - load->records[i].sent_us;
    qsort(waits, load->records_count, sizeof(*waits), compare);
    printf("\"waits_us\":{");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t wait = 0;

        if (load->records_count > 0)
            wait = waits[(load->records_count - 1) * (size_t)rows[i].percent / 100];
        printf("%s\"%s\":%" PRId64, i ? "," : "", rows[i].name, wait);
    }
    printf("},");
    free(waits);
}

// How many grants were made out of order on their link, and how many waiters one passed at most.
static void print_order(const struct load *load)
{
    int64_t out_of_order = 0;
    int passed_max = 0;

    for (size_t i = 0; i < load->records_count; i++) {
        out_of_order += load->records[i].passed > 0;
        if (load->records[i].passed > passed_max)
            passed_max = load->records[i].passed;
    }
    printf("\"out_of_order\":%" PRId64 ",\"passed_max\":%d,", out_of_order, passed_max);
}

static void print_records(const struct load *load)
{
    printf(",\"records\":[");
    for (size_t i = 0; i < load->records_count; i++) {
        const struct record *record = &load->records[i];

        printf("%s[%" PRId64 ",%d,%d,%" PRId64 ",%" PRId64 ",%" PRId64 "]", i ? "," : "",
               record->fence, record->broker, record->contender, record->sent_us,
               record->granted_us, record->valid_ms);
    }
    printf("]");
}

void report(const struct load *load)
{
    printf("{\"grants\":[");
    for (int i = 0; i < load->contenders_count; i++)
        printf("%s%" PRId64, i ? "," : "", load->contenders[i].grants);
    printf("],");
    print_waits(load);
    print_order(load);
    printf("\"lost\":%" PRId64 ",\"elapsed_us\":%" PRId64 ",\"errors\":{", load->lost,
           load->ended_us - load->began_us);
    for (size_t i = 0; i < sizeof(load->errors) / sizeof(load->errors[0]); i++)
        if (load->errors[i].count > 0)
            printf("%s\"%s\":%" PRId64, i ? "," : "", load->errors[i].name, load->errors[i].count);
    printf("}");
    if (load->shows_records)
        print_records(load);
    printf("}\n");
}
