/*
** call_table.c: idem_call, an eponymous virtual table whose INSERT does nothing.
**
**     INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('acct_1', 'order-123', 'fp');
**
** "SELECT f()" looks read-only even when f writes: pools route it to a reader, and Python's sqlite3
** does not open its transaction for it. The statement above is a write to everybody: it opens the
** transaction, and a rollback undoes the claim. The function runs before xUpdate, which therefore
** must not refuse. Its object is also the guard of the connection's cached statements, and its
** xUpdate the place where idem itself works under a write lock in autocommit (conn.c).
*/
#include "call_table.h"

int idemVtabConnect(sqlite3 *db, void *pAux, const char *zDeclare, int bClaimTable,
                    sqlite3_vtab **ppVtab) {
  IdemVtab *pNew = 0;
  int rc = sqlite3_declare_vtab(db, zDeclare);
  if (rc == SQLITE_OK) rc = sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
  if (rc == SQLITE_OK) rc = sqlite3_vtab_config(db, SQLITE_VTAB_CONSTRAINT_SUPPORT, 1);
  if (rc == SQLITE_OK) {
    pNew = sqlite3_malloc64(sizeof(*pNew));
    if (!pNew) rc = SQLITE_NOMEM;
  }
  if (pNew) {
    memset(pNew, 0, sizeof(*pNew));
    pNew->pConn = idemConnRef(pAux);
    pNew->bClaimTable = bClaimTable;
    idemConnGuardUp(pNew->pConn, bClaimTable);
  }
  *ppVtab = pNew ? &pNew->base : 0;
  return rc;
}

int idemVtabDisconnect(sqlite3_vtab *pVtab) {
  IdemVtab *p = (IdemVtab *)pVtab;
  idemConnGuardDown(p->pConn, p->bClaimTable);
  idemConnUnref(p->pConn);
  sqlite3_free(p);
  return SQLITE_OK;
}

int idemVtabResult(IdemCall *pCall, sqlite3_vtab *pVtab) {
  idemCallEnd(pCall);
  if (pCall->rc == SQLITE_OK) return SQLITE_OK;
  sqlite3_free(pVtab->zErrMsg);
  pVtab->zErrMsg = pCall->zErr;
  return (pCall->rc & 0xff) == SQLITE_CONSTRAINT ? SQLITE_CONSTRAINT : pCall->rc;
}

static int callConnect(sqlite3 *db, void *pAux, int argc, const char *const *argv,
                       sqlite3_vtab **ppVtab, char **pzErr) {
  (void)argc, (void)argv, (void)pzErr;
  return idemVtabConnect(db, pAux, "CREATE TABLE x(result)", 0, ppVtab);
}

static int callBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  idemConnSawCarrier(((IdemVtab *)pVtab)->pConn);
  pInfo->estimatedCost = 1.0;
  pInfo->estimatedRows = 0;
  return SQLITE_OK;
}

static int callOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor) {
  (void)pVtab;
  *ppCursor = sqlite3_malloc64(sizeof(**ppCursor));
  if (!*ppCursor) return SQLITE_NOMEM;
  memset(*ppCursor, 0, sizeof(**ppCursor));
  return SQLITE_OK;
}

static int callClose(sqlite3_vtab_cursor *pCursor) {
  sqlite3_free(pCursor);
  return SQLITE_OK;
}

static int callFilter(sqlite3_vtab_cursor *pCursor, int idxNum, const char *idxStr, int argc,
                      sqlite3_value **argv) {
  (void)pCursor, (void)idxNum, (void)idxStr, (void)argc, (void)argv;
  return SQLITE_OK;
}

/* The table has no rows, so the methods that read one are never reached. */
static int callNext(sqlite3_vtab_cursor *pCursor) {
  (void)pCursor;
  return SQLITE_OK;
}

static int callEof(sqlite3_vtab_cursor *pCursor) {
  (void)pCursor;
  return 1;
}

static int callColumn(sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int iCol) {
  (void)pCursor, (void)pCtx, (void)iCol;
  return SQLITE_OK;
}

static int callRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid) {
  (void)pCursor;
  *piRowid = 0;
  return SQLITE_OK;
}

/* SQLite takes *piRowid for last_insert_rowid(): it stays what it is. */
static int callUpdate(sqlite3_vtab *pVtab, int argc, sqlite3_value **argv, sqlite3_int64 *piRowid) {
  IdemConn *pConn = ((IdemVtab *)pVtab)->pConn;
  (void)argc, (void)argv;
  *piRowid = sqlite3_last_insert_rowid(idemConnDb(pConn));
  return idemConnRunBody(pConn); /* nothing, but in a statement of conn.c */
}

/* Without xCreate: eponymous only. */
const sqlite3_module idemCallModule = {
    .xConnect = callConnect,
    .xBestIndex = callBestIndex,
    .xDisconnect = idemVtabDisconnect,
    .xOpen = callOpen,
    .xClose = callClose,
    .xFilter = callFilter,
    .xNext = callNext,
    .xEof = callEof,
    .xColumn = callColumn,
    .xRowid = callRowid,
    .xUpdate = callUpdate,
};
