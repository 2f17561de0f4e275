/*
** leftovers.c: what a call leaves behind on its connection: nothing.
**
**     leftovers EXTENSION DIRECTORY
**
** After every call of the API, in WAL and in rollback-journal mode, in autocommit and in a
** transaction: last_insert_rowid() is what it was, no lock is held, no statement is running; and
** sqlite3_close() says SQLITE_OK: after the call alone; after it was refused because of the
** program's own statement and the call was made again; after the program finalised every statement
** that sqlite3_next_stmt() finds; and by sqlite3_close_v2() with a statement left for later.
*/
#include "calls.h"

#include <dirent.h>
#include <unistd.h>

static const char *zExt;  /* the extension */
static char zPath[600];   /* the database that a case works on */
static char zBase[600];   /* the fixture it is copied from */
static int nMisuse = 0;   /* misuse that SQLite itself logged */

static void logged(void *p, int rc, const char *zText) {
  (void)p;
  if ((rc & 0xff) == SQLITE_MISUSE) {
    nMisuse++;
    fprintf(stderr, "[%s] SQLite logs: %s\n", zDoing, zText);
  }
}

/* How many descriptors of this process are open on the case's database. */
static int openFiles(void) {
  char zLink[64], zTarget[1024];
  struct dirent *p;
  int n = 0;
  DIR *pDir = must(opendir("/proc/self/fd"));
  while ((p = readdir(pDir)) != 0) {
    snprintf(zLink, sizeof(zLink), "/proc/self/fd/%.20s", p->d_name);
    ssize_t k = readlink(zLink, zTarget, sizeof(zTarget) - 1);
    if (k > 0 && strncmp(zTarget, zPath, strlen(zPath)) == 0) n++;
  }
  closedir(pDir);
  return n;
}

/* Makes the fixture in the given journal mode. */
static void makeBase(const char *zMode) {
  zDoing = "making the fixture";
  unlink(zBase);
  sqlite3 *db = openWith(zBase, zExt);
  char *z = must(sqlite3_mprintf("PRAGMA journal_mode=%s; PRAGMA synchronous=OFF;", zMode));
  mustRun(db, z);
  sqlite3_free(z);
  mustRun(db, zFixture);
  CHECK(sqlite3_close(db) == SQLITE_OK, "close of the fixture");
}

static void removeCase(void) {
  char *z;
  unlink(zPath);
  z = must(sqlite3_mprintf("%s-wal", zPath));
  unlink(z);
  sqlite3_free(z);
  z = must(sqlite3_mprintf("%s-shm", zPath));
  unlink(z);
  sqlite3_free(z);
}

static sqlite3 *openCase(void) {
  removeCase();
  copyFile(zBase, zPath);
  sqlite3 *db = openWith(zPath, zExt);
  mustRun(db, "PRAGMA synchronous=OFF");
  return db;
}

static int isBusyStatement(sqlite3 *db) {
  for (sqlite3_stmt *p = sqlite3_next_stmt(db, 0); p; p = sqlite3_next_stmt(db, p)) {
    if (sqlite3_stmt_busy(p)) return 1;
  }
  return 0;
}

/* Nobody is kept waiting by what db did. */
static void checkNoLock(sqlite3 *db) {
  CHECK(sqlite3_get_autocommit(db), "a transaction was left open");
  CHECK(sqlite3_txn_state(db, 0) == SQLITE_TXN_NONE, "txn_state %d", sqlite3_txn_state(db, 0));
  CHECK(!isBusyStatement(db), "a statement is left running");
  sqlite3 *other = openWith(zPath, 0);
  CHECK(run(other, "BEGIN EXCLUSIVE; UPDATE business SET body=body; ROLLBACK", 0) == SQLITE_OK,
        "another connection cannot write: %s", sqlite3_errmsg(other));
  CHECK(sqlite3_close(other) == SQLITE_OK, "the other connection's close");
}

/* One call with its expected code; last_insert_rowid() stays. */
static void makeCall(sqlite3 *db, const Call *p, int rcWanted) {
  char *zErr = 0;
  sqlite3_set_last_insert_rowid(db, 4711);
  int rc = run(db, p->zSql, &zErr);
  CHECK(rcWanted < 0 || (rc & 0xff) == rcWanted, "result %d (%s), wanted %d", rc,
        zErr ? zErr : "", rcWanted);
  CHECK(sqlite3_last_insert_rowid(db) == 4711, "last_insert_rowid() became %lld",
        sqlite3_last_insert_rowid(db));
  sqlite3_free(zErr);
}

static void closePlain(const Call *p) {
  sqlite3 *db = openCase();
  makeCall(db, p, p->rc);
  checkNoLock(db);
  int rc = sqlite3_close(db);
  CHECK(rc == SQLITE_OK, "sqlite3_close() returns %d", rc);
  CHECK(openFiles() == 0, "%d files are still open", openFiles());
}

static void closeAfterTransaction(const Call *p, const char *zEnd) {
  sqlite3 *db = openCase();
  mustRun(db, "BEGIN");
  makeCall(db, p, p->rc);
  mustRun(db, zEnd);
  checkNoLock(db);
  makeCall(db, p, -1);
  checkNoLock(db);
  int rc = sqlite3_close(db);
  CHECK(rc == SQLITE_OK, "sqlite3_close() returns %d", rc);
}

/* The program has a statement of its own open: refused, usable as before, then closed. */
static void closeRefused(const Call *p) {
  sqlite3_stmt *pOwn = 0;
  sqlite3 *db = openCase();
  makeCall(db, p, p->rc);
  sqlite3_prepare_v2(db, "SELECT id FROM business", -1, &pOwn, 0);
  CHECK(sqlite3_step(pOwn) == SQLITE_ROW, "own statement");
  CHECK(sqlite3_close(db) == SQLITE_BUSY, "a close with an open statement must be refused");
  sqlite3_reset(pOwn);
  makeCall(db, p, -1);
  checkNoLock(db);
  mustRun(db, "SELECT * FROM idem_claim('t','after','fp')");
  CHECK(number(db, "SELECT count(*) FROM main.idem_store WHERE key='after'") == 1, "usable again");
  CHECK(sqlite3_close(db) == SQLITE_BUSY, "and refused again");
  makeCall(db, p, -1);
  sqlite3_finalize(pOwn);
  int rc = sqlite3_close(db);
  CHECK(rc == SQLITE_OK, "sqlite3_close() returns %d", rc);
  CHECK(openFiles() == 0, "%d files are still open", openFiles());
}

/* A driver that finalises whatever it finds before it closes. */
static void closeSwept(const Call *p) {
  sqlite3_stmt *pStmt;
  sqlite3 *db = openCase();
  makeCall(db, p, p->rc);
  while ((pStmt = sqlite3_next_stmt(db, 0)) != 0) sqlite3_finalize(pStmt);
  int rc = sqlite3_close(db);
  CHECK(rc == SQLITE_OK, "sqlite3_close() returns %d", rc);
}

static void closeV2(const Call *p) {
  sqlite3_stmt *pOwn = 0;
  sqlite3 *db = openCase();
  makeCall(db, p, p->rc);
  sqlite3_prepare_v2(db, "SELECT id FROM business", -1, &pOwn, 0);
  CHECK(sqlite3_close_v2(db) == SQLITE_OK, "close_v2");
  CHECK(openFiles() > 0, "the statement should keep the file open");
  sqlite3_finalize(pOwn);
  CHECK(openFiles() == 0, "%d files are still open after close_v2", openFiles());
}

/* The program's own statement stands on a table of ours. */
static void closeWithOurCursor(const char *zSql) {
  sqlite3_stmt *pOwn = 0;
  zDoing = zSql;
  sqlite3 *db = openCase();
  int rc = sqlite3_prepare_v2(db, zSql, -1, &pOwn, 0);
  CHECK(rc == SQLITE_OK, "prepare: %s", sqlite3_errmsg(db));
  CHECK(sqlite3_step(pOwn) == SQLITE_ROW, "step: %s", sqlite3_errmsg(db));
  CHECK(sqlite3_close(db) == SQLITE_BUSY, "a close with an open cursor must be refused");
  mustRun(db, "SELECT idem_claim('t','after','fp')");
  rc = sqlite3_step(pOwn);
  CHECK(rc == SQLITE_ROW || rc == SQLITE_DONE, "the cursor goes on: %d", rc);
  sqlite3_finalize(pOwn);
  mustRun(db, "SELECT * FROM idem_claim('t','after-2','fp')");
  checkNoLock(db);
  rc = sqlite3_close(db);
  CHECK(rc == SQLITE_OK, "sqlite3_close() returns %d", rc);
  db = openCase();
  sqlite3_prepare_v2(db, zSql, -1, &pOwn, 0);
  CHECK(sqlite3_step(pOwn) == SQLITE_ROW, "step: %s", sqlite3_errmsg(db));
  CHECK(sqlite3_close_v2(db) == SQLITE_OK, "close_v2");
  /* A SQLite that checks its arguments answers no question about such a connection. */
  int nBefore = nMisuse;
  sqlite3_finalize(pOwn);
  if (sqlite3_compileoption_used("ENABLE_API_ARMOR")) nMisuse = nBefore;
  CHECK(openFiles() == 0, "%d files are still open after close_v2", openFiles());
}

int main(int argc, char **argv) {
  static const char *const azMode[] = {"WAL", "DELETE"};
  if (argc != 3) return 2;
  zExt = argv[1];
  snprintf(zBase, sizeof(zBase), "%s/base.db", argv[2]);
  snprintf(zPath, sizeof(zPath), "%s/case.db", argv[2]);
  sqlite3_config(SQLITE_CONFIG_LOG, logged, (void *)0);
  for (int m = 0; m < 2; m++) {
    makeBase(azMode[m]);
    for (int i = 0; i < CALL_COUNT; i++) {
      zDoing = aCall[i].zSql;
      closePlain(&aCall[i]);
      closeAfterTransaction(&aCall[i], "COMMIT");
      closeAfterTransaction(&aCall[i], "ROLLBACK");
      closeRefused(&aCall[i]);
      closeSwept(&aCall[i]);
      closeV2(&aCall[i]);
    }
    closeWithOurCursor("SELECT * FROM idem_records");
    closeWithOurCursor("SELECT * FROM idem_records WHERE state='completed'");
    closeWithOurCursor("SELECT * FROM idem_claim('t','done','fp')");
    closeWithOurCursor("SELECT * FROM idem_claim('t','live','fp')");
    closeWithOurCursor("SELECT * FROM idem_claim('t','new','fp')");
  }
  removeCase();
  CHECK(nMisuse == 0, "SQLite logged misuse %d times", nMisuse);
  return checkEnd("leftovers");
}
