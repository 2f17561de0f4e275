/*
** limit.c: idem against the limit: the same work hand-written in C, with cached prepared
** statements, on a table of the same shape.
**
**     make bench-limit        (builds it and runs: bench/limit ./idem [seconds per figure])
**
** Rounds of both sides alternate within one run, and only the ratios of their medians are worth
** quoting: machines drift. "by hand" does what idem does and nothing more: a claim is an INSERT ON
** CONFLICT DO NOTHING with a lease read from a policy table, a completion one UPDATE that checks
** the token, a replay one SELECT of every column a caller reads.
*/
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS  15
#define BATCH   2000 /* operations of one side in one round */
#define PER_TXN 100

static const char zFingerprint[] =
    "idem1:e8602798346d5df40959a7817eee6f4376e351150f87dfd8287a4cbc868e69cc";
static const char zOperation[] = "POST /v1/payments";
static char zResponse[401];

/* One database with both stores in it. */
typedef struct Bench {
  sqlite3 *db;
  sqlite3_stmt *pBegin, *pCommit;                     /* of a transaction */
  sqlite3_stmt *pClaim, *pComplete, *pClaimTable;     /* idem: scalar, scalar, table-valued */
  sqlite3_stmt *pHandClaim, *pHandComplete, *pHandReplay;
  sqlite3_stmt *pBusiness;                            /* the row that the request is about */
  int iKey;                                           /* counts keys of both sides */
} Bench;

static void check(int rc, sqlite3 *db, const char *zWhat) {
  if (rc == SQLITE_OK || rc == SQLITE_ROW || rc == SQLITE_DONE) return;
  fprintf(stderr, "%s: %s\n", zWhat, sqlite3_errmsg(db));
  exit(1);
}

static void run(Bench *p, const char *zSql) {
  check(sqlite3_exec(p->db, zSql, 0, 0, 0), p->db, zSql);
}

static sqlite3_stmt *prepare(Bench *p, const char *zSql) {
  sqlite3_stmt *pStmt = 0;
  check(sqlite3_prepare_v3(p->db, zSql, -1, SQLITE_PREPARE_PERSISTENT, &pStmt, 0), p->db, zSql);
  return pStmt;
}

/* Steps to the end; returns the number of rows. */
static int finish(Bench *p, sqlite3_stmt *pStmt) {
  int rc, n = 0;
  while ((rc = sqlite3_step(pStmt)) == SQLITE_ROW) {
    n++;
    for (int i = 0; i < sqlite3_column_count(pStmt); i++) (void)sqlite3_column_text(pStmt, i);
  }
  check(rc, p->db, "step");
  sqlite3_reset(pStmt);
  return n;
}

static void text(sqlite3_stmt *pStmt, int i, const char *z) {
  sqlite3_bind_text(pStmt, i, z, -1, SQLITE_STATIC);
}

static double now(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void keyText(int iKey, char zKey[40]) {
  snprintf(zKey, 40, "%08x-89ab-4cde-8f01-%012x", (unsigned)iKey * 2654435761u, (unsigned)iKey);
}

/* The caller's own token, as a program that wants to survive a lost answer would send it. */
static void tokenText(int iKey, char zToken[40]) {
  snprintf(zToken, 40, "%032d", iKey);
}

static void openBench(Bench *p, const char *zFile, const char *zExtension, const char *zSync) {
  char *zErr = 0, zPragma[80];
  memset(p, 0, sizeof(*p));
  check(sqlite3_open(zFile, &p->db), p->db, "open");
  sqlite3_enable_load_extension(p->db, 1);
  if (sqlite3_load_extension(p->db, zExtension, 0, &zErr) != SQLITE_OK) {
    fprintf(stderr, "%s\n", zErr);
    exit(1);
  }
  run(p, "PRAGMA journal_mode=WAL");
  snprintf(zPragma, sizeof(zPragma), "PRAGMA synchronous=%s", zSync);
  run(p, zPragma);
  run(p, "SELECT idem_init()");
  run(p, "CREATE TABLE business(id INTEGER PRIMARY KEY, account TEXT, amount INTEGER) STRICT;"
         "CREATE TABLE hand_policy(operation TEXT PRIMARY KEY, lease_ms INTEGER,"
         " retention_ms INTEGER) STRICT, WITHOUT ROWID;"
         "INSERT INTO hand_policy VALUES('*', 60000, 86400000);"
         "CREATE TABLE hand(id INTEGER PRIMARY KEY, scope TEXT NOT NULL, key TEXT NOT NULL,"
         " operation TEXT NOT NULL, fingerprint ANY NOT NULL, state TEXT NOT NULL,"
         " attempt INTEGER NOT NULL, token TEXT, due_at INTEGER, created_at INTEGER NOT NULL,"
         " updated_at INTEGER NOT NULL, completed_at INTEGER, code INTEGER, headers TEXT,"
         " response ANY, UNIQUE(scope, key)) STRICT;"
         "CREATE INDEX hand_due ON hand(state, due_at);");
  p->pBegin = prepare(p, "BEGIN IMMEDIATE");
  p->pCommit = prepare(p, "COMMIT");
  p->pBusiness = prepare(p, "INSERT INTO business(account, amount) VALUES(?, ?)");
  p->pClaim = prepare(p, "SELECT idem_claim(?, ?, ?, ?, ?)");
  p->pComplete = prepare(p, "SELECT idem_complete(?, ?, ?, ?, ?)");
  p->pClaimTable = prepare(p, "SELECT outcome, code, headers, response, created_at, completed_at "
                              "FROM idem_claim(?, ?, ?, ?)");
  p->pHandClaim = prepare(
      p, "INSERT INTO hand(scope, key, operation, fingerprint, state, attempt, token, due_at,"
         " created_at, updated_at)"
         " SELECT ?1, ?2, ?3, ?4, 'processing', 1, ?5, ?6 + lease_ms, ?6, ?6"
         " FROM hand_policy WHERE operation = '*' ON CONFLICT DO NOTHING");
  p->pHandComplete = prepare(
      p, "UPDATE hand SET state = 'completed', response = ?4, code = ?5, due_at = ?6 + 86400000,"
         " completed_at = ?6, updated_at = ?6 WHERE scope = ?1 AND key = ?2 AND token = ?3"
         " AND state = 'processing'");
  p->pHandReplay = prepare(p, "SELECT state, code, headers, response, created_at, completed_at,"
                              " fingerprint, operation, due_at FROM hand"
                              " WHERE scope = ? AND key = ?");
}

static void claimIdem(Bench *p, int iKey) {
  char zKey[40], zToken[40];
  keyText(iKey, zKey);
  tokenText(iKey, zToken);
  text(p->pClaim, 1, "acct_1");
  text(p->pClaim, 2, zKey);
  text(p->pClaim, 3, zFingerprint);
  text(p->pClaim, 4, zOperation);
  text(p->pClaim, 5, zToken);
  finish(p, p->pClaim);
}

static void completeIdem(Bench *p, int iKey) {
  char zKey[40], zToken[40];
  keyText(iKey, zKey);
  tokenText(iKey, zToken);
  text(p->pComplete, 1, "acct_1");
  text(p->pComplete, 2, zKey);
  text(p->pComplete, 3, zToken);
  text(p->pComplete, 4, zResponse);
  sqlite3_bind_int(p->pComplete, 5, 201);
  finish(p, p->pComplete);
}

static sqlite3_int64 wallMs(void) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  return (sqlite3_int64)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void claimHand(Bench *p, int iKey) {
  char zKey[40], zToken[40];
  keyText(iKey, zKey);
  tokenText(iKey, zToken);
  text(p->pHandClaim, 1, "acct_1");
  text(p->pHandClaim, 2, zKey);
  text(p->pHandClaim, 3, zOperation);
  text(p->pHandClaim, 4, zFingerprint);
  text(p->pHandClaim, 5, zToken);
  sqlite3_bind_int64(p->pHandClaim, 6, wallMs());
  finish(p, p->pHandClaim);
  if (sqlite3_changes(p->db) != 1) check(SQLITE_ERROR, p->db, "claim by hand");
}

static void completeHand(Bench *p, int iKey) {
  char zKey[40], zToken[40];
  keyText(iKey, zKey);
  tokenText(iKey, zToken);
  text(p->pHandComplete, 1, "acct_1");
  text(p->pHandComplete, 2, zKey);
  text(p->pHandComplete, 3, zToken);
  text(p->pHandComplete, 4, zResponse);
  sqlite3_bind_int(p->pHandComplete, 5, 201);
  sqlite3_bind_int64(p->pHandComplete, 6, wallMs());
  finish(p, p->pHandComplete);
  if (sqlite3_changes(p->db) != 1) check(SQLITE_ERROR, p->db, "complete by hand");
}

static void business(Bench *p) {
  text(p->pBusiness, 1, "acct_1");
  sqlite3_bind_int(p->pBusiness, 2, 1200);
  finish(p, p->pBusiness);
}

/* The work measured: BATCH operations of one side, whole seconds returned. */
typedef double (*Work)(Bench *p, int bIdem);

static double claimNew(Bench *p, int bIdem) {
  double t = now();
  finish(p, p->pBegin);
  for (int i = 0; i < BATCH; i++) {
    if (bIdem) claimIdem(p, p->iKey++);
    else claimHand(p, p->iKey++);
  }
  t = now() - t;
  finish(p, p->pCommit);
  return t;
}

static double cycle(Bench *p, int bIdem, int nPerTxn, int nOp) {
  double t = now();
  for (int i = 0; i < nOp; i++) {
    if (i % nPerTxn == 0) finish(p, p->pBegin);
    if (bIdem) claimIdem(p, p->iKey);
    else claimHand(p, p->iKey);
    business(p);
    if (bIdem) completeIdem(p, p->iKey++);
    else completeHand(p, p->iKey++);
    if (i % nPerTxn == nPerTxn - 1) finish(p, p->pCommit);
  }
  return now() - t;
}

static double cycleBatched(Bench *p, int bIdem) {
  return cycle(p, bIdem, PER_TXN, BATCH);
}

static double cycleSingle(Bench *p, int bIdem) {
  return cycle(p, bIdem, 1, BATCH / 4) * 4;
}

static double twoCommits(Bench *p, int bIdem) {
  double t = now();
  for (int i = 0; i < BATCH / 4; i++) {
    if (bIdem) claimIdem(p, p->iKey);
    else claimHand(p, p->iKey);
    if (bIdem) completeIdem(p, p->iKey++);
    else completeHand(p, p->iKey++);
  }
  return (now() - t) * 4;
}

/* Keys below nDone are completed on both sides by fill(). */
#define DONE 5000

static void fill(Bench *p) {
  finish(p, p->pBegin);
  for (p->iKey = 0; p->iKey < DONE; p->iKey++) {
    claimIdem(p, p->iKey);
    completeIdem(p, p->iKey);
    claimHand(p, p->iKey);
    completeHand(p, p->iKey);
  }
  finish(p, p->pCommit);
}

static double replayWith(Bench *p, sqlite3_stmt *pStmt, int nArg) {
  char zKey[40];
  double t = now();
  for (int i = 0; i < BATCH; i++) {
    keyText(i * 7919 % DONE, zKey);
    text(pStmt, 1, "acct_1");
    text(pStmt, 2, zKey);
    if (nArg > 2) text(pStmt, 3, zFingerprint);
    if (nArg > 2) text(pStmt, 4, zOperation);
    if (finish(p, pStmt) != 1) check(SQLITE_ERROR, p->db, "replay");
  }
  return now() - t;
}

static double replayTable(Bench *p, int bIdem) {
  return bIdem ? replayWith(p, p->pClaimTable, 4) : replayWith(p, p->pHandReplay, 2);
}

static double replayScalar(Bench *p, int bIdem) {
  if (bIdem) sqlite3_bind_null(p->pClaim, 5);
  return bIdem ? replayWith(p, p->pClaim, 4) : replayWith(p, p->pHandReplay, 2);
}

static double replayInTxn(Bench *p, int bIdem) {
  finish(p, p->pBegin);
  double t = replayTable(p, bIdem);
  finish(p, p->pCommit);
  return t;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Alternates both sides, prints medians per operation and the ratio. */
static void measure(Bench *p, const char *zName, Work xWork, double rTarget) {
  double aIdem[ROUNDS], aHand[ROUNDS];
  xWork(p, 1);
  xWork(p, 0);
  for (int i = 0; i < ROUNDS; i++) {
    aIdem[i] = xWork(p, 1) / BATCH * 1e6;
    aHand[i] = xWork(p, 0) / BATCH * 1e6;
  }
  qsort(aIdem, ROUNDS, sizeof(double), ascending);
  qsort(aHand, ROUNDS, sizeof(double), ascending);
  double rIdem = aIdem[ROUNDS / 2], rHand = aHand[ROUNDS / 2];
  printf("%-44s %8.2f %8.2f %8.2f", zName, rIdem, rHand, rIdem / rHand);
  if (rTarget > 0) printf("   (target %.2f)", rTarget);
  printf("\n");
}

int main(int argc, char **argv) {
  const char *zExtension = argc > 1 ? argv[1] : "./idem";
  char zDir[] = "/tmp/idem-bench-XXXXXX", zFile[64];
  Bench b;
  memset(zResponse, 'x', 400);
  if (!mkdtemp(zDir)) return 1;
  printf("%-44s %8s %8s %8s\n", "microseconds per operation, medians", "idem", "by hand", "ratio");
  for (int i = 0; i < 2; i++) {
    const char *zSync = i ? "FULL" : "NORMAL";
    snprintf(zFile, sizeof(zFile), "%s/%s.db", zDir, zSync);
    openBench(&b, zFile, zExtension, zSync);
    printf("file, WAL, synchronous=%s\n", zSync);
    fill(&b);
    if (i == 0) {
      measure(&b, "  claim, in an open transaction", claimNew, 1.5);
      measure(&b, "  claim+row+complete, 100 per transaction", cycleBatched, 1.2);
      measure(&b, "  replay, table-valued, in a transaction", replayInTxn, 1.2);
      measure(&b, "  replay, table-valued, autocommit", replayTable, 1.5);
      measure(&b, "  replay, scalar JSON, autocommit", replayScalar, 0);
    }
    measure(&b, "  claim+row+complete, one transaction", cycleSingle, i ? 1.05 : 1.2);
    measure(&b, "  claim, complete: two commits", twoCommits, i ? 1.05 : 1.2);
    run(&b, "PRAGMA wal_checkpoint(TRUNCATE)");
    for (sqlite3_stmt *q; (q = sqlite3_next_stmt(b.db, 0)) != 0;) sqlite3_finalize(q);
    if (sqlite3_close(b.db) != SQLITE_OK) return 1;
    remove(zFile);
  }
  return rmdir(zDir);
}
