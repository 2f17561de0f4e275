/*
** sweeping.c: a driver that finalises every statement it finds before it closes, while rows of ours
** are still being read.
**
**     sweeping EXTENSION DIRECTORY [plain]
**
** Freed memory is cleared and kept, so that a statement that is used after it was finalised is
** found without a sanitizer: SQLite logs it as misuse. With "plain" memory is as ever, for
** valgrind.
*/
#include "check.h"

#include <unistd.h>

static sqlite3_mem_methods real; /* SQLite's own allocator */
static int nMisuse = 0;          /* misuse that SQLite logged */

/* Never gives memory back: a statement in it stays one that SQLite knows for finalised. */
static void keepFreed(void *p) {
  if (p) memset(p, 0, (size_t)real.xSize(p));
}

static void *resize(void *p, int n) {
  void *pNew = real.xMalloc(n);
  int nOld = real.xSize(p);
  if (!pNew) return 0;
  memcpy(pNew, p, (size_t)(nOld < n ? nOld : n));
  keepFreed(p);
  return pNew;
}

static void logged(void *p, int rc, const char *zText) {
  (void)p;
  if ((rc & 0xff) != SQLITE_MISUSE) return;
  nMisuse++;
  fprintf(stderr, "[%s] SQLite logs: %s\n", zDoing, zText);
}

static void removeFiles(const char *zPath) {
  static const char *const azEnd[] = {"", "-wal", "-shm", "-journal"};
  for (int i = 0; i < 4; i++) {
    char *z = must(sqlite3_mprintf("%s%s", zPath, azEnd[i]));
    unlink(z);
    sqlite3_free(z);
  }
}

/* Reads nRow rows of zSql, then sweeps; newest first as the list is, or oldest first. */
static void sweep(const char *zPath, const char *zExt, const char *zSql, int nRow, int bOldest) {
  sqlite3_stmt *pOwn = 0, *apStmt[200], *p = 0;
  int n = 0;
  zDoing = zSql;
  removeFiles(zPath);
  sqlite3 *db = openWith(zPath, zExt);
  mustRun(db, "PRAGMA synchronous=OFF; SELECT idem_init(); SELECT idem_claim('t','a','fp');"
              "SELECT idem_claim('t','b','fp'); SELECT idem_claim('t','c','fp');");
  CHECK(sqlite3_prepare_v2(db, zSql, -1, &pOwn, 0) == SQLITE_OK, "%s", sqlite3_errmsg(db));
  for (int i = 0; i < nRow; i++) {
    CHECK(sqlite3_step(pOwn) == SQLITE_ROW, "row %d: %s", i, sqlite3_errmsg(db));
  }
  if (bOldest) {
    /* Finalising one may finalise others: what is left is looked up again each time. */
    for (;;) {
      n = 0;
      for (p = sqlite3_next_stmt(db, 0); p && n < 200; p = sqlite3_next_stmt(db, p)) {
        apStmt[n++] = p;
      }
      if (n == 0) break;
      sqlite3_finalize(apStmt[n - 1]);
    }
  } else {
    while ((p = sqlite3_next_stmt(db, 0)) != 0) sqlite3_finalize(p);
  }
  int rc = sqlite3_close(db);
  CHECK(rc == SQLITE_OK, "sqlite3_close() returns %d", rc);
  CHECK(nMisuse == 0, "SQLite logged misuse %d times", nMisuse);
  nMisuse = 0;
}

int main(int argc, char **argv) {
  static const char *const azSql[] = {
      "SELECT key FROM idem_records",
      "SELECT key FROM idem_records WHERE scope='t'",
      "SELECT key FROM idem_records WHERE state='processing'",
      "SELECT a.key FROM idem_records a JOIN idem_records b USING(scope)",
      "SELECT r.key, c.outcome FROM idem_records r, idem_claim(r.scope, r.key, 'fp') c",
  };
  if (argc < 3) return 2;
  char *zPath = must(sqlite3_mprintf("%s/sweeping.db", argv[2]));
  char *zCopy = must(strdup(zPath));
  sqlite3_free(zPath);
  sqlite3_shutdown();
  sqlite3_config(SQLITE_CONFIG_LOG, logged, (void *)0);
  sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0);
  sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real);
  sqlite3_mem_methods mine = real;
  mine.xFree = keepFreed;
  mine.xRealloc = resize;
  if (argc == 3) sqlite3_config(SQLITE_CONFIG_MALLOC, &mine);
  for (size_t i = 0; i < sizeof(azSql) / sizeof(azSql[0]); i++) {
    for (int nRow = 1; nRow <= 2; nRow++) {
      sweep(zCopy, argv[1], azSql[i], nRow, 0);
      sweep(zCopy, argv[1], azSql[i], nRow, 1);
    }
  }
  removeFiles(zCopy);
  free(zCopy);
  return checkEnd("sweeping");
}
