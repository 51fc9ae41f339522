#ifndef LB_TESTS_UNIT_MEMORY_SUITES_H
#define LB_TESTS_UNIT_MEMORY_SUITES_H

#include <check.h>

Suite *memory_backend_suite(void);
Suite *state_file_suite(void);

#endif
