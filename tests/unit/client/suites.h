// The suites of this binary.
#ifndef LB_TEST_CLIENT_SUITES_H
#define LB_TEST_CLIENT_SUITES_H

#include <check.h>

Suite *alloc_suite(void);
Suite *calls_suite(void);
Suite *grant_suite(void);
Suite *client_suite(void);
Suite *sync_suite(void);
Suite *cli_suite(void);

#endif
