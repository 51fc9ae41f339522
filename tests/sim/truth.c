// Grants as their clients know them, and the judgement at each word that a client hears. A holder
// may be inside its critical section from when a grant is told until it gives it back, ends, obeys
// `lost`, or until the last deadline that it was told; and while its broker runs and has not said
// `lost`, in any case.
#include "tests/sim/truth.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/core/lease.h"
#include "tests/sim/node.h"
#include "tests/sim/tokens.h"

// By so much a deadline may come nearer for a step of the server's clock that leases tolerate.
#define STEP_MS 100

// By so much a broker's timer may be late.
#define TIMERS_LATE_MS 45

void truth_init(struct truth *truth, struct sim *sim)
{
    memset(truth, 0, sizeof(*truth));
    truth->sim = sim;
    truth->lost_us = INT64_MIN;
    tokens_init(truth);
}

void truth_deinit(struct truth *truth)
{
    free(truth->tokens);
}

int truth_key_of(const char *name)
{
    lb_assert(name[0] == 'k' && name[1] >= '0' && name[1] < '0' + TRUTH_KEYS_MAX && !name[2]);
    return name[1] - '0';
}

const char *truth_redis_key(int key)
{
    static char name[] = TRUTH_PREFIX "k0";

    name[sizeof(name) - 2] = (char)('0' + key);
    return name;
}

int64_t truth_quarantine_until_us(const struct truth *truth)
{
    int64_t longest_us = truth->sim->ttl_max_ms * 1000;

    if (truth->lost_us == INT64_MIN)
        return INT64_MIN / 2;
    return truth->lost_us + longest_us + longest_us / 100;
}

static bool is_in_quarantine(const struct truth *truth)
{
    return truth->sim->now_us < truth_quarantine_until_us(truth);
}

static int64_t local_ms(const struct node *node)
{
    return sim_clock_us(&node->clock, node->sim->now_us) / 1000;
}

static bool is_connected(const struct truth_grant *grant)
{
    const struct node *node = grant->holding.node;

    return node->run == grant->run && node_has_session(node, grant->holding.session);
}

// By a broker that has run since it was held up last: before, it cannot have said anything.
static bool is_served(const struct truth_grant *grant)
{
    const struct node *node = grant->holding.node;

    return node_is_running(node) && node->ran_us >= node->stopped_until_us && is_connected(grant);
}

bool truth_is_active(const struct truth_grant *grant)
{
    if (grant->is_over)
        return false;
    if (local_ms(grant->holding.node) < grant->deadline_ms)
        return true;
    return !grant->is_lost && is_served(grant);
}

bool truth_is_held(const struct truth *truth, int key)
{
    for (int i = 0; i < truth->keys[key].grants_count; i++) {
        const struct truth_grant *grant = &truth->keys[key].grants[i];

        if (!grant->is_over && !grant->is_lost && is_connected(grant))
            return true;
    }
    return false;
}

static bool is_excused(const struct truth *truth, const struct truth_grant *grant)
{
    return tokens_is_excused(truth, token_name(grant->run, grant->serial));
}

// Whether the key carries the grant's token, with no end before `until_us`.
static bool owns_until(const struct truth *truth, const struct truth_grant *grant, int64_t until_us)
{
    const char *value;
    int64_t expires_ms;

    if (!server_look(truth->server, truth_redis_key(grant->holding.key), &value, &expires_ms))
        return false;
    if (!value || token_parse(value) != token_name(grant->run, grant->serial))
        return false;
    return expires_ms == SERVER_FOREVER || server_true_us(truth->server, expires_ms) >= until_us;
}

// I2: what a client is told ends before the key does, or nobody may take the key before.
static void judge_deadline(const struct truth *truth, const struct truth_grant *grant)
{
    const struct node *node = grant->holding.node;
    int64_t until_us = sim_clock_true_us(&node->clock, grant->deadline_ms * 1000);

    if (is_excused(truth, grant) || owns_until(truth, grant, until_us))
        return;
    if (until_us <= truth_quarantine_until_us(truth))
        return;
    sim_violate(truth->sim, "I2: n%d tells %llu of k%d until %lld, beyond the key's end", node->id,
                (unsigned long long)grant->holding.session, grant->holding.key,
                (long long)grant->deadline_ms);
}

// I5, I6: what is affirmed has not run out when it is written.
static void judge_fresh(const struct truth *truth, const struct node *node, int64_t deadline_ms)
{
    if (deadline_ms <= local_ms(node))
        sim_violate(truth->sim, "I5: n%d affirms until %lld, which is over", node->id,
                    (long long)deadline_ms);
}

static void forget_past(struct truth_key *key)
{
    int kept = 0;

    for (int i = 0; i < key->grants_count; i++) {
        if (truth_is_active(&key->grants[i]) ||
            (!key->grants[i].is_over && is_connected(&key->grants[i])))
            key->grants[kept++] = key->grants[i];
    }
    key->grants_count = kept;
}

// I1
static void judge_exclusion(const struct truth *truth, const struct truth_grant *granted)
{
    const struct truth_key *key = &truth->keys[granted->holding.key];

    if (is_excused(truth, granted))
        return;
    for (int i = 0; i < key->grants_count; i++) {
        const struct truth_grant *other = &key->grants[i];

        if (truth_is_active(other) && !is_excused(truth, other))
            sim_violate(truth->sim, "I1: k%d is granted to %llu on n%d, and %llu on n%d has it",
                        granted->holding.key, (unsigned long long)granted->holding.session,
                        granted->holding.node->id, (unsigned long long)other->holding.session,
                        other->holding.node->id);
    }
}

// I12, I13
static void judge_fence(const struct truth *truth, struct truth_key *key,
                        const struct truth_grant *granted)
{
    if (granted->fence > key->last_fence)
        key->last_fence = granted->fence;
    else if (!(truth->clock_was_set_back && truth->fence_was_lost) && !is_excused(truth, granted))
        sim_violate(truth->sim, "I12: k%d is granted with fence %lld after %lld",
                    granted->holding.key, (long long)granted->fence, (long long)key->last_fence);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// As the protocol has it, and not as the broker computes it.
static int64_t margin_of(int64_t ttl_ms)
{
    int64_t tenth_ms = ttl_ms / 10;

    return least(tenth_ms > 100 ? tenth_ms : 100, 3000);
}

// I3, and that a cap is kept.
static void judge_left(const struct truth *truth, const struct truth_grant *granted, int64_t ttl_ms,
                       int64_t max_hold_ms)
{
    const struct node *node = granted->holding.node;
    int64_t left_ms = granted->deadline_ms - local_ms(node);
    int64_t wanted_ms = margin_of(ttl_ms);

    if (max_hold_ms != LB_NONE)
        wanted_ms = least(wanted_ms, max_hold_ms / 2);
    if (left_ms < wanted_ms)
        sim_violate(truth->sim, "I3: n%d grants k%d with %lld ms left", node->id,
                    granted->holding.key, (long long)left_ms);
    if (max_hold_ms != LB_NONE && left_ms > max_hold_ms)
        sim_violate(truth->sim, "n%d grants k%d for %lld ms, longer than may be", node->id,
                    granted->holding.key, (long long)left_ms);
}

// A broker's own fences rise whatever becomes of the counter and of the clock.
static void judge_own_fence(const struct truth *truth, const struct truth_grant *granted)
{
    struct node *node = granted->holding.node;
    int64_t *last = &node->fences[granted->holding.key];

    if (granted->fence <= *last)
        sim_violate(truth->sim, "I12: n%d itself grants k%d with fence %lld after %lld", node->id,
                    granted->holding.key, (long long)granted->fence, (long long)*last);
    *last = granted->fence;
}

// I17: brokers that queue for the key are passed by only so often.
static void judge_passing(const struct truth *truth, const struct truth_grant *granted)
{
    struct node *node = granted->holding.node;
    int key = granted->holding.key;

    if (!node->contended[key].is_known)
        return;
    if (++node->contended[key].grants > node->config.handoff_grants_max)
        sim_violate(truth->sim, "I17: n%d grants k%d for the %lld. time while others queue",
                    node->id, key, (long long)node->contended[key].grants);
}

void truth_granted(struct truth *truth, const struct holding *holding, const struct reply *reply,
                   int64_t max_hold_ms)
{
    struct truth_key *key = &truth->keys[holding->key];
    struct truth_grant granted = {
        .holding = *holding,
        .run = holding->node->run,
        .serial = holding->node->serials[holding->key],
        .fence = reply->fence,
        .deadline_ms = reply->deadline_ms,
        .told_us = truth->sim->now_us,
        .has_cap = max_hold_ms != LB_NONE,
    };

    judge_fresh(truth, holding->node, reply->deadline_ms);
    judge_exclusion(truth, &granted);
    judge_deadline(truth, &granted);
    judge_left(truth, &granted, reply->ttl_ms, max_hold_ms);
    judge_fence(truth, key, &granted);
    judge_own_fence(truth, &granted);
    judge_passing(truth, &granted);
    forget_past(key);
    lb_assert(key->grants_count < TRUTH_GRANTS_MAX);
    key->grants[key->grants_count++] = granted;
    truth->granted++;
    truth->handed_on += key->last_token == token_name(granted.run, granted.serial);
    key->last_token = token_name(granted.run, granted.serial);
}

static bool is_holding(const struct truth_grant *grant, const struct holding *holding)
{
    return grant->holding.session == holding->session && grant->holding.owner == holding->owner;
}

struct truth_grant *truth_find(struct truth *truth, const struct holding *holding)
{
    struct truth_key *key = &truth->keys[holding->key];

    for (int i = key->grants_count - 1; i >= 0; i--) {
        if (is_holding(&key->grants[i], holding) && !key->grants[i].is_over)
            return &key->grants[i];
    }
    return NULL;
}

// The newest one, also if its client is done with it; NULL when it is forgotten.
static struct truth_grant *find_newest(struct truth *truth, const struct holding *holding)
{
    struct truth_key *key = &truth->keys[holding->key];

    for (int i = key->grants_count - 1; i >= 0; i--) {
        if (is_holding(&key->grants[i], holding))
            return &key->grants[i];
    }
    return NULL;
}

void truth_affirmed(struct truth *truth, const struct holding *holding, int64_t fence,
                    int64_t deadline_ms)
{
    struct truth_grant *grant = find_newest(truth, holding);

    if (!grant || (grant->is_over && !grant->is_lost)) // its release is on the way
        return;
    if (grant->is_lost || grant->fence != fence)
        sim_violate(truth->sim, "I4: n%d affirms to %llu a grant of k%d that is over",
                    holding->node->id, (unsigned long long)holding->session, holding->key);
    judge_fresh(truth, holding->node, deadline_ms);
    if (deadline_ms < grant->deadline_ms - STEP_MS && !is_excused(truth, grant))
        sim_violate(truth->sim, "n%d takes back from %llu what was promised of k%d",
                    holding->node->id, (unsigned long long)holding->session, holding->key);
    grant->deadline_ms = deadline_ms;
    grant->told_us = truth->sim->now_us;
    judge_deadline(truth, grant);
}

// I4: told a margin before, by a broker that runs without being held up.
static void judge_told_early(const struct truth *truth, const struct truth_grant *grant,
                             const struct notice *notice)
{
    const struct node *node = grant->holding.node;
    bool ran_out =
        strcmp(notice->reason, "expired") == 0 || strcmp(notice->reason, "not_renewed") == 0;
    bool was_held_up = truth->sim->now_us < node->stopped_until_us + 1000000;

    if (ran_out && !was_held_up && !grant->has_cap && !is_excused(truth, grant) &&
        notice->deadline_ms - local_ms(node) < margin_of(0) - TIMERS_LATE_MS)
        sim_violate(truth->sim, "I4: n%d tells %llu only %lld ms before that k%d is lost", node->id,
                    (unsigned long long)grant->holding.session,
                    (long long)(notice->deadline_ms - local_ms(node)), grant->holding.key);
}

void truth_lost(struct truth *truth, const struct holding *holding, const struct notice *notice)
{
    struct truth_grant *grant = find_newest(truth, holding);

    truth->lost++;
    if (!grant) // its client is done with it, and others have had the lock since
        return;
    if (grant->is_over && !grant->is_lost) // its release is on the way
        return;
    if (grant->is_lost || grant->fence != notice->fence)
        sim_violate(truth->sim, "I4: n%d tells %llu twice, or wrongly, that k%d is lost",
                    holding->node->id, (unsigned long long)holding->session, holding->key);
    judge_told_early(truth, grant, notice);
    grant->is_lost = true;
    grant->deadline_ms = notice->deadline_ms;
}

void truth_capped(struct truth *truth, const struct holding *holding)
{
    struct truth_grant *grant = find_newest(truth, holding);

    if (grant)
        grant->has_cap = true;
}

static bool was_given_back(const struct truth *truth, const struct truth_grant *grant)
{
    return tokens_is_deleted(truth, token_name(grant->run, grant->serial));
}

// The key goes on with the same token, for another client of the same broker, while nothing was in
// doubt.
static bool may_be_handed_on(const struct truth *truth, const struct truth_grant *grant)
{
    const struct node *node = grant->holding.node;

    return node->config.fence_block > 1 && node->run == grant->run &&
           !tokens_is_given_back(truth, token_name(grant->run, grant->serial)) &&
           (owns_until(truth, grant, truth->sim->now_us) || is_excused(truth, grant) ||
            is_in_quarantine(truth));
}

void truth_released(struct truth *truth, const struct holding *holding)
{
    struct truth_grant *grant = find_newest(truth, holding);

    truth->released++;
    if (!grant)
        return;
    if (!was_given_back(truth, grant) && !may_be_handed_on(truth, grant))
        sim_violate(truth->sim, "n%d tells %llu that k%d is released, and it is not",
                    holding->node->id, (unsigned long long)holding->session, holding->key);
    grant->is_released = true;
}

void truth_broken(struct truth *truth, int key)
{
    for (int i = 0; i < truth->keys[key].grants_count; i++) {
        struct truth_grant *grant = &truth->keys[key].grants[i];

        if (grant->is_lost || !node_has_session(grant->holding.node, grant->holding.session))
            grant->is_over = true;
    }
}

void truth_grants(struct truth *truth, const struct node *node, int key)
{
    tokens_grant(truth, token_name(node->run, node->serials[key]));
}

void truth_relied_on(struct truth *truth, const struct holding *holding)
{
    const struct truth_grant *grant = truth_find(truth, holding);

    // A host whose clock stood still may have been taken to be past a deadline meanwhile.
    if (!grant && truth->sim->fired[FAULT_BROKER_SUSPENDED])
        return;
    if (!grant)
        sim_violate(truth->sim, "I1: %llu relies on k%d, which it has not",
                    (unsigned long long)holding->session, holding->key);
    if (!is_excused(truth, grant) && !is_in_quarantine(truth) &&
        !owns_until(truth, grant, truth->sim->now_us))
        sim_violate(truth->sim, "I1: %llu relies on k%d, which is not its own any more",
                    (unsigned long long)holding->session, holding->key);
}

void truth_not_held(struct truth *truth, const struct holding *holding)
{
    const struct truth_grant *grant = truth_find(truth, holding);

    if (grant && !grant->is_lost)
        sim_violate(truth->sim, "I4: n%d says to %llu, not told `lost`, that it has no k%d",
                    holding->node->id, (unsigned long long)holding->session, holding->key);
}

void truth_client_done(struct truth *truth, const struct holding *holding)
{
    struct truth_grant *grant = truth_find(truth, holding);

    if (grant)
        grant->is_over = true;
}

void truth_client_gone(struct truth *truth, uint64_t session)
{
    for (int key = 0; key < TRUTH_KEYS_MAX; key++) {
        for (int i = 0; i < truth->keys[key].grants_count; i++) {
            if (truth->keys[key].grants[i].holding.session == session)
                truth->keys[key].grants[i].is_over = true;
        }
    }
}

// A broker that has an answer from after the server's clock jumped far ahead knows that every lease
// from before is over.
static void judge_far_step(const struct truth *truth, const struct truth_grant *grant)
{
    const struct node *node = grant->holding.node;

    if (truth->far_step_us && !truth->clock_was_set_back && node->heard_ms >= truth->far_step_ms &&
        grant->told_us < truth->far_step_us)
        sim_violate(truth->sim, "I4: n%d knows that the clock jumped, and not that k%d is lost",
                    node->id, grant->holding.key);
}

// I4: as long as a running broker has not said `lost`, the key is its holder's.
void truth_after_run(struct truth *truth, struct node *node)
{
    for (int key = 0; key < TRUTH_KEYS_MAX; key++) {
        for (int i = 0; i < truth->keys[key].grants_count; i++) {
            const struct truth_grant *grant = &truth->keys[key].grants[i];

            if (grant->holding.node != node || grant->is_over || grant->is_lost ||
                !is_served(grant))
                continue;
            judge_far_step(truth, grant);
            if (is_in_quarantine(truth) || is_excused(truth, grant))
                continue;
            if (!owns_until(truth, grant, truth->sim->now_us))
                sim_violate(truth->sim, "I4: n%d has not told %llu that k%d is lost", node->id,
                            (unsigned long long)grant->holding.session, key);
        }
    }
}

void truth_excuse_key(struct truth *truth, int key)
{
    const char *value;
    int64_t expires_ms;

    for (int i = 0; i < truth->keys[key].grants_count; i++) {
        const struct truth_grant *grant = &truth->keys[key].grants[i];

        if (truth_is_active(grant))
            tokens_excuse(truth, token_name(grant->run, grant->serial));
    }
    if (server_look(truth->server, truth_redis_key(key), &value, &expires_ms) && value)
        tokens_excuse(truth, token_parse(value));
}

void truth_excuse_node(struct truth *truth, const struct node *node)
{
    for (int key = 0; key < TRUTH_KEYS_MAX; key++) {
        const char *value;
        int64_t expires_ms;

        tokens_excuse(truth, node->tokens[key]); // its acquire may be under way
        for (int i = 0; i < truth->keys[key].grants_count; i++) {
            const struct truth_grant *grant = &truth->keys[key].grants[i];

            if (grant->holding.node == node && truth_is_active(grant))
                tokens_excuse(truth, token_name(grant->run, grant->serial));
        }
        if (server_look(truth->server, truth_redis_key(key), &value, &expires_ms) && value &&
            token_run(token_parse(value)) == node->run)
            tokens_excuse(truth, token_parse(value));
    }
}

void truth_excuse_all(struct truth *truth)
{
    for (int key = 0; key < TRUTH_KEYS_MAX; key++) {
        truth_excuse_key(truth, key);
        for (int i = 0; i < NODES_MAX; i++) // what is got and not told yet, too
            tokens_excuse(truth, node_of(truth->sim, i)->tokens[key]);
    }
}

void truth_foreign_got(struct truth *truth, int key)
{
    if (is_in_quarantine(truth)) { // others do not wait after a loss
        truth_excuse_key(truth, key);
        return;
    }
    for (int i = 0; i < truth->keys[key].grants_count; i++) {
        const struct truth_grant *grant = &truth->keys[key].grants[i];

        if (truth_is_active(grant) && !is_excused(truth, grant))
            sim_violate(truth->sim, "I2: another program gets k%d, which %llu on n%d has", key,
                        (unsigned long long)grant->holding.session, grant->holding.node->id);
    }
}

void truth_clock_set_ahead(struct truth *truth)
{
    truth->far_step_us = truth->sim->now_us;
    truth->far_step_ms = server_wall_ms(truth->server);
}

void truth_never_expires(struct truth *truth, int key)
{
    for (int i = 0; i < truth->keys[key].grants_count; i++) {
        const struct truth_grant *grant = &truth->keys[key].grants[i];

        // Another lock's value may have been renamed over it since.
        if (!grant->is_over && !grant->is_lost && is_served(grant) &&
            owns_until(truth, grant, truth->sim->now_us))
            sim_violate(truth->sim, "I2: n%d leaves k%d, which it holds, without expiry",
                        grant->holding.node->id, key);
    }
}

void truth_clock_set_back(struct truth *truth)
{
    truth->clock_was_set_back = true;
}

void truth_fence_lost(struct truth *truth)
{
    truth->fence_was_lost = true;
}
