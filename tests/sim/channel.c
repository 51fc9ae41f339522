// Each connection is a life of its own. Messages keep their order; those that are under way when
// the connection ends are lost.
#include "tests/sim/channel.h"

#include <string.h>

#include "daemon/redis/command.h"

#define DELAY_US         1000
#define DELAYED_US       1500000
#define PAUSE_US         500000
#define QUIET_AT_MOST_US 7000000 // then an unanswered PING gives a connection up

static void attempt(void *subject, uint64_t life);
static void arrive(void *subject, uint64_t life);

static int64_t soon_us(struct channel *channel, int64_t within_us)
{
    return channel->sim->now_us + 50 + sim_below(channel->sim, within_us);
}

static void life_begin(struct channel *channel)
{
    channel->life++;
    channel->messages_count = 0;
    channel->is_deaf = false;
    channel->last_us = 0;
    sim_at(channel->sim, soon_us(channel, PAUSE_US), attempt, channel, channel->life);
}

static void down_post(struct channel *channel)
{
    struct event event = {.kind = EVENT_CHANNEL_DOWN};

    if (channel->is_told_up)
        channel->post(channel->context, &event);
    channel->is_told_up = false;
}

static void on_closed(void *context)
{
    struct channel *channel = context;

    down_post(channel);
    life_begin(channel);
}

static void message_push(struct channel *channel, enum event_kind kind, const char *key,
                         int64_t at_us)
{
    size_t at = (channel->messages_first + channel->messages_count) % CHANNEL_MESSAGES_MAX;
    struct channel_message *message = &channel->messages[at];

    if (channel->messages_count == CHANNEL_MESSAGES_MAX)
        return;
    channel->messages_count++;
    message->kind = kind;
    (void)snprintf(message->key, sizeof(message->key), "%s", key);
    if (at_us < channel->held_until_us)
        at_us = channel->held_until_us;
    if (at_us < channel->last_us)
        at_us = channel->last_us;
    channel->last_us = at_us;
    sim_at(channel->sim, at_us, arrive, channel, channel->life);
}

static void arrive(void *subject, uint64_t life)
{
    struct channel *channel = subject;
    struct event event = {.kind = EVENT_CHANNEL_UP};

    if (life != channel->life)
        return;

    const struct channel_message *message = &channel->messages[channel->messages_first];

    channel->messages_first = (channel->messages_first + 1) % CHANNEL_MESSAGES_MAX;
    channel->messages_count--;
    if (channel->is_deaf)
        return;
    event.kind = message->kind;
    if (message->kind == EVENT_CHANNEL_UP)
        channel->is_told_up = true;
    else
        event.key = message->key;
    channel->post(channel->context, &event);
}

static void on_message(void *context, const char *text)
{
    static const struct {
        const char *word;
        enum event_kind kind;
    } words[] = {{"turn ", EVENT_TURN}, {"wait ", EVENT_CONTENDED}, {"poll ", EVENT_OUTSIDER}};
    struct channel *channel = context;
    int64_t at_us = soon_us(channel, DELAY_US);

    if (sim_fault(channel->sim, FAULT_MESSAGE_LOST))
        return;
    if (sim_fault(channel->sim, FAULT_MESSAGE_DELAYED))
        at_us = soon_us(channel, DELAYED_US);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(words); i++) {
        const char *key = text + strlen(words[i].word);

        if (strncmp(text, words[i].word, strlen(words[i].word)) == 0 &&
            strncmp(key, channel->prefix, strlen(channel->prefix)) == 0)
            message_push(channel, words[i].kind, key + strlen(channel->prefix), at_us);
    }
}

static void attempt(void *subject, uint64_t life)
{
    struct channel *channel = subject;

    if (life != channel->life)
        return;
    channel->ear = (struct server_ear){channel->name, on_message, on_closed, channel, NULL};
    if (channel->sim->now_us < channel->held_until_us ||
        !server_listen(channel->server, &channel->ear))
        sim_at(channel->sim, soon_us(channel, PAUSE_US), attempt, channel, life);
    else
        message_push(channel, EVENT_CHANNEL_UP, "", soon_us(channel, DELAY_US));
}

void channel_begin(struct channel *channel, const char *instance)
{
    char id[TOKEN_QUEUE_ID_LENGTH + 1];

    token_queue_id(instance, id);
    (void)snprintf(channel->name, sizeof(channel->name), COMMAND_CHANNEL_START "%s", id);
    channel->is_told_up = false;
    life_begin(channel);
}

void channel_end(struct channel *channel)
{
    server_unlisten(channel->server, &channel->ear);
    channel->life++;
}

void channel_cut(struct channel *channel)
{
    server_unlisten(channel->server, &channel->ear);
    on_closed(channel);
}

static void on_given_up(void *subject, uint64_t life)
{
    struct channel *channel = subject;

    if (life == channel->life)
        channel_cut(channel);
}

void channel_deafen(struct channel *channel, int64_t for_us)
{
    channel->is_deaf = true;
    sim_at(channel->sim,
           channel->sim->now_us + (for_us < QUIET_AT_MOST_US ? for_us : QUIET_AT_MOST_US),
           on_given_up, channel, channel->life);
}

void channel_hold(struct channel *channel, int64_t until_us)
{
    if (until_us > channel->held_until_us)
        channel->held_until_us = until_us;
}
