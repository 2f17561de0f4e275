/*
** load.c: loads idem as an extension and uses it, where there is no other host to do it.
**
**     load LIBRARY
**
** Prints idem's version, a digest and a claim's outcome; exits with 1 at the first failure.
*/
#include <sqlite3.h>

#include <stdio.h>

static int print(sqlite3 *db, const char *zSql) {
  sqlite3_stmt *pStmt = 0;
  int rc = sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0);
  if (rc == SQLITE_OK && sqlite3_step(pStmt) == SQLITE_ROW) {
    printf("%s\n", (const char *)sqlite3_column_text(pStmt, 0));
  }
  rc = sqlite3_finalize(pStmt);
  if (rc != SQLITE_OK) fprintf(stderr, "%s: %s\n", zSql, sqlite3_errmsg(db));
  return rc == SQLITE_OK;
}

int main(int argc, char **argv) {
  char *zErr = 0;
  sqlite3 *db;
  if (argc != 2 || sqlite3_open(":memory:", &db) != SQLITE_OK) return 1;
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
  if (sqlite3_load_extension(db, argv[1], 0, &zErr) != SQLITE_OK) {
    fprintf(stderr, "%s\n", zErr ? zErr : "cannot load");
    return 1;
  }
  if (!print(db, "SELECT idem_version()") || !print(db, "SELECT idem_fingerprint_raw('abc')") ||
      !print(db, "SELECT idem_canonical('{\"b\":1.20e3,\"a\":\"\\u0041\"}')") ||
      !print(db, "SELECT idem_init()") ||
      !print(db, "SELECT outcome FROM idem_claim('t', 'k', 'fp')")) {
    return 1;
  }
  return sqlite3_close(db) == SQLITE_OK ? 0 : 1;
}
