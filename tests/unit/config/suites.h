#ifndef LB_TESTS_UNIT_CONFIG_SUITES_H
#define LB_TESTS_UNIT_CONFIG_SUITES_H

#include <check.h>

Suite *backend_url_suite(void);
Suite *bytes_suite(void);
Suite *config_suite(void);
Suite *config_file_suite(void);
Suite *config_fault_suite(void);
Suite *config_print_suite(void);
Suite *option_suite(void);

#endif
