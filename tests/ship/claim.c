/*
** claim.c: a program with idem inside. Valid C11 and C++11.
**
**     claim FILE
**
** Registers idem for every connection, claims a key, completes it, sees the replay on a second
** connection, and closes both. Prints one line per step; exits with 1 at the first that fails.
*/
#include <idem.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
#define LANGUAGE "C++"
#else
#define LANGUAGE "C"
#endif

static void fail(sqlite3 *db, const char *zWhat) {
  fprintf(stderr, "%s: %s\n", zWhat, db ? sqlite3_errmsg(db) : "no connection");
  exit(1);
}

/* Runs a query of one row; its value must be zExpect. */
static void expect(sqlite3 *db, const char *zSql, const char *zExpect) {
  sqlite3_stmt *pStmt = 0;
  const char *z;
  if (sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0) != SQLITE_OK) fail(db, zSql);
  if (sqlite3_step(pStmt) != SQLITE_ROW) fail(db, zSql);
  z = (const char *)sqlite3_column_text(pStmt, 0);
  printf("%s\n", z ? z : "NULL");
  if (!z || strcmp(z, zExpect) != 0) {
    fprintf(stderr, "%s: expected %s\n", zSql, zExpect);
    exit(1);
  }
  sqlite3_finalize(pStmt);
}

static sqlite3 *open(const char *zFile) {
  sqlite3 *db = 0;
  if (sqlite3_open(zFile, &db) != SQLITE_OK) fail(db, zFile);
  return db;
}

int main(int argc, char **argv) {
  sqlite3 *db, *other;
  if (argc != 2) return 2;
  if (sqlite3_auto_extension((void (*)(void))sqlite3_idem_init) != SQLITE_OK) fail(0, "register");
  db = open(argv[1]);
  expect(db, "SELECT idem_init()", "1");
  expect(db, "SELECT substr(idem_version(), 1, 11)", "idem " IDEM_VERSION ",");
  expect(db, "SELECT outcome FROM idem_claim('t', 'k', 'fp', 'op', 'token-0123456789')", "claimed");
  expect(db, "SELECT idem_complete('t', 'k', 'token-0123456789', 'done', 201)", "1");
  other = open(argv[1]);
  expect(other, "SELECT outcome || code || response FROM idem_claim('t', 'k', 'fp', 'op')",
         "replay201done");
  expect(other, "SELECT idem_fingerprint_raw('abc')",
         "idemr1:890f4f22975e34036bcb46e01fee462ccb68c16f7a1726345f985b7b246c6b90");
  if (sqlite3_close(other) != SQLITE_OK || sqlite3_close(db) != SQLITE_OK) fail(db, "close");
  printf("closed, in %s\n", LANGUAGE);
  return 0;
}
