// Decoding of UTF-8, strict: no overlong forms, no surrogates, nothing above U+10FFFF.
#ifndef LB_PROTO_UTF8_H
#define LB_PROTO_UTF8_H

#include <stddef.h>

// How many bytes the first character of `bytes` has, 1..4; 0 when it is not valid or `length` is 0.
size_t utf8_char_bytes(const char *bytes, size_t length);

#endif
