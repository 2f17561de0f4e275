/*
** crowd.c: many processes and threads claim the same keys at the same time.
**
**     crowd EXTENSION DATABASE PROCESSES THREADS CLAIMS KEYS PAUSE [shared]
**
** All draw tickets from one counter; the claims of a key have adjacent tickets, so that they meet.
** A winner releases the key (one in four) or completes it. After each request a thread pauses for
** PAUSE microseconds, as one that has something else to do; 0 is the worst case. Each thread has
** its own connection; with "shared" the threads of a process have one connection, which SQLite
** serialises. Then only autocommit calls are made, since a transaction would be everybody's.
**
** Checked: each attempt of each key has exactly one winner, attempts are counted without a gap, the
** records say the same, nobody is told "database is locked", and every thread wins something.
** Reported: claims a second, how long a claim took, and how unequal the threads' shares are.
**
** SQLite's locks have no queue: who finds the lock taken sleeps, up to 100 ms, and tries again.
*/
#include "../c/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPTS 64 /* of one key, at most */
#define WORKERS 64

typedef struct Shared { /* by all processes */
  atomic_int nTicket;
  atomic_int nError;
  char zError[300]; /* the first one */
  pthread_barrier_t start;
  int aDone[WORKERS], aWon[WORKERS]; /* claims and wins of each thread */
} Shared;

static const char *zExt, *zPath;
static int nProcess, nThread, nClaim, nKey, iPause, bShared;
static Shared *pShared;
static float *aLatency;      /* ms, of each ticket */
static atomic_uchar *aWinner; /* winners of each attempt of each key */

typedef struct Worker {
  int i; /* of all threads of all processes */
  sqlite3 *db;
} Worker;

static void fail(const char *zWhat, int rc, const char *zErr) {
  if (atomic_fetch_add(&pShared->nError, 1)) return;
  snprintf(pShared->zError, sizeof(pShared->zError), "%s: %d %s", zWhat, rc, zErr);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Runs one statement with a key and a token; the first row's text. */
static int call(sqlite3 *db, const char *zSql, const char *zKey, const char *zToken, char *z,
                int n) {
  sqlite3_stmt *p = 0;
  int rc = sqlite3_prepare_v2(db, zSql, -1, &p, 0);
  if (rc != SQLITE_OK) {
    fail(zSql, rc, sqlite3_errmsg(db));
    return rc;
  }
  sqlite3_bind_text(p, 1, zKey, -1, SQLITE_STATIC);
  sqlite3_bind_text(p, 2, zToken, -1, SQLITE_STATIC);
  while ((rc = sqlite3_step(p)) == SQLITE_ROW) {
    snprintf(z, (size_t)n, "%s", (const char *)sqlite3_column_text(p, 0));
  }
  if (rc != SQLITE_DONE) fail(zSql, rc, sqlite3_errmsg(db));
  sqlite3_finalize(p);
  return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static void claim(Worker *w, int iTicket) {
  static const char *const azClaim[] = {
      "SELECT outcome || ' ' || coalesce(attempt, 0) FROM idem_claim('t', ?1, 'fp', 'op', ?2)",
      "INSERT INTO idem_call DEFAULT VALUES RETURNING (SELECT (j ->> 'outcome') || ' ' ||"
      " coalesce(j ->> 'attempt', 0) FROM (SELECT idem_claim('t', ?1, 'fp', 'op', ?2) AS j))",
      "SELECT (j ->> 'outcome') || ' ' || coalesce(j ->> 'attempt', 0)"
      " FROM (SELECT idem_claim('t', ?1, 'fp', 'op', ?2) AS j LIMIT 1)"};
  char zKey[40], zToken[40], zAnswer[60] = "";
  int iKey = iTicket / (nClaim / nKey), iAttempt = 0;
  snprintf(zKey, sizeof(zKey), "key-%d", iKey);
  snprintf(zToken, sizeof(zToken), "token-of-ticket-%d", iTicket);
  double t = now();
  /* The table form opens temp, and is one connection's: with a shared one, the scalar. */
  int iForm = bShared ? 2 : iTicket % 3;
  if (call(w->db, azClaim[iForm], zKey, zToken, zAnswer, sizeof(zAnswer))) return;
  aLatency[iTicket] = (float)(now() - t);
  pShared->aDone[w->i]++;
  if (sscanf(zAnswer, "claimed %d", &iAttempt) != 1) return;
  pShared->aWon[w->i]++;
  if (iAttempt < 1 || iAttempt > ATTEMPTS) {
    fail("attempt", iAttempt, zKey);
  } else if (atomic_fetch_add(&aWinner[iKey * ATTEMPTS + iAttempt - 1], 1)) {
    fail("a second winner of attempt", iAttempt, zKey);
  }
  call(w->db, iTicket % 4 == 0 ? "SELECT idem_release('t', ?1, ?2)"
                               : "SELECT idem_complete('t', ?1, ?2, 'done')",
       zKey, zToken, zAnswer, sizeof(zAnswer));
}

static sqlite3 *connect_(void) {
  char *zErr = 0;
  sqlite3 *db = 0;
  int rc = sqlite3_open(zPath, &db);
  if (rc != SQLITE_OK) fail("open", rc, "");
  sqlite3_busy_timeout(db, 60000);
  sqlite3_enable_load_extension(db, 1);
  rc = sqlite3_load_extension(db, zExt, 0, &zErr);
  if (rc != SQLITE_OK) fail("load", rc, zErr ? zErr : "");
  sqlite3_exec(db, "PRAGMA synchronous = OFF", 0, 0, 0);
  return db;
}

static void *body(void *pArg) {
  Worker *w = pArg;
  if (!bShared) w->db = connect_();
  pthread_barrier_wait(&pShared->start);
  for (int i; (i = atomic_fetch_add(&pShared->nTicket, 1)) < nClaim;) {
    claim(w, i);
    if (iPause) usleep((unsigned)iPause);
  }
  if (!bShared && sqlite3_close(w->db) != SQLITE_OK) fail("close", 0, sqlite3_errmsg(w->db));
  return 0;
}

static void process(int iProcess) {
  pthread_t aThread[WORKERS];
  Worker aWorker[WORKERS];
  sqlite3 *db = bShared ? connect_() : 0;
  for (int i = 0; i < nThread; i++) {
    aWorker[i] = (Worker){iProcess * nThread + i, db};
    if (pthread_create(&aThread[i], 0, body, &aWorker[i])) exit(2);
  }
  for (int i = 0; i < nThread; i++) pthread_join(aThread[i], 0);
  if (db && sqlite3_close(db) != SQLITE_OK) fail("close", 0, sqlite3_errmsg(db));
}

static void *share(size_t n) {
  void *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? must(0) : p;
}

static int compare(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* The records against the winners. */
static void verify(void) {
  sqlite3_stmt *p = 0;
  sqlite3 *db = openWith(zPath, zExt);
  int nRow = 0, nAttempt = 0;
  sqlite3_prepare_v2(db, "SELECT CAST(substr(key, 5) AS INTEGER), attempt, state = 'processing'"
                         " FROM idem_store", -1, &p, 0);
  for (; sqlite3_step(p) == SQLITE_ROW; nRow++) {
    int iKey = sqlite3_column_int(p, 0), n = sqlite3_column_int(p, 1);
    CHECK(!sqlite3_column_int(p, 2), "key %d is open", iKey);
    nAttempt += n;
    for (int i = 0; i < ATTEMPTS; i++) {
      int nWinner = aWinner[iKey * ATTEMPTS + i];
      CHECK(nWinner == (i < n), "attempt %d of key %d has %d winners", i + 1, iKey, nWinner);
    }
  }
  sqlite3_finalize(p);
  CHECK(nRow == nKey, "%d records of %d keys", nRow, nKey);
  CHECK(nAttempt > nKey, "no key was claimed twice");
  CHECK(number(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'") == 1,
        "integrity");
  CHECK(sqlite3_close(db) == SQLITE_OK, "close");
}

static void report(double nMs) {
  int nMin = nClaim, nMax = 0, nWonMin = nClaim, nWorker = nProcess * nThread;
  for (int i = 0; i < nWorker; i++) {
    if (pShared->aDone[i] < nMin) nMin = pShared->aDone[i];
    if (pShared->aDone[i] > nMax) nMax = pShared->aDone[i];
    if (pShared->aWon[i] < nWonMin) nWonMin = pShared->aWon[i];
  }
  qsort(aLatency, (size_t)nClaim, sizeof(*aLatency), compare);
  printf("%d processes x %d threads%s: %d claims on %d keys, %.0f a second; a claim took p50 %.3f, "
         "p99 %.1f, p99.9 %.1f, max %.0f ms; claims of one thread %d to %d, wins at least %d\n",
         nProcess, nThread, bShared ? " on one connection" : "", nClaim, nKey, nClaim / nMs * 1e3,
         (double)aLatency[nClaim / 2], (double)aLatency[nClaim - 1 - nClaim / 100],
         (double)aLatency[nClaim - 1 - nClaim / 1000], (double)aLatency[nClaim - 1], nMin, nMax,
         nWonMin);
  /* A short run may be over before a busy machine has given every thread a turn. */
  CHECK(nWonMin > 0 || nClaim < 50000, "a thread won nothing");
}

int main(int argc, char **argv) {
  pthread_barrierattr_t attr;
  if (argc < 8) return 2;
  zExt = argv[1];
  zPath = argv[2];
  nProcess = atoi(argv[3]);
  nThread = atoi(argv[4]);
  nClaim = atoi(argv[5]);
  nKey = atoi(argv[6]);
  iPause = atoi(argv[7]);
  bShared = argc > 8;
  zDoing = "crowd";
  pShared = share(sizeof(*pShared));
  aLatency = share((size_t)nClaim * sizeof(*aLatency));
  aWinner = share((size_t)nKey * ATTEMPTS);
  pthread_barrierattr_init(&attr);
  pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&pShared->start, &attr, (unsigned)(nProcess * nThread));
  sqlite3 *db = openWith(zPath, zExt);
  mustRun(db, "PRAGMA journal_mode = WAL");
  mustRun(db, "SELECT idem_init()");
  CHECK(sqlite3_close(db) == SQLITE_OK, "close");
  double t = now();
  for (int i = 1; i < nProcess; i++) {
    pid_t pid = fork();
    if (pid < 0) return 2;
    if (pid == 0) {
      process(i);
      _exit(0);
    }
  }
  process(0);
  for (int i = 1, iStatus; i < nProcess; i++) {
    CHECK(wait(&iStatus) > 0 && iStatus == 0, "a process died");
  }
  t = now() - t;
  CHECK(pShared->nError == 0, "%d errors, the first: %s", pShared->nError, pShared->zError);
  verify();
  report(t);
  return checkEnd("crowd");
}
