/*
** kill.c: a worker that will be killed.
**
**     kill EXTENSION DATABASE LOG NAME [MISTAKE]
**
** Handles requests without end, for keys that other workers handle too: 40 ms of the
** clock bring 8 new keys, and those of the last 160 ms are worked on. Before each thing it does it
** writes a line to its log, and after it was acknowledged another one, each with one write():
**
**     ask KEY TOKEN                      before a claim
**     claimed KEY ATTEMPT TOKEN          it won
**     replay KEY RESPONSE                it was told an answer
**     finish KEY ATTEMPT RESPONSE        before the commit of effect and completion
**     finished KEY ATTEMPT RESPONSE      after it
**     released KEY ATTEMPT TOKEN
**     lost KEY ATTEMPT                   somebody has taken over; effect and completion are undone
**     ready, busy, error TEXT
**
** In one transaction (claim, effect, completion) or in two, with a checkpoint between; some claims
** it releases, some it leaves behind. The machine lives on when a process is killed, so synchronous
** plays no part and is OFF. MISTAKE "apart": effect and completion are two commits.
*/
#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static sqlite3 *db;
static int iLog, bApart;
static const char *zName;
static unsigned iRandom;

static unsigned roll(unsigned n) {
  iRandom = iRandom * 1103515245u + 12345u;
  return (iRandom >> 16) % n;
}

static void note(const char *zFmt, ...) {
  char z[500];
  va_list ap;
  va_start(ap, zFmt);
  int n = vsnprintf(z, sizeof(z) - 1, zFmt, ap);
  va_end(ap);
  z[n++] = '\n';
  if (write(iLog, z, (size_t)n) != n) exit(2);
}

/* Runs one statement; the first row's columns as text. Parameters are bound in order. */
static int run(const char *zSql, int nParam, const char *const *azParam, char (*azRow)[100]) {
  sqlite3_stmt *p = 0;
  int rc = sqlite3_prepare_v2(db, zSql, -1, &p, 0);
  for (int i = 0; p && i < nParam; i++) {
    sqlite3_bind_text(p, i + 1, azParam[i], -1, SQLITE_STATIC);
  }
  while (p && (rc = sqlite3_step(p)) == SQLITE_ROW) {
    for (int i = 0; azRow && i < sqlite3_column_count(p); i++) {
      const char *z = (const char *)sqlite3_column_text(p, i);
      snprintf(azRow[i], sizeof(azRow[i]), "%s", z ? z : "");
    }
  }
  sqlite3_finalize(p);
  return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int plain(const char *zSql) {
  return run(zSql, 0, 0, 0);
}

/* Ends what went wrong. */
static void giveUp(int rc, const char *zKey, const char *zAttempt) {
  const char *z = sqlite3_errmsg(db);
  if ((rc & 0xff) == SQLITE_BUSY) {
    note("busy");
  } else if ((rc & 0xff) == SQLITE_CONSTRAINT && strstr(z, "claim lost")) {
    note("lost %s %s", zKey, zAttempt);
  } else {
    note("error %d %s", rc, z);
  }
  if (!sqlite3_get_autocommit(db)) plain("ROLLBACK");
}

/* Effect and completion; bBegun if the claim's transaction goes on. */
static int finish(const char *zKey, const char *zAttempt, const char *zToken, int bBegun) {
  char zResponse[100];
  snprintf(zResponse, sizeof(zResponse), "%s/%s/%s", zKey, zAttempt, zName);
  const char *const az[] = {zKey, zToken, zResponse};
  int rc = bBegun ? SQLITE_OK : plain("BEGIN IMMEDIATE");
  if (rc == SQLITE_OK) rc = run("INSERT INTO business(key, body) VALUES(?1, ?3)", 3, az, 0);
  if (bApart && rc == SQLITE_OK) {
    rc = plain("COMMIT");
    usleep(1000);
    if (rc == SQLITE_OK) rc = plain("BEGIN IMMEDIATE");
  }
  if (rc == SQLITE_OK) rc = run("SELECT idem_complete('t', ?1, ?2, ?3, 201)", 3, az, 0);
  if (rc != SQLITE_OK) return rc;
  note("finish %s %s %s", zKey, zAttempt, zResponse);
  rc = plain("COMMIT");
  if (rc == SQLITE_OK) note("finished %s %s %s", zKey, zAttempt, zResponse);
  return rc;
}

static void request(const char *zKey, const char *zToken) {
  char aRow[3][100] = {"", "", ""};
  const char *const az[] = {zKey, zToken};
  int iShape = (int)roll(8), rc = SQLITE_OK, bOne = iShape < 3;
  note("ask %s %s", zKey, zToken);
  if (bOne) rc = plain("BEGIN IMMEDIATE");
  if (rc == SQLITE_OK) {
    rc = run("SELECT outcome, attempt, response FROM idem_claim('t', ?1, 'fp', 'op', ?2)", 2, az,
             aRow);
  }
  if (rc == SQLITE_OK && strcmp(aRow[0], "claimed") != 0) {
    if (strcmp(aRow[0], "replay") == 0) note("replay %s %s", zKey, aRow[2]);
    if (bOne) plain("COMMIT");
    return;
  }
  if (rc == SQLITE_OK && bOne) {
    rc = finish(zKey, aRow[1], zToken, 1);
  } else if (rc == SQLITE_OK) {
    note("claimed %s %s %s", zKey, aRow[1], zToken);
    if (iShape == 6) rc = run("SELECT idem_release('t', ?1, ?2, 'why')", 2, az, 0);
    if (iShape == 6 && rc == SQLITE_OK) note("released %s %s %s", zKey, aRow[1], zToken);
    if (iShape == 5) rc = run("SELECT idem_checkpoint('t', ?1, ?2, 'half')", 2, az, 0);
    if (iShape < 6 && rc == SQLITE_OK) rc = finish(zKey, aRow[1], zToken, 0);
  }
  if (rc != SQLITE_OK) giveUp(rc, zKey, aRow[1]);
}

int main(int argc, char **argv) {
  char zKey[40], zToken[60];
  if (argc < 5) return 2;
  zName = argv[4];
  bApart = argc > 5;
  iLog = open(argv[3], O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (sqlite3_open(argv[2], &db) != SQLITE_OK) return 2;
  sqlite3_busy_timeout(db, 10000);
  sqlite3_enable_load_extension(db, 1);
  if (sqlite3_load_extension(db, argv[1], 0, 0) != SQLITE_OK) {
    note("error loading: %s", sqlite3_errmsg(db));
    return 2;
  }
  plain("PRAGMA synchronous = OFF");
  plain("PRAGMA wal_autocheckpoint = 30");
  for (const char *z = zName; *z; z++) iRandom = iRandom * 31u + (unsigned char)*z;
  note("ready");
  for (int i = 0;; i++) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    long iWindow = (long)t.tv_sec * 25 + t.tv_nsec / 40000000;
    snprintf(zKey, sizeof(zKey), "k-%ld-%u", iWindow - (long)roll(4), roll(8));
    snprintf(zToken, sizeof(zToken), "token-of-%s-%08d", zName, i);
    request(zKey, zToken);
  }
}
