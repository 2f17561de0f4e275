/*
** idem_int.h: what every file of the extension includes: SQLite's API and the limits on everything.
*/
#ifndef IDEM_INT_H
#define IDEM_INT_H

#include <sqlite3ext.h> /* with -DSQLITE_CORE these macros are empty and calls go straight in */
#ifndef IDEM_MAIN       /* idem.c defines the API pointer, all others refer to it */
SQLITE_EXTENSION_INIT3
#endif

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "idem.h"

/* Limits. Characters are Unicode code points, sizes are bytes, times are milliseconds. */
#define IDEM_KEY_CHARS       255     /* key: 1..255 characters */
#define IDEM_SCOPE_CHARS     255     /* scope: 0..255 */
#define IDEM_OPERATION_CHARS 255     /* operation: 0..255; '' = none given */
#define IDEM_FINGERPRINT_MAX 128     /* fingerprint: 1..128 bytes */
#define IDEM_TOKEN_MIN       16      /* a caller's token: 16..128 printable ASCII */
#define IDEM_TOKEN_MAX       128     /* the tokens idem makes have 32 */
#define IDEM_POINT_CHARS     255     /* recovery point: 1..255 characters */
#define IDEM_REASON_CHARS    1000    /* reason: 0..1000 characters */
#define IDEM_HEADERS_MAX     65536   /* stored headers: bytes */
#define IDEM_CHECKPOINT_MAX  1048576 /* checkpoint data: bytes */
#define IDEM_SPENT_MAX       8192    /* remembered spent tokens: bytes */
#define IDEM_PURGE_DEFAULT   1000    /* rows idem_purge() touches at most */
#define IDEM_PURGE_MAX       1000000 /* rows idem_purge(n) may touch at most */
#define IDEM_CLOCK_MAX       ((int64_t)253402300799999) /* end of the year 9999 */
#define IDEM_NESTING_MAX     8                          /* bodies that run inside each other */
#define IDEM_RACES_MAX       1000                       /* lost races before busy is reported */

typedef struct IdemConn IdemConn; /* conn.h */

#endif
