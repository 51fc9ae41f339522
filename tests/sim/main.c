// The simulator's command line: many seeds side by side, or one again.
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/trial.h"

#define JOBS_MAX            16
#define SEEDS_A_CHUNK       8
#define FIXED_SEEDS         200
#define OPERATIONS_A_SEED   10000
#define OPERATIONS_IN_TOTAL 2000000

static const struct {
    const char *name;
    const char *text;
} faults[FAULTS] = {
#define X(name, per_million, text) {#name, text},
#include "tests/sim/faults.def"
#undef X
};

static const char usage[] =
    "Usage: sim [OPTIONS]            200 fixed seeds, then fresh ones up to a total of operations\n"
    "       sim --seed N [OPTIONS]   that seed alone\n"
    "  --first N        the first of the fresh seeds (or SIM_SEED; default: by chance)\n"
    "  --fixed N        so many fixed seeds, from 1 (200)\n"
    "  --total N        client operations in total, at least (or SIM_OPERATIONS; 2000000)\n"
    "  --operations N   client operations of one seed (10000)\n"
    "  --mask A,B       these kinds of faults never happen\n"
    "  --only A,B       of all kinds of faults these alone happen, and often\n"
    "  --jobs N         processes side by side (as many as there are processors)\n"
    "  --least N        fails unless at least 30 kinds of faults happened N times each\n"
    "  --story          tell everything that happens (with --seed)\n"
    "  --twice          run the seed twice and compare (with --seed)\n"
    "  --faults         list the kinds of faults\n";

struct options {
    struct trial trial;
    bool has_seed;
    bool is_told;
    bool is_twice;
    uint64_t first;
    uint64_t fixed;
    uint64_t total;
    uint64_t least;
    int jobs;
};

// What the processes share: one row each.
struct job {
    struct tally tally;
    uint64_t seed; // the one that it is at
};

static void fail(const char *text, const char *what)
{
    (void)fprintf(stderr, "sim: %s%s\n%s", text, what, usage);
    exit(64);
}

static uint64_t number(const char *text)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 0);
    if (errno || end == text || *end || *text == '-')
        fail("not a number: ", text);
    return value;
}

static void faults_read(bool (*are_named)[FAULTS], const char *list)
{
    char *copy = strdup(list);
    char *rest;

    for (char *name = strtok_r(copy, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        int fault = 0;

        while (fault < FAULTS && strcmp(faults[fault].name, name) != 0)
            fault++;
        if (fault == FAULTS)
            fail("no such kind of fault: ", name);
        (*are_named)[fault] = true;
    }
    free(copy);
}

static void list_faults(void)
{
    for (int fault = 0; fault < FAULTS; fault++)
        (void)printf("%-22s %s\n", faults[fault].name, faults[fault].text);
}

// What the environment says, or by default; NULL: neither.
static const char *environment(const char *name, const char *default_name)
{
    const char *text = getenv(name);

    if (!text || !*text)
        text = getenv(default_name);
    return text && *text ? text : NULL;
}

static uint64_t fresh_seed(void)
{
    uint32_t seed;
    const char *given = getenv("SIM_SEED");

    if (given && *given)
        return number(given);
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        fail("no random numbers: ", strerror(errno));
    return seed + (uint64_t)FIXED_SEEDS;
}

static void option_take(struct options *options, int option)
{
    switch (option) {
    case 's':
        options->trial.seed = number(optarg);
        options->has_seed = true;
        break;
    case 'f':
        options->first = number(optarg);
        break;
    case 'x':
        options->fixed = number(optarg);
        break;
    case 't':
        options->total = number(optarg);
        break;
    case 'o':
        options->trial.operations = number(optarg);
        break;
    case 'm':
        faults_read(&options->trial.is_masked, optarg);
        break;
    case 'y':
        faults_read(&options->trial.is_chosen, optarg);
        options->trial.is_choosy = true;
        break;
    case 'j':
        options->jobs = (int)number(optarg);
        break;
    case 'l':
        options->least = number(optarg);
        break;
    case 'T':
        options->is_told = true;
        break;
    case '2':
        options->is_twice = true;
        break;
    case 'F':
        list_faults();
        exit(0);
    case 'h':
        (void)fputs(usage, stdout);
        exit(0);
    default:
        exit(64);
    }
}

static void options_read(struct options *options, int argc, char **argv)
{
    static const struct option longs[] = {
        {"seed", required_argument, NULL, 's'},
        {"first", required_argument, NULL, 'f'},
        {"fixed", required_argument, NULL, 'x'},
        {"total", required_argument, NULL, 't'},
        {"operations", required_argument, NULL, 'o'},
        {"mask", required_argument, NULL, 'm'},
        {"only", required_argument, NULL, 'y'},
        {"jobs", required_argument, NULL, 'j'},
        {"least", required_argument, NULL, 'l'},
        {"story", no_argument, NULL, 'T'},
        {"twice", no_argument, NULL, '2'},
        {"faults", no_argument, NULL, 'F'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *total = environment("SIM_OPERATIONS", "SIM_OPERATIONS_DEFAULT");
    int option;

    *options = (struct options){
        .trial = {.operations = OPERATIONS_A_SEED},
        .first = fresh_seed(),
        .fixed = FIXED_SEEDS,
        .total = total ? number(total) : OPERATIONS_IN_TOTAL,
        .jobs = (int)sysconf(_SC_NPROCESSORS_ONLN),
    };
    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1)
        option_take(options, option);
    if (optind < argc)
        fail("unexpected: ", argv[optind]);
    if (options->jobs < 1 || options->jobs > JOBS_MAX)
        options->jobs = JOBS_MAX;
}

static int run_one(const struct options *options, const char *program)
{
    struct tally tally = {0};
    struct tally again = {0};

    if (options->is_twice) {
        (void)trial_run(&options->trial, NULL, true, &tally);
        (void)trial_run(&options->trial, NULL, true, &again);
        (void)printf("%016llx %016llx\n", (unsigned long long)tally.hash,
                     (unsigned long long)again.hash);
        return tally.hash == again.hash ? 0 : 1;
    }
    if (trial_run(&options->trial, options->is_told ? stdout : NULL, true, &tally)) {
        (void)printf("seed %llu: well after %llu operations, %016llx\n",
                     (unsigned long long)options->trial.seed, (unsigned long long)tally.operations,
                     (unsigned long long)tally.hash);
        return 0;
    }
    (void)printf("seed %llu, event %llu: %s\n", (unsigned long long)options->trial.seed,
                 (unsigned long long)tally.events_to_violation, tally.violation);
    (void)program;
    return 1;
}

// The seed of trial number `index`: the fixed ones first.
static uint64_t seed_of(const struct options *options, uint64_t index)
{
    return index < options->fixed ? index + 1 : options->first + index - options->fixed;
}

static _Noreturn void job_run(const struct options *options, struct job *job, uint64_t index)
{
    struct trial trial = options->trial;

    for (uint64_t i = index; i < index + SEEDS_A_CHUNK; i++) {
        trial.seed = job->seed = seed_of(options, i);
        if (!trial_run(&trial, NULL, false, &job->tally))
            _exit(3);
    }
    _exit(0);
}

static void tally_join(struct tally *total, const struct tally *part)
{
    total->seeds += part->seeds;
    total->operations += part->operations;
    total->actions += part->actions;
    total->granted += part->granted;
    total->handed_on += part->handed_on;
    total->turns += part->turns;
    total->lost += part->lost;
    total->suspected += part->suspected;
    total->recovered += part->recovered;
    total->released += part->released;
    total->stale += part->stale;
    for (int fault = 0; fault < FAULTS; fault++)
        total->fired[fault] += part->fired[fault];
}

static void failure_report(const struct options *options, const struct job *job,
                           const char *program)
{
    struct trial trial = options->trial;

    trial.seed = job->seed;
    (void)printf("\nseed %llu fails: %s\n", (unsigned long long)job->seed,
                 job->tally.violation[0] ? job->tally.violation : "the program died");
    trial_shrink(&trial);
    trial_report(&trial, program);
}

static pid_t job_start(const struct options *options, struct job *job, uint64_t index)
{
    pid_t child;

    memset(job, 0, sizeof(*job));
    (void)fflush(stdout);
    child = fork();
    if (child < 0)
        fail("no process: ", strerror(errno));
    if (child == 0)
        job_run(options, job, index);
    return child;
}

static int job_find(const pid_t *children, pid_t child)
{
    int at = 0;

    while (children[at] != child)
        at++;
    return at;
}

// Runs chunks of seeds side by side until there are enough operations, or one fails. Returns how
// many failed.
static int run_many(const struct options *options, const char *program, struct tally *total)
{
    struct job *jobs = mmap(NULL, JOBS_MAX * sizeof(*jobs), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[JOBS_MAX] = {0};
    uint64_t index = 0;
    int running = 0, failures = 0;

    for (; running < options->jobs; running++, index += SEEDS_A_CHUNK)
        children[running] = job_start(options, &jobs[running], index);
    while (running > 0) {
        int status;
        int at = job_find(children, wait(&status));

        tally_join(total, &jobs[at].tally);
        if (status != 0 && failures++ == 0)
            failure_report(options, &jobs[at], program);
        children[at] = 0;
        if (failures == 0 && (index < options->fixed || total->operations < options->total)) {
            children[at] = job_start(options, &jobs[at], index);
            index += SEEDS_A_CHUNK;
        } else {
            running--;
        }
    }
    return failures;
}

static int kinds_of_faults(const struct tally *total, uint64_t least)
{
    int kinds = 0;

    for (int fault = 0; fault < FAULTS; fault++)
        kinds += total->fired[fault] >= (least ? least : 1);
    return kinds;
}

static void table_print(const struct tally *total)
{
    for (int fault = 0; fault < FAULTS; fault++)
        (void)printf("%10llu  %-22s %s\n", (unsigned long long)total->fired[fault],
                     faults[fault].name, faults[fault].text);
    (void)printf("\n%llu seeds, %llu operations, %llu events: %llu grants, %llu of them handed on, "
                 "%llu turns, %llu released, %llu suspected, %llu recovered, %llu lost, %llu too "
                 "late to tell\n",
                 (unsigned long long)total->seeds, (unsigned long long)total->operations,
                 (unsigned long long)total->actions, (unsigned long long)total->granted,
                 (unsigned long long)total->handed_on, (unsigned long long)total->turns,
                 (unsigned long long)total->released, (unsigned long long)total->suspected,
                 (unsigned long long)total->recovered, (unsigned long long)total->lost,
                 (unsigned long long)total->stale);
}

int main(int argc, char **argv)
{
    struct options options;
    struct tally total = {0};
    struct timespec start, end;
    int failures, kinds;

    options_read(&options, argc, argv);
    if (options.has_seed)
        return run_one(&options, argv[0]);
    (void)printf("seeds 1 to %llu, then from %llu (SIM_SEED=%llu)\n",
                 (unsigned long long)options.fixed, (unsigned long long)options.first,
                 (unsigned long long)options.first);
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    failures = run_many(&options, argv[0], &total);
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    table_print(&total);
    kinds = kinds_of_faults(&total, options.least);
    (void)printf("%lld s, %d kinds of faults%s\n", (long long)(end.tv_sec - start.tv_sec), kinds,
                 kinds < 30 ? ": too few" : "");
    (void)printf("%llu passed, %d failed\n", (unsigned long long)total.seeds - failures, failures);
    return failures || kinds < 30 ? 1 : 0;
}
