/*
** bare.c: compiled beside an amalgamation that leaves out what the build 'bare' leaves out, because
** Python's sqlite3 module does not load unless these functions can be linked. They do nothing: an
** extension cannot see them, for its table of functions has NULL in their places.
*/
#include "sqlite3.h"

void sqlite3_progress_handler(sqlite3 *db, int n, int (*xProgress)(void *), void *pArg) {
  (void)db, (void)n, (void)xProgress, (void)pArg;
}

int sqlite3_enable_shared_cache(int bEnable) {
  return bEnable ? SQLITE_ERROR : SQLITE_OK;
}

const char *sqlite3_column_decltype(sqlite3_stmt *pStmt, int iColumn) {
  (void)pStmt, (void)iColumn;
  return 0;
}

int sqlite3_set_authorizer(sqlite3 *db, int (*xAuth)(void *, int, const char *, const char *,
                           const char *, const char *), void *pArg) {
  (void)db, (void)xAuth, (void)pArg;
  return SQLITE_OK;
}

int sqlite3_trace_v2(sqlite3 *db, unsigned mMask, int (*xTrace)(unsigned, void *, void *, void *),
                     void *pArg) {
  (void)db, (void)mMask, (void)xTrace, (void)pArg;
  return SQLITE_OK;
}
