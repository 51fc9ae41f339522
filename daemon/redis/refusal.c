// Knows the error codes of Redis. An error it does not know is never taken for "not executed": the
// one who waits for the outcome would then give the lock away twice.
#include "daemon/redis/refusal.h"

#include <stddef.h>
#include <string.h>

#include "proto/macros.h"

static const struct {
    const char *code;
    enum refusal refusal;
} codes[] = {
    {"NOSCRIPT", REFUSAL_NOSCRIPT},   {"READONLY", REFUSAL_ROLE},
    {"MASTERDOWN", REFUSAL_ROLE},     {"LOADING", REFUSAL_ROLE},
    {"MOVED", REFUSAL_CERTAIN},       {"ASK", REFUSAL_CERTAIN},
    {"TRYAGAIN", REFUSAL_CERTAIN},    {"CROSSSLOT", REFUSAL_CERTAIN},
    {"CLUSTERDOWN", REFUSAL_CERTAIN}, {"BUSY", REFUSAL_CERTAIN},
    {"NOAUTH", REFUSAL_CERTAIN},      {"NOPERM", REFUSAL_CERTAIN},
    {"NOREPLICAS", REFUSAL_CERTAIN},  {"MISCONF", REFUSAL_CERTAIN},
    {"OOM", REFUSAL_CERTAIN},         {"WRONGTYPE", REFUSAL_CERTAIN},
    {"NOFENCE", REFUSAL_CERTAIN},
};

// Of the errors with the general code ERR, those that Redis gives before or inside a script. Our
// scripts write the lock last, so one that ended in an error has not changed it.
static const char *const err_marks[] = {
    "can't run this command",    "@user_script",          "Error running script",
    "Error compiling script",    "Script killed",         "unknown command",
    "wrong number of arguments", "max number of clients",
};

// What whoever runs the broker can do about it.
static const struct {
    const char *code;
    const char *hint;
} hints[] = {
    {"OOM", "Redis is at its maxmemory: raise it, or delete other keys"},
    {"READONLY", "this server is a replica: name the master in backend"},
    {"NOPERM", "the Redis user lacks a command or the keys of prefix: widen its ACL"},
    {"NOAUTH", "Redis wants a password: set backend_password_file"},
    {"WRONGPASS", "the user or the password is wrong: see backend and backend_password_file"},
    {"MISCONF", "Redis cannot save to disk and so refuses writes: see its log"},
    {"NOREPLICAS", "too few replicas follow: bring them up, or lower min-replicas-to-write"},
    {"BUSY", "another script keeps Redis busy: wait, or end it with SCRIPT KILL"},
    {"LOADING", "Redis is still loading its data: wait, the broker tries again"},
};

const char *refusal_hint(const char *code)
{
    for (size_t i = 0; i < LB_ARRAY_LENGTH(hints); i++) {
        if (strcmp(code, hints[i].code) == 0)
            return hints[i].hint;
    }
    return NULL;
}

void refusal_code(const char *text, char ret_code[REFUSAL_CODE_BYTES_MAX + 1])
{
    size_t length = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

    if (length > REFUSAL_CODE_BYTES_MAX || (text[length] != ' ' && text[length] != '\0'))
        length = 0;
    memcpy(ret_code, text, length);
    ret_code[length] = '\0';
}

enum refusal refusal_classify(const char *text)
{
    char code[REFUSAL_CODE_BYTES_MAX + 1];

    refusal_code(text, code);
    for (size_t i = 0; i < LB_ARRAY_LENGTH(codes); i++) {
        if (strcmp(code, codes[i].code) == 0)
            return codes[i].refusal;
    }
    if (strcmp(code, "ERR") != 0)
        return REFUSAL_UNKNOWN;
    for (size_t i = 0; i < LB_ARRAY_LENGTH(err_marks); i++) {
        if (strstr(text, err_marks[i]))
            return REFUSAL_CERTAIN;
    }
    return REFUSAL_UNKNOWN;
}
