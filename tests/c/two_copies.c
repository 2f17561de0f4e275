/*
** two_copies.c: two copies of SQLite in one process, as when a driver bundles its own.
**
**     two_copies EXTENSION DIRECTORY LIBSQLITE3.SO
**
** This program is linked with the static library; the shared one is opened beside it. The extension
** has one pointer to SQLite's functions: it must serve the first copy and refuse the second with a
** clear text, and never mix them up. A copy of the file, DIRECTORY/copy/idem.so, serves the second.
*/
#include "check.h"

#include <dlfcn.h>

int main(int argc, char **argv) {
  int (*xOpen)(const char *, sqlite3 **), (*xClose)(sqlite3 *);
  int (*xEnable)(sqlite3 *, int), (*xLoad)(sqlite3 *, const char *, const char *, char **);
  int (*xExec)(sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *, char **);
  void (*xFree)(void *);
  sqlite3 *other = 0;
  char zPath[600], *zErr = 0;
  if (argc != 4) return 2;
  zDoing = "the first copy";
  snprintf(zPath, sizeof(zPath), "%s/one.db", argv[2]);
  sqlite3 *db = openWith(zPath, argv[1]);
  mustRun(db, "SELECT idem_init(); SELECT idem_claim('t','k1','fp')");

  zDoing = "the second copy";
  void *pLib = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
  CHECK(pLib != 0, "dlopen: %s", dlerror());
  if (!pLib) return checkEnd("two_copies");
#define FETCH(x, zName) *(void **)&x = must(dlsym(pLib, zName))
  FETCH(xOpen, "sqlite3_open");
  FETCH(xClose, "sqlite3_close");
  FETCH(xEnable, "sqlite3_enable_load_extension");
  FETCH(xLoad, "sqlite3_load_extension");
  FETCH(xExec, "sqlite3_exec");
  FETCH(xFree, "sqlite3_free");
  CHECK(xOpen != sqlite3_open, "there is one copy only");
  snprintf(zPath, sizeof(zPath), "%s/two.db", argv[2]);
  CHECK(xOpen(zPath, &other) == SQLITE_OK, "open");
  xEnable(other, 1);
  int rc = xLoad(other, argv[1], 0, &zErr);
  CHECK(rc == SQLITE_ERROR, "the second copy must be refused, not served by the first: %d", rc);
  CHECK(zErr && strstr(zErr, "another copy of SQLite"), "the refusal says: %s", zErr ? zErr : "");
  xFree(zErr);
  CHECK(xExec(other, "SELECT 1", 0, 0, 0) == SQLITE_OK, "the second copy's connection works");

  zDoing = "a copy of the library for the second copy";
  snprintf(zPath, sizeof(zPath), "%s/copy/idem.so", argv[2]);
  zErr = 0;
  rc = xLoad(other, zPath, 0, &zErr);
  CHECK(rc == SQLITE_OK, "%s", zErr ? zErr : "");
  rc = xExec(other, "SELECT idem_init(); SELECT idem_claim('t','k1','fp')", 0, 0, &zErr);
  CHECK(rc == SQLITE_OK, "%s", zErr ? zErr : "");
  CHECK(xClose(other) == SQLITE_OK, "close of the second copy's connection");

  zDoing = "the first copy again";
  mustRun(db, "SELECT idem_claim('t','k2','fp'); SELECT * FROM idem_claim('t','k3','fp')");
  CHECK(number(db, "SELECT count(*) FROM main.idem_store") == 3, "three records");
  CHECK(sqlite3_close(db) == SQLITE_OK, "close");
  return checkEnd("two_copies");
}
