// Transcripts as input: a line is a time, who acts, and what it does. Whose word ends with ">"
// acts; a line whose word ends with "<" was said by the broker and is not played.
//
//   A> open [uid= pid=]        A> close        A> cut (the broker closes it)
//   A> 1 acquire job ttl=3000  a request: its id, the operation, the key, fields without "_ms"
//   A> bad 1 unknown_op        a line that is no request
//   A> slow until=9000         its next grant is written only then
//   redis> up [run=x server=]  redis> down
//   redis> #1 ok fence=7       an outcome, of "sent=" (else of when it was asked for), executed
//                              when the server's clock showed "server="
//   redis> all ok              the same outcome for each pending operation
//   redis> channel_up          redis> channel_down     redis> turn job     redis> contended job
//   broker> drain              broker> config ttl_max= max_wait= requests_max= waits_after_loss=
//   ... time>                      only lets the time go by time> pause                the process
//   stands still until the next line: no deadline is swept
#include <stdlib.h>
#include <string.h>

#include "proto/reply.h"
#include "proto/request.h"
#include "tests/unit/core/world.h"

#define WORDS_MAX 16

struct words {
    char text[512];
    size_t count;
    char *word[WORDS_MAX];
};

static void words_split(struct words *words, const char *line)
{
    char *rest;

    words->count = 0;
    (void)snprintf(words->text, sizeof(words->text), "%s", line);
    for (char *word = strtok_r(words->text, " \n", &rest); word && words->count < WORDS_MAX;
         word = strtok_r(NULL, " \n", &rest))
        words->word[words->count++] = word;
}

static bool words_has(const struct words *words, const char *wanted)
{
    for (size_t i = 0; i < words->count; i++) {
        if (strcmp(words->word[i], wanted) == 0)
            return true;
    }
    return false;
}

// The text behind "name=", or NULL.
static const char *words_text(const struct words *words, const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < words->count; i++) {
        if (strncmp(words->word[i], name, length) == 0 && words->word[i][length] == '=')
            return words->word[i] + length + 1;
    }
    return NULL;
}

static int64_t words_number(const struct words *words, const char *name, int64_t otherwise)
{
    const char *text = words_text(words, name);

    return text ? strtoll(text, NULL, 10) : otherwise;
}

static struct request_id to_id(const char *word)
{
    struct request_id id = {.kind = REQUEST_ID_NUMBER, .number = strtoll(word, NULL, 10)};

    if (strspn(word, "0123456789") == strlen(word))
        return id;
    id.kind = REQUEST_ID_TEXT;
    id.number = 0;
    (void)snprintf(id.text, sizeof(id.text), "%s", word);
    return id;
}

static enum op to_op(const char *word)
{
    for (enum op op = OP_HELLO; op <= OP_STATS; op++) {
        if (strcmp(op_name(op), word) == 0)
            return op;
    }
    lb_assert(false && "there is such an operation");
    return OP_NONE;
}

static void read_text(struct request *request, const struct words *words, const char *name,
                      enum request_field field, char *target, size_t size)
{
    const char *text = words_text(words, name);

    if (!text)
        return;
    request->given |= field;
    (void)snprintf(target, size, "%s", text);
}

static void read_texts(struct request *request, const struct words *words)
{
#define READ(member, field)                                                                        \
    read_text(request, words, #member, field, request->member, sizeof(request->member))
    READ(key, REQUEST_F_KEY);
    READ(owner, REQUEST_F_OWNER);
    READ(note, REQUEST_F_NOTE);
    READ(status, REQUEST_F_STATUS);
    READ(reason, REQUEST_F_REASON);
    READ(client, REQUEST_F_CLIENT);
    READ(prefix, REQUEST_F_PREFIX);
    READ(after, REQUEST_F_AFTER);
#undef READ
}

static void read_numbers(struct request *request, const struct words *words)
{
    request->ttl_ms = words_number(words, "ttl", request->ttl_ms);
    request->wait_ms = words_number(words, "wait", request->wait_ms);
    request->max_hold_ms = words_number(words, "max_hold", request->max_hold_ms);
    request->fence = words_number(words, "fence", request->fence);
    request->limit = words_number(words, "limit", request->limit);
    request->version = words_number(words, "version", request->version);
    request->renew = words_number(words, "renew", 1) != 0;
    if (words_has(words, "bind=process"))
        request->bind = BIND_PROCESS;
    if (words_has(words, "on_lost=term"))
        request->on_lost = ON_LOST_TERM;
}

static void play_request(struct world *world, uint64_t session, const struct words *words)
{
    struct request request;
    struct event event = {.kind = EVENT_REQUEST, .session = session, .request = &request};
    const char *target = words_text(words, "target");

    request_init(&request);
    lb_assert(words->count >= 3);
    request.id = to_id(words->word[1]);
    request.op = to_op(words->word[2]);
    read_texts(&request, words);
    read_numbers(&request, words);
    if (target)
        request.target = to_id(target);
    if (words->count > 3 && !strchr(words->word[3], '='))
        (void)snprintf(request.key, sizeof(request.key), "%s", words->word[3]);
    world_step(world, &event);
}

static enum error_code to_error(const char *word)
{
    for (enum error_code error = ERROR_MALFORMED; error < ERROR_OTHER; error++) {
        if (strcmp(error_name(error), word) == 0)
            return error;
    }
    lb_assert(false && "there is such an error");
    return ERROR_NONE;
}

static void play_bad(struct world *world, uint64_t session, const struct words *words)
{
    struct reply refusal;
    struct event event = {.kind = EVENT_BAD_REQUEST, .session = session, .refusal = &refusal};

    lb_assert(words->count >= 4);
    reply_init(&refusal);
    if (strcmp(words->word[2], "null") != 0)
        refusal.id = to_id(words->word[2]);
    refusal.error = to_error(words->word[3]);
    refusal.field = words_text(words, "field");
    world_step(world, &event);
}

static void play_session(struct world *world, const struct words *words)
{
    uint64_t session = world_session(words->word[0][0]);
    struct event event = {.session = session};
    const char *what = words->word[1];

    if (strcmp(what, "open") == 0) {
        event.kind = EVENT_SESSION_OPENED;
        event.peer.uid = (uid_t)words_number(words, "uid", 1000);
        event.peer.pid = (pid_t)words_number(words, "pid", 100);
        world_step(world, &event);
    } else if (strcmp(what, "close") == 0 || strcmp(what, "cut") == 0) {
        event.kind = EVENT_SESSION_CLOSED;
        event.closed_by_broker = strcmp(what, "cut") == 0;
        world_step(world, &event);
    } else if (strcmp(what, "slow") == 0) {
        world->write_at_ms[session] = WORLD_EPOCH_MS + words_number(words, "until", 0);
    } else if (strcmp(what, "bad") == 0) {
        play_bad(world, session, words);
    } else {
        play_request(world, session, words);
    }
}

static enum backend_result to_result(const char *word)
{
    static const char *const names[] = {
        [RESULT_OK] = "ok",
        [RESULT_BUSY] = "busy",
        [RESULT_GONE] = "gone",
        [RESULT_STOLEN] = "stolen",
        [RESULT_CONFLICT] = "conflict",
        [RESULT_REFUSED] = "refused",
        [RESULT_LATE] = "late",
        [RESULT_QUARANTINED] = "quarantined",
        [RESULT_QUEUED] = "queued",
        [RESULT_NOT_SENT] = "not_sent",
        [RESULT_UNKNOWN] = "unknown",
    };

    for (size_t i = 0; i < LB_ARRAY_LENGTH(names); i++) {
        if (strcmp(names[i], word) == 0)
            return (enum backend_result)i;
    }
    lb_assert(false && "there is such a result");
    return RESULT_UNKNOWN;
}

static struct holder to_holder(const struct words *words)
{
    struct holder holder = {.ttl_left_ms = LB_NONE};

    if (words_has(words, "local"))
        holder.kind = HOLDER_LOCAL;
    else if (words_has(words, "broker"))
        holder.kind = HOLDER_BROKER;
    else if (words_has(words, "foreign"))
        holder.kind = HOLDER_FOREIGN;
    holder.host = words_text(words, "host");
    holder.ttl_left_ms = words_number(words, "ttl_left", LB_NONE);
    holder.without_expiry = words_has(words, "forever");
    return holder;
}

static void play_outcome(struct world *world, const struct words *words)
{
    struct backend_outcome outcome = {
        .result = to_result(words->word[2]),
        .sent_ms = words_number(words, "sent", LB_NONE),
        .server_ms = words_number(words, "server", LB_NONE),
        .was_missing = words_has(words, "was_missing"),
        .fence = words_number(words, "fence", 0),
        .fences = words_number(words, "fences", 0),
        .ends_in_ms = words_number(words, "ends_in", 0),
        .others_queue = words_has(words, "others_queue"),
        .gave_turn = words_has(words, "gave_turn"),
        .holder = to_holder(words),
    };
    size_t asked = world->ops_count;

    if (outcome.sent_ms != LB_NONE)
        outcome.sent_ms += WORLD_EPOCH_MS;
    if (strcmp(words->word[1], "all") != 0) {
        size_t number = strtoul(words->word[1] + 1, NULL, 10);

        lb_assert(number >= 1 && number <= asked && !world->ops[number - 1].answered);
        world_answer(world, &world->ops[number - 1], &outcome);
        return;
    }
    for (size_t i = 0; i < asked; i++) {
        struct backend_outcome one = outcome;

        if (!world->ops[i].answered)
            world_answer(world, &world->ops[i], &one);
    }
}

// What came over the broker's channel, or that the channel itself came or went.
static bool play_channel(struct world *world, const struct words *words)
{
    static const char *const names[] = {"channel_up", "channel_down", "turn", "contended",
                                        "outsider"};
    static const enum event_kind kinds[] = {EVENT_CHANNEL_UP, EVENT_CHANNEL_DOWN, EVENT_TURN,
                                            EVENT_CONTENDED, EVENT_OUTSIDER};

    for (size_t i = 0; i < LB_ARRAY_LENGTH(names); i++) {
        struct event event = {.kind = kinds[i]};

        if (strcmp(words->word[1], names[i]) != 0)
            continue;
        if (i >= 2)
            event.key = words->word[2];
        world_step(world, &event);
        return true;
    }
    return false;
}

static void play_redis(struct world *world, const struct words *words)
{
    struct event event = {.kind = EVENT_BACKEND_DOWN};

    if (play_channel(world, words))
        return;
    if (strcmp(words->word[1], "up") == 0) {
        event.kind = EVENT_BACKEND_UP;
        event.facts.run_id = words_text(words, "run");
        event.facts.server_ms = words_number(words, "server", LB_NONE);
        event.facts.asked_ms = event.facts.server_ms == LB_NONE ? LB_NONE : world->now_ms;
        event.facts.policy = words_text(words, "policy");
        event.facts.may_evict = words_has(words, "may_evict");
    } else if (strcmp(words->word[1], "down") != 0) {
        play_outcome(world, words);
        return;
    }
    world_step(world, &event);
}

static void play_broker(struct world *world, const struct words *words)
{
    struct event event = {.kind = EVENT_DRAIN};
    struct broker_config *config = &world->config;

    if (strcmp(words->word[1], "config") == 0) {
        event.kind = EVENT_CONFIGURE;
        event.config = config;
        config->ttl_max_ms = words_number(words, "ttl_max", config->ttl_max_ms);
        config->max_wait_ms = words_number(words, "max_wait", config->max_wait_ms);
        config->waits_after_loss =
            words_number(words, "waits_after_loss", config->waits_after_loss) != 0;
        config->requests_max = words_number(words, "requests_max", config->requests_max);
        config->fence_block = words_number(words, "fence_block", config->fence_block);
        config->handoff_grants_max =
            words_number(words, "handoff_grants_max", config->handoff_grants_max);
        config->handoff_time_max_ms =
            words_number(words, "handoff_time_max", config->handoff_time_max_ms);
        config->yield_after_ms = words_number(words, "yield_after", config->yield_after_ms);
        config->linger_ms = words_number(words, "linger", config->linger_ms);
        config->busy_cache_ms = words_number(words, "busy_cache", config->busy_cache_ms);
        config->waiters_key_max = words_number(words, "waiters_key_max", config->waiters_key_max);
        config->waiters_client_max =
            words_number(words, "waiters_client_max", config->waiters_client_max);
        config->slow_wait_ms = words_number(words, "slow_wait", config->slow_wait_ms);
        config->slow_hold_ms = words_number(words, "slow_hold", config->slow_hold_ms);
    }
    world_step(world, &event);
}

static void print_input(struct world *world, int64_t at_ms, const struct words *words)
{
    if (!world->out)
        return;
    (void)fprintf(world->out, "%7lld ", (long long)(at_ms - WORLD_EPOCH_MS));
    for (size_t i = 0; i < words->count; i++)
        (void)fprintf(world->out, " %s", words->word[i]);
    (void)fprintf(world->out, "\n");
}

static void play_words(struct world *world, int64_t at_ms, const struct words *words)
{
    const char *who = words->word[0];

    if (world->paused)
        world->now_ms = at_ms;
    else
        world_run(world, at_ms);
    if (world->now_ms < at_ms)
        world->now_ms = at_ms;
    print_input(world, at_ms, words);
    if (strcmp(who, "time>") == 0)
        world->paused = words_has(words, "pause");
    else if (strcmp(who, "redis>") == 0)
        play_redis(world, words);
    else if (strcmp(who, "broker>") == 0)
        play_broker(world, words);
    else
        play_session(world, words);
    if (!world->paused)
        world_run(world, world->now_ms);
}

void world_play(struct world *world, const char *line)
{
    struct words words;
    char *rest;
    int64_t at_ms = WORLD_EPOCH_MS + strtoll(line, &rest, 10);

    if (rest == line) { // no time: a comment, or nothing
        if (world->out)
            (void)fprintf(world->out, "%s\n", line);
        return;
    }
    words_split(&words, rest);
    lb_assert(words.count >= 1);
    if (words.word[0][strlen(words.word[0]) - 1] == '>')
        play_words(world, at_ms, &words);
}

void world_play_all(struct world *world, const char *lines)
{
    while (*lines) {
        size_t length = strcspn(lines, "\n");
        char line[512];

        (void)snprintf(line, sizeof(line), "%.*s", (int)length, lines);
        world_play(world, line);
        lines += length + (lines[length] == '\n');
    }
}
