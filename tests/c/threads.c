/*
** threads.c: many threads and connections load the extension at once.
**
**     threads EXTENSION DIRECTORY ROUNDS
**
** Eight threads open connections, load, claim, complete and close, half of them on one shared file
** and half on files of their own; they end after their connections are closed, when libcrypto's
** clean-up for threads still runs. Every key must be won exactly once.
*/
#include "check.h"

#include <pthread.h>

#define THREADS 8

static const char *zExt, *zDir;
static int nRound;
static pthread_barrier_t start;

typedef struct Worker {
  int i;           /* number of the thread */
  int nWon;        /* claims won on the shared file */
  int nOwn;        /* claims won on its own file */
  char zErr[400];  /* the first failure; CHECK is for the main thread */
} Worker;

static void fail(Worker *p, const char *zWhat, sqlite3 *db, int rc) {
  if (p->zErr[0]) return;
  snprintf(p->zErr, sizeof(p->zErr), "thread %d: %s: %d %s", p->i, zWhat, rc,
           db ? sqlite3_errmsg(db) : "");
}

/* One claim and its completion. 1 if it was won. */
static int work(Worker *p, sqlite3 *db, int iKey, int bTable) {
  sqlite3_stmt *pStmt = 0;
  char zKey[32];
  int bWon = 0;
  snprintf(zKey, sizeof(zKey), "key-%d", iKey);
  int rc = sqlite3_prepare_v2(db,
                              bTable ? "SELECT outcome, token FROM idem_claim('t', ?1, 'fp')"
                                     : "SELECT json_extract(j, '$.outcome'), json_extract(j, "
                                       "'$.token') FROM (SELECT idem_claim('t', ?1, 'fp') AS j)",
                              -1, &pStmt, 0);
  if (rc != SQLITE_OK) {
    fail(p, "prepare", db, rc);
    return 0;
  }
  sqlite3_bind_text(pStmt, 1, zKey, -1, SQLITE_STATIC);
  rc = sqlite3_step(pStmt);
  if (rc == SQLITE_ROW) {
    bWon = strcmp((const char *)sqlite3_column_text(pStmt, 0), "claimed") == 0;
    char *zSql = bWon ? sqlite3_mprintf("SELECT idem_complete('t', %Q, %Q, 'done')", zKey,
                                        sqlite3_column_text(pStmt, 1))
                      : 0;
    sqlite3_reset(pStmt);
    if (zSql) {
      rc = sqlite3_exec(db, zSql, 0, 0, 0);
      if (rc != SQLITE_OK) fail(p, "complete", db, rc);
    }
    sqlite3_free(zSql);
  } else {
    fail(p, "claim", db, rc);
  }
  sqlite3_finalize(pStmt);
  return bWon;
}

static void *body(void *pArg) {
  Worker *p = pArg;
  for (int r = 0; r < nRound; r++) {
    int bShared = (p->i + r) % 2;
    char *zPath = bShared ? sqlite3_mprintf("%s/shared.db", zDir)
                          : sqlite3_mprintf("%s/own-%d.db", zDir, p->i), *zErr = 0;
    sqlite3 *db = 0;
    pthread_barrier_wait(&start);
    int rc = sqlite3_open(zPath, &db);
    sqlite3_free(zPath);
    sqlite3_busy_timeout(db, 10000);
    sqlite3_enable_load_extension(db, 1);
    rc = sqlite3_load_extension(db, zExt, 0, &zErr);
    if (rc != SQLITE_OK) fail(p, zErr ? zErr : "load", 0, rc);
    sqlite3_free(zErr);
    rc = sqlite3_exec(db, "PRAGMA synchronous=OFF; SELECT idem_init()", 0, 0, 0);
    if (rc != SQLITE_OK) fail(p, "init", db, rc);
    for (int k = 0; k < 5; k++) {
      int bWon = work(p, db, r * 5 + k, (p->i + k) % 2);
      if (bShared) p->nWon += bWon;
      if (!bShared) p->nOwn += bWon;
    }
    rc = sqlite3_close(db);
    if (rc != SQLITE_OK) fail(p, "close", 0, rc);
  }
  return 0;
}

int main(int argc, char **argv) {
  pthread_t aThread[THREADS];
  Worker aWorker[THREADS];
  int nWon = 0;
  if (argc != 4) return 2;
  zExt = argv[1];
  zDir = argv[2];
  nRound = atoi(argv[3]);
  zDoing = "threads";
  sqlite3_initialize(); /* SQLite's lazy start is not what is tested */
  pthread_barrier_init(&start, 0, THREADS);
  memset(aWorker, 0, sizeof(aWorker));
  for (int i = 0; i < THREADS; i++) {
    aWorker[i].i = i;
    if (pthread_create(&aThread[i], 0, body, &aWorker[i])) return 2;
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(aThread[i], 0);
    CHECK(aWorker[i].zErr[0] == 0, "%s", aWorker[i].zErr);
    nWon += aWorker[i].nWon;
    int nWanted = 5 * (nRound / 2 + (nRound % 2 && i % 2 == 0));
    CHECK(aWorker[i].nOwn == nWanted, "thread %d won %d of its own %d keys", i, aWorker[i].nOwn,
          nWanted);
  }
  CHECK(nWon == nRound * 5, "%d claims won for %d keys of the shared file", nWon, nRound * 5);
  return checkEnd("threads");
}
