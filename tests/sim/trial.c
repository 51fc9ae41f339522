// Running, shrinking and telling of one seed.
#include "tests/sim/trial.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "tests/sim/world.h"

#define STORY_LINES 120

static const char *const names[FAULTS] = {
#define X(name, per_million, text) #name,
#include "tests/sim/faults.def"
#undef X
};

static void tally_add(struct tally *tally, const struct world *world)
{
    tally->seeds++;
    tally->operations += world->operations;
    tally->actions += world->sim.actions;
    tally->granted += world->truth.granted;
    tally->handed_on += world->truth.handed_on;
    tally->turns += world->truth.turns;
    tally->lost += world->truth.lost;
    tally->suspected += world->truth.suspected;
    tally->recovered += world->truth.recovered;
    tally->released += world->truth.released;
    tally->stale += world->truth.stale;
    for (int fault = 0; fault < FAULTS; fault++)
        tally->fired[fault] += world->sim.fired[fault];
    tally->hash = world->sim.hash;
}

bool trial_run(const struct trial *trial, FILE *story, bool is_hashed, struct tally *tally)
{
    static struct world world;
    jmp_buf violated;
    volatile bool is_well = true;

    log_set_level(LOG_LEVEL_ERROR);
    world_init(&world, trial->seed);
    memcpy(world.sim.is_masked, trial->is_masked, sizeof(trial->is_masked));
    if (trial->is_choosy)
        sim_choose(&world.sim, trial->is_chosen);
    world.sim.story = story;
    world.sim.is_hashed = is_hashed;
    world.sim.violated = &violated;
    if (setjmp(violated) == 0) {
        world_run(&world, trial->operations);
    } else {
        is_well = false;
        tally->operations_to_violation = world.operations;
        tally->events_to_violation = world.sim.actions;
        memcpy(tally->violation, world.sim.violation, sizeof(tally->violation));
    }
    tally_add(tally, &world);
    if (is_well) // else the world may be in the midst of anything
        world_deinit(&world);
    return is_well;
}

static bool child_fails(const struct trial *trial, struct tally *shared)
{
    int status;
    pid_t child = fork();

    lb_assert(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(4);
        _exit(trial_run(trial, NULL, false, shared) ? 0 : 3);
    }
    lb_assert(waitpid(child, &status, 0) == child);
    return status != 0;
}

static struct tally *tally_share(void)
{
    struct tally *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    lb_assert(shared != MAP_FAILED);
    return shared;
}

bool trial_fails(const struct trial *trial)
{
    struct tally *shared = tally_share();
    bool fails = child_fails(trial, shared);

    (void)munmap(shared, sizeof(*shared));
    return fails;
}

// The shortest run that fails ends with the violation.
static void operations_shrink(struct trial *trial)
{
    struct tally *shared = tally_share();
    struct trial shorter = *trial;

    if (child_fails(trial, shared) && shared->operations_to_violation) {
        shorter.operations = shared->operations_to_violation;
        if (trial_fails(&shorter))
            *trial = shorter;
    }
    (void)munmap(shared, sizeof(*shared));
}

void trial_shrink(struct trial *trial)
{
    operations_shrink(trial);
    for (int fault = 0; fault < FAULTS; fault++) {
        struct trial fewer = *trial;

        fewer.is_masked[fault] = true;
        if (trial_fails(&fewer))
            *trial = fewer;
    }
    operations_shrink(trial);
}

static void command_print(const struct trial *trial, const char *program)
{
    const char *separator = " --mask ";

    (void)printf("again: %s --seed %llu --operations %llu", program,
                 (unsigned long long)trial->seed, (unsigned long long)trial->operations);
    for (int fault = 0; fault < FAULTS; fault++) {
        if (!trial->is_masked[fault])
            continue;
        (void)printf("%s%s", separator, names[fault]);
        separator = ",";
    }
    separator = " --only ";
    for (int fault = 0; fault < FAULTS; fault++) {
        if (!trial->is_chosen[fault])
            continue;
        (void)printf("%s%s", separator, names[fault]);
        separator = ",";
    }
    (void)printf(" --story\n");
}

static void story_tail(FILE *story)
{
    static char lines[STORY_LINES][600];
    size_t count = 0;

    rewind(story);
    while (fgets(lines[count % STORY_LINES], sizeof(lines[0]), story))
        count++;
    for (size_t i = count > STORY_LINES ? count - STORY_LINES : 0; i < count; i++)
        (void)fputs(lines[i % STORY_LINES], stdout);
}

void trial_report(const struct trial *trial, const char *program)
{
    struct tally *shared = tally_share();
    FILE *story = tmpfile();
    int status;
    pid_t child;

    lb_assert(story);
    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        setvbuf(story, NULL, _IOLBF, 0);
        _exit(trial_run(trial, story, false, shared) ? 0 : 3);
    }
    (void)waitpid(child, &status, 0);
    story_tail(story);
    (void)fclose(story);
    (void)printf("seed %llu: %s\n", (unsigned long long)trial->seed,
                 shared->violation[0] ? shared->violation : "the program died");
    command_print(trial, program);
    (void)munmap(shared, sizeof(*shared));
}
