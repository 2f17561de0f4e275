/*
** unit_memory.c: what happens when memory runs out, and that none is lost.
**
** SQLite's allocator is replaced by one that counts and can be told to fail at the n-th request,
** once or from then on. Each scenario is run with n = 1, 2, 3 … until nothing fails any more: every
** failure must be reported as such, the next call must work, and in the end nothing may be held.
** Prints the number of failures that were forced.
*/
#include "../../ext/canonical.h"
#include "../../ext/fingerprint.h"
#include "../../ext/idem_int.h"

#include <stdio.h>
#include <stdlib.h>

static long nHeld;       /* allocations not yet freed */
static long nUntilFail;  /* requests until one fails; 0 = none */
static int bKeepFailing; /* and all later ones too */
static long nForced;     /* failures so far */

#define CHECK(x)                                                                                   \
  do {                                                                                             \
    if (!(x)) {                                                                                    \
      fprintf(stderr, "unit_memory.c:%d: not so: %s\n", __LINE__, #x);                             \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static int mustFail(void) {
  if (nUntilFail == 0 || (nUntilFail > 1 && nUntilFail--)) return 0;
  if (!bKeepFailing) nUntilFail = 0;
  nForced++;
  return 1;
}

/* Blocks carry their size in front, as xSize must tell it. */
static void *faultMalloc(int n) {
  int64_t *p = mustFail() ? NULL : malloc((size_t)n + 16);
  if (p == NULL) return NULL;
  nHeld++;
  p[0] = n;
  return p + 2;
}

static void faultFree(void *p) {
  if (p == NULL) return;
  nHeld--;
  free((int64_t *)p - 2);
}

static void *faultRealloc(void *p, int n) {
  int64_t *pNew;
  if (p == NULL) return faultMalloc(n);
  pNew = mustFail() ? NULL : realloc((int64_t *)p - 2, (size_t)n + 16);
  if (pNew == NULL) return NULL;
  pNew[0] = n;
  return pNew + 2;
}

static int faultSize(void *p) {
  return (int)((int64_t *)p - 2)[0];
}

static int faultRoundup(int n) {
  return (n + 7) & ~7;
}

static int faultInit(void *p) {
  (void)p;
  return SQLITE_OK;
}

static void faultShutdown(void *p) {
  (void)p;
}

static const char zOrder[] =
    "{\"b\":{\"z\":[1e20,1e20,1e20,1e20],\"y\":{\"d\":1,\"c\":2}},\"a\":0}";

/* One round: a canonicaliser, two paths, a growing and shuffled document. Returns whether memory
** ran out anywhere. */
static int round1(void) {
  const char *azPath[] = {"-$.b.y.c", "+$.*"};
  const size_t anPath[] = {8, 4};
  IdemPathFault pathFault;
  IdemFault fault;
  IdemPaths *pPaths = NULL;
  uint8_t *a;
  size_t n;
  int rc, bFailed = 0;
  IdemCanon *p = idemCanonNew();

  if (p == NULL) return 1;
  rc = idemPathsNew(&pPaths, 2, azPath, anPath, &pathFault);
  CHECK(rc == SQLITE_OK || (rc == SQLITE_NOMEM && pathFault.eKind == IDEM_FAULT_NOMEM && !pPaths));
  bFailed |= rc != SQLITE_OK;
  for (int i = 0; i < 3; i++) {
    rc = idemCanonRun(p, pPaths, zOrder, sizeof zOrder - 1, &a, &n, &fault);
    if (rc == SQLITE_OK) {
      CHECK(n > 4 && memcmp(a, "{\"a\":0,\"b\":{\"y\":{", 17) == 0);
    } else {
      CHECK(rc == SQLITE_NOMEM && fault.eKind == IDEM_FAULT_NOMEM && fault.iByte == 0 && a == NULL);
      bFailed = 1;
    }
  }
  idemCanonTrim(p);
  idemPathsFree(pPaths);
  idemCanonFree(p);
  return bFailed;
}

static IdemFingerprint *pShared;

struct IdemConn {
  int unused; /* the accessor below answers for every connection */
};

IdemFingerprint *idemConnFingerprint(struct IdemConn *p) {
  (void)p;
  return pShared;
}

/* The same through SQL, with everything that SQLite allocates around it. */
static int round2(void) {
  sqlite3 *db = NULL;
  sqlite3_stmt *pStmt = NULL;
  int rc = sqlite3_open(":memory:", &db);
  int bFailed = rc != SQLITE_OK;

  if (!bFailed) bFailed = idemFingerprintNew(&pShared) != SQLITE_OK;
  if (!bFailed) {
    bFailed =
        sqlite3_create_function(db, "f", -1, SQLITE_UTF8, NULL, idemFnFingerprint, 0, 0) ||
        sqlite3_create_function(db, "h", -1, SQLITE_UTF8, NULL, idemFnHmacFingerprint, 0, 0) ||
        sqlite3_create_function(db, "c", -1, SQLITE_UTF8, NULL, idemFnCanonical, 0, 0) ||
        sqlite3_create_function(db, "r", 1, SQLITE_UTF8, NULL, idemFnFingerprintRaw, 0, 0);
  }
  if (!bFailed) {
    bFailed = sqlite3_prepare_v2(db,
                                 "SELECT f(?1,'-$.b.y.c'), h('0123456789abcdef',?1), c(?1,'-$.x'), "
                                 "r(?1), f('[')",
                                 -1, &pStmt, 0) != SQLITE_OK;
  }
  if (!bFailed) {
    sqlite3_bind_text(pStmt, 1, zOrder, -1, SQLITE_STATIC);
    rc = sqlite3_step(pStmt);
    /* Without a fault the last function's refusal is what comes. */
    CHECK(rc == SQLITE_ERROR || rc == SQLITE_NOMEM);
    bFailed = rc == SQLITE_NOMEM;
    /* SQLite may have had no memory for its own copy of the message. */
    CHECK(bFailed || nForced > 0 || strncmp(sqlite3_errmsg(db), "idem_fingerprint: eof", 21) == 0);
  }
  sqlite3_finalize(pStmt);
  idemFingerprintFree(pShared);
  pShared = NULL;
  sqlite3_close(db);
  return bFailed;
}

/* Runs a scenario with a failure at every possible place. */
static void scenario(int (*xRound)(void)) {
  CHECK(xRound() == 0);
  for (int bKeep = 0; bKeep < 2; bKeep++) {
    long nPlace = 0;
    for (long i = 1;; i++) {
      long nBefore = nForced, nHeldBefore = nHeld;
      int bFailed;
      nUntilFail = i;
      bKeepFailing = bKeep;
      bFailed = xRound();
      nUntilFail = 0;
      CHECK(nHeld == nHeldBefore);
      if (nForced == nBefore) {
        CHECK(!bFailed);
        break;
      }
      nPlace++;
      CHECK(xRound() == 0); /* afterwards all is well again */
    }
    CHECK(nPlace >= 5);
  }
}

int main(void) {
  static const sqlite3_mem_methods methods = {faultMalloc,  faultFree, faultRealloc,  faultSize,
                                              faultRoundup, faultInit, faultShutdown, NULL};
  CHECK(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK);
  CHECK(sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0) == SQLITE_OK);
  CHECK(sqlite3_initialize() == SQLITE_OK);
  scenario(round1);
  scenario(round2);
  sqlite3_shutdown();
  CHECK(nHeld == 0);
  printf("%ld failures forced\n", nForced);
  return 0;
}
