// Error replies of Redis: whether they say for certain that the command changed nothing.
#ifndef LB_REDIS_REFUSAL_H
#define LB_REDIS_REFUSAL_H

#include <stdbool.h>

#define REFUSAL_CODE_BYTES_MAX 31

enum refusal {
    REFUSAL_NOSCRIPT, // the script is not known there: send its text
    REFUSAL_CERTAIN,  // not executed
    REFUSAL_ROLE,     // not executed, and this server is not the one to talk to at present
    REFUSAL_UNKNOWN,  // who knows: a proxy's own error, for example
};

// Classifies the text of an error reply to one of our scripts.
enum refusal refusal_classify(const char *text);

// The error's code, its first word, for a log line: "" when it has none that looks like one.
void refusal_code(const char *text, char ret_code[REFUSAL_CODE_BYTES_MAX + 1]);

// What to do about an error with that code: a short sentence for a log line, or NULL.
const char *refusal_hint(const char *code);

#endif
