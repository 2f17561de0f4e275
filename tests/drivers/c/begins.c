/* To be preloaded into a program that uses the system's SQLite: appends each statement that begins
** a transaction to the file BEGINS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* n is the length of sql, or negative if it ends with a zero byte. */
static void note(const char *sql, int n) {
  if (!sql || (n >= 0 && n < 5) || strncasecmp(sql, "BEGIN", 5) != 0) return;
  size_t length = n < 0 ? strlen(sql) : strnlen(sql, (size_t)n);
  FILE *f = fopen(getenv("BEGINS"), "a");
  if (!f) abort();
  fprintf(f, "%.*s\n", (int)length, sql);
  fclose(f);
}

int sqlite3_prepare_v2(sqlite3 *db, const char *sql, int n, sqlite3_stmt **s, const char **tail) {
  note(sql, n);
  return NEXT(sqlite3_prepare_v2)(db, sql, n, s, tail);
}

int sqlite3_prepare_v3(sqlite3 *db, const char *sql, int n, unsigned flags, sqlite3_stmt **s,
                       const char **tail) {
  note(sql, n);
  return NEXT(sqlite3_prepare_v3)(db, sql, n, flags, s, tail);
}

int sqlite3_exec(sqlite3 *db, const char *sql, int (*row)(void *, int, char **, char **), void *p,
                 char **message) {
  note(sql, -1);
  return NEXT(sqlite3_exec)(db, sql, row, p, message);
}
