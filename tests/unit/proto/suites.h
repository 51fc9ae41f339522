// The suites of this binary.
#ifndef LB_TESTS_PROTO_SUITES_H
#define LB_TESTS_PROTO_SUITES_H

#include <check.h>

Suite *buf_suite(void);
Suite *framing_suite(void);
Suite *grammar_suite(void);
Suite *json_in_suite(void);
Suite *json_out_suite(void);
Suite *utf8_suite(void);
Suite *request_suite(void);
Suite *refusal_suite(void);
Suite *reply_suite(void);
Suite *incoming_suite(void);

#endif
