/*
** too_old.c: a host whose SQLite says that it is older than idem can work with.
**
**     too_old EXTENSION
**
** SQLite hands every extension a table of its functions. This program takes that table, puts other
** answers in the places of the version, and loads idem with it.
*/
#include <dlfcn.h>
#include <sqlite3ext.h>
#include <stdio.h>
#include <string.h>

#undef sqlite3_auto_extension
#undef sqlite3_close
#undef sqlite3_free
#undef sqlite3_open
int sqlite3_auto_extension(void (*)(void));
int sqlite3_open(const char *, sqlite3 **);
int sqlite3_close(sqlite3 *);
void sqlite3_free(void *);

typedef int (*Init)(sqlite3 *, char **, const sqlite3_api_routines *);

static sqlite3_api_routines api; /* SQLite's own table, with another version */

static int oldNumber(void) {
  return 3036999;
}

static const char *oldName(void) {
  return "3.36.999";
}

static int takeTable(sqlite3 *db, char **pzErr, const sqlite3_api_routines *pApi) {
  (void)db, (void)pzErr;
  api = *pApi;
  return SQLITE_OK;
}

int main(int argc, char **argv) {
  static const char zWanted[] = "idem needs SQLite 3.37 or later, this is 3.36.999";
  sqlite3 *db = 0;
  char *zErr = 0;
  Init xInit;
  void *pLib = argc == 2 ? dlopen(argv[1], RTLD_NOW) : 0;
  if (!pLib) return 2;
  *(void **)&xInit = dlsym(pLib, "sqlite3_idem_init");
  sqlite3_auto_extension((void (*)(void))takeTable);
  if (!xInit || sqlite3_open(":memory:", &db) != SQLITE_OK) return 2;
  api.libversion_number = oldNumber;
  api.libversion = oldName;
  int rc = xInit(db, &zErr, &api);
  int bGood = rc == SQLITE_ERROR && zErr && strcmp(zErr, zWanted) == 0;
  if (!bGood) printf("%d %s\n", rc, zErr ? zErr : "no text");
  sqlite3_free(zErr);
  return bGood && sqlite3_close(db) == SQLITE_OK ? 0 : 1;
}
