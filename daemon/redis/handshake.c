// Makes the opening commands and judges their answers. It may not let anything pass that it does
// not understand: a connection that forgot to authenticate or to select its database would lock
// keys that nobody else looks at. Neither a password nor an error's text that may repeat it is ever
// kept for the log.
#include "daemon/redis/handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/redis/command.h"
#include "daemon/redis/refusal.h"

enum handshake_step {
    STEP_AUTH,
    STEP_SELECT,
    STEP_SETNAME,
    STEP_INFO_SERVER,
    STEP_INFO_REPLICATION,
    STEP_INFO_MEMORY,
    STEP_TIME,
    STEP_SUBSCRIBE,
    STEP_SCRIPTS, // the first of SCRIPT_COUNT
};

static const int for_commands[] = {STEP_SETNAME, STEP_INFO_SERVER, STEP_INFO_REPLICATION,
                                   STEP_INFO_MEMORY, STEP_TIME};

// Channels belong to no database. The role matters here too: a replica only hears what is published
// on its own master.
static const int for_channel[] = {STEP_SETNAME, STEP_INFO_SERVER, STEP_INFO_REPLICATION,
                                  STEP_SUBSCRIBE};

static const char *step_label(int step)
{
    static const char *const labels[] = {
        [STEP_AUTH] = "AUTH",
        [STEP_SELECT] = "SELECT",
        [STEP_SETNAME] = "CLIENT SETNAME",
        [STEP_INFO_SERVER] = "INFO server",
        [STEP_INFO_REPLICATION] = "INFO replication",
        [STEP_INFO_MEMORY] = "INFO memory",
        [STEP_TIME] = "TIME",
        [STEP_SUBSCRIBE] = "SUBSCRIBE",
        [STEP_SCRIPTS] = "SCRIPT LOAD",
    };

    return labels[step < STEP_SCRIPTS ? step : STEP_SCRIPTS];
}

static void step_add(struct handshake *handshake, int step)
{
    handshake->steps[handshake->steps_count++] = step;
}

static void steps_add(struct handshake *handshake, const int *steps, size_t count)
{
    for (size_t i = 0; i < count; i++)
        step_add(handshake, steps[i]);
}

void handshake_init(struct handshake *handshake, const struct handshake_options *options)
{
    *handshake = (struct handshake){.options = *options, .server_ms = LB_NONE};
    if (options->password)
        step_add(handshake, STEP_AUTH);
    if (options->channel) {
        steps_add(handshake, for_channel, LB_ARRAY_LENGTH(for_channel));
        return;
    }
    if (options->database != 0)
        step_add(handshake, STEP_SELECT);
    steps_add(handshake, for_commands, LB_ARRAY_LENGTH(for_commands));
    for (int step = STEP_SCRIPTS; step < STEP_SCRIPTS + SCRIPT_COUNT; step++)
        step_add(handshake, step);
}

static int auth_format(const struct handshake_options *options, char **ret_bytes,
                       size_t *ret_length)
{
    const char *with_user[] = {"AUTH", options->user, options->password};
    const char *without[] = {"AUTH", options->password};

    if (options->user)
        return command_format_words(with_user, 3, ret_bytes, ret_length);
    return command_format_words(without, 2, ret_bytes, ret_length);
}

static int select_format(const struct handshake_options *options, char **ret_bytes,
                         size_t *ret_length)
{
    char number[16];
    const char *words[] = {"SELECT", number};

    (void)snprintf(number, sizeof(number), "%d", options->database);
    return command_format_words(words, 2, ret_bytes, ret_length);
}

static int setname_format(const struct handshake_options *options, char **ret_bytes,
                          size_t *ret_length)
{
    char name[sizeof("lockbrokerd--channel") + LB_HOST_BYTES_MAX];
    const char *words[] = {"CLIENT", "SETNAME", name};

    (void)snprintf(name, sizeof(name), "lockbrokerd-%s%s", options->host,
                   options->channel ? "-channel" : "");
    return command_format_words(words, 3, ret_bytes, ret_length);
}

int handshake_format(const struct handshake *handshake, size_t index, char **ret_bytes,
                     size_t *ret_length)
{
    int step = handshake->steps[index];
    const char *words[] = {"INFO", "server", NULL};

    switch (step) {
    case STEP_AUTH:
        return auth_format(&handshake->options, ret_bytes, ret_length);
    case STEP_SELECT:
        return select_format(&handshake->options, ret_bytes, ret_length);
    case STEP_SETNAME:
        return setname_format(&handshake->options, ret_bytes, ret_length);
    case STEP_INFO_SERVER:
        return command_format_words(words, 2, ret_bytes, ret_length);
    case STEP_INFO_REPLICATION:
        words[1] = "replication";
        return command_format_words(words, 2, ret_bytes, ret_length);
    case STEP_INFO_MEMORY:
        words[1] = "memory";
        return command_format_words(words, 2, ret_bytes, ret_length);
    case STEP_TIME:
        words[0] = "TIME";
        return command_format_words(words, 1, ret_bytes, ret_length);
    case STEP_SUBSCRIBE:
        words[0] = "SUBSCRIBE";
        words[1] = handshake->options.channel;
        return command_format_words(words, 2, ret_bytes, ret_length);
    default:
        words[0] = "SCRIPT";
        words[1] = "LOAD";
        words[2] = script_text((enum backend_op_kind)(step - STEP_SCRIPTS));
        return command_format_words(words, 3, ret_bytes, ret_length);
    }
}

// The value of the line `name:value` of an INFO reply; false when there is none or it is long.
static bool info_find(const char *info, const char *name, char *ret_value, size_t size)
{
    size_t name_length = strlen(name);

    for (const char *line = info; line; line = strchr(line, '\n')) {
        size_t length;

        line += *line == '\n';
        if (strncmp(line, name, name_length) != 0 || line[name_length] != ':')
            continue;
        line += name_length + 1;
        length = strcspn(line, "\r\n");
        if (length >= size)
            return false;
        memcpy(ret_value, line, length);
        ret_value[length] = '\0';
        return true;
    }
    return false;
}

static int problem_set(struct handshake *handshake, int step, const char *what)
{
    (void)snprintf(handshake->problem, sizeof(handshake->problem), "%s: %s", step_label(step),
                   what);
    return HANDSHAKE_E_REFUSED;
}

// What fails only here does not fail the uplink, so the broker works on.
static const char *error_hint(int step, const char *code)
{
    if (step != STEP_SUBSCRIBE)
        return refusal_hint(code);
    if (strcmp(code, "NOPERM") == 0)
        return "the Redis user lacks +subscribe or the channels &lockbroker:meta:wake:*: widen its "
               "ACL; until then locks held elsewhere are only polled";
    return "until this works locks held elsewhere are only polled";
}

// A server may echo the password in the text of its answer to AUTH, but not in its code.
static int error_take(struct handshake *handshake, int step, const char *text)
{
    char code[REFUSAL_CODE_BYTES_MAX + 1];

    refusal_code(text, code);
    // The name only helps whoever looks at CLIENT LIST.
    if (step == STEP_SETNAME && (strcmp(code, "NOPERM") == 0 || strstr(text, "unknown")))
        return 0;
    handshake->hint = error_hint(step, code);
    if (step == STEP_AUTH && strncmp(text, "ERR AUTH", 8) == 0)
        return problem_set(handshake, step, "the server has no password set for this user");
    return problem_set(handshake, step, step == STEP_AUTH ? code : text);
}

static int info_take(struct handshake *handshake, int step, const struct resp *reply)
{
    const char *wanted = handshake->options.run_id;

    if (reply->kind != RESP_TEXT)
        return problem_set(handshake, step, "an unexpected reply");
    if (step == STEP_INFO_SERVER) {
        (void)info_find(reply->text, "redis_version", handshake->version,
                        sizeof(handshake->version));
        (void)info_find(reply->text, "run_id", handshake->run_id, sizeof(handshake->run_id));
        if (wanted && strcmp(handshake->run_id, wanted) != 0)
            return problem_set(handshake, step, "not the server that runs the scripts");
    } else if (step == STEP_INFO_REPLICATION) {
        if (!info_find(reply->text, "role", handshake->role, sizeof(handshake->role)))
            return problem_set(handshake, step, "the server does not tell its role");
        if (strcmp(handshake->role, "master") != 0)
            return problem_set(handshake, step, "the server is a replica: locks need the master");
    } else {
        (void)info_find(reply->text, "maxmemory_policy", handshake->policy,
                        sizeof(handshake->policy));
    }
    return 0;
}

static int script_take(struct handshake *handshake, int step, const struct resp *reply)
{
    if (reply->kind != RESP_TEXT || reply->length != SCRIPT_SHA_LENGTH ||
        strspn(reply->text, "0123456789abcdef") != SCRIPT_SHA_LENGTH)
        return problem_set(handshake, step, "an unexpected reply");
    memcpy(handshake->scripts.sha[step - STEP_SCRIPTS], reply->text, SCRIPT_SHA_LENGTH + 1);
    return 0;
}

// A number of at most 15 digits; -1 for anything else.
static int64_t number_read(const struct resp *text)
{
    if (text->kind != RESP_TEXT || text->length == 0 || text->length > 15 ||
        strspn(text->text, "0123456789") != text->length)
        return -1;
    return strtoll(text->text, NULL, 10);
}

static int time_take(struct handshake *handshake, int step, const struct resp *reply)
{
    int64_t seconds = -1, microseconds = -1;

    if (reply->kind == RESP_ARRAY && reply->count == 2) {
        seconds = number_read(&reply->items[0]);
        microseconds = number_read(&reply->items[1]);
    }
    if (seconds < 0 || seconds > LB_INTEGER_MAX / 1000 || microseconds < 0 ||
        microseconds >= 1000000)
        return problem_set(handshake, step, "an unexpected reply");
    handshake->server_ms = seconds * 1000 + microseconds / 1000;
    return 0;
}

static int subscribe_take(struct handshake *handshake, int step, const struct resp *reply)
{
    if (reply->kind != RESP_ARRAY || reply->count != 3 ||
        !resp_is_text(&reply->items[0], "subscribe") ||
        !resp_is_text(&reply->items[1], handshake->options.channel))
        return problem_set(handshake, step, "an unexpected reply");
    return 0;
}

static int step_take(struct handshake *handshake, int step, const struct resp *reply)
{
    if (reply->kind == RESP_ERROR)
        return error_take(handshake, step, reply->text);
    if (step >= STEP_SCRIPTS)
        return script_take(handshake, step, reply);
    if (step == STEP_TIME)
        return time_take(handshake, step, reply);
    if (step == STEP_SUBSCRIBE)
        return subscribe_take(handshake, step, reply);
    if (step >= STEP_INFO_SERVER)
        return info_take(handshake, step, reply);
    if (reply->kind != RESP_STATUS || strcmp(reply->text, "OK") != 0)
        return problem_set(handshake, step, "an unexpected reply");
    return 0;
}

int handshake_take(struct handshake *handshake, const struct resp *reply)
{
    int rc;

    lb_assert(handshake->answered < handshake->steps_count);
    rc = step_take(handshake, handshake->steps[handshake->answered++], reply);
    if (rc != 0)
        return rc;
    return handshake->answered == handshake->steps_count ? HANDSHAKE_E_DONE : 0;
}

// Only `noeviction` never evicts. Every lock has an expiry, so the volatile policies are no better
// for it than the others; and without a limit of memory, one may be set at any time.
static bool may_evict(const struct handshake *handshake)
{
    return handshake->policy[0] && strcmp(handshake->policy, "noeviction") != 0;
}

void handshake_facts(const struct handshake *handshake, struct backend_facts *ret_facts)
{
    *ret_facts = (struct backend_facts){
        .run_id = handshake->run_id[0] ? handshake->run_id : NULL,
        .role = handshake->role[0] ? handshake->role : NULL,
        .version = handshake->version[0] ? handshake->version : NULL,
        .policy = handshake->policy[0] ? handshake->policy : NULL,
        .may_evict = may_evict(handshake),
        .server_ms = handshake->server_ms,
        .asked_ms = handshake->options.now_ms,
    };
}
