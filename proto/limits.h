// Every maximum of the wire contract. Sizes are bytes without a terminating NUL.
#ifndef LB_PROTO_LIMITS_H
#define LB_PROTO_LIMITS_H

#define LB_PROTOCOL_VERSION 1

#define LB_REQUEST_LINE_BYTES_MAX 8192
#define LB_REPLY_LINE_BYTES_MAX   (256 * 1024)
#define LB_KEY_BYTES_MAX          512
#define LB_OWNER_BYTES_MAX        128
#define LB_CLIENT_BYTES_MAX       128
#define LB_NOTE_BYTES_MAX         256
#define LB_STATUS_BYTES_MAX       128
#define LB_REASON_BYTES_MAX       256
#define LB_ID_BYTES_MAX           64
#define LB_HOST_BYTES_MAX         64
#define LB_FIELD_BYTES_MAX        64  /* of an unknown field's name, when a refusal repeats it */
#define LB_REFUSAL_BYTES_MAX      127 /* of the sentence that says what is wrong with a field */

#define LB_JSON_DEPTH_MAX   4
#define LB_JSON_MEMBERS_MAX 16

// The largest integer that every JSON implementation carries exactly.
#define LB_INTEGER_MAX 9007199254740991LL /* 2^53 - 1 */

#define LB_TTL_MIN_MS     1000
#define LB_LIST_LIMIT_MAX 1000
#define LB_LIST_LIMIT     100

#define LB_SOCKET_PATH_DEFAULT "/run/lockbroker.sock"

#endif
