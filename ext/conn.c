/*
** conn.c: what belongs to one connection.
**
** NOTES ON CACHED STATEMENTS
**
** Preparing a statement costs several times what running it does, so they are kept. But
** sqlite3_close() refuses to close a connection that has prepared statements, and the destructors
** of functions and modules run only after that check. Virtual table objects, however, are
** disconnected before it. So statements are kept only while at least one virtual table object of
** ours is connected (pConn->nGuard > 0), and are finalised when the last one goes. Registering a
** module does not connect an object; preparing a SELECT on the eponymous table idem_call does.
** A close that fails because the application has statements of its own has disconnected our objects
** too, and the connection lives on: the next call connects again.
**
** Some drivers finalise every statement that sqlite3_next_stmt() finds before they close. Therefore
** ours are finalised only if they are still in that list.
**
** NOTES ON THE SCHEMA
**
** Statements are prepared by sqlite3_prepare(), the legacy interface, on purpose: when the schema
** has changed, such a statement fails with SQLITE_SCHEMA before it does anything, where the newer
** interface would prepare it again by itself and run it on whatever now bears the table's name.
**
** NOTES ON DQLITE
**
** dqlite replicates the pages that its own statements commit. It takes a SELECT for a read: what a
** function writes below one in autocommit stays on that node, is lost, and stops the node at its
** next write. So there a write is refused, before it happens, unless the transaction is a write
** already (BEGIN IMMEDIATE), or a write statement without result columns is running.
*/
#include "conn.h"

#include <time.h>

struct IdemConn {
  sqlite3 *db;                       /* the connection this belongs to */
  int nRef;                          /* functions, modules and objects that point here */
  int nGuard;                        /* connected virtual table objects */
  int nClaimTable;                   /* of these, the tables temp.idem_claim */
  int bClaimDraft;                   /* that table may yet be rolled back */
  int bVerified;                     /* the schema is as sql/store.sql says ... */
  int64_t iCookie;                   /* ... while its cookie is this */
  int bCarrier;                      /* idem_call was planned as a table of ours */
  int bReplicated;                   /* the VFS is that of dqlite */
  int bUndo;                         /* a body that fails is undone by SQLite */
  int nDepth;                        /* bodies that run, one inside the other */
  int bClock;                        /* true if the clock is set */
  int64_t iClock;                    /* what it is set to, ms */
  void (*xBody)(IdemCall *, void *); /* waits for the write lock, see idemConnRun(); or NULL */
  IdemCall *pBodyCall;               /* its arguments */
  void *pBodyArg;
  void *pCache;                          /* what store.c remembers, or NULL */
  IdemFingerprint *pFingerprint;         /* digest contexts and scratch memory */
  sqlite3_stmt *apStmt[IDEM_STMT_COUNT]; /* kept prepared, or NULL */
};

/* True on a node of dqlite, which replicates what its own statements commit. Its VFS is registered
** under a name that begins like this. */
static int isReplicated(sqlite3 *db) {
  sqlite3_vfs *pVfs = 0;
  sqlite3_file_control(db, "main", SQLITE_FCNTL_VFS_POINTER, &pVfs);
  return pVfs && strncmp(pVfs->zName, "dqlite", 6) == 0;
}

int idemConnNew(sqlite3 *db, IdemConn **ppConn) {
  IdemConn *pConn = sqlite3_malloc64(sizeof(*pConn));
  int rc = SQLITE_NOMEM;
  if (pConn) {
    memset(pConn, 0, sizeof(*pConn));
    pConn->db = db;
    pConn->nRef = 1;
    pConn->bReplicated = isReplicated(db);
    rc = idemFingerprintNew(&pConn->pFingerprint);
    if (rc != SQLITE_OK) {
      idemConnUnref(pConn);
      pConn = 0;
    }
  }
  *ppConn = pConn;
  return rc;
}

IdemConn *idemConnRef(IdemConn *pConn) {
  assert(pConn->nRef > 0);
  pConn->nRef++;
  return pConn;
}

void idemConnUnref(void *p) {
  IdemConn *pConn = p;
  assert(pConn->nRef > 0);
  if (--pConn->nRef > 0) return;
  assert(pConn->nGuard == 0);
  idemFingerprintFree(pConn->pFingerprint);
  sqlite3_free(pConn->pCache);
  sqlite3_free(pConn);
}

sqlite3 *idemConnDb(IdemConn *pConn) {
  return pConn->db;
}

IdemFingerprint *idemConnFingerprint(IdemConn *pConn) {
  return pConn->pFingerprint;
}

IdemDigest *idemConnDigest(IdemConn *pConn) {
  return idemFingerprintDigest(pConn->pFingerprint);
}

void **idemConnCache(IdemConn *pConn) {
  return &pConn->pCache;
}

int idemConnVerified(IdemConn *pConn) {
  return pConn->bVerified;
}

int64_t idemConnCookie(IdemConn *pConn) {
  return pConn->iCookie;
}

void idemConnSetVerified(IdemConn *pConn, int bVerified, int64_t iCookie) {
  pConn->bVerified = bVerified;
  pConn->iCookie = iCookie;
}

void idemConnSawCarrier(IdemConn *pConn) {
  pConn->bCarrier = 1;
}

int idemConnClaimTables(IdemConn *pConn) {
  return pConn->nClaimTable;
}

int idemConnClaimDraft(IdemConn *pConn) {
  return pConn->bClaimDraft;
}

void idemConnSetClaimDraft(IdemConn *pConn, int bDraft) {
  pConn->bClaimDraft = bDraft;
}

/*
** True if SQLite lists no statement of this connection, though there are some: after
** sqlite3_close_v2() a connection lives on until its last statement is finalised, and a SQLite that
** was built with SQLITE_ENABLE_API_ARMOR (Apple's) answers no question about it, this one included.
** Who sweeps up finds nothing there either, so all of ours are still to be finalised. Such a SQLite
** is in `make test-sanitize`; the one whose branches are counted is another.
*/
static int isBlind(sqlite3 *db) {
  /* GCOVR_EXCL_BR_START */
  return !sqlite3_next_stmt(db, 0) && !sqlite3_db_filename(db, "main");
  /* GCOVR_EXCL_BR_STOP */
}

/* One that is running is given back by whoever runs it, and then finalised. */
static void dropStatement(sqlite3_stmt *pStmt) {
  if (pStmt && !sqlite3_stmt_busy(pStmt)) sqlite3_finalize(pStmt);
}

/* Finalises the cached statements, but only those that SQLite still knows. Finalising the holding
** statement may disconnect idem_call, which comes here again: so the cache is emptied first. */
static void dropStatements(IdemConn *pConn) {
  sqlite3_stmt *apStmt[IDEM_STMT_COUNT], *pNext, *pStmt;
  memcpy(apStmt, pConn->apStmt, sizeof(apStmt));
  memset(pConn->apStmt, 0, sizeof(pConn->apStmt));
  /* GCOVR_EXCL_BR_START */
  if (isBlind(pConn->db)) {
    for (int i = 0; i < IDEM_STMT_COUNT; i++) dropStatement(apStmt[i]);
    return;
  }
  /* GCOVR_EXCL_BR_STOP */
  for (pStmt = sqlite3_next_stmt(pConn->db, 0); pStmt; pStmt = pNext) {
    pNext = sqlite3_next_stmt(pConn->db, pStmt);
    for (int i = 0; i < IDEM_STMT_COUNT; i++) {
      if (apStmt[i] == pStmt) {
        dropStatement(pStmt);
        break;
      }
    }
  }
}

void idemConnRelease(IdemConn *pConn, sqlite3_stmt *pStmt) {
  sqlite3_stmt *p = sqlite3_next_stmt(pConn->db, 0);
  while (p && p != pStmt) p = sqlite3_next_stmt(pConn->db, p);
  if (p || isBlind(pConn->db)) idemConnDone(pConn, pStmt); /* GCOVR_EXCL_BR_LINE */
}

void idemConnGuardUp(IdemConn *pConn, int bClaimTable) {
  assert(pConn->nGuard >= pConn->nClaimTable);
  pConn->nGuard++;
  pConn->nClaimTable += bClaimTable;
}

void idemConnGuardDown(IdemConn *pConn, int bClaimTable) {
  assert(pConn->nGuard > 0);
  pConn->nGuard--;
  pConn->nClaimTable -= bClaimTable;
  assert(pConn->nClaimTable >= 0);
  /* The statement IDEM_STMT_BODY refers to idem_call and would keep that guard up by itself. */
  if (pConn->nGuard == 0 || (bClaimTable && pConn->nClaimTable == 0)) dropStatements(pConn);
}

/* Connects a guard if there is none. It may fail (the schema may be locked or unreadable); then
** statements are simply not kept. True if idem_call is ours, and not an object of the file. */
static int armGuard(IdemConn *pConn) {
  sqlite3_stmt *pStmt = 0;
  pConn->bCarrier = 0;
  sqlite3_prepare_v2(pConn->db, "SELECT 1 FROM main.idem_call LIMIT 0", -1, &pStmt, 0);
  sqlite3_finalize(pStmt);
  return pConn->bCarrier;
}

int64_t idemConnNow(IdemConn *pConn) {
  struct timespec ts;
  if (pConn->bClock) return pConn->iClock;
  /* Fails for an unknown clock alone. */
  if (clock_gettime(CLOCK_REALTIME, &ts) != 0) return 0; /* GCOVR_EXCL_BR_LINE */
  return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void idemConnSetClock(IdemConn *pConn, int bSet, int64_t ms) {
  assert(!bSet || (ms >= 0 && ms <= IDEM_CLOCK_MAX));
  pConn->bClock = bSet;
  pConn->iClock = ms;
}

void idemCallBegin(IdemCall *pCall, IdemConn *pConn, const char *zFunc) {
  pCall->pConn = pConn;
  pCall->db = pConn->db;
  pCall->zFunc = zFunc;
  pCall->rc = SQLITE_OK;
  pCall->zErr = 0;
  pCall->iRowid = sqlite3_last_insert_rowid(pConn->db);
}

void idemCallEnd(IdemCall *pCall) {
  if (sqlite3_last_insert_rowid(pCall->db) != pCall->iRowid) {
    sqlite3_set_last_insert_rowid(pCall->db, pCall->iRowid);
  }
}

int idemConnPrepared(IdemConn *pConn, int iStmt) {
  sqlite3_stmt *pStmt = pConn->apStmt[iStmt];
  return pStmt && !sqlite3_stmt_busy(pStmt);
}

sqlite3_stmt *idemConnStmt(IdemCall *pCall, int iStmt, const char *zSql) {
  IdemConn *pConn = pCall->pConn;
  sqlite3_stmt *pStmt;
  int rc;
  assert(iStmt >= 0 && iStmt < IDEM_STMT_COUNT);
  if (pCall->rc != SQLITE_OK) return 0;
  if (pConn->nGuard == 0) armGuard(pConn);
  pStmt = pConn->apStmt[iStmt];
  if (idemConnPrepared(pConn, iStmt)) return pStmt;
  rc = sqlite3_prepare(pConn->db, zSql, -1, &pStmt, 0);
  if (rc != SQLITE_OK) {
    idemFailDb(pCall, rc);
    return 0;
  }
  /* Three refer to idem_call, and would keep that guard up by themselves. */
  int bCall = iStmt == IDEM_STMT_BODY || iStmt == IDEM_STMT_LOCK;
  int bKeep = bCall ? pConn->nClaimTable > 0 : iStmt != IDEM_STMT_WHOLE;
  if (pConn->nGuard > 0 && !pConn->apStmt[iStmt] && bKeep) {
    pConn->apStmt[iStmt] = pStmt;
  }
  return pStmt;
}

/* Finalises a statement of the old schema. */
static void forget(IdemConn *pConn, sqlite3_stmt *pStmt) {
  for (int i = 0; i < IDEM_STMT_COUNT; i++) {
    if (pConn->apStmt[i] == pStmt) pConn->apStmt[i] = 0;
  }
  sqlite3_finalize(pStmt);
}

int idemConnStep(IdemCall *pCall, sqlite3_stmt *pStmt) {
  int rc;
  assert(pCall->rc == SQLITE_OK);
  rc = sqlite3_step(pStmt);
  if (rc == SQLITE_ROW) return 1;
  if (rc == SQLITE_DONE) return 0;
  rc = sqlite3_reset(pStmt); /* a legacy statement tells its true code here only */
  if (rc == SQLITE_OK) rc = SQLITE_ERROR;
  if (rc != SQLITE_SCHEMA) {
    idemFailDb(pCall, rc);
    return 0;
  }
  pCall->pConn->bVerified = 0;
  forget(pCall->pConn, pStmt);
  return -1;
}

void idemConnDone(IdemConn *pConn, sqlite3_stmt *pStmt) {
  if (!pStmt) return;
  sqlite3_reset(pStmt);
  for (int i = 0; i < IDEM_STMT_COUNT; i++) {
    if (pConn->apStmt[i] == pStmt) {
      sqlite3_clear_bindings(pStmt);
      return;
    }
  }
  sqlite3_finalize(pStmt);
}

int idemConnRunBody(IdemConn *pConn) {
  void (*xBody)(IdemCall *, void *) = pConn->xBody;
  IdemCall *pCall = pConn->pBodyCall;
  int bUndo = pConn->bUndo;
  pConn->xBody = 0;
  if (!xBody) return SQLITE_OK;
  xBody(pCall, pConn->pBodyArg);
  return bUndo ? pCall->rc : SQLITE_OK;
}

/* Steps a statement of idemConnRun() to its end, on whatever schema there is now. */
static void runStatement(IdemCall *pCall, int iStmt, const char *zSql) {
  int rc = -1;
  for (int i = 0; i < 10 && rc < 0 && pCall->rc == SQLITE_OK; i++) {
    /* The file may have a table or view of that name, and triggers on it: those must not run. */
    if (!idemConnPrepared(pCall->pConn, iStmt) && !armGuard(pCall->pConn)) break;
    sqlite3_stmt *pStmt = idemConnStmt(pCall, iStmt, zSql);
    if (!pStmt) break;
    while ((rc = idemConnStep(pCall, pStmt)) > 0) continue; /* PRAGMA count_changes gives a row */
    if (rc >= 0) idemConnDone(pCall->pConn, pStmt);
  }
}

/* Forgets a lock that could not be had, where the body may do without. query_only: reading is still
** possible. Busy in autocommit: so is a replay. No such table: the body will say so. */
static void forgiveLock(IdemCall *pCall) {
  int rc = pCall->rc & 0xff;
  if (rc == SQLITE_READONLY || rc == SQLITE_ERROR ||
      (rc == SQLITE_BUSY && sqlite3_get_autocommit(pCall->db))) {
    idemForgive(pCall);
  }
}

/* Runs the body inside a write statement: in the xUpdate of idem_call. In autocommit what it writes
** is committed when that ends; or undone, if it fails and bUndo. False if it could not be run. */
static int runInside(IdemCall *pCall, void (*xBody)(IdemCall *, void *), void *pArg, int bUndo) {
  IdemConn *pConn = pCall->pConn;
  IdemCall outer;
  int bRan;
  assert(!pConn->xBody);
  pConn->xBody = xBody;
  pConn->pBodyCall = pCall;
  pConn->pBodyArg = pArg;
  pConn->bUndo = bUndo;
  idemCallBegin(&outer, pConn, pCall->zFunc);
  if (bUndo) { /* more than one row may come from a SELECT: SQLite keeps a journal for it */
    runStatement(&outer, IDEM_STMT_WHOLE, "INSERT INTO main.idem_call(result) SELECT NULL");
  } else {
    runStatement(&outer, IDEM_STMT_BODY, "INSERT INTO main.idem_call(result) VALUES(NULL)");
  }
  bRan = pConn->xBody == 0;
  pConn->xBody = 0;
  if (!bRan && !bUndo) forgiveLock(&outer);
  if (pCall->rc != SQLITE_OK) idemForgive(&outer); /* it fails because its body did */
  if (outer.rc != SQLITE_OK) idemFailText(pCall, outer.rc, outer.zErr);
  return bRan;
}

/* A TEMP trigger on the store may call a function that fires it again, and SQLite's own limit does
** not see through a function. False if it goes too deep. */
static int descend(IdemCall *pCall) {
  if (pCall->rc != SQLITE_OK) return 0;
  if (pCall->pConn->nDepth >= IDEM_NESTING_MAX) idemFail(pCall, IDEM_E_DEPTH, IDEM_NESTING_MAX);
  if (pCall->rc == SQLITE_OK) pCall->pConn->nDepth++;
  return pCall->rc == SQLITE_OK;
}

void idemConnRun(IdemCall *pCall, void (*xBody)(IdemCall *, void *), void *pArg) {
  sqlite3 *db = pCall->db;
  int bRan = 0;
  if (!descend(pCall)) return;
  if (idemConnReplicates(pCall->pConn) && sqlite3_txn_state(db, "main") == SQLITE_TXN_NONE &&
      sqlite3_db_readonly(db, "main") != 1) {
    if (!sqlite3_get_autocommit(db)) {
      /* Changes nothing, but begins as a write does: with the busy handler, at the newest state.
      ** Not on a table of the store, which nobody has compared yet: a view of that name would run.
      */
      runStatement(pCall, IDEM_STMT_LOCK, "INSERT INTO main.idem_call(result) SELECT NULL WHERE 0");
      forgiveLock(pCall);
    } else if (sqlite3_txn_state(db, 0) != SQLITE_TXN_NONE) {
      /* In autocommit that lock would be gone when its statement ends. */
      bRan = runInside(pCall, xBody, pArg, 0);
    }
  }
  if (!bRan && pCall->rc == SQLITE_OK) xBody(pCall, pArg);
  pCall->pConn->nDepth--;
}

void idemConnRunWhole(IdemCall *pCall, void (*xBody)(IdemCall *, void *), void *pArg) {
  if (!descend(pCall)) return;
  int bRan = runInside(pCall, xBody, pArg, 1);
  pCall->pConn->nDepth--;
  if (bRan || pCall->rc != SQLITE_OK) return;
  int rc = sqlite3_errcode(pCall->db); /* why idem_call is not to be had */
  idemFailDb(pCall, rc == SQLITE_OK ? SQLITE_ERROR : rc);
}

/* True if a statement that writes and yields no rows is running: dqlite replicates what such a one
** commits, while it takes a SELECT for a read and forgets what functions wrote below it. */
static int belowWrite(sqlite3 *db) {
  sqlite3_stmt *p = sqlite3_next_stmt(db, 0);
  while (p &&
         !(sqlite3_stmt_busy(p) && !sqlite3_stmt_readonly(p) && sqlite3_column_count(p) == 0)) {
    p = sqlite3_next_stmt(db, p);
  }
  return p != 0;
}

int idemConnReplicates(IdemConn *pConn) {
  if (!pConn->bReplicated) return 1;
  return sqlite3_get_autocommit(pConn->db) ? belowWrite(pConn->db) : idemConnWriting(pConn);
}

void idemConnDemandWrite(IdemCall *pCall) {
  if (!idemConnReplicates(pCall->pConn)) idemFail(pCall, IDEM_E_REPLICATION);
}

int idemConnWriting(IdemConn *pConn) {
  return sqlite3_txn_state(pConn->db, "main") == SQLITE_TXN_WRITE;
}

int idemConnMayWait(IdemConn *pConn) {
  /* A node of dqlite has one thread for all: it must not sleep. */
  return !pConn->bReplicated && sqlite3_get_autocommit(pConn->db) &&
         sqlite3_txn_state(pConn->db, "main") == SQLITE_TXN_NONE;
}
