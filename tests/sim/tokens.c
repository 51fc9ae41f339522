// A hash table of what became of tokens; one is only in it when something did.
#include "tests/sim/tokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/macros.h"
#include "tests/sim/truth.h"

#define SERIAL_BITS 40

uint64_t token_name(uint64_t run, uint64_t serial)
{
    lb_assert(serial < (uint64_t)1 << SERIAL_BITS);
    return run << SERIAL_BITS | serial;
}

uint64_t token_run(uint64_t name)
{
    return name >> SERIAL_BITS;
}

void token_instance(uint64_t run, char ret_instance[33])
{
    (void)snprintf(ret_instance, 33, "%032" PRIx64, run);
}

uint64_t token_parse(const char *value)
{
    const char *instance;
    const char *serial;

    if (strncmp(value, "lb1:n", 5) != 0)
        return 0;
    instance = strchr(value + 5, ':');
    serial = instance ? strchr(instance + 1, ':') : NULL;
    if (!serial)
        return 0;
    return token_name(strtoull(instance + 1, NULL, 16), strtoull(serial + 1, NULL, 10));
}

void tokens_init(struct truth *truth)
{
    truth->tokens = calloc(TRUTH_TOKENS, sizeof(truth->tokens[0]));
    lb_assert(truth->tokens);
}

static struct truth_token *find(const struct truth *truth, uint64_t name)
{
    size_t at = name * 11400714819323198485U >> 47;

    while (truth->tokens[at].name && truth->tokens[at].name != name)
        at = (at + 1) % TRUTH_TOKENS;
    return &truth->tokens[at];
}

static struct truth_token *find_or_add(struct truth *truth, uint64_t name)
{
    struct truth_token *token = find(truth, name);

    if (!token->name) {
        lb_assert(truth->tokens_count++ < TRUTH_TOKENS / 2);
        token->name = name;
    }
    return token;
}

void tokens_excuse(struct truth *truth, uint64_t name)
{
    if (name)
        find_or_add(truth, name)->is_excused = true;
}

bool tokens_is_excused(const struct truth *truth, uint64_t name)
{
    return find(truth, name)->is_excused;
}

void tokens_give_back(struct truth *truth, uint64_t name)
{
    find_or_add(truth, name)->is_given_back = true;
}

bool tokens_is_given_back(const struct truth *truth, uint64_t name)
{
    return find(truth, name)->is_given_back;
}

void tokens_set(struct truth *truth, uint64_t name)
{
    find_or_add(truth, name)->is_set = true;
}

void tokens_grant(struct truth *truth, uint64_t name)
{
    find_or_add(truth, name)->is_granted = true;
}

void tokens_delete(struct truth *truth, uint64_t name)
{
    find_or_add(truth, name)->is_deleted = true;
}

bool tokens_is_deleted(const struct truth *truth, uint64_t name)
{
    return find(truth, name)->is_deleted;
}

void tokens_settle(struct truth *truth, uint64_t name)
{
    find_or_add(truth, name)->is_settled = true;
}

bool tokens_is_settled(const struct truth *truth, uint64_t name)
{
    return find(truth, name)->is_settled;
}

void tokens_send(struct truth *truth, uint64_t name)
{
    find_or_add(truth, name)->sent_us = truth->sim->now_us;
}

int64_t tokens_sent_us(const struct truth *truth, uint64_t name)
{
    return find(truth, name)->sent_us;
}

uint64_t tokens_find_owed(const struct truth *truth, uint64_t run)
{
    for (size_t i = 0; i < TRUTH_TOKENS; i++) {
        const struct truth_token *token = &truth->tokens[i];

        if (token->is_set && token_run(token->name) == run && !token->is_given_back &&
            !token->is_granted)
            return token->name;
    }
    return 0;
}
