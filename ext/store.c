/*
** store.c: the only file with SQL on the store's tables.
**
** Every statement names its schema (main.), because a temp table of the same name would be found
** first. Every write is one statement: it happens as a whole or not at all, wherever it is called.
** Every write repeats in its WHERE clause what the verdict was based on (that there is no row, or
** its id, state, due_at and token; and the version of the policies): if another connection was
** quicker, nothing is changed and the caller loads and decides again. This is also what makes it
** safe to decide from memory (idemStoreRecall).
*/
#include "store.h"
#include "schema.h"

static const char *const aStateName[IDEM_ST_COUNT] = {
    [IDEM_ST_NONE] = "",
    [IDEM_ST_PROCESSING] = "processing",
    [IDEM_ST_COMPLETED] = "completed",
    [IDEM_ST_RELEASED] = "released",
    [IDEM_ST_UNKNOWN] = "unknown",
    [IDEM_ST_TOMBSTONE] = "tombstone",
};

static const char *const aEventName[IDEM_EV_COUNT] = {
    [IDEM_EV_NONE] = "",
    [IDEM_EV_CLAIM] = "claim",
    [IDEM_EV_TAKE_OVER] = "take-over",
    [IDEM_EV_COMPLETE] = "complete",
    [IDEM_EV_RELEASE] = "release",
    [IDEM_EV_SUSPEND] = "suspend",
    [IDEM_EV_RESOLVE_COMPLETED] = "resolve-completed",
    [IDEM_EV_RESOLVE_RETRY] = "resolve-retry",
    [IDEM_EV_EXHAUSTED] = "exhausted",
    [IDEM_EV_ERASE] = "erase",
    [IDEM_EV_REPLAY] = "replay",
    [IDEM_EV_REFUSED] = "refused",
};

const char *idemStateName(int eState) {
  assert(eState >= 0 && eState < IDEM_ST_COUNT);
  return aStateName[eState];
}

const char *idemEventName(int eEvent) {
  assert(eEvent >= 0 && eEvent < IDEM_EV_COUNT);
  return aEventName[eEvent];
}

/*
** The writes. zBind says what goes to the parameters in order, with the event 'e' after the first
** nHead of them in the second text:
**   s scope  k key  o operation  f fingerprint  t new token  u the verdict's due  n now
**   m tombstone_ms  c code  h headers  r response  x omitted  p point  d checkpoint  y reason
**   and as it was loaded: I id  O operation  S state  D due_at  T token  V version of the policies
** An UPDATE that sets audit_event fires the trigger that writes the audit row in the same
** statement; one that does not set it pays nothing for the trigger.
** The INSERT is VALUES, with OR IGNORE for an attempt that is NULL if the policies have changed:
** for an INSERT ... SELECT SQLite would copy every page that it changes.
*/
#define AS_LOADED "WHERE" AS_ROW
#define AS_ROW                                                                                     \
  " id=? AND scope=? AND key=? AND operation=? AND state=? AND attempt=?"                          \
  " AND due_at IS ? AND token IS ?"                                                                \
  " AND (SELECT policy_version FROM main.idem_meta WHERE id=1)=?"
#define DIGITS(n)  #n
#define LITERAL(n) DIGITS(n)
#define SPEND                                                                                      \
  "spent=substr(ifnull(token||char(10),'')||ifnull(spent,''),1," LITERAL(IDEM_SPENT_MAX) ")"
#define ANSWER                                                                                     \
  "state='completed',due_at=?,tombstone_ms=?,code=?,headers=?,response=?,response_omitted=?,"      \
  "completed_at=?,updated_at=?"
#define SET(columns)                                                                               \
  {                                                                                                \
    "UPDATE main.idem_store SET " columns " " AS_LOADED,                                           \
        "UPDATE main.idem_store SET " columns ",audit_event=? " AS_LOADED                          \
  }
static const struct {
  const char *azSql[2]; /* without and with an audit event */
  const char *zBind;    /* the parameters, see above */
  int nHead;            /* how many of them come before the event */
} aWrite[IDEM_WR_COUNT] = {
    [IDEM_WR_INSERT] = {{"INSERT OR IGNORE INTO main.idem_store(scope,key,operation,fingerprint,"
                         "token,due_at,created_at,updated_at,state,attempt) VALUES(?1,?2,?3,?4,?5,"
                         "?6,?7,?7,'processing',"
                         "(SELECT 1 FROM main.idem_meta WHERE id=1 AND policy_version=?8))",
                         "INSERT INTO main.idem_claim_audited(scope,key,operation,fingerprint,"
                         "token,due_at,created_at,audit_event) SELECT ?1,?2,?3,?4,?5,?6,?7,?9"
                         " FROM main.idem_meta WHERE id=1 AND policy_version=?8"},
                        "skoftunV",
                        8},
    [IDEM_WR_RESTART] = {SET("operation=?,fingerprint=?,token=?,due_at=?,created_at=?,updated_at=?,"
                             "state='processing',attempt=1,granted=0,spent=NULL,tombstone_ms=NULL,"
                             "completed_at=NULL,code=NULL,headers=NULL,response=NULL,"
                             "response_omitted=0,recovery_point=NULL,checkpoint=NULL,reason=NULL"),
                         "oftunnIskOSADTV", 6},
    [IDEM_WR_RETRY] = {SET(SPEND ",token=?,due_at=?,updated_at=?,state='processing',"
                                 "attempt=attempt+1"),
                       "tunIskOSADTV", 3},
    [IDEM_WR_COMPLETE] = {SET(ANSWER), "umchrxnnIskOSADTV", 8},
    [IDEM_WR_RELEASE] = {SET("state='released',due_at=NULL,reason=?,updated_at=?"), "ynIskOSADTV",
                         2},
    [IDEM_WR_SUSPEND] = {SET("state='unknown',due_at=NULL,reason=?,updated_at=?"), "ynIskOSADTV",
                         2},
    [IDEM_WR_RENEW] = {SET("due_at=?,updated_at=?"), "unIskOSADTV", 2},
    [IDEM_WR_CHECKPOINT] = {SET("recovery_point=?,checkpoint=?,due_at=?,updated_at=?"),
                            "pdunIskOSADTV", 4},
    [IDEM_WR_RESOLVE_COMPLETED] = {SET(ANSWER ",reason=?," SPEND ",token=NULL"),
                                   "umchrxnnyIskOSADTV", 9},
    [IDEM_WR_RESOLVE_RETRY] = {SET("state='released',due_at=NULL,reason=?,updated_at=?,"
                                   "granted=attempt," SPEND ",token=NULL"),
                               "ynIskOSADTV", 2},
    [IDEM_WR_ERASE] = {{"DELETE FROM main.idem_store WHERE ?>=0 AND" AS_ROW,
                        "UPDATE main.idem_store SET updated_at=?,audit_event=? " AS_LOADED},
                       "nIskOSADTV",
                       1},
    [IDEM_WR_MARK] = {SET("updated_at=?"), "nIskOSADTV", 1},
};

/* The statements after the writes in the connection's cache. */
enum {
  STMT_WRITE = IDEM_STMT_FIRST,
  STMT_LOAD = STMT_WRITE + 2 * IDEM_WR_COUNT,
  STMT_POLICY,
  STMT_AUDIT,
  STMT_PURGEABLE,
  STMT_PURGE,
  STMT_EVENT,
  STMT_SEE,
  STMT_AUDIT_VERIFY,
  STMT_OURS,
  STMT_SCAN,
  STMT_END = STMT_SCAN + IDEM_SCAN_COUNT
};
_Static_assert(STMT_END <= IDEM_STMT_COUNT, "a place for each statement");

/* The columns of a record with its policy, as loadRow() reads them. */
#define POLICY_COLUMNS                                                                             \
  "p.lease_ms,p.retention_ms,p.tombstone_ms,p.wait_ms,p.on_stale,p.max_attempts,"                  \
  "p.max_response_bytes,p.allow_content_key,p.audit"
#define RECORD_COLUMNS                                                                             \
  "r.id,r.state,r.attempt,r.granted,r.due_at,r.tombstone_ms,r.created_at,r.completed_at,r.code,"   \
  "r.response_omitted,r.audit_event,r.operation,r.fingerprint,r.token,r.spent,r.headers,"          \
  "r.response,r.recovery_point,r.checkpoint,r.reason"
#define POLICY_COUNT 9
#define RECORD_COUNT 20
#define POLICY_OF(op)                                                                              \
  "p.operation=ifnull((SELECT operation FROM main.idem_policy WHERE operation=" op "),'*')"

static const char zLoad[] = "SELECT m.policy_version," RECORD_COLUMNS " FROM main.idem_meta m"
                            " LEFT JOIN main.idem_store r ON r.scope=?1 AND r.key=?2 WHERE m.id=1";
static const char zPolicy[] =
    "SELECT " POLICY_COLUMNS " FROM main.idem_policy p WHERE " POLICY_OF("?1");

/* What a connection keeps in memory, in its block (idemConnCache). */
#define CACHED_POLICIES 8
#define CACHED_NAME     64 /* longer operations are simply not kept */
typedef struct CachedPolicy {
  int n;                   /* bytes of aName; -1 for an empty place */
  char aName[CACHED_NAME]; /* the operation */
  IdemPolicy policy;       /* its policy */
} CachedPolicy;
typedef struct StoreCache {
  int64_t iPolicyVersion;                /* of all policies here */
  int iNext;                             /* the place to overwrite next */
  CachedPolicy aPolicy[CACHED_POLICIES]; /* the policies used of late */
  int bNewKey;                           /* the latest claim here was of a new key */
  int bClaim;                            /* the rest is this connection's latest claim: */
  int64_t id;                            /* its row */
  int64_t attempt, due;                  /* as it left them */
  int nToken, nOperation;                /* bytes of these: */
  char aToken[IDEM_TOKEN_MAX];           /* its token */
  char aOperation[CACHED_NAME];          /* its operation */
} StoreCache;

/* A statement whose parameters are being bound. After a failure nothing more is: what was not
** bound would be NULL, and no statement may run with that. In a UTF-16 database a text that came in
** within SQLITE_LIMIT_LENGTH can be too long in UTF-8. */
typedef struct Binding {
  sqlite3_stmt *pStmt; /* borrowed */
  int rc;              /* SQLITE_OK, or how the first parameter failed */
} Binding;

static void bindInt(Binding *pBind, int i, int64_t v) {
  if (pBind->rc == SQLITE_OK) pBind->rc = sqlite3_bind_int64(pBind->pStmt, i, v);
}

static void bindValue(Binding *pBind, int i, const IdemValue *pVal) {
  const void *p = pVal->p ? pVal->p : "";
  if (pBind->rc != SQLITE_OK) return;
  if (pVal->eType == SQLITE_TEXT) {
    pBind->rc = sqlite3_bind_text(pBind->pStmt, i, p, pVal->n, SQLITE_STATIC);
  } else if (pVal->eType == SQLITE_BLOB) {
    pBind->rc = sqlite3_bind_blob(pBind->pStmt, i, p, pVal->n, SQLITE_STATIC);
  } else {
    assert(pVal->eType == SQLITE_NULL);
    pBind->rc = sqlite3_bind_null(pBind->pStmt, i);
  }
}

static void bindName(Binding *pBind, int i, const char *zName) {
  if (pBind->rc != SQLITE_OK) return;
  pBind->rc = sqlite3_bind_text(pBind->pStmt, i, zName, -1, SQLITE_STATIC);
}

/* The statement if all was bound; NULL if not, and then the call has failed. */
static sqlite3_stmt *bound(IdemCall *pCall, const Binding *pBind) {
  if (pBind->rc == SQLITE_OK) return pBind->pStmt;
  idemFailDb(pCall, pBind->rc);
  idemConnDone(pCall->pConn, pBind->pStmt);
  return 0;
}

/*
** Reads a column by its sqlite3_value: one call that takes the connection's mutex instead of three.
** We run inside a statement of the application, so the mutex is held and the value is safe.
*/
static void columnValue(sqlite3_stmt *pStmt, int i, IdemValue *pVal) {
  sqlite3_value *p = sqlite3_column_value(pStmt, i);
  pVal->eType = sqlite3_value_type(p);
  pVal->p = 0;
  pVal->n = 0;
  if (pVal->eType == SQLITE_NULL) return;
  pVal->p = pVal->eType == SQLITE_TEXT ? sqlite3_value_text(p) : sqlite3_value_blob(p);
  pVal->n = sqlite3_value_bytes(p);
}

/* Reads an integer column and checks what idem itself guarantees when it writes. */
static int64_t columnInt(IdemCall *pCall, sqlite3_stmt *pStmt, int i, int64_t lo, int64_t hi) {
  sqlite3_value *p = sqlite3_column_value(pStmt, i);
  int64_t v = sqlite3_value_int64(p);
  if (sqlite3_value_type(p) != SQLITE_INTEGER || v < lo || v > hi) {
    idemFail(pCall, IDEM_E_DAMAGED, sqlite3_column_name(pStmt, i));
  }
  return v;
}

/* Reads a value and checks that it is NULL, TEXT or BLOB as the mask allows (1, 2, 4). */
static void columnData(IdemCall *pCall, sqlite3_stmt *pStmt, int i, int mAllowed, IdemValue *pVal) {
  columnValue(pStmt, i, pVal);
  int m = pVal->eType == SQLITE_NULL   ? 1
          : pVal->eType == SQLITE_TEXT ? 2
          : pVal->eType == SQLITE_BLOB ? 4
                                       : 0;
  if (!(m & mAllowed)) {
    idemFail(pCall, IDEM_E_DAMAGED, sqlite3_column_name(pStmt, i));
    pVal->n = 0;
  }
  if (pVal->n > 0 && !pVal->p) idemFailNomem(pCall);
}

/* True if a value is the text z: no blob of the same bytes, and nothing after a NUL. */
static int isText(const IdemValue *pVal, const char *z) {
  size_t n = strlen(z);
  return pVal->eType == SQLITE_TEXT && pVal->p && pVal->n == (int)n && memcmp(pVal->p, z, n) == 0;
}

static int textIs(sqlite3_stmt *pStmt, int i, const char *z) {
  IdemValue v;
  columnValue(pStmt, i, &v);
  return isText(&v, z);
}

/* One of the stored states; a text that is none is damage. */
static int columnState(IdemCall *pCall, sqlite3_stmt *pStmt, int i) {
  IdemValue v;
  columnValue(pStmt, i, &v);
  for (int e = IDEM_ST_PROCESSING; e < IDEM_ST_COUNT; e++) {
    if (isText(&v, aStateName[e])) return e;
  }
  idemFail(pCall, IDEM_E_DAMAGED, "state");
  return IDEM_ST_PROCESSING;
}

static void readPolicy(IdemCall *pCall, sqlite3_stmt *pStmt, int i, IdemPolicy *pPol) {
  const int64_t nYear = (int64_t)366 * 86400000;
  memset(pPol, 0, sizeof(*pPol));
  pPol->lease_ms = columnInt(pCall, pStmt, i++, 1, nYear);
  pPol->retention_ms = columnInt(pCall, pStmt, i++, 1, nYear * 10);
  pPol->tombstone_ms = columnInt(pCall, pStmt, i++, 1, nYear * 100);
  pPol->wait_ms = columnInt(pCall, pStmt, i++, 0, 60000);
  pPol->eStale = textIs(pStmt, i++, "retry") ? IDEM_STALE_RETRY : IDEM_STALE_UNKNOWN;
  pPol->max_attempts = columnInt(pCall, pStmt, i++, 0, 1000000);
  pPol->max_response_bytes = columnInt(pCall, pStmt, i++, 0, 1000000000);
  pPol->bContentKey = (int)columnInt(pCall, pStmt, i++, 0, 1);
  pPol->eAudit = textIs(pStmt, i, "off")   ? IDEM_AUDIT_OFF
                 : textIs(pStmt, i, "all") ? IDEM_AUDIT_ALL
                                           : IDEM_AUDIT_EXCEPTIONS;
}

/* Reads RECORD_COLUMNS from column i on. Whatever the file holds, the record is sane afterwards or
** the call has failed: verdicts add these numbers and trust these types. */
static void readRecord(IdemCall *pCall, sqlite3_stmt *pStmt, int i, IdemRecord *pRec) {
  const int64_t nTime = IDEM_CLOCK_MAX * 2, nCount = (int64_t)1 << 53;
  memset(pRec, 0, sizeof(*pRec));
  pRec->id = columnInt(pCall, pStmt, i, INT64_MIN, INT64_MAX);
  pRec->eState = columnState(pCall, pStmt, i + 1);
  int bOpen = pRec->eState == IDEM_ST_RELEASED || pRec->eState == IDEM_ST_UNKNOWN;
  int bDone = pRec->eState == IDEM_ST_COMPLETED || pRec->eState == IDEM_ST_TOMBSTONE;
  pRec->attempt = columnInt(pCall, pStmt, i + 2, 1, nCount);
  pRec->granted = columnInt(pCall, pStmt, i + 3, 0, pRec->attempt);
  pRec->bDue = !bOpen;
  if (!bOpen) pRec->due = columnInt(pCall, pStmt, i + 4, 0, nTime);
  if (bOpen && sqlite3_column_type(pStmt, i + 4) != SQLITE_NULL) {
    idemFail(pCall, IDEM_E_DAMAGED, "due_at");
  }
  if (bDone) pRec->tombstone_ms = columnInt(pCall, pStmt, i + 5, 1, nTime);
  pRec->created_at = columnInt(pCall, pStmt, i + 6, 0, nTime);
  if (bDone) pRec->completed_at = columnInt(pCall, pStmt, i + 7, 0, nTime);
  pRec->bCode = sqlite3_column_type(pStmt, i + 8) != SQLITE_NULL;
  if (pRec->bCode) pRec->code = columnInt(pCall, pStmt, i + 8, INT64_MIN, INT64_MAX);
  pRec->bOmitted = (int)columnInt(pCall, pStmt, i + 9, 0, 1);
  pRec->bExhaustedLogged = textIs(pStmt, i + 10, aEventName[IDEM_EV_EXHAUSTED]);
  columnData(pCall, pStmt, i + 11, 2, &pRec->operation);
  columnData(pCall, pStmt, i + 12, 2 | 4, &pRec->fingerprint);
  columnData(pCall, pStmt, i + 13, 1 | 2, &pRec->token);
  columnData(pCall, pStmt, i + 14, 1 | 2, &pRec->spent);
  columnData(pCall, pStmt, i + 15, 1 | 2, &pRec->headers);
  columnData(pCall, pStmt, i + 16, 1 | 2 | 4, &pRec->response);
  columnData(pCall, pStmt, i + 17, 1 | 2, &pRec->point);
  columnData(pCall, pStmt, i + 18, 1 | 2 | 4, &pRec->checkpoint);
  columnData(pCall, pStmt, i + 19, 1 | 2, &pRec->reason);
}

/* Copies the record's values out of the row, so that the statement can be reset. */
static void detach(IdemCall *pCall, IdemLoaded *pLoaded) {
  IdemRecord *p = &pLoaded->record;
  IdemValue *apVal[] = {&p->operation, &p->fingerprint, &p->token,      &p->spent, &p->headers,
                        &p->response,  &p->point,       &p->checkpoint, &p->reason};
  const int nVal = (int)(sizeof(apVal) / sizeof(apVal[0]));
  size_t n = 1;
  for (int i = 0; i < nVal; i++) n += (size_t)apVal[i]->n;
  char *z = pLoaded->aCopy = sqlite3_malloc64(n);
  if (!z) {
    idemFailNomem(pCall);
    return;
  }
  for (int i = 0; i < nVal; i++) {
    if (apVal[i]->n) memcpy(z, apVal[i]->p, (size_t)apVal[i]->n);
    apVal[i]->p = z;
    z += apVal[i]->n;
  }
}

void idemLoadedClear(IdemLoaded *pLoaded) {
  sqlite3_free(pLoaded->aCopy);
  memset(pLoaded, 0, sizeof(*pLoaded));
}

/*
** Begins statement iStmt on a verified schema: prepares, binds by xBind, and takes the first step.
** Returns it with *pbRow set, to be given back with idemConnDone(); NULL if the call has failed.
*/
static sqlite3_stmt *start(IdemCall *pCall, int iStmt, const char *zSql,
                           void (*xBind)(Binding *, const void *), const void *pArg, int *pbRow) {
  int rc = -1;
  sqlite3_stmt *pStmt = 0;
  *pbRow = 0;
  for (int i = 0; i < 50 && rc < 0; i++) { /* GCOVR_EXCL_BR_LINE: 50 lost races */
    if (!idemConnPrepared(pCall->pConn, iStmt)) idemSchemaVerify(pCall);
    pStmt = idemConnStmt(pCall, iStmt, zSql);
    if (!pStmt) return 0;
    Binding bind = {pStmt, SQLITE_OK};
    xBind(&bind, pArg);
    if (!bound(pCall, &bind)) return 0;
    rc = idemConnStep(pCall, pStmt);
  }
  /* Not SQLITE_SCHEMA: that would make SQLite run the outer statement again. */
  if (rc < 0) { /* GCOVR_EXCL_BR_LINE: 50 lost races */
    idemFail(pCall, IDEM_E_RACES, 50);
    return 0;
  }
  *pbRow = rc;
  if (pCall->rc == SQLITE_OK) return pStmt;
  idemConnDone(pCall->pConn, pStmt);
  return 0;
}

static void bindKey(Binding *pBind, const void *p) {
  const IdemRequest *pReq = p;
  bindValue(pBind, 1, &pReq->scope);
  bindValue(pBind, 2, &pReq->key);
}

static void bindOperation(Binding *pBind, const void *p) {
  bindValue(pBind, 1, p);
}

/* The connection's block, made at first use. NULL if the call has failed. */
static StoreCache *cacheOf(IdemCall *pCall) {
  void **pp = idemConnCache(pCall->pConn);
  if (!*pp && pCall->rc == SQLITE_OK) {
    StoreCache *p = *pp = sqlite3_malloc64(sizeof(*p));
    if (p) {
      memset(p, 0, sizeof(*p));
      for (int i = 0; i < CACHED_POLICIES; i++) p->aPolicy[i].n = -1;
    } else {
      idemFailNomem(pCall);
    }
  }
  return *pp;
}

static const IdemPolicy *cachedPolicy(const StoreCache *p, const IdemValue *pOperation) {
  for (int i = 0; i < CACHED_POLICIES; i++) {
    if (p->aPolicy[i].n == pOperation->n &&
        (pOperation->n == 0 ||
         memcmp(p->aPolicy[i].aName, pOperation->p, (size_t)pOperation->n) == 0)) {
      return &p->aPolicy[i].policy;
    }
  }
  return 0;
}

/* Finds an operation's policy: in memory if it is of version iVersion, else in the store. */
static void loadPolicy(IdemCall *pCall, const IdemValue *pOperation, int64_t iVersion,
                       IdemPolicy *pPol) {
  StoreCache *p = cacheOf(pCall);
  const IdemPolicy *pCached;
  int bRow;
  if (pCall->rc != SQLITE_OK) return;
  if (p->iPolicyVersion != iVersion) {
    for (int i = 0; i < CACHED_POLICIES; i++) p->aPolicy[i].n = -1;
    p->iPolicyVersion = iVersion;
  }
  pCached = cachedPolicy(p, pOperation);
  if (pCached) {
    *pPol = *pCached;
    return;
  }
  sqlite3_stmt *pStmt = start(pCall, STMT_POLICY, zPolicy, bindOperation, pOperation, &bRow);
  if (!pStmt) return;
  if (bRow) {
    readPolicy(pCall, pStmt, 0, pPol);
  } else {
    idemFail(pCall, IDEM_E_NO_POLICY);
  }
  idemConnDone(pCall->pConn, pStmt);
  if (pCall->rc == SQLITE_OK && pOperation->n <= CACHED_NAME) {
    CachedPolicy *pPlace = &p->aPolicy[p->iNext];
    p->iNext = (p->iNext + 1) % CACHED_POLICIES;
    pPlace->n = pOperation->n;
    if (pOperation->n) memcpy(pPlace->aName, pOperation->p, (size_t)pOperation->n);
    pPlace->policy = *pPol;
  }
}

void idemStoreLoad(IdemCall *pCall, const IdemRequest *pReq, IdemLoaded *pLoaded) {
  int bRow;
  memset(pLoaded, 0, sizeof(*pLoaded));
  sqlite3_stmt *pStmt = start(pCall, STMT_LOAD, zLoad, bindKey, pReq, &bRow);
  if (!pStmt) return;
  if (bRow) {
    pLoaded->iPolicyVersion = columnInt(pCall, pStmt, 0, INT64_MIN, INT64_MAX);
    pLoaded->bFound = sqlite3_column_type(pStmt, 1) != SQLITE_NULL;
    if (pLoaded->bFound) readRecord(pCall, pStmt, 1, &pLoaded->record);
    if (pLoaded->bFound && pCall->rc == SQLITE_OK) detach(pCall, pLoaded);
  } else {
    idemFail(pCall, IDEM_E_DAMAGED, "schema_version");
  }
  idemConnDone(pCall->pConn, pStmt);
  if (pReq->eVerb == IDEM_CLAIM && pCall->rc == SQLITE_OK) {
    StoreCache *p = cacheOf(pCall);
    if (p) p->bNewKey = !pLoaded->bFound;
  }
  if (pLoaded->bFound || pReq->eVerb == IDEM_CLAIM) {
    loadPolicy(pCall, pReq->eVerb == IDEM_CLAIM ? &pReq->operation : &pLoaded->record.operation,
               pLoaded->iPolicyVersion, &pLoaded->policy);
  }
}

/* The record that this connection's latest claim left, if that is what the request is about. */
static int recallRecord(const StoreCache *p, const IdemRequest *pReq, IdemRecord *pRec) {
  const IdemValue token = {SQLITE_TEXT, p->nToken, p->aToken};
  const IdemValue operation = {SQLITE_TEXT, p->nOperation, p->aOperation};
  if (!p->bClaim || !idemSame(&token, &pReq->token)) return 0;
  memset(pRec, 0, sizeof(*pRec));
  pRec->id = p->id;
  pRec->eState = IDEM_ST_PROCESSING;
  pRec->attempt = p->attempt;
  pRec->bDue = 1;
  pRec->due = p->due;
  pRec->token = token;
  pRec->operation = operation;
  pRec->spent.eType = pRec->fingerprint.eType = SQLITE_NULL;
  pRec->headers.eType = pRec->response.eType = pRec->point.eType = SQLITE_NULL;
  pRec->checkpoint.eType = pRec->reason.eType = SQLITE_NULL;
  return 1;
}

int idemStoreRecall(IdemCall *pCall, const IdemRequest *pReq, IdemLoaded *pLoaded) {
  StoreCache *p = *idemConnCache(pCall->pConn);
  const IdemPolicy *pPol;
  memset(pLoaded, 0, sizeof(*pLoaded));
  if (pCall->rc != SQLITE_OK || !p) return 0;
  if (pReq->eVerb == IDEM_COMPLETE) {
    pLoaded->bFound = recallRecord(p, pReq, &pLoaded->record);
    if (!pLoaded->bFound) return 0;
  } else if (pReq->eVerb != IDEM_CLAIM || !p->bNewKey || !idemConnWriting(pCall->pConn)) {
    return 0;
  }
  pPol = cachedPolicy(p, pLoaded->bFound ? &pLoaded->record.operation : &pReq->operation);
  if (!pPol) return 0;
  pLoaded->policy = *pPol;
  pLoaded->iPolicyVersion = p->iPolicyVersion;
  return 1;
}

/* Keeps in mind what a write left, for the completion that is likely to follow a claim. */
static void rememberWrite(IdemCall *pCall, const IdemWrite *pWrite) {
  StoreCache *p = *idemConnCache(pCall->pConn);
  const IdemVerdict *pVerdict = pWrite->pVerdict;
  if (!p) return;
  p->bClaim = pVerdict->eOutcome == IDEM_OUT_CLAIMED && pVerdict->eEvent == IDEM_EV_NONE &&
              pWrite->pReq->operation.n <= CACHED_NAME;
  if (!p->bClaim) return;
  p->id = pVerdict->eWrite == IDEM_WR_INSERT ? sqlite3_last_insert_rowid(pCall->db)
                                             : pWrite->pLoaded->record.id;
  p->attempt = pVerdict->attempt;
  p->due = pVerdict->due;
  p->nToken = pWrite->pToken->n;
  memcpy(p->aToken, pWrite->pToken->p, (size_t)p->nToken);
  p->nOperation = pWrite->pReq->operation.n;
  if (p->nOperation) memcpy(p->aOperation, pWrite->pReq->operation.p, (size_t)p->nOperation);
}

/* The audit and the purge are triggers of the store: an application may have switched all off. */
static void demandTriggers(IdemCall *pCall) {
  int bOn = 1;
  if (sqlite3_db_config(pCall->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, -1, &bOn) == SQLITE_OK && !bOn) {
    idemFail(pCall, IDEM_E_TRIGGERS);
  }
}

/* Steps a write to its end: only there it is committed. PRAGMA count_changes makes rows of it. */
static void finishWrite(IdemCall *pCall, sqlite3_stmt *pStmt, int bRow) {
  while (bRow > 0) bRow = idemConnStep(pCall, pStmt);
  if (bRow == 0) idemConnDone(pCall->pConn, pStmt);
}

/* Binds one parameter by its letter; see aWrite. */
static void bindLetter(Binding *pBind, int i, char c, const IdemWrite *p) {
  const IdemRequest *pReq = p->pReq;
  const IdemRecord *pRec = &p->pLoaded->record;
  switch (c) {
  case 's': bindValue(pBind, i, &pReq->scope); break;
  case 'k': bindValue(pBind, i, &pReq->key); break;
  case 'o': bindValue(pBind, i, &pReq->operation); break;
  case 'f': bindValue(pBind, i, &pReq->fingerprint); break;
  case 't': bindValue(pBind, i, p->pToken); break;
  case 'u': bindInt(pBind, i, p->pVerdict->due); break;
  case 'n': bindInt(pBind, i, p->now); break;
  case 'm': bindInt(pBind, i, p->pLoaded->policy.tombstone_ms); break;
  case 'V': bindInt(pBind, i, p->pLoaded->iPolicyVersion); break;
  case 'c':
    if (pReq->bCode) bindInt(pBind, i, pReq->code);
    break;
  case 'h': bindValue(pBind, i, &pReq->headers); break;
  case 'r': bindValue(pBind, i, &pReq->response); break;
  case 'x': bindInt(pBind, i, p->bOmitted); break;
  case 'p': bindValue(pBind, i, &pReq->point); break;
  case 'd': bindValue(pBind, i, &pReq->checkpoint); break;
  case 'y': bindValue(pBind, i, &pReq->reason); break;
  case 'e': bindName(pBind, i, aEventName[p->pVerdict->eEvent]); break;
  case 'I': bindInt(pBind, i, pRec->id); break;
  case 'O': bindValue(pBind, i, &pRec->operation); break;
  case 'S': bindName(pBind, i, aStateName[pRec->eState]); break;
  case 'A': bindInt(pBind, i, pRec->attempt); break;
  case 'D':
    if (pRec->bDue) bindInt(pBind, i, pRec->due);
    break;
  default: assert(c == 'T'); bindValue(pBind, i, &pRec->token);
  }
}

static void bindWrite(Binding *pBind, const void *pArg) {
  const IdemWrite *p = pArg;
  const char *zBind = aWrite[p->pVerdict->eWrite].zBind;
  int iParam = 1, nBind = (int)strlen(zBind);
  for (int i = 0; i <= nBind; i++) {
    if (i == aWrite[p->pVerdict->eWrite].nHead && p->pVerdict->eEvent) {
      bindLetter(pBind, iParam++, 'e', p);
    }
    if (i < nBind) bindLetter(pBind, iParam++, zBind[i], p);
  }
  assert(iParam == sqlite3_bind_parameter_count(pBind->pStmt) + 1);
}

static void bindOurs(Binding *pBind, const void *pArg) {
  const IdemWrite *p = pArg;
  bindValue(pBind, 1, &p->pReq->scope);
  bindValue(pBind, 2, &p->pReq->key);
  bindValue(pBind, 3, p->pToken);
  bindValue(pBind, 4, &p->pReq->operation);
  bindValue(pBind, 5, &p->pReq->fingerprint);
  bindInt(pBind, 6, p->pVerdict->due);
}

/*
** 1 if the write that just ended wrote its row. changes() says so, and counts no row of any
** trigger. But it says nothing of an INSERT into a view, as an audited claim is: there the row
** itself is asked, for all of it: somebody quicker may have used the same token for another
** request.
*/
static int tookEffect(IdemCall *pCall, const IdemWrite *pWrite) {
  static const char zSql[] = "SELECT 1 FROM main.idem_store WHERE scope=? AND key=? AND token=?"
                             " AND operation=? AND fingerprint=? AND due_at=?"
                             " AND state='processing' AND attempt=1";
  int bRow;
  if (pCall->rc != SQLITE_OK) return 0;
  if (pWrite->pVerdict->eWrite != IDEM_WR_INSERT || pWrite->pVerdict->eEvent == IDEM_EV_NONE) {
    return sqlite3_changes(pCall->db) > 0;
  }
  sqlite3_stmt *pStmt = start(pCall, STMT_OURS, zSql, bindOurs, pWrite, &bRow);
  idemConnDone(pCall->pConn, pStmt);
  return pStmt && bRow;
}

int idemStoreWrite(IdemCall *pCall, const IdemWrite *pWrite) {
  int eWrite = pWrite->pVerdict->eWrite, bEvent = pWrite->pVerdict->eEvent != IDEM_EV_NONE, bRow;
  assert(eWrite > IDEM_WR_NONE && eWrite < IDEM_WR_COUNT);
  assert(pWrite->pLoaded->bFound || eWrite == IDEM_WR_INSERT);
  idemConnDemandWrite(pCall);
  if (bEvent) demandTriggers(pCall);
  sqlite3_stmt *pStmt = start(pCall, STMT_WRITE + 2 * eWrite + bEvent, aWrite[eWrite].azSql[bEvent],
                              bindWrite, pWrite, &bRow);
  if (!pStmt) return 0;
  finishWrite(pCall, pStmt, bRow);
  if (!tookEffect(pCall, pWrite)) return 0;
  rememberWrite(pCall, pWrite);
  return 1;
}

/* The arguments of an audit row that stands alone. */
typedef struct AuditArgs {
  const IdemWrite *pWrite; /* whom it is about, and when */
  const char *zDetail;     /* the outcome, or NULL */
} AuditArgs;

static void bindAudit(Binding *pBind, const void *pArg) {
  const AuditArgs *p = pArg;
  bindLetter(pBind, 1, 'n', p->pWrite);
  bindLetter(pBind, 2, 'e', p->pWrite);
  bindLetter(pBind, 3, 's', p->pWrite);
  bindLetter(pBind, 4, 'k', p->pWrite);
  bindLetter(pBind, 5, 'o', p->pWrite);
  bindInt(pBind, 6, p->pWrite->pVerdict->attempt);
  bindName(pBind, 7, p->zDetail);
}

void idemStoreAudit(IdemCall *pCall, const IdemWrite *pWrite, const char *zDetail) {
  static const char zSql[] = "INSERT INTO main.idem_audit_entry(at,event,scope,key,operation,"
                             "attempt,detail) VALUES(?,?,?,?,?,?,?)";
  AuditArgs args = {pWrite, zDetail};
  int bRow;
  idemConnDemandWrite(pCall);
  demandTriggers(pCall);
  sqlite3_stmt *pStmt = start(pCall, STMT_AUDIT, zSql, bindAudit, &args, &bRow);
  if (pStmt) finishWrite(pCall, pStmt, bRow);
}

/* The arguments of the statements on what has expired. */
typedef struct PurgeArgs {
  int64_t now;             /* ms */
  int64_t nMax;            /* PURGEABLE: rows at most of each kind */
  const IdemPurge *pPurge; /* PURGE: rows at most of each kind */
} PurgeArgs;

static void bindPurgeable(Binding *pBind, const void *pArg) {
  const PurgeArgs *p = pArg;
  bindInt(pBind, 1, p->now);
  bindInt(pBind, 2, p->nMax);
}

static void bindPurge(Binding *pBind, const void *pArg) {
  const PurgeArgs *p = pArg;
  bindInt(pBind, 1, p->now);
  bindInt(pBind, 2, p->pPurge->nTombstone);
  bindInt(pBind, 3, p->pPurge->nAnswer);
  bindInt(pBind, 4, p->pPurge->nEvent);
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

void idemStorePurgeable(IdemCall *pCall, int64_t now, int64_t nMax, IdemPurge *pPurge) {
  static const char zSql[] =
      "SELECT (SELECT count(*) FROM (SELECT 1 FROM main.idem_store INDEXED BY idem_store_due"
      " WHERE state='tombstone' AND due_at<=?1 LIMIT ?2)),"
      "(SELECT count(*) FROM (SELECT 1 FROM main.idem_store INDEXED BY idem_store_due"
      " WHERE state='completed' AND due_at<=?1 LIMIT ?2)),"
      "(SELECT count(*) FROM (SELECT 1 FROM main.idem_inbox INDEXED BY idem_inbox_expires"
      " WHERE expires_at<=?1 LIMIT ?2))";
  PurgeArgs args = {now, nMax, 0};
  int bRow;
  memset(pPurge, 0, sizeof(*pPurge));
  sqlite3_stmt *pStmt = start(pCall, STMT_PURGEABLE, zSql, bindPurgeable, &args, &bRow);
  if (!pStmt) return;
  assert(bRow);
  pPurge->nTombstone = least(sqlite3_column_int64(pStmt, 0), nMax);
  pPurge->nAnswer = least(sqlite3_column_int64(pStmt, 1), nMax - pPurge->nTombstone);
  pPurge->nEvent =
      least(sqlite3_column_int64(pStmt, 2), nMax - pPurge->nTombstone - pPurge->nAnswer);
  idemConnDone(pCall->pConn, pStmt);
}

int64_t idemStorePurge(IdemCall *pCall, int64_t now, const IdemPurge *pPurge) {
  static const char zSql[] =
      "INSERT INTO main.idem_purge_batch(at,tombstones,answers,events) VALUES(?,?,?,?)";
  PurgeArgs args = {now, 0, pPurge};
  int bRow, nBefore = sqlite3_total_changes(pCall->db);
  idemConnDemandWrite(pCall);
  demandTriggers(pCall);
  sqlite3_stmt *pStmt = start(pCall, STMT_PURGE, zSql, bindPurge, &args, &bRow);
  if (!pStmt) return 0;
  finishWrite(pCall, pStmt, bRow);
  /* Rows that triggers change count too, those of a temp trigger as well; the INSERT into the view
  ** itself does not. */
  return least((int64_t)(unsigned)(sqlite3_total_changes(pCall->db) - nBefore),
               pPurge->nTombstone + pPurge->nAnswer + pPurge->nEvent);
}

/* The arguments of the statements on the inbox. */
typedef struct EventArgs {
  const IdemValue *pSource; /* TEXT */
  const IdemValue *pEvent;  /* TEXT */
  const IdemValue *pFp;     /* TEXT, BLOB or NULL */
  int64_t now, expires_at;  /* SEE: ms */
} EventArgs;

static void bindEvent(Binding *pBind, const void *pArg) {
  const EventArgs *p = pArg;
  bindValue(pBind, 1, p->pSource);
  bindValue(pBind, 2, p->pEvent);
}

static void bindSee(Binding *pBind, const void *pArg) {
  const EventArgs *p = pArg;
  bindEvent(pBind, pArg);
  bindValue(pBind, 3, p->pFp);
  bindInt(pBind, 4, p->now);
  bindInt(pBind, 5, p->expires_at);
}

void idemStoreEvent(IdemCall *pCall, const IdemValue *pSource, const IdemValue *pEvent,
                    const IdemValue *pFp, IdemEvent *pOut) {
  static const char zSql[] =
      "SELECT p.retention_ms,i.expires_at,i.fingerprint FROM main.idem_policy p"
      " LEFT JOIN main.idem_inbox i ON i.source=?1 AND i.event_id=?2"
      " WHERE p.operation=coalesce("
      "(SELECT operation FROM main.idem_policy WHERE operation='inbox:'||?1),"
      "(SELECT operation FROM main.idem_policy WHERE operation='inbox'),'*')";
  EventArgs args = {pSource, pEvent, pFp, 0, 0};
  IdemValue fp;
  int bRow;
  memset(pOut, 0, sizeof(*pOut));
  sqlite3_stmt *pStmt = start(pCall, STMT_EVENT, zSql, bindEvent, &args, &bRow);
  if (!pStmt) return;
  if (bRow) {
    pOut->retention_ms = columnInt(pCall, pStmt, 0, 1, IDEM_CLOCK_MAX);
    pOut->bFound = sqlite3_column_type(pStmt, 1) != SQLITE_NULL;
    if (pOut->bFound) pOut->expires_at = columnInt(pCall, pStmt, 1, 0, IDEM_CLOCK_MAX * 2);
    columnData(pCall, pStmt, 2, 1 | 2 | 4, &fp);
    pOut->bFingerprint = fp.eType != SQLITE_NULL;
    pOut->bSame = pCall->rc == SQLITE_OK && idemSame(&fp, pFp);
    pOut->nForm = pOut->bFingerprint && pCall->rc == SQLITE_OK ? idemFormLength(&fp) : 0;
    if (pOut->nForm > IDEM_FINGERPRINT_MAX) pOut->nForm = 0;
    if (pOut->nForm) memcpy(pOut->aForm, fp.p, (size_t)pOut->nForm);
  } else {
    idemFail(pCall, IDEM_E_NO_POLICY);
  }
  idemConnDone(pCall->pConn, pStmt);
}

int idemStoreSee(IdemCall *pCall, const IdemValue *pSource, const IdemValue *pEvent,
                 const IdemValue *pFp, int64_t now, int64_t expires_at) {
  static const char zSql[] =
      "INSERT INTO main.idem_inbox(source,event_id,fingerprint,seen_at,expires_at)"
      " VALUES(?1,?2,?3,?4,?5) ON CONFLICT(source,event_id) DO UPDATE SET"
      " fingerprint=excluded.fingerprint,seen_at=excluded.seen_at,expires_at=excluded.expires_at"
      " WHERE expires_at<=?4";
  EventArgs args = {pSource, pEvent, pFp, now, expires_at};
  int bRow;
  idemConnDemandWrite(pCall);
  sqlite3_stmt *pStmt = start(pCall, STMT_SEE, zSql, bindSee, &args, &bRow);
  if (!pStmt) return 0;
  finishWrite(pCall, pStmt, bRow);
  return sqlite3_changes(pCall->db) > 0;
}

static void bindNothing(Binding *pBind, const void *pArg) {
  (void)pBind;
  (void)pArg;
}

int idemStoreAuditVerify(IdemCall *pCall, int64_t *piBad) {
  /* The same expression as in the trigger idem_audit_chain. quote() stops at a NUL; idem writes
  ** none, so a text that holds one was changed. */
  static const char zSql[] =
      "SELECT id,prev,digest,idem_fingerprint_raw(prev||','||id||','||at||','||quote(event)||','||"
      "quote(scope)||','||quote(key)||','||quote(operation)||','||attempt||','||quote(detail)),"
      "instr(event||scope||key||operation||ifnull(detail,'')||prev||digest,char(0))"
      " FROM main.idem_audit ORDER BY id";
  int64_t iExpect = 1;
  char *zPrev = sqlite3_mprintf("idem-audit");
  int bRow, bBad = 0;
  sqlite3_stmt *pStmt = start(pCall, STMT_AUDIT_VERIFY, zSql, bindNothing, 0, &bRow);
  while (pStmt && bRow > 0 && pCall->rc == SQLITE_OK && zPrev) {
    int64_t id = sqlite3_column_int64(pStmt, 0);
    const char *zDigest = (const char *)sqlite3_column_text(pStmt, 2);
    bBad = id != iExpect || !zDigest || sqlite3_column_int(pStmt, 4) != 0 ||
           !textIs(pStmt, 1, zPrev) || !textIs(pStmt, 3, zDigest);
    if (bBad) {
      *piBad = id < iExpect ? id : iExpect; /* a row that is missing has the id it had */
      break;
    }
    sqlite3_free(zPrev);
    zPrev = sqlite3_mprintf("%s", zDigest);
    iExpect++;
    bRow = idemConnStep(pCall, pStmt);
    /* Cannot be: a running statement keeps its schema. */
    if (bRow < 0) return 0; /* GCOVR_EXCL_BR_LINE */
  }
  if (!zPrev) idemFailNomem(pCall);
  sqlite3_free(zPrev);
  idemConnDone(pCall->pConn, pStmt);
  return bBad;
}

/* The listings. Each reads scope and key after the columns that readRecord() wants. */
#define SCAN_COLUMNS POLICY_COLUMNS "," RECORD_COLUMNS ",r.scope,r.key"
#define SCAN         "SELECT " SCAN_COLUMNS " FROM main.idem_store r "
#define SCAN_POLICY  " LEFT JOIN main.idem_policy p ON " POLICY_OF("r.operation")
static const char *const azScan[IDEM_SCAN_COUNT] = {
    [IDEM_SCAN_ALL] = SCAN SCAN_POLICY " ORDER BY r.id",
    [IDEM_SCAN_KEY] = SCAN SCAN_POLICY " WHERE r.scope=?1 AND r.key=?2",
    [IDEM_SCAN_SCOPE] = SCAN SCAN_POLICY " WHERE r.scope=?1",
    [IDEM_SCAN_STATE] =
        SCAN SCAN_POLICY " WHERE (r.state=?3 AND r.due_at BETWEEN ?5 AND ?6) OR r.state=?4",
    [IDEM_SCAN_ROWID] = SCAN SCAN_POLICY " WHERE r.id=?5",
};

sqlite3_stmt *idemStoreScan(IdemCall *pCall, const IdemListing *pScan) {
  int iStmt = STMT_SCAN + pScan->eScan;
  if (!idemConnPrepared(pCall->pConn, iStmt)) idemSchemaVerify(pCall);
  sqlite3_stmt *pStmt = idemConnStmt(pCall, iStmt, azScan[pScan->eScan]);
  if (!pStmt) return 0;
  Binding bind = {pStmt, SQLITE_OK};
  switch (pScan->eScan) {
  case IDEM_SCAN_KEY: bindValue(&bind, 2, &pScan->key); /* fall through */
  case IDEM_SCAN_SCOPE: bindValue(&bind, 1, &pScan->scope); break;
  case IDEM_SCAN_STATE:
    bindName(&bind, 3, aStateName[pScan->aState[0]]);
    bindName(&bind, 4, aStateName[pScan->aState[1]]);
    bindInt(&bind, 6, pScan->hi); /* fall through */
  case IDEM_SCAN_ROWID: bindInt(&bind, 5, pScan->lo); break;
  default: assert(pScan->eScan == IDEM_SCAN_ALL);
  }
  return bound(pCall, &bind);
}

void idemStoreScanRow(IdemCall *pCall, sqlite3_stmt *pStmt, IdemRecord *pRec, IdemPolicy *pPol,
                      IdemValue *pScope, IdemValue *pKey) {
  if (sqlite3_column_type(pStmt, 0) == SQLITE_NULL) idemFail(pCall, IDEM_E_NO_POLICY);
  readPolicy(pCall, pStmt, 0, pPol);
  readRecord(pCall, pStmt, POLICY_COUNT, pRec);
  columnData(pCall, pStmt, POLICY_COUNT + RECORD_COUNT, 2, pScope);
  columnData(pCall, pStmt, POLICY_COUNT + RECORD_COUNT + 1, 2, pKey);
}

int idemStoreKeyOf(IdemCall *pCall, int64_t id, IdemValue *pScope, IdemValue *pKey, char **paCopy) {
  IdemListing scan = {IDEM_SCAN_ROWID, {SQLITE_NULL, 0, 0}, {SQLITE_NULL, 0, 0}, {0, 0}, id, 0};
  sqlite3_stmt *pStmt = 0;
  int bRow = -1;
  *paCopy = 0;
  for (int i = 0; i < 50 && bRow < 0; i++) { /* GCOVR_EXCL_BR_LINE: 50 lost races */
    pStmt = idemStoreScan(pCall, &scan);
    if (!pStmt) return 0;
    bRow = idemConnStep(pCall, pStmt);
  }
  if (bRow < 0) { /* GCOVR_EXCL_BR_LINE: 50 lost races */
    idemFail(pCall, IDEM_E_RACES, 50);
    return 0;
  }
  if (bRow) {
    columnData(pCall, pStmt, POLICY_COUNT + RECORD_COUNT, 2, pScope);
    columnData(pCall, pStmt, POLICY_COUNT + RECORD_COUNT + 1, 2, pKey);
  }
  if (bRow && pCall->rc == SQLITE_OK) {
    char *z = *paCopy = sqlite3_malloc64((sqlite3_uint64)pScope->n + (sqlite3_uint64)pKey->n + 1);
    if (z) {
      if (pScope->n) memcpy(z, pScope->p, (size_t)pScope->n);
      if (pKey->n) memcpy(z + pScope->n, pKey->p, (size_t)pKey->n);
      pScope->p = z;
      pKey->p = z + pScope->n;
    } else {
      idemFailNomem(pCall);
    }
  }
  idemConnDone(pCall->pConn, pStmt);
  return *paCopy != 0;
}
