/*
** check.h: what the C tests share. A failed check prints where, what was being done and what was
** found; the program goes on to the next case and exits with 1.
*/
#ifndef IDEM_CHECK_H
#define IDEM_CHECK_H

#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *zDoing = "starting"; /* the case at hand, for messages */
static int nCheck = 0, nFailed = 0;

static void checkAt(const char *zFile, int iLine, int bOk, const char *zFmt, ...) {
  va_list ap;
  nCheck++;
  if (bOk) return;
  nFailed++;
  fprintf(stderr, "%s:%d: [%s] ", zFile, iLine, zDoing);
  va_start(ap, zFmt);
  vfprintf(stderr, zFmt, ap);
  va_end(ap);
  fputc('\n', stderr);
}
#define CHECK(cond, ...) checkAt(__FILE__, __LINE__, (cond) != 0, __VA_ARGS__)

/* The program's last line, and its exit code. */
static inline int checkEnd(const char *zProgram) {
  printf("%s: %d checks, %d failed\n", zProgram, nCheck, nFailed);
  return nFailed ? 1 : 0;
}

static inline void *must(void *p) {
  if (!p) {
    fprintf(stderr, "out of memory\n");
    exit(2);
  }
  return p;
}

/* Opens a file with no waiting, and loads the extension. */
static inline sqlite3 *openWith(const char *zPath, const char *zExt) {
  sqlite3 *db = 0;
  char *zErr = 0;
  int rc = sqlite3_open(zPath, &db);
  CHECK(rc == SQLITE_OK, "open %s: %d", zPath, rc);
  if (zExt) {
    sqlite3_enable_load_extension(db, 1);
    rc = sqlite3_load_extension(db, zExt, 0, &zErr);
    CHECK(rc == SQLITE_OK, "load: %d %s", rc, zErr ? zErr : "");
    sqlite3_free(zErr);
  }
  return db;
}

/* Runs SQL to its end; every row is read. The result code, and the error text in *pzErr. */
static inline int run(sqlite3 *db, const char *zSql, char **pzErr) {
  char *zErr = 0;
  int rc = sqlite3_exec(db, zSql, 0, 0, &zErr);
  if (pzErr) {
    *pzErr = zErr;
  } else {
    sqlite3_free(zErr);
  }
  return rc;
}

static inline void mustRun(sqlite3 *db, const char *zSql) {
  char *zErr = 0;
  int rc = run(db, zSql, &zErr);
  CHECK(rc == SQLITE_OK, "%.60s: %d %s", zSql, rc, zErr ? zErr : "");
  sqlite3_free(zErr);
}

/* The integer that a query gives; -1 if it gives none. */
static inline sqlite3_int64 number(sqlite3 *db, const char *zSql) {
  sqlite3_stmt *pStmt = 0;
  sqlite3_int64 i = -1;
  int rc = sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0);
  CHECK(rc == SQLITE_OK, "%.60s: %s", zSql, sqlite3_errmsg(db));
  if (rc == SQLITE_OK && sqlite3_step(pStmt) == SQLITE_ROW) i = sqlite3_column_int64(pStmt, 0);
  sqlite3_finalize(pStmt);
  return i;
}

static inline void copyFile(const char *zFrom, const char *zTo) {
  char a[65536];
  size_t n;
  FILE *pIn = must(fopen(zFrom, "rb")), *pOut = must(fopen(zTo, "wb"));
  while ((n = fread(a, 1, sizeof(a), pIn)) > 0) {
    if (fwrite(a, 1, n, pOut) != n) exit(2);
  }
  fclose(pIn);
  fclose(pOut);
}

#endif
