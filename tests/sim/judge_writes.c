// The judgement of what brokers send and of what really happens to the keys.
#include <stdlib.h>
#include <string.h>

#include "proto/macros.h"
#include "daemon/redis/token.h"
#include "tests/sim/node.h"
#include "tests/sim/tokens.h"
#include "tests/sim/truth.h"

// What a wait may be short by in true time: the server's clock may have been nudged, and drifts.
#define NUDGES_US 100000

// A command is given up after at most 267 ms here; the broker may know the server's clock only to
// within the 2 s that a greeting may take.
#define LATE_US 3500000

// The longest before its deadline that a grant is lost, of the leases that there are here.
#define MARGIN_MAX_MS 400

#define EPOCH_KEY   "lockbroker:meta:epoch"
#define QUEUE_START "lockbroker:meta:queue:"

// How long a turn lasts.
#define TURN_MS 250

// The longest that a place in a queue is kept without a word from its broker, nudges of the clock
// included.
#define QUEUE_MAX_MS 3500

// With a new token for a key a broker shows that it is done with the one before.
static void settle_others(struct truth *truth, struct node *node, int key, uint64_t name)
{
    uint64_t before = node->tokens[key];

    if (before && before != name && tokens_is_given_back(truth, before))
        tokens_settle(truth, before);
    node->tokens[key] = name;
}

void truth_sends(struct truth *truth, struct node *node, const struct backend_op *op)
{
    uint64_t name = token_name(node->run, op->serial);

    if (op->kind == BACKEND_BREAK)
        node->breaks_us[truth_key_of(op->key)] = truth->sim->now_us;
    if (op->kind == BACKEND_RELEASE)
        tokens_give_back(truth, name);
    if (op->kind != BACKEND_ACQUIRE && op->kind != BACKEND_RENEW)
        return;
    tokens_send(truth, name);
    if (op->kind == BACKEND_ACQUIRE)
        settle_others(truth, node, truth_key_of(op->key), name);
    if (tokens_is_given_back(truth, name))
        sim_violate(truth->sim, "I7: n%d uses a token of %s that it gave back", node->id, op->key);
    if (op->kind == BACKEND_ACQUIRE)
        return;

    const struct truth_key *key = &truth->keys[truth_key_of(op->key)];

    for (int i = 0; i < key->grants_count; i++) {
        const struct truth_grant *grant = &key->grants[i];

        if (grant->run == node->run && grant->serial == op->serial && grant->is_lost)
            sim_violate(truth->sim, "I11: n%d renews %s, which is lost", node->id, op->key);
    }
}

// Another client has it by now, or has ended in its turn; or the key is being asked for with the
// same token, for the next one: a command without an answer is sent again.
static bool is_handed_on(const struct node *node, const struct truth_grant *ended)
{
    int key = ended->holding.key;

    if (node->serials[key] == ended->serial &&
        (node->written[key] > ended->fence || node->asked_us[key] > ended->told_us))
        return true;
    return node->config.fence_block > 1 && node->asking[key] != 0;
}

void truth_session_ended(struct truth *truth, const struct node *node, uint64_t session)
{
    for (int key = 0; key < TRUTH_KEYS_MAX; key++) {
        for (int i = 0; i < truth->keys[key].grants_count; i++) {
            const struct truth_grant *grant = &truth->keys[key].grants[i];

            // It may have run out before, with nobody to be told.
            if (grant->holding.session == session && !grant->is_lost && !grant->is_released &&
                node_now_ms(node) < grant->deadline_ms - MARGIN_MAX_MS &&
                !tokens_is_given_back(truth, token_name(grant->run, grant->serial)) &&
                !is_handed_on(node, grant))
                sim_violate(truth->sim, "I15: n%d does not give k%d back for %llu, which ended",
                            node->id, key, (unsigned long long)session);
        }
    }
}

// I8: a value that is not the broker's own is none of its business, but for a break. What a process
// that has been killed had sent is about its own tokens.
static void judge_ownership(const struct truth *truth, const struct server_write *write,
                            const struct node *node)
{
    char own[16];

    (void)snprintf(own, sizeof(own), "lb1:n%d:", node->id);
    if (write->old_value && strncmp(write->old_value, own, strlen(own)) != 0)
        sim_violate(truth->sim, "I8: n%d (%s) alters %s, which is not its own", node->id,
                    write->script, write->key);
}

// I14: a key is not given back while somebody relies on it.
static void judge_deletion(struct truth *truth, int key, const struct server_write *write)
{
    uint64_t name = token_parse(write->old_value);

    for (int i = 0; i < truth->keys[key].grants_count; i++) {
        const struct truth_grant *grant = &truth->keys[key].grants[i];

        if (token_name(grant->run, grant->serial) == name && truth_is_active(grant) &&
            !tokens_is_excused(truth, name))
            sim_violate(truth->sim, "I14: n%d frees k%d, on which %llu relies",
                        grant->holding.node->id, key, (unsigned long long)grant->holding.session);
    }
}

static bool clock_was_set_far(const struct truth *truth)
{
    const uint64_t *fired = truth->sim->fired;

    return fired[FAULT_CLOCK_FORWARD] || fired[FAULT_CLOCK_BACK] || fired[FAULT_BROKER_SUSPENDED];
}

// A lost key is set again only while a loss of data is waited out.
static void judge_setting_again(const struct truth *truth, const struct server_write *write,
                                const struct node *node)
{
    const uint64_t *fired = truth->sim->fired;
    bool may_be_waited_out = fired[FAULT_MARKER_DELETED] || fired[FAULT_RESTART_WHOLE] ||
                             fired[FAULT_SERVER_OOM] ||
                             truth->sim->now_us < 3 * truth->sim->ttl_max_ms * 1000;

    if (!write->old_value && strcmp(write->script, "renew") == 0 && !may_be_waited_out &&
        !clock_was_set_far(truth) &&
        truth->sim->now_us > truth->since_us + 1010 * truth->sim->ttl_max_ms + NUDGES_US)
        sim_violate(truth->sim, "n%d sets %s again, and nothing was lost", node->id, write->key);
}

// I10: once a broker is done with a token no command of its own may set it or push it out, and none
// may in any case long after it was sent. Clocks that are set by far let neither be known.
static void judge_lateness(const struct truth *truth, const struct server_write *write,
                           const struct node *node)
{
    uint64_t name = token_parse(write->new_value);

    if (clock_was_set_far(truth))
        return;
    if (tokens_is_settled(truth, name))
        sim_violate(truth->sim, "I10: n%d (%s) sets %s to a token that it is done with", node->id,
                    write->script, write->key);
    if (truth->sim->now_us > tokens_sent_us(truth, name) + LATE_US)
        sim_violate(truth->sim, "I10: n%d (%s) sets %s long after it was told to", node->id,
                    write->script, write->key);
}

// Who is first in the key's queue: whose place is still kept, and who hears of a turn, or has heard
// of one that is not over. Nobody: "".
static void queue_first(const struct truth *truth, int key, const char *own, char ret_id[17])
{
    int64_t now_ms = server_wall_ms(truth->server);
    char name[64];
    const char *text;
    long long kept_ms, turn_ms, expires_ms;
    int length;

    (void)snprintf(name, sizeof(name), QUEUE_START "%s", truth_redis_key(key));
    ret_id[0] = '\0';
    if (!server_look(truth->server, name, &text, (int64_t *)&expires_ms))
        return;
    for (; sscanf(text, " %16[0-9a-f]:%lld:%lld%n", ret_id, &kept_ms, &turn_ms, &length) == 3;
         text += length) {
        bool has_turn = turn_ms > now_ms && turn_ms <= now_ms + TURN_MS;

        if (kept_ms > now_ms && kept_ms <= now_ms + 60000 &&
            (has_turn || strcmp(ret_id, own) == 0 ||
             (turn_ms == 0 && server_is_heard(truth->server, ret_id))))
            return;
    }
    ret_id[0] = '\0';
}

// A free key is not taken by another broker than the one whose turn it is, unless it would not
// hear.
static void judge_turn(const struct truth *truth, const struct server_write *write,
                       const struct node *node, int key)
{
    char first[17], instance[33], own[TOKEN_QUEUE_ID_LENGTH + 1];

    token_instance(token_run(token_parse(write->new_value)), instance);
    token_queue_id(instance, own);
    queue_first(truth, key, own, first);
    if (first[0] && strcmp(first, own) != 0 && !node->barges[key])
        sim_violate(truth->sim, "I17: n%d takes %s, and it is the turn of %s", node->id, write->key,
                    first);
}

// I24, and that no expiry is ever brought nearer.
static void judge_setting(struct truth *truth, const struct server_write *write,
                          const struct node *node)
{
    bool is_taken = !write->old_value && strcmp(write->script, "acquire") == 0;

    if (is_taken && truth->sim->now_us < truth_quarantine_until_us(truth) - NUDGES_US)
        sim_violate(truth->sim, "I24: n%d takes %s too soon after a loss of data", node->id,
                    write->key);
    judge_lateness(truth, write, node);
    judge_setting_again(truth, write, node);
    if (is_taken)
        judge_turn(truth, write, node, truth_key_of(write->key + strlen(TRUTH_PREFIX)));
    if (is_taken)
        tokens_set(truth, token_parse(write->new_value));
    if (write->old_value && write->new_expires_ms < write->old_expires_ms &&
        write->old_expires_ms != SERVER_FOREVER)
        sim_violate(truth->sim, "I2: n%d (%s) brings the expiry of %s nearer", node->id,
                    write->script, write->key);
}

// A break is as late as anything else, and then takes what was not meant.
static void judge_break(const struct truth *truth, const struct node *node, int key)
{
    if (!clock_was_set_far(truth) && truth->sim->now_us > node->breaks_us[key] + LATE_US)
        sim_violate(truth->sim, "n%d breaks k%d long after it was told to", node->id, key);
}

static void lock_written(struct truth *truth, const struct server_write *write, struct node *node)
{
    int key = truth_key_of(write->key + strlen(TRUTH_PREFIX));

    if (strcmp(write->script, "break") == 0) {
        tokens_excuse(truth, token_parse(write->old_value));
        truth_excuse_key(truth, key);
        judge_break(truth, node, key);
        return;
    }
    judge_ownership(truth, write, node);
    if (write->new_value) {
        judge_setting(truth, write, node);
        return;
    }
    judge_deletion(truth, key, write);
    tokens_delete(truth, token_parse(write->old_value));
}

// A broker that never saw a marker takes a server that was emptied for one that never had any. That
// cannot be helped, but only such a broker may.
static void marker_written(struct truth *truth, const struct server_write *write,
                           const struct node *node)
{
    const char *since = strchr(write->new_value, ' ');
    int64_t since_us = server_true_us(truth->server, strtoll(since + 1, NULL, 10));

    truth->since_us = since_us;
    if (truth->sim->now_us >= truth_quarantine_until_us(truth) ||
        since_us >= truth->lost_us - NUDGES_US)
        return;
    // What it sent before it saw the marker says so too.
    if ((node->saw_marker && truth->sim->now_us > node->saw_us + LATE_US) || !truth->was_flushed)
        sim_violate(truth->sim, "I24: n%d ignores a loss of data", node->id);
    sim_tell(truth->sim, "n%d does not know of a loss of data", node->id);
    truth_excuse_all(truth);
    truth->lost_us = INT64_MIN;
}

static void on_write(void *context, const struct server_write *write)
{
    struct truth *truth = context;
    struct node *node = write->writer >= 0 ? node_of(truth->sim, write->writer) : NULL;

    if (truth->sim->story)
        sim_tell(truth->sim, "redis: n%d %s %s: %s (%lld) -> %s (%lld)", write->writer,
                 write->script, write->key, write->old_value ? write->old_value : "-",
                 (long long)write->old_expires_ms, write->new_value ? write->new_value : "-",
                 (long long)write->new_expires_ms);
    if (strncmp(write->key, QUEUE_START, strlen(QUEUE_START)) == 0 && write->new_value &&
        !truth->clock_was_set_back &&
        write->new_expires_ms > server_wall_ms(truth->server) + QUEUE_MAX_MS)
        sim_violate(truth->sim, "the queue %s outlives its brokers", write->key);
    if (node && strcmp(write->key, EPOCH_KEY) == 0)
        marker_written(truth, write, node);
    else if (node && strncmp(write->key, TRUTH_PREFIX, strlen(TRUTH_PREFIX)) == 0)
        lock_written(truth, write, node);
}

static void on_loss(void *context, bool kept)
{
    struct truth *truth = context;

    (void)kept; // an older counter is as good as none
    truth->lost_us = truth->sim->now_us;
    truth_fence_lost(truth);
}

struct server_watcher truth_watcher(struct truth *truth)
{
    return (struct server_watcher){on_write, on_loss, truth};
}

void truth_judge_rest(struct truth *truth)
{
    char queue[64];

    for (int key = 0; key < TRUTH_KEYS_MAX; key++) {
        const char *value;
        int64_t expires_ms;

        if (server_look(truth->server, truth_redis_key(key), &value, &expires_ms) && value &&
            token_parse(value))
            sim_violate(truth->sim, "I10: k%d carries %s when all is quiet", key, value);
        (void)snprintf(queue, sizeof(queue), QUEUE_START "%s", truth_redis_key(key));
        if (!truth->clock_was_set_back && server_look(truth->server, queue, &value, &expires_ms))
            sim_violate(truth->sim, "I10: brokers queue for k%d when all is quiet: %s", key, value);
    }
}
