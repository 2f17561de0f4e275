/*
** fingerprint.h: the SQL functions that say whether two requests ask for the same thing.
**
** They are registered elsewhere with SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS; their
** user data is the connection's IdemConn.
*/
#ifndef IDEM_FINGERPRINT_H
#define IDEM_FINGERPRINT_H

#include "digest.h"
#include "idem_int.h"

#define IDEM_SECRET_MIN 16 /* bytes of a secret: fewer could be guessed together with the payload */

/* What the functions need of a connection: digest contexts and buffers that are used again. */
typedef struct IdemFingerprint IdemFingerprint;

/* SQLITE_OK, SQLITE_NOMEM, or SQLITE_ERROR if libcrypto offers no SHA-256. */
int idemFingerprintNew(IdemFingerprint **pp);

/* Frees it; NULL is fine. */
void idemFingerprintFree(IdemFingerprint *p);

/* Its digest contexts, for the connection's other hashing. */
IdemDigest *idemFingerprintDigest(IdemFingerprint *p);

/* The connection's own; defined by whoever owns connections. */
struct IdemConn;
IdemFingerprint *idemConnFingerprint(struct IdemConn *p);

/* idem_fingerprint(payload [, path ...]) */
void idemFnFingerprint(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);

/* idem_fingerprint_raw(bytes) */
void idemFnFingerprintRaw(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);

/* idem_hmac_fingerprint(secret, payload [, path ...]) */
void idemFnHmacFingerprint(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);

/* idem_canonical(payload [, path ...]) */
void idemFnCanonical(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);

#endif
