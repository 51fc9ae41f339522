// True time, the queue, and chance. It knows nothing of brokers or of Redis.
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// From this share of a seed's faults on it is a storm; most seeds have fewer kinds, so that rare
// ones meet each other without being drowned.
static const unsigned densities_percent[] = {0, 5, 10, 20, 30, 50, 80, 100};

static const uint32_t per_million[FAULTS] = {
#define X(name, rate, text) rate,
#include "tests/sim/faults.def"
#undef X
};

// a * b / c without overflow on the way.
static int64_t scale(int64_t a, int64_t b, int64_t c)
{
    return (int64_t)(__extension__(__int128) a * b / c);
}

int64_t sim_clock_us(const struct sim_clock *clock, int64_t true_us)
{
    int64_t elapsed_us = true_us - clock->anchor_true_us;

    return clock->anchor_us + elapsed_us + scale(elapsed_us, clock->ppm, 1000000);
}

int64_t sim_clock_true_us(const struct sim_clock *clock, int64_t clock_us)
{
    int64_t elapsed_us = clock_us - clock->anchor_us;
    int64_t true_us = clock->anchor_true_us + scale(elapsed_us, 1000000, 1000000 + clock->ppm) - 3;

    while (sim_clock_us(clock, true_us) < clock_us)
        true_us++;
    return true_us;
}

void sim_clock_step(struct sim_clock *clock, int64_t true_us, int64_t by_us)
{
    clock->anchor_us = sim_clock_us(clock, true_us) + by_us;
    clock->anchor_true_us = true_us;
}

// How often each kind happens in this seed: half as often, as often, or four times as often.
static void draw_chances(struct sim *sim)
{
    unsigned density = densities_percent[sim_below(sim, LB_ARRAY_LENGTH(densities_percent))];

    for (int fault = 0; fault < FAULTS; fault++) {
        bool is_on = sim_below(sim, 100) < density;
        uint32_t chance = per_million[fault] / 2 << sim_below(sim, 3);

        sim->chance[fault] = is_on ? chance : 0;
    }
}

void sim_init(struct sim *sim, uint64_t seed)
{
    memset(sim, 0, sizeof(*sim));
    sim->seed = seed;
    sim->hash = 14695981039346656037U;
    rng_init(&sim->rng, seed);
    draw_chances(sim);
}

void sim_choose(struct sim *sim, const bool is_chosen[FAULTS])
{
    for (int fault = 0; fault < FAULTS; fault++)
        sim->chance[fault] = is_chosen[fault] ? per_million[fault] * 8 : 0;
}

void sim_deinit(struct sim *sim)
{
    free(sim->queue);
    sim->queue = NULL;
}

static bool comes_before(const struct sim_action *a, const struct sim_action *b)
{
    if (a->true_us != b->true_us)
        return a->true_us < b->true_us;
    return a->order < b->order;
}

static void queue_grow(struct sim *sim)
{
    if (sim->queue_count < sim->queue_room)
        return;
    sim->queue_room = sim->queue_room ? 2 * sim->queue_room : 1024;
    sim->queue = realloc(sim->queue, sim->queue_room * sizeof(sim->queue[0]));
    lb_assert(sim->queue);
}

void sim_at(struct sim *sim, int64_t true_us, void (*act)(void *subject, uint64_t argument),
            void *subject, uint64_t argument)
{
    struct sim_action action = {
        .true_us = true_us > sim->now_us ? true_us : sim->now_us,
        .order = sim->next_order++,
        .act = act,
        .subject = subject,
        .argument = argument,
    };
    size_t at;

    queue_grow(sim);
    at = sim->queue_count++;
    while (at > 0 && comes_before(&action, &sim->queue[(at - 1) / 2])) {
        sim->queue[at] = sim->queue[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->queue[at] = action;
}

static struct sim_action queue_pop(struct sim *sim)
{
    struct sim_action first = sim->queue[0];
    struct sim_action last = sim->queue[--sim->queue_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < sim->queue_count &&
            comes_before(&sim->queue[child + 1], &sim->queue[child]))
            child++;
        if (child >= sim->queue_count || comes_before(&last, &sim->queue[child]))
            break;
        sim->queue[at] = sim->queue[child];
        at = child;
    }
    sim->queue[at] = last;
    return first;
}

bool sim_step(struct sim *sim)
{
    struct sim_action action;

    if (sim->queue_count == 0)
        return false;
    action = queue_pop(sim);
    sim->now_us = action.true_us;
    sim->actions++;
    action.act(action.subject, action.argument);
    return true;
}

int64_t sim_below(struct sim *sim, int64_t bound)
{
    return (int64_t)rng_below(&sim->rng, (uint64_t)bound);
}

// Chance is drawn also for what is masked, so that a mask changes nothing else.
bool sim_fault(struct sim *sim, enum fault fault)
{
    if (sim->is_healed || sim->chance[fault] == 0 || sim_below(sim, 1000000) >= sim->chance[fault])
        return false;
    if (sim->is_masked[fault])
        return false;
    sim->fired[fault]++;
    return true;
}

static void hash_add(struct sim *sim, const char *text)
{
    for (; *text; text++)
        sim->hash = (sim->hash ^ (unsigned char)*text) * 1099511628211U;
}

void sim_tell(struct sim *sim, const char *format, ...)
{
    char line[512];
    va_list arguments;
    int length;

    if (!sim->story && !sim->is_hashed)
        return;
    length = snprintf(line, sizeof(line), "%8lld.%03lld ", (long long)(sim->now_us / 1000),
                      (long long)(sim->now_us % 1000));
    va_start(arguments, format);
    (void)vsnprintf(line + length, sizeof(line) - (size_t)length, format, arguments);
    va_end(arguments);
    hash_add(sim, line);
    if (sim->story)
        (void)fprintf(sim->story, "%s\n", line);
}

void sim_violate(struct sim *sim, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(sim->violation, sizeof(sim->violation), format, arguments);
    va_end(arguments);
    sim_tell(sim, "VIOLATION %s", sim->violation);
    longjmp(*sim->violated, 1);
}
