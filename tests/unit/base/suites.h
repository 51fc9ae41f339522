#ifndef LB_TESTS_UNIT_BASE_SUITES_H
#define LB_TESTS_UNIT_BASE_SUITES_H

#include <check.h>

Suite *log_suite(void);
Suite *rng_suite(void);
Suite *clock_suite(void);

#endif
