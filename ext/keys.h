/*
** keys.h: SQL functions that make and read idempotency keys. They touch no table.
*/
#ifndef IDEM_KEYS_H
#define IDEM_KEYS_H

#include "conn.h"

/* idem_key(): a fresh UUIDv7 (RFC 9562): 48 bits of time, 74 random. */
void idemFnKey(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);

/* idem_derive_key(key, step ...): the same UUID for the same arguments, for ever. */
void idemFnDeriveKey(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);

/* idem_header_key(header): the key inside the value of an Idempotency-Key header. */
void idemFnHeaderKey(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);

#endif
