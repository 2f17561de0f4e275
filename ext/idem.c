/*
** idem.c: the entry point, with the one list of functions and the one list of virtual tables.
**
**     .load ./idem
**     SELECT idem_version();
**     SELECT idem_init();
**
** Loading writes nothing to the database: it works on a read-only connection, inside a transaction,
** and while another connection holds every lock.
*/
#define IDEM_MAIN
#include "idem_int.h"
SQLITE_EXTENSION_INIT1

#include "call_table.h"
#include "claim_table.h"
#include "fingerprint.h"
#include "functions.h"
#include "keys.h"
#include "records_table.h"

#define IDEM_MINIMUM_SQLITE 3037000 /* STRICT tables */

#ifndef SQLITE_RESULT_SUBTYPE
#define SQLITE_RESULT_SUBTYPE 0x001000000 /* SQLite 3.45; older engines ignore it */
#endif

/* Pure: may stand in views, triggers and indexes. Harmless: the same, but not deterministic.
** Direct: reads or writes the store, callable from top-level SQL only. */
#define PURE     (SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS)
#define HARMLESS (SQLITE_UTF8 | SQLITE_INNOCUOUS)
#define DIRECT   (SQLITE_UTF8 | SQLITE_DIRECTONLY)

static const struct {
  const char *zName;                                       /* as SQL calls it */
  int nMin, nMax;                                          /* arguments; nMax -1 = any number */
  int mFlags;                                              /* for sqlite3_create_function_v2() */
  void (*xFunc)(sqlite3_context *, int, sqlite3_value **); /* does it */
} aFunction[] = {
    {"idem_init", 0, 0, DIRECT, idemFnInit},
    {"idem_claim", 3, 5, DIRECT | SQLITE_RESULT_SUBTYPE, idemFnClaim},
    {"idem_complete", 4, 6, DIRECT, idemFnComplete},
    {"idem_release", 3, 4, DIRECT, idemFnRelease},
    {"idem_suspend", 3, 4, DIRECT, idemFnSuspend},
    {"idem_renew", 3, 3, DIRECT, idemFnRenew},
    {"idem_checkpoint", 4, 5, DIRECT, idemFnCheckpoint},
    {"idem_resolve", 3, 6, DIRECT, idemFnResolve},
    {"idem_seen", 2, 3, DIRECT, idemFnSeen},
    {"idem_purge", 0, 1, DIRECT, idemFnPurge},
    {"idem_clock", 0, 1, DIRECT, idemFnClock},
    {"idem_audit_verify", 0, 0, DIRECT, idemFnAuditVerify},
    {"idem_fingerprint", -1, -1, PURE, idemFnFingerprint},
    {"idem_fingerprint_raw", 1, 1, PURE, idemFnFingerprintRaw},
    {"idem_hmac_fingerprint", -1, -1, PURE, idemFnHmacFingerprint},
    {"idem_canonical", -1, -1, PURE, idemFnCanonical},
    {"idem_header_key", 1, 1, PURE, idemFnHeaderKey},
    {"idem_derive_key", -1, -1, PURE, idemFnDeriveKey},
    {"idem_key", 0, 0, HARMLESS, idemFnKey},
    {"idem_schema", 1, 1, PURE, idemFnSchema},
    {"idem_version", 0, 0, HARMLESS, idemFnVersion},
};

static const struct {
  const char *zName;             /* the module, and its table */
  const sqlite3_module *pModule; /* its methods */
} aModule[] = {
    {"idem_call", &idemCallModule},
    {"idem_records", &idemRecordsModule},
    {"idem_claim", &idemClaimModule},
};

static int registerAll(sqlite3 *db, IdemConn *pConn) {
  int rc = SQLITE_OK;
  for (size_t i = 0; i < sizeof(aModule) / sizeof(aModule[0]) && rc == SQLITE_OK; i++) {
    rc = sqlite3_create_module_v2(db, aModule[i].zName, aModule[i].pModule, idemConnRef(pConn),
                                  idemConnUnref);
  }
  for (size_t i = 0; i < sizeof(aFunction) / sizeof(aFunction[0]); i++) {
    for (int n = aFunction[i].nMin; n <= aFunction[i].nMax && rc == SQLITE_OK; n++) {
      rc = sqlite3_create_function_v2(db, aFunction[i].zName, n, aFunction[i].mFlags,
                                      idemConnRef(pConn), aFunction[i].xFunc, 0, 0, idemConnUnref);
    }
  }
  return rc;
}

/*
** 1 if this connection has idem already, of this version; -1 if of another version, or if it cannot
** be told; 0 if it has none. Registering again would be refused as busy while the SELECT
** load_extension() runs, or would divide the connection between two clocks and caches.
*/
static int loadedBefore(sqlite3 *db, char **pzErr) {
  sqlite3_stmt *pStmt = 0;
  int bLoaded = 0;
  int rc = sqlite3_prepare_v2(db, "SELECT idem_version()", -1, &pStmt, 0);
  /* An authorizer refused: that is no answer. A locked or damaged file is none either, but must not
  ** be in the way of loading. */
  if (rc != SQLITE_OK && strncmp(sqlite3_errmsg(db), "not authorized", 14) == 0) {
    if (pzErr) {
      *pzErr =
          sqlite3_mprintf("the authorizer must allow idem_version(), which tells whether it is "
                          "loaded already: %s",
                          sqlite3_errmsg(db));
    }
    return -1;
  }
  if (rc == SQLITE_OK && sqlite3_step(pStmt) == SQLITE_ROW) {
    const char *z = (const char *)sqlite3_column_text(pStmt, 0);
    size_t n = strlen("idem " IDEM_VERSION ",");
    bLoaded = z && strncmp(z, "idem " IDEM_VERSION ",", n) == 0 ? 1 : -1;
    if (bLoaded < 0 && pzErr) {
      *pzErr = sqlite3_mprintf("another version is loaded already: %s", z ? z : "unknown");
    }
  }
  sqlite3_finalize(pStmt);
  return bLoaded;
}

#ifndef SQLITE_CORE
#include <stdatomic.h>
/*
** The library has one pointer to SQLite's functions. A second copy of SQLite in the process must
** not replace it under the first one's feet.
*/
static int claimApi(const sqlite3_api_routines *pApi) {
  static atomic_flag lock = ATOMIC_FLAG_INIT;
  int bOurs;
  while (atomic_flag_test_and_set(&lock)) { /* GCOVR_EXCL_BR_LINE: test-tsan has the crowd */
  }
  if (!sqlite3_api) sqlite3_api = pApi;
  bOurs = sqlite3_api == pApi;
  atomic_flag_clear(&lock);
  return bOurs;
}
#endif

#ifdef _WIN32
#define IDEM_EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define IDEM_EXPORT __attribute__((visibility("default")))
#else
#define IDEM_EXPORT
#endif

IDEM_EXPORT int sqlite3_idem_init(sqlite3 *db, char **pzErr, const sqlite3_api_routines *pApi) {
  IdemConn *pConn;
  int rc;
#ifndef SQLITE_CORE
  if (!claimApi(pApi)) {
    *pzErr = pApi->mprintf("idem is in use by another copy of SQLite in this process");
    return SQLITE_ERROR;
  }
#endif
  (void)pApi;
  if (sqlite3_libversion_number() < IDEM_MINIMUM_SQLITE) { /* GCOVR_EXCL_BR_LINE: tests/versions */
    if (pzErr) {
      *pzErr = sqlite3_mprintf("idem needs SQLite 3.37 or later, this is %s", sqlite3_libversion());
    }
    return SQLITE_ERROR;
  }
  rc = loadedBefore(db, pzErr);
  if (rc) return rc > 0 ? SQLITE_OK : SQLITE_ERROR;
  rc = idemConnNew(db, &pConn);
  if (rc != SQLITE_OK) {
    if (pzErr) *pzErr = sqlite3_mprintf("libcrypto offers no SHA-256 or no memory");
    return rc;
  }
  rc = registerAll(db, pConn);
  if (rc == SQLITE_OK) {
    idemClaimTableEnsure(pConn, 1);
  } else if (pzErr) {
    *pzErr = sqlite3_mprintf("idem could not be registered: %s", sqlite3_errmsg(db));
  }
  idemConnUnref(pConn);
  return rc;
}
