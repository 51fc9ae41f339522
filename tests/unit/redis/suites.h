// The suites of this binary.
#ifndef LB_TESTS_REDIS_SUITES_H
#define LB_TESTS_REDIS_SUITES_H

#include <check.h>

Suite *token_suite(void);
Suite *command_suite(void);
Suite *refusal_suite(void);
Suite *resp_suite(void);
Suite *handshake_suite(void);
Suite *scripts_suite(void);
Suite *queue_suite(void);
Suite *late_suite(void);
Suite *epoch_suite(void);
Suite *uplink_suite(void);
Suite *trouble_suite(void);
Suite *libuv_suite(void);
Suite *channel_suite(void);
Suite *channel_trouble_suite(void);
Suite *memory_suite(void);
Suite *addresses_suite(void);

#endif
