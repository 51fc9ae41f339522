// Tokens as the truth names them: the broker process that made one, and its serial.
#ifndef LB_TESTS_SIM_TOKENS_H
#define LB_TESTS_SIM_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

struct truth;

uint64_t token_name(uint64_t run, uint64_t serial);
uint64_t token_run(uint64_t name);

// The name of the token in a key's value, 0 for any other text.
uint64_t token_parse(const char *value);

// The instance, 32 hex digits, of a broker process.
void token_instance(uint64_t run, char ret_instance[33]);

void tokens_init(struct truth *truth);
void tokens_excuse(struct truth *truth, uint64_t name);
bool tokens_is_excused(const struct truth *truth, uint64_t name);
void tokens_set(struct truth *truth, uint64_t name);
void tokens_grant(struct truth *truth, uint64_t name);
void tokens_delete(struct truth *truth, uint64_t name);
bool tokens_is_deleted(const struct truth *truth, uint64_t name);
void tokens_settle(struct truth *truth, uint64_t name);
bool tokens_is_settled(const struct truth *truth, uint64_t name);

// A command that can set it is sent now; and when the last one was.
void tokens_send(struct truth *truth, uint64_t name);
int64_t tokens_sent_us(const struct truth *truth, uint64_t name);
void tokens_give_back(struct truth *truth, uint64_t name);
bool tokens_is_given_back(const struct truth *truth, uint64_t name);

// A token of that broker process that was set, and was neither granted nor given back; 0: none.
uint64_t tokens_find_owed(const struct truth *truth, uint64_t run);

#endif
