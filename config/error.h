// Filling a struct config_error. Shared by the files of this folder and by nobody else.
#ifndef LB_CONFIG_ERROR_H
#define LB_CONFIG_ERROR_H

#include "config/config.h"
#include "proto/macros.h"

// Texts that do not fit are cut.
void error_fill(struct config_error *ret_error, const char *place, int line, const char *option,
                const char *format, ...) LB_PRINTF(5, 6);

// For a name that is plain and no option's, with the option that was perhaps meant.
void error_fill_unknown(struct config_error *ret_error, const char *place, int line,
                        const char *name);

#endif
