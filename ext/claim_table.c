/*
** claim_table.c: the claim as one row of typed columns, which is what most drivers want.
**
**     SELECT outcome, token, attempt, code, response
**     FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments', NULL);
**
** The arguments are hidden columns; operation and token may be left out. The claim happens once, in
** xFilter.
**
** It is a virtual table in the temp schema, created at load, and not an eponymous one: the SELECT
** on an eponymous table opens a read transaction on main before xFilter runs, and a claim below it
** would fail at once whenever another connection writes.
*/
#include "claim_table.h"
#include "answer.h"
#include "call_table.h"
#include "request.h"

/* The arguments follow the columns of the answer. */
enum {
  COL_SCOPE = IDEM_COL_COUNT,
  COL_KEY,
  COL_FINGERPRINT,
  COL_OPERATION,
  COL_CLAIM_TOKEN,
  COL_END
};
#define ARG_COUNT (COL_END - COL_SCOPE)

typedef struct ClaimCursor {
  sqlite3_vtab_cursor base; /* first: SQLite's part */
  int bEof;                 /* the one row was read, or there is none */
  IdemAnswer answer;        /* the row */
} ClaimCursor;

/* True if a statement that writes is running: DDL below it would make SQLite abort it. */
static int writerIsRunning(sqlite3 *db) {
  for (sqlite3_stmt *p = sqlite3_next_stmt(db, 0); p; p = sqlite3_next_stmt(db, p)) {
    if (sqlite3_stmt_busy(p) && !sqlite3_stmt_readonly(p)) return 1;
  }
  return 0;
}

/*
** The table may be missing (a rollback or PRAGMA temp_store took it), or be there and not connected
** (every change of the schema disconnects it): preparing a SELECT on it connects it. DDL aborts
** every other statement that goes on reading, so an ordinary call does it only while none has begun
** to read.
*/
void idemClaimTableEnsure(IdemConn *pConn, int bLook) {
  sqlite3 *db = idemConnDb(pConn);
  sqlite3_stmt *pStmt = 0;
  if (idemConnClaimTables(pConn) > 0) {
    if (!idemConnClaimDraft(pConn) && !bLook) return;
    if (sqlite3_table_column_metadata(db, "temp", "idem_claim", 0, 0, 0, 0, 0, 0) == SQLITE_OK) {
      idemConnSetClaimDraft(pConn, !sqlite3_get_autocommit(db));
      return;
    }
  }
  if (bLook ? writerIsRunning(db) : sqlite3_txn_state(db, 0) != SQLITE_TXN_NONE) return;
  if (sqlite3_exec(db, "CREATE VIRTUAL TABLE IF NOT EXISTS temp.idem_claim USING idem_claim", 0, 0,
                   0) == SQLITE_OK) {
    sqlite3_prepare_v2(db, "SELECT 1 FROM temp.idem_claim(NULL, NULL, NULL)", -1, &pStmt, 0);
    sqlite3_finalize(pStmt);
    idemConnSetClaimDraft(pConn, !sqlite3_get_autocommit(db));
  }
}

static int claimConnect(sqlite3 *db, void *pAux, int argc, const char *const *argv,
                        sqlite3_vtab **ppVtab, char **pzErr) {
  if (argc < 2 || strcmp(argv[1], "temp") != 0) {
    *pzErr = sqlite3_mprintf("idem_claim can be created in the schema temp only");
    return SQLITE_ERROR;
  }
  return idemVtabConnect(db, pAux,
                         "CREATE TABLE x(" IDEM_ANSWER_COLUMNS ", scope HIDDEN, key HIDDEN, "
                         "fingerprint HIDDEN, operation HIDDEN, claim_token HIDDEN)",
                         1, ppVtab);
}

/* A module whose xCreate is its xConnect would be eponymous as well. */
static int claimCreate(sqlite3 *db, void *pAux, int argc, const char *const *argv,
                       sqlite3_vtab **ppVtab, char **pzErr) {
  return claimConnect(db, pAux, argc, argv, ppVtab, pzErr);
}

/*
** Plans.  idxNum is a mask of the arguments that are given: 0x01 scope, 0x02 key, 0x04 fingerprint,
** 0x08 operation, 0x10 token; their values come to xFilter in this order. Without the first three,
** or with PLAN_REFUSED, xFilter fails.
*/
#define PLAN_REFUSED 0x20

static int claimBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  int aiConstraint[ARG_COUNT] = {-1, -1, -1, -1, -1}, nArg = 0;
  (void)pVtab;
  for (int i = 0; i < pInfo->nConstraint; i++) {
    int iArg = pInfo->aConstraint[i].iColumn - COL_SCOPE;
    if (iArg < 0) continue;
    /* An argument is given once, and by '='. Another comparison would be made when the claim has
    ** happened, with a column that is NULL, and hide its row. */
    if (pInfo->aConstraint[i].op != SQLITE_INDEX_CONSTRAINT_EQ || aiConstraint[iArg] >= 0) {
      pInfo->idxNum |= PLAN_REFUSED;
      continue;
    }
    if (!pInfo->aConstraint[i].usable) return SQLITE_CONSTRAINT;
    aiConstraint[iArg] = i;
  }
  for (int iArg = 0; iArg < ARG_COUNT; iArg++) {
    if (aiConstraint[iArg] < 0) continue;
    pInfo->aConstraintUsage[aiConstraint[iArg]].argvIndex = ++nArg;
    pInfo->aConstraintUsage[aiConstraint[iArg]].omit = 1;
    pInfo->idxNum |= 1 << iArg;
  }
  pInfo->estimatedCost = 10.0;
  pInfo->estimatedRows = 1;
  return SQLITE_OK;
}

static int claimOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor) {
  ClaimCursor *p = sqlite3_malloc64(sizeof(*p));
  (void)pVtab;
  if (!p) return SQLITE_NOMEM;
  memset(p, 0, sizeof(*p));
  p->bEof = 1;
  *ppCursor = &p->base;
  return SQLITE_OK;
}

static int claimClose(sqlite3_vtab_cursor *pCursor) {
  ClaimCursor *p = (ClaimCursor *)pCursor;
  idemAnswerClear(&p->answer);
  sqlite3_free(p);
  return SQLITE_OK;
}

static int claimFilter(sqlite3_vtab_cursor *pCursor, int idxNum, const char *idxStr, int argc,
                       sqlite3_value **argv) {
  ClaimCursor *p = (ClaimCursor *)pCursor;
  sqlite3_value *apArg[ARG_COUNT] = {0};
  IdemCall call;
  IdemRequest req;
  int nArg = 0;
  (void)idxStr;
  (void)argc; /* with NDEBUG */
  idemAnswerClear(&p->answer);
  p->bEof = 1;
  idemCallBegin(&call, ((IdemVtab *)pCursor->pVtab)->pConn, "idem_claim");
  for (int iArg = 0; iArg < ARG_COUNT; iArg++) {
    if (idxNum & 1 << iArg) apArg[iArg] = argv[nArg++];
  }
  assert(nArg == argc);
  if (!apArg[0] || !apArg[1] || !apArg[2] || idxNum & PLAN_REFUSED) {
    idemFail(&call, IDEM_E_ARGUMENTS,
             "FROM idem_claim(scope, key, fingerprint [, operation [, token]])");
  } else {
    idemRequestInit(&req, IDEM_CLAIM);
    idemRequestClaim(&call, &req, apArg[0], apArg[1], apArg[2], apArg[3], apArg[4]);
    if (call.rc == SQLITE_OK) idemClaim(&call, &req, &p->answer);
    p->bEof = call.rc != SQLITE_OK;
  }
  return idemVtabResult(&call, pCursor->pVtab);
}

static int claimNext(sqlite3_vtab_cursor *pCursor) {
  ((ClaimCursor *)pCursor)->bEof = 1;
  return SQLITE_OK;
}

static int claimEof(sqlite3_vtab_cursor *pCursor) {
  return ((ClaimCursor *)pCursor)->bEof;
}

/* The hidden columns are arguments: as columns they are NULL. */
static int claimColumn(sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int iCol) {
  IdemCell cell;
  if (iCol >= IDEM_COL_COUNT) return SQLITE_OK;
  idemAnswerCell(&((ClaimCursor *)pCursor)->answer, iCol, &cell);
  idemCellResult(pCtx, &cell);
  return SQLITE_OK;
}

static int claimRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid) {
  (void)pCursor;
  *piRowid = 1;
  return SQLITE_OK;
}

const sqlite3_module idemClaimModule = {
    .xCreate = claimCreate,
    .xConnect = claimConnect,
    .xBestIndex = claimBestIndex,
    .xDisconnect = idemVtabDisconnect,
    .xDestroy = idemVtabDisconnect,
    .xOpen = claimOpen,
    .xClose = claimClose,
    .xFilter = claimFilter,
    .xNext = claimNext,
    .xEof = claimEof,
    .xColumn = claimColumn,
    .xRowid = claimRowid,
};
