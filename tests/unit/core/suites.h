#ifndef LB_TESTS_CORE_SUITES_H
#define LB_TESTS_CORE_SUITES_H

#include <check.h>

Suite *alarm_suite(void);
Suite *book_suite(void);
Suite *broker_suite(void);
Suite *lease_suite(void);
Suite *lock_suite(void);
Suite *memory_suite(void);
Suite *server_clock_suite(void);
Suite *session_suite(void);
Suite *stats_suite(void);
Suite *straggler_suite(void);
Suite *trace_suite(void);
Suite *walk_suite(void);

#endif
