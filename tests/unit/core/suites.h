#ifndef LB_TESTS_CORE_SUITES_H
#define LB_TESTS_CORE_SUITES_H

#include <check.h>

Suite *trace_suite(void);
Suite *walk_suite(void);

#endif
