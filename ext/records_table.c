/*
** records_table.c: idem_records, an eponymous virtual table with one row per record.
**
**     SELECT scope, key, state, age_ms FROM idem_records WHERE state = 'unknown';
**     SELECT * FROM idem_records WHERE scope = 'acct_1' AND key = 'order-123';
**
** The state is the one a reader must act on: computed from the stored state, the clock and the
** policy. outcome, message, http_status and retry_after_ms are what a claim of the same request
** would be told. A record whose time is over is not shown, purged or not. The token is never shown.
**
** Writing, for programs that know tables better than functions:
**
**     INSERT INTO idem_records(scope, key, fingerprint, operation, token) VALUES (...);   -- claims
**     UPDATE idem_records SET state = 'completed', response = ?, code = ?
**     WHERE scope = ? AND key = ? AND token = ?;                                       -- completes
**     DELETE FROM idem_records WHERE scope = ?;                                           -- erases
**
** An INSERT that is not told 'claimed' fails with a constraint error whose text is the outcome's
** message; INSERT OR IGNORE leaves changes() = 0 instead. An UPDATE that finds no row lost its
** claim.
*/
#include "records_table.h"
#include "answer.h"
#include "call_table.h"
#include "request.h"

/* The columns. Those of an answer stand in the middle, under their own numbers. */
enum {
  REC_SCOPE = 0,
  REC_KEY,
  REC_OPERATION,
  REC_FINGERPRINT,
  REC_STATE,
  REC_ANSWER, /* IDEM_COL_COUNT columns */
  REC_LEASE_REMAINING_MS = REC_ANSWER + IDEM_COL_COUNT,
  REC_EXPIRES_AT,
  REC_TOMBSTONE_UNTIL,
  REC_AGE_MS,
  REC_REASON,
  REC_COUNT
};
#define REC(col) (REC_ANSWER + IDEM_COL_##col)

static const char zDeclare[] =
    "CREATE TABLE x(scope TEXT, key TEXT, operation TEXT, fingerprint, state TEXT, outcome TEXT, "
    "message TEXT, http_status INTEGER, token TEXT, attempt INTEGER, lease_until INTEGER, "
    "retry_after_ms INTEGER, replayed INTEGER, code INTEGER, headers TEXT, response, "
    "response_omitted INTEGER, recovery_point TEXT, checkpoint, created_at INTEGER, "
    "completed_at INTEGER, lease_remaining_ms INTEGER, expires_at INTEGER, "
    "tombstone_until INTEGER, age_ms INTEGER, reason TEXT)";

typedef struct RecordsCursor {
  sqlite3_vtab_cursor base; /* first: SQLite's part */
  sqlite3_stmt *pStmt;      /* the listing, standing on the current row; NULL at the end */
  int64_t now;              /* one clock for the whole listing, ms */
  IdemRecord record;        /* the current row ... */
  IdemPolicy policy;        /* ... its policy ... */
  IdemValue scope, key;     /* ... and its name; all borrowed from pStmt */
  int eSeen;                /* its visible state */
  IdemVerdict verdict;      /* what a claim of the same request would be told */
  int bToken;               /* only rows with this token are wanted */
  IdemValue token;          /* it: the one token that is shown, since the asker has it */
  char aToken[IDEM_TOKEN_MAX];
} RecordsCursor;

static int recordsConnect(sqlite3 *db, void *pAux, int argc, const char *const *argv,
                          sqlite3_vtab **ppVtab, char **pzErr) {
  (void)argc, (void)argv, (void)pzErr;
  return idemVtabConnect(db, pAux, zDeclare, 0, ppVtab);
}

/*
** Plans.  idxNum is a mask; the values come to xFilter in the order of the bits:
**
**     0x01  rowid =
**     0x02  scope =
**     0x04  key =
**     0x08  state =
**     0x10  token =               compared in constant time, never looked up
**     0x20  time > or >=          the time column is named by
**     0x40  time < or <=          0x100 lease_until, 0x200 expires_at
**
** What is read, best first:
**
**     rowid            one row                          cost 1, unique
**     scope, key       one row by the unique index      cost 1, unique
**     scope            a range of the unique index      cost 100
**     state            ranges of idem_store_due         cost 500, with a time range 200
**     lease_until or expires_at    the same             cost 500
**     nothing          the whole table, in rowid order  cost 1000000
**
** There is no index on created_at: it would make every claim a fifth dearer (bench/layout.c). Ask
** with a state, which is what an operator wants to know.
*/
#define PLAN_ROWID   0x01
#define PLAN_SCOPE   0x02
#define PLAN_KEY     0x04
#define PLAN_STATE   0x08
#define PLAN_TOKEN   0x10
#define PLAN_LOW     0x20
#define PLAN_HIGH    0x40
#define PLAN_BITS    7
#define PLAN_LEASE   0x100
#define PLAN_EXPIRES 0x200
#define PLAN_TIME    0x300

/* True for token = ? and token IS ?. NULL finds nothing either way: it is nobody's token. */
static int isTokenEq(const sqlite3_index_info *pInfo, int i) {
  int op = pInfo->aConstraint[i].op;
  return pInfo->aConstraint[i].iColumn == REC(TOKEN) &&
         (op == SQLITE_INDEX_CONSTRAINT_EQ || op == SQLITE_INDEX_CONSTRAINT_IS);
}

/* The bit of a constraint, with the time column it needs; 0 if it cannot be used. */
static int planBit(sqlite3_index_info *pInfo, int i, int *peTime) {
  int iCol = pInfo->aConstraint[i].iColumn, op = pInfo->aConstraint[i].op;
  int bEq = op == SQLITE_INDEX_CONSTRAINT_EQ;
  int bLow = op == SQLITE_INDEX_CONSTRAINT_GT || op == SQLITE_INDEX_CONSTRAINT_GE;
  int bHigh = op == SQLITE_INDEX_CONSTRAINT_LT || op == SQLITE_INDEX_CONSTRAINT_LE;
  *peTime = iCol == REC(LEASE_UNTIL) ? PLAN_LEASE : iCol == REC_EXPIRES_AT ? PLAN_EXPIRES : 0;
  if (!pInfo->aConstraint[i].usable) return 0;
  if (*peTime) return bLow ? PLAN_LOW : bHigh ? PLAN_HIGH : 0;
  if (iCol < 0) return bEq ? PLAN_ROWID : 0;
  /* Another collation finds more than the index would. */
  if (sqlite3_stricmp(sqlite3_vtab_collation(pInfo, i), "BINARY") != 0) return 0;
  if (isTokenEq(pInfo, i)) return PLAN_TOKEN;
  if (!bEq) return 0;
  switch (iCol) {
  case REC_SCOPE: return PLAN_SCOPE;
  case REC_KEY: return PLAN_KEY;
  case REC_STATE: return PLAN_STATE;
  default: return 0;
  }
}

/* Sets the cost, and a name for the plan that EXPLAIN QUERY PLAN shows. */
static void planCost(sqlite3_index_info *pInfo) {
  int m = pInfo->idxNum;
  const char *zName = "every record";
  pInfo->estimatedCost = 1000000.0;
  if (m & PLAN_ROWID || (m & PLAN_SCOPE && m & PLAN_KEY)) {
    pInfo->estimatedCost = 1.0;
    pInfo->idxFlags = SQLITE_INDEX_SCAN_UNIQUE;
    zName = m & PLAN_ROWID ? "rowid=?" : "UNIQUE (scope=? AND key=?)";
  } else if (m & PLAN_SCOPE) {
    pInfo->estimatedCost = 100.0;
    zName = "scope=?";
  } else if (m & PLAN_STATE || m & PLAN_TIME) {
    pInfo->estimatedCost = m & PLAN_STATE && m & PLAN_TIME ? 200.0 : 500.0;
    zName = !(m & PLAN_TIME) ? "state=?" : m & PLAN_STATE ? "state=? AND due range" : "due range";
  }
  pInfo->estimatedRows = (sqlite3_int64)pInfo->estimatedCost;
  pInfo->idxStr = sqlite3_mprintf("%s", zName);
  pInfo->needToFreeIdxStr = 1;
}

static int recordsBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  int aiConstraint[PLAN_BITS], eTime, nArg = 0;
  (void)pVtab;
  for (int i = 0; i < PLAN_BITS; i++) aiConstraint[i] = -1;
  for (int i = 0; i < pInfo->nConstraint; i++) {
    int m = planBit(pInfo, i, &eTime);
    int bTime = (m & (PLAN_LOW | PLAN_HIGH)) != 0;
    /* The token is shown to who names it: a plan that learns it too late would find nobody's. */
    if (isTokenEq(pInfo, i) && !pInfo->aConstraint[i].usable) return SQLITE_CONSTRAINT;
    if (m == 0 || pInfo->idxNum & m) continue;
    if (bTime && pInfo->idxNum & PLAN_TIME && (pInfo->idxNum & PLAN_TIME) != eTime) continue;
    pInfo->idxNum |= m | (bTime ? eTime : 0);
    for (int iBit = 0; iBit < PLAN_BITS; iBit++) {
      if (m == 1 << iBit) aiConstraint[iBit] = i;
    }
  }
  for (int iBit = 0; iBit < PLAN_BITS; iBit++) {
    if (aiConstraint[iBit] < 0) continue;
    pInfo->aConstraintUsage[aiConstraint[iBit]].argvIndex = ++nArg;
    pInfo->aConstraintUsage[aiConstraint[iBit]].omit = 1 << iBit == PLAN_TOKEN;
  }
  planCost(pInfo);
  return pInfo->idxStr ? SQLITE_OK : SQLITE_NOMEM;
}

static int recordsOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor) {
  RecordsCursor *p = sqlite3_malloc64(sizeof(*p));
  (void)pVtab;
  if (!p) return SQLITE_NOMEM;
  memset(p, 0, sizeof(*p));
  *ppCursor = &p->base;
  return SQLITE_OK;
}

static void endListing(RecordsCursor *p) {
  sqlite3_stmt *pStmt = p->pStmt;
  p->pStmt = 0;
  if (pStmt) idemConnRelease(((IdemVtab *)p->base.pVtab)->pConn, pStmt);
}

static int recordsClose(sqlite3_vtab_cursor *pCursor) {
  endListing((RecordsCursor *)pCursor);
  sqlite3_free(pCursor);
  return SQLITE_OK;
}

static void begin(IdemCall *pCall, sqlite3_vtab *pVtab) {
  idemCallBegin(pCall, ((IdemVtab *)pVtab)->pConn, "idem_records");
}

/* Fills in the rest of the current row. True if it is to be shown. */
static int acceptRow(RecordsCursor *p) {
  static const IdemValue null = {SQLITE_NULL, 0, 0};
  IdemPolicy policy = p->policy;
  IdemRequest req;
  p->eSeen = idemVisibleState(&p->record, p->policy.eStale, p->now);
  if (p->eSeen == IDEM_ST_NONE) return 0;
  if (p->bToken && (p->token.eType == SQLITE_NULL || !idemSame(&p->token, &p->record.token))) {
    return 0;
  }
  idemRequestInit(&req, IDEM_CLAIM);
  req.scope = p->scope;
  req.key = p->key;
  req.fingerprint = p->record.fingerprint;
  req.operation = p->record.operation;
  req.token = null;
  policy.bContentKey = 1; /* it was allowed when it was claimed */
  idemVerdict(&p->record, &req, &policy, p->now, &p->verdict);
  return 1;
}

/* Steps to the next row that is to be shown; ends the listing if there is none. False if the schema
** has changed since the listing was prepared: then nothing was read. */
static int nextRow(IdemCall *pCall, RecordsCursor *p) {
  while (pCall->rc == SQLITE_OK) {
    int bRow = idemConnStep(pCall, p->pStmt);
    if (bRow < 0) {
      p->pStmt = 0;
      return 0;
    }
    if (!bRow || pCall->rc != SQLITE_OK) break;
    idemStoreScanRow(pCall, p->pStmt, &p->record, &p->policy, &p->scope, &p->key);
    if (pCall->rc == SQLITE_OK && acceptRow(p)) return 1;
  }
  endListing(p);
  return 1;
}

static int64_t clampAdd(double r, int bLow) {
  if (r >= 9.0e15) return bLow ? (int64_t)9e15 : INT64_MAX;
  if (r <= -9.0e15) return bLow ? INT64_MIN : -(int64_t)9e15;
  return bLow ? (int64_t)r - 1 : (int64_t)r + 1;
}

/* Narrows the range by one bound. SQLite checks the rows again, so the range may be a little wide.
*/
static void narrow(IdemListing *pScan, sqlite3_value *pVal, int bLow) {
  int64_t v = bLow ? INT64_MIN : INT64_MAX;
  if (sqlite3_value_type(pVal) == SQLITE_INTEGER) v = sqlite3_value_int64(pVal);
  if (sqlite3_value_type(pVal) == SQLITE_FLOAT) v = clampAdd(sqlite3_value_double(pVal), bLow);
  if (bLow && v > pScan->lo) pScan->lo = v;
  if (!bLow && v < pScan->hi) pScan->hi = v;
}

/* The stored states behind a visible one, with what the clock says of their due_at. */
static void planState(IdemListing *pScan, sqlite3_value *pVal, int bRange, int64_t now) {
  const char *z = (const char *)sqlite3_value_text(pVal);
  pScan->eScan = IDEM_SCAN_STATE;
  if (!bRange) {
    pScan->lo = INT64_MIN;
    pScan->hi = INT64_MAX;
  }
  if (!z) return;
  if (strcmp(z, "processing") == 0) {
    pScan->aState[0] = IDEM_ST_PROCESSING;
  } else if (strcmp(z, "completed") == 0) {
    pScan->aState[0] = IDEM_ST_COMPLETED;
    if (now >= pScan->lo) pScan->lo = now + 1;
  } else if (strcmp(z, "expired") == 0) {
    pScan->aState[0] = IDEM_ST_COMPLETED;
    pScan->aState[1] = IDEM_ST_TOMBSTONE;
    if (now < pScan->hi) pScan->hi = now;
  } else if (strcmp(z, "unknown") == 0) {
    pScan->aState[0] = IDEM_ST_PROCESSING;
    pScan->aState[1] = IDEM_ST_UNKNOWN;
    if (now < pScan->hi) pScan->hi = now;
  } else if (strcmp(z, "released") == 0) {
    pScan->aState[1] = IDEM_ST_RELEASED;
  }
}

/* A TEXT argument as it is; anything else as the text SQLite makes of it. */
static void textValue(sqlite3_value *pVal, IdemValue *pOut) {
  pOut->p = sqlite3_value_text(pVal);
  pOut->eType = pOut->p ? SQLITE_TEXT : SQLITE_NULL;
  pOut->n = pOut->p ? sqlite3_value_bytes(pVal) : 0;
}

/* The rowid that a value equals, as SQLite compares: drivers bind numbers as REAL and as text too.
** INT64_MIN, which is no record's, if it equals none. */
static int64_t rowidOf(sqlite3_value *pVal) {
  int eType = sqlite3_value_numeric_type(pVal);
  double r = eType == SQLITE_FLOAT ? sqlite3_value_double(pVal) : 0.5;
  if (eType == SQLITE_INTEGER) return sqlite3_value_int64(pVal);
  return r >= 0 && r < 9.0e15 && r == (double)(int64_t)r ? (int64_t)r : INT64_MIN;
}

/* Chooses the listing from the plan and its values; see recordsBestIndex(). */
static void planScan(RecordsCursor *p, int m, sqlite3_value **argv, IdemListing *pScan) {
  sqlite3_value *apVal[PLAN_BITS] = {0};
  for (int iBit = 0, nArg = 0; iBit < PLAN_BITS; iBit++) {
    if (m & 1 << iBit) apVal[iBit] = argv[nArg++];
  }
  memset(pScan, 0, sizeof(*pScan));
  pScan->lo = INT64_MIN;
  pScan->hi = INT64_MAX;
  p->bToken = (m & PLAN_TOKEN) != 0;
  p->token.eType = SQLITE_NULL;
  if (p->bToken) {
    /* SQLite does not look at the rows again here: as in SQL, a blob equals no text. The type is
    ** asked first: reading a blob as text changes it. */
    int bBlob = sqlite3_value_type(apVal[4]) == SQLITE_BLOB;
    textValue(apVal[4], &p->token);
    if (bBlob) p->token.eType = SQLITE_NULL;
    if (p->token.n > IDEM_TOKEN_MAX) p->token.eType = SQLITE_NULL;
    if (p->token.eType == SQLITE_TEXT) memcpy(p->aToken, p->token.p, (size_t)p->token.n);
    p->token.p = p->aToken;
  }
  if (m & PLAN_LOW) narrow(pScan, apVal[5], 1);
  if (m & PLAN_HIGH) narrow(pScan, apVal[6], 0);
  if (m & PLAN_SCOPE) textValue(apVal[1], &pScan->scope);
  if (m & PLAN_KEY) textValue(apVal[2], &pScan->key);
  if (m & PLAN_ROWID) {
    pScan->eScan = IDEM_SCAN_ROWID;
    pScan->lo = rowidOf(apVal[0]);
  } else if (m & PLAN_SCOPE) {
    pScan->eScan = m & PLAN_KEY ? IDEM_SCAN_KEY : IDEM_SCAN_SCOPE;
  } else if (m & PLAN_STATE) {
    planState(pScan, apVal[3], (m & PLAN_TIME) != 0, p->now);
  } else if (m & PLAN_TIME) {
    pScan->eScan = IDEM_SCAN_STATE;
    pScan->aState[0] = (m & PLAN_TIME) == PLAN_LEASE ? IDEM_ST_PROCESSING : IDEM_ST_COMPLETED;
    if ((m & PLAN_TIME) == PLAN_EXPIRES) pScan->aState[1] = IDEM_ST_TOMBSTONE;
  }
}

static int recordsFilter(sqlite3_vtab_cursor *pCursor, int idxNum, const char *idxStr, int argc,
                         sqlite3_value **argv) {
  RecordsCursor *p = (RecordsCursor *)pCursor;
  IdemCall call;
  IdemListing scan;
  (void)idxStr, (void)argc;
  endListing(p);
  begin(&call, pCursor->pVtab);
  p->now = idemConnNow(call.pConn);
  planScan(p, idxNum, argv, &scan);
  /* The schema may change between the look at it and the first step: then the listing begins again.
  */
  for (int nTry = 0; call.rc == SQLITE_OK; nTry++) {
    if (nTry >= 50) idemFail(&call, IDEM_E_RACES, nTry); /* GCOVR_EXCL_BR_LINE: 50 lost races */
    p->pStmt = idemStoreScan(&call, &scan);
    if (!p->pStmt || nextRow(&call, p)) break;
  }
  return idemVtabResult(&call, pCursor->pVtab);
}

static int recordsNext(sqlite3_vtab_cursor *pCursor) {
  IdemCall call;
  begin(&call, pCursor->pVtab);
  if (!nextRow(&call, (RecordsCursor *)pCursor)) {
    idemFail(&call, IDEM_E_RACES, 1); /* cannot be: a running statement keeps its schema */
  }
  return idemVtabResult(&call, pCursor->pVtab);
}

static int recordsEof(sqlite3_vtab_cursor *pCursor) {
  return ((RecordsCursor *)pCursor)->pStmt == 0;
}

/* The columns that tell what a claim would be told, and those of the worker. */
static void answerCell(const RecordsCursor *p, int iCol, IdemCell *pCell) {
  const IdemRecord *pRec = &p->record;
  int eOutcome = p->verdict.eOutcome, bGone = p->eSeen == IDEM_ST_TOMBSTONE;
  switch (iCol) {
  case IDEM_COL_OUTCOME: idemCellText(pCell, idemOutcomeName(eOutcome)); break;
  case IDEM_COL_MESSAGE: idemCellText(pCell, idemOutcomeMessage(eOutcome)); break;
  case IDEM_COL_HTTP_STATUS:
    if (idemOutcomeStatus(eOutcome)) {
      idemCellInt(pCell, idemOutcomeStatus(eOutcome));
    } else if (eOutcome == IDEM_OUT_REPLAY && pRec->bCode) {
      idemCellInt(pCell, pRec->code);
    }
    break;
  case IDEM_COL_TOKEN:
    if (p->bToken) idemCellValue(pCell, &p->token);
    break;
  case IDEM_COL_LEASE_UNTIL:
    if (pRec->eState == IDEM_ST_PROCESSING) idemCellInt(pCell, pRec->due);
    break;
  case IDEM_COL_RETRY_AFTER_MS:
    if (eOutcome == IDEM_OUT_IN_PROGRESS) idemCellInt(pCell, p->verdict.retry_after_ms);
    break;
  case IDEM_COL_REPLAYED: idemCellInt(pCell, eOutcome == IDEM_OUT_REPLAY); break;
  case IDEM_COL_ATTEMPT: idemCellInt(pCell, pRec->attempt); break;
  case IDEM_COL_CODE:
    if (pRec->bCode) idemCellInt(pCell, pRec->code);
    break;
  case IDEM_COL_HEADERS:
    if (!bGone) idemCellValue(pCell, &pRec->headers);
    break;
  case IDEM_COL_RESPONSE:
    if (!bGone && !pRec->bOmitted) idemCellValue(pCell, &pRec->response);
    break;
  case IDEM_COL_RESPONSE_OMITTED: idemCellInt(pCell, !bGone && pRec->bOmitted); break;
  case IDEM_COL_RECOVERY_POINT:
    if (!bGone) idemCellValue(pCell, &pRec->point);
    break;
  case IDEM_COL_CHECKPOINT:
    if (!bGone) idemCellValue(pCell, &pRec->checkpoint);
    break;
  case IDEM_COL_CREATED_AT: idemCellInt(pCell, pRec->created_at); break;
  default:
    assert(iCol == IDEM_COL_COMPLETED_AT);
    if (p->eSeen == IDEM_ST_COMPLETED || bGone) idemCellInt(pCell, pRec->completed_at);
  }
}

static void recordCell(const RecordsCursor *p, int iCol, IdemCell *pCell) {
  const IdemRecord *pRec = &p->record;
  int bDone = pRec->eState == IDEM_ST_COMPLETED || pRec->eState == IDEM_ST_TOMBSTONE;
  memset(pCell, 0, sizeof(*pCell));
  pCell->eType = pCell->v.eType = SQLITE_NULL;
  switch (iCol) {
  case REC_SCOPE: idemCellValue(pCell, &p->scope); break;
  case REC_KEY: idemCellValue(pCell, &p->key); break;
  case REC_OPERATION: idemCellValue(pCell, &pRec->operation); break;
  case REC_FINGERPRINT: idemCellValue(pCell, &pRec->fingerprint); break;
  case REC_STATE:
    idemCellText(pCell, p->eSeen == IDEM_ST_TOMBSTONE ? "expired" : idemStateName(p->eSeen));
    break;
  case REC_LEASE_REMAINING_MS:
    if (pRec->eState == IDEM_ST_PROCESSING) {
      idemCellInt(pCell, pRec->due > p->now ? pRec->due - p->now : 0);
    }
    break;
  case REC_EXPIRES_AT:
    if (bDone) idemCellInt(pCell, idemExpiresAt(pRec));
    break;
  case REC_TOMBSTONE_UNTIL:
    if (bDone) idemCellInt(pCell, idemTombstoneUntil(pRec));
    break;
  case REC_AGE_MS: idemCellInt(pCell, p->now - pRec->created_at); break;
  case REC_REASON:
    if (p->eSeen != IDEM_ST_TOMBSTONE) idemCellValue(pCell, &pRec->reason);
    break;
  default: answerCell(p, iCol - REC_ANSWER, pCell);
  }
}

static int recordsColumn(sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int iCol) {
  IdemCell cell;
  /* An UPDATE that leaves this column alone: nothing is fetched, and xUpdate sees it. The token is
  ** fetched all the same, since the UPDATE proves by it that it may write. */
  if (iCol != REC(TOKEN) && sqlite3_vtab_nochange(pCtx)) return SQLITE_OK;
  recordCell((RecordsCursor *)pCursor, iCol, &cell);
  idemCellResult(pCtx, &cell);
  return SQLITE_OK;
}

static int recordsRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid) {
  *piRowid = ((RecordsCursor *)pCursor)->record.id;
  return SQLITE_OK;
}

static const char *columnName(int iCol) {
  static const char *const azName[REC_COUNT] = {"scope",
                                                "key",
                                                "operation",
                                                "fingerprint",
                                                "state",
                                                "outcome",
                                                "message",
                                                "http_status",
                                                "token",
                                                "attempt",
                                                "lease_until",
                                                "retry_after_ms",
                                                "replayed",
                                                "code",
                                                "headers",
                                                "response",
                                                "response_omitted",
                                                "recovery_point",
                                                "checkpoint",
                                                "created_at",
                                                "completed_at",
                                                "lease_remaining_ms",
                                                "expires_at",
                                                "tombstone_until",
                                                "age_ms",
                                                "reason"};
  return azName[iCol];
}

/* INSERT: a claim. Its values are the columns, in order. */
static void insertRecord(IdemCall *pCall, sqlite3_value **apCol) {
  IdemRequest req;
  IdemAnswer answer;
  int eOutcome;
  if (sqlite3_vtab_on_conflict(pCall->db) == SQLITE_REPLACE) idemFail(pCall, IDEM_E_REPLACE);
  for (int i = 0; i < REC_COUNT; i++) {
    if (i <= REC_FINGERPRINT || i == REC(TOKEN)) continue;
    if (sqlite3_value_type(apCol[i]) != SQLITE_NULL) idemFail(pCall, IDEM_E_INSERT, columnName(i));
  }
  if (sqlite3_value_type(apCol[REC(TOKEN)]) == SQLITE_NULL) idemFail(pCall, IDEM_E_OWN_TOKEN);
  idemRequestInit(&req, IDEM_CLAIM);
  idemRequestClaim(pCall, &req, apCol[REC_SCOPE], apCol[REC_KEY], apCol[REC_FINGERPRINT],
                   apCol[REC_OPERATION], apCol[REC(TOKEN)]);
  if (pCall->rc != SQLITE_OK) return;
  idemClaim(pCall, &req, &answer);
  eOutcome = answer.verdict.eOutcome;
  idemAnswerClear(&answer);
  if (pCall->rc == SQLITE_OK && eOutcome != IDEM_OUT_CLAIMED) {
    idemFail(pCall, idemOutcomeError(eOutcome));
  }
}

/* The verb of an UPDATE, by the columns that it sets. */
static int updateVerb(IdemCall *pCall, sqlite3_value **apCol) {
  static const struct {
    const char *zState;
    int eVerb;
  } aVerb[] = {{"completed", IDEM_COMPLETE},
               {"released", IDEM_RELEASE},
               {"unknown", IDEM_SUSPEND},
               {"processing", IDEM_RENEW}};
  int bPoint = !sqlite3_value_nochange(apCol[REC(RECOVERY_POINT)]);
  if (sqlite3_value_nochange(apCol[REC_STATE])) {
    if (!bPoint) idemFail(pCall, IDEM_E_NO_CHANGE);
    return IDEM_CHECKPOINT;
  }
  const char *z = (const char *)sqlite3_value_text(apCol[REC_STATE]);
  for (size_t i = 0; z && i < sizeof(aVerb) / sizeof(aVerb[0]); i++) {
    if (strcmp(z, aVerb[i].zState) != 0) continue;
    return aVerb[i].eVerb == IDEM_RENEW && bPoint ? IDEM_CHECKPOINT : aVerb[i].eVerb;
  }
  idemFail(pCall, IDEM_E_STATE);
  return IDEM_RENEW;
}

/* The columns that an UPDATE with this verb may set. */
static int mayChange(int eVerb, int iCol) {
  switch (iCol) {
  case REC_STATE:
  case REC(TOKEN): return 1;
  case REC(CODE):
  case REC(HEADERS):
  case REC(RESPONSE): return eVerb == IDEM_COMPLETE;
  case REC(RECOVERY_POINT):
  case REC(CHECKPOINT): return eVerb == IDEM_CHECKPOINT;
  case REC_REASON: return eVerb == IDEM_RELEASE || eVerb == IDEM_SUSPEND;
  default: return 0;
  }
}

/* True of a column that no verb sets. */
static int isReadOnly(int iCol) {
  return !mayChange(IDEM_COMPLETE, iCol) && !mayChange(IDEM_CHECKPOINT, iCol) &&
         !mayChange(IDEM_RELEASE, iCol);
}

/* A column's new value; NULL pointer if the UPDATE leaves it alone. */
static sqlite3_value *newValue(sqlite3_value **apCol, int iCol) {
  return sqlite3_value_nochange(apCol[iCol]) ? 0 : apCol[iCol];
}

/* UPDATE: a verb of the token's holder. */
static void updateRecord(IdemCall *pCall, int64_t id, sqlite3_value **apCol) {
  IdemRequest req;
  char *aCopy = 0;
  for (int i = 0; i < REC_COUNT; i++) {
    if (isReadOnly(i) && !sqlite3_value_nochange(apCol[i])) {
      idemFail(pCall, IDEM_E_COLUMN, columnName(i));
    }
  }
  int eVerb = updateVerb(pCall, apCol);
  for (int i = 0; i < REC_COUNT; i++) {
    if (!sqlite3_value_nochange(apCol[i]) && !mayChange(eVerb, i)) {
      idemFail(pCall, IDEM_E_COLUMN, columnName(i));
    }
  }
  if (sqlite3_value_type(apCol[REC(TOKEN)]) == SQLITE_NULL) idemFail(pCall, IDEM_E_NO_TOKEN);
  idemRequestInit(&req, eVerb);
  idemArgToken(pCall, apCol[REC(TOKEN)], 0, &req.token);
  if (eVerb == IDEM_COMPLETE) {
    /* A response that is not set is NULL here: an answer without a body. */
    idemRequestAnswer(pCall, &req, apCol[REC(RESPONSE)], newValue(apCol, REC(CODE)),
                      newValue(apCol, REC(HEADERS)));
  } else if (eVerb == IDEM_CHECKPOINT) {
    idemRequestPoint(pCall, &req, apCol[REC(RECOVERY_POINT)], newValue(apCol, REC(CHECKPOINT)));
  } else {
    idemRequestReason(pCall, &req, newValue(apCol, REC_REASON));
  }
  if (pCall->rc != SQLITE_OK) return;
  if (!idemStoreKeyOf(pCall, id, &req.scope, &req.key, &aCopy)) {
    idemFail(pCall, IDEM_E_NO_RECORD);
  } else {
    idemFinish(pCall, &req);
  }
  sqlite3_free(aCopy);
}

/* DELETE: erases a finished record. */
static void deleteRecord(IdemCall *pCall, int64_t id) {
  IdemRequest req;
  char *aCopy = 0;
  idemRequestInit(&req, IDEM_ERASE);
  if (idemStoreKeyOf(pCall, id, &req.scope, &req.key, &aCopy)) idemFinish(pCall, &req);
  sqlite3_free(aCopy);
}

static int recordsUpdate(sqlite3_vtab *pVtab, int argc, sqlite3_value **argv,
                         sqlite3_int64 *piRowid) {
  IdemCall call;
  begin(&call, pVtab);
  if (argc == 1) {
    deleteRecord(&call, sqlite3_value_int64(argv[0]));
  } else if (sqlite3_value_type(argv[0]) == SQLITE_NULL) {
    assert(argc == 2 + REC_COUNT);
    insertRecord(&call, argv + 2);
  } else if (sqlite3_value_int64(argv[0]) != sqlite3_value_int64(argv[1])) {
    idemFail(&call, IDEM_E_COLUMN, "rowid");
  } else {
    updateRecord(&call, sqlite3_value_int64(argv[0]), argv + 2);
  }
  *piRowid = call.iRowid; /* SQLite takes it for last_insert_rowid(): it stays what it is */
  return idemVtabResult(&call, pVtab);
}

/* Without xCreate: eponymous only. */
const sqlite3_module idemRecordsModule = {
    .xConnect = recordsConnect,
    .xBestIndex = recordsBestIndex,
    .xDisconnect = idemVtabDisconnect,
    .xOpen = recordsOpen,
    .xClose = recordsClose,
    .xFilter = recordsFilter,
    .xNext = recordsNext,
    .xEof = recordsEof,
    .xColumn = recordsColumn,
    .xRowid = recordsRowid,
    .xUpdate = recordsUpdate,
};
