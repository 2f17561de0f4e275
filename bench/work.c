/*
** work.c: see work.h.
*/
#include "work.h"

#include <malloc.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const azBy[BY_COUNT] = {"scalar", "table", "by hand"};

#define MASK(by)  (1 << (by))
#define BY_ALL    (MASK(BY_SCALAR) | MASK(BY_TABLE) | MASK(BY_HAND))
#define BY_TWO    (MASK(BY_SCALAR) | MASK(BY_HAND))
#define LEASE     60000
#define RETENTION 86400000

static const char zFingerprint[] =
    "idem1:e8602798346d5df40959a7817eee6f4376e351150f87dfd8287a4cbc868e69cc";
static const char zOther[] =
    "idem1:4cbc868e69cce8602798346d5df40959a7817eee6f4376e351150f87dfd8287a";
static const char zPayment[] =
    "{\"id\":\"pay_3NqK8s2eZvKYlo2C\",\"amount\":129900,\"currency\":\"ILS\",\"customer\":{\"id\":"
    "\"cus_9s6XKzkNRiz8i3\",\"name\":\"Dana Levi\",\"email\":\"dana@example.com\"},"
    "\"description\":\"Invoice 2024-00317\",\"metadata\":{\"order\":\"10048823\",\"channel\":"
    "\"web\"},\"capture\":true,\"created\":1718900123,\"livemode\":true,\"items\":[{\"sku\":"
    "\"A-100\",\"qty\":2}]}";

/* The table by hand: idem_store's columns and indexes, without its triggers. */
static const char zHandSchema[] =
    "CREATE TABLE IF NOT EXISTS business(id INTEGER PRIMARY KEY, account TEXT, amount INTEGER)"
    " STRICT;"
    "CREATE TABLE IF NOT EXISTS hand_policy(operation TEXT PRIMARY KEY, lease_ms INTEGER) STRICT,"
    " WITHOUT ROWID;"
    "INSERT OR IGNORE INTO hand_policy VALUES('*', 60000);"
    "CREATE TABLE IF NOT EXISTS hand(id INTEGER PRIMARY KEY, scope TEXT NOT NULL,"
    " key TEXT NOT NULL, operation TEXT NOT NULL, fingerprint ANY NOT NULL, state TEXT NOT NULL,"
    " attempt INTEGER NOT NULL, granted INTEGER NOT NULL DEFAULT 0, token TEXT, spent TEXT,"
    " due_at INTEGER, tombstone_ms INTEGER, created_at INTEGER NOT NULL,"
    " updated_at INTEGER NOT NULL, completed_at INTEGER, code INTEGER, headers TEXT, response ANY,"
    " response_omitted INTEGER NOT NULL DEFAULT 0, recovery_point TEXT, checkpoint ANY,"
    " reason TEXT, audit_event TEXT, UNIQUE(scope, key)) STRICT;"
    "CREATE INDEX IF NOT EXISTS hand_due ON hand(state, due_at);"
    "CREATE TABLE IF NOT EXISTS hand_note(id INTEGER PRIMARY KEY, at INTEGER, event TEXT,"
    " scope TEXT, key TEXT, attempt INTEGER) STRICT;"
    "CREATE TABLE IF NOT EXISTS hand_inbox(source TEXT NOT NULL, event_id TEXT NOT NULL,"
    " fingerprint ANY, seen_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,"
    " PRIMARY KEY(source, event_id)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS hand_inbox_expires ON hand_inbox(expires_at);";

static const char *const azSql[S_COUNT] = {
    [S_BEGIN] = "BEGIN IMMEDIATE",
    [S_COMMIT] = "COMMIT",
    [S_BUSINESS] = "INSERT INTO business(account, amount) VALUES(?, ?)",
    [S_CLOCK] = "SELECT idem_clock(?)",
    [S_CLAIM] = "SELECT idem_claim(?, ?, ?, ?, ?)",
    [S_CLAIM_TABLE] = "SELECT outcome, code, headers, response, created_at, completed_at, token,"
                      " attempt, lease_until FROM idem_claim(?, ?, ?, ?, ?)",
    [S_COMPLETE] = "SELECT idem_complete(?, ?, ?, ?, ?)",
    [S_RELEASE] = "SELECT idem_release(?, ?, ?)",
    [S_SEEN] = "SELECT idem_seen(?, ?, ?)",
    [S_PURGE] = "SELECT idem_purge(?)",
    [S_POINT] = "SELECT state, attempt, code, response, created_at FROM idem_records"
                " WHERE scope = ? AND key = ?",
    [S_KNOWN] = "SELECT 1 FROM idem_store WHERE scope = ? AND key = ?",
    [S_SCAN] = "SELECT key, operation, attempt, created_at FROM idem_records"
               " WHERE state = 'released'",
    [S_FINGERPRINT] = "SELECT idem_fingerprint(?)",
    [S_HAND_CLAIM] =
        "INSERT INTO hand(scope, key, operation, fingerprint, token, due_at, created_at,"
        " updated_at, state, attempt) VALUES(?1, ?2, ?3, ?4, ?5, ?6 + (SELECT lease_ms FROM"
        " hand_policy WHERE operation = '*'), ?6, ?6, 'processing', 1) ON CONFLICT DO NOTHING",
    [S_HAND_COMPLETE] =
        "UPDATE hand SET state = 'completed', response = ?4, code = ?5, due_at = ?6 + 86400000,"
        " tombstone_ms = 2592000000, completed_at = ?6, updated_at = ?6"
        " WHERE scope = ?1 AND key = ?2 AND token = ?3 AND state = 'processing'",
    [S_HAND_RELEASE] = "UPDATE hand SET state = 'released', due_at = NULL"
                       " WHERE scope = ?1 AND key = ?2 AND token = ?3 AND state = 'processing'",
    [S_HAND_REPLAY] = "SELECT state, code, headers, response, created_at, completed_at, attempt,"
                      " due_at, operation, fingerprint FROM hand WHERE scope = ? AND key = ?",
    [S_HAND_TAKE] = "UPDATE hand SET spent = token, token = ?3, due_at = ?4 + 60000,"
                    " updated_at = ?4, attempt = attempt + 1"
                    " WHERE scope = ?1 AND key = ?2 AND state = 'processing' AND due_at <= ?4",
    [S_HAND_NOTE] = "INSERT INTO hand_note(at, event, scope, key, attempt)"
                    " VALUES(?, 'take-over', ?, ?, 2)",
    [S_HAND_SEEN] = "INSERT INTO hand_inbox VALUES(?1, ?2, ?3, ?4, ?4 + 2592000000)"
                    " ON CONFLICT DO NOTHING",
    [S_HAND_PURGE] =
        "UPDATE hand SET state = 'tombstone', updated_at = ?1, due_at = due_at + tombstone_ms,"
        " token = NULL, spent = NULL, headers = NULL, response = NULL WHERE id IN"
        " (SELECT id FROM hand INDEXED BY hand_due WHERE state = 'completed' AND due_at <= ?1"
        " ORDER BY due_at LIMIT ?2)",
    [S_HAND_POINT] = "SELECT state, attempt, code, response, created_at FROM hand"
                     " WHERE scope = ? AND key = ?",
    [S_HAND_SCAN] = "SELECT key, operation, attempt, created_at FROM hand"
                    " WHERE state = 'released'",
    [S_HAND_SHA] = "SELECT bench_sha(?)",
};

/* --- small words ---------------------------------------------------------------------------- */

void workDie(const char *zWhere, const char *zWhat) {
  fprintf(stderr, "%s: %s\n", zWhere, zWhat);
  exit(1);
}

double workNow(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static sqlite3_int64 wallMs(const Work *p) {
  struct timespec ts;
  if (p->iClock) return p->iClock;
  clock_gettime(CLOCK_REALTIME, &ts);
  return (sqlite3_int64)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void workRun(Work *p, const char *zSql) {
  if (sqlite3_exec(p->db, zSql, 0, 0, 0) != SQLITE_OK) workDie(zSql, sqlite3_errmsg(p->db));
}

sqlite3_int64 workInt(Work *p, const char *zSql) {
  sqlite3_stmt *pStmt = 0;
  if (sqlite3_prepare_v2(p->db, zSql, -1, &pStmt, 0) != SQLITE_OK ||
      sqlite3_step(pStmt) != SQLITE_ROW) {
    workDie(zSql, sqlite3_errmsg(p->db));
  }
  sqlite3_int64 i = sqlite3_column_int64(pStmt, 0);
  sqlite3_finalize(pStmt);
  return i;
}

void workWarm(int nMiB) {
  size_t n = (size_t)nMiB << 20;
  mallopt(M_MMAP_THRESHOLD, 1 << 30);    /* everything from the heap, */
  mallopt(M_TRIM_THRESHOLD, 2000000000); /* which is never given back */
  char *a = malloc(n);
  if (!a) workDie("memory", "out of memory");
  memset(a, 1, n);
  free(a);
}

void workVersions(Work *p) {
  sqlite3_stmt *pStmt = 0;
  if (sqlite3_prepare_v2(p->db, "SELECT idem_version()", -1, &pStmt, 0) != SQLITE_OK ||
      sqlite3_step(pStmt) != SQLITE_ROW) {
    workDie("version", sqlite3_errmsg(p->db));
  }
  printf("%s\n", (const char *)sqlite3_column_text(pStmt, 0));
  sqlite3_finalize(pStmt);
}

static sqlite3_stmt *stmt(Work *p, int i) {
  if (!p->apStmt[i] && sqlite3_prepare_v3(p->db, azSql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                          &p->apStmt[i], 0) != SQLITE_OK) {
    workDie(azSql[i], sqlite3_errmsg(p->db));
  }
  return p->apStmt[i];
}

static void bind(sqlite3_stmt *pStmt, int i, const char *z) {
  sqlite3_bind_text(pStmt, i, z, -1, SQLITE_STATIC);
}

/* Steps to a row, which must be there. */
static void row(Work *p, sqlite3_stmt *pStmt) {
  if (sqlite3_step(pStmt) != SQLITE_ROW) workDie(sqlite3_sql(pStmt), sqlite3_errmsg(p->db));
}

/* Reads a column as drivers do: by its type. */
static void readColumn(sqlite3_stmt *pStmt, int i) {
  if (sqlite3_column_type(pStmt, i) == SQLITE_INTEGER) (void)sqlite3_column_int64(pStmt, i);
  else (void)sqlite3_column_text(pStmt, i);
}

/* Steps on to the end; returns how many rows were left. All their columns are read. */
static int finish(Work *p, sqlite3_stmt *pStmt) {
  int rc, n = 0;
  while ((rc = sqlite3_step(pStmt)) == SQLITE_ROW) {
    n++;
    for (int i = 0; i < sqlite3_column_count(pStmt); i++) readColumn(pStmt, i);
  }
  if (rc != SQLITE_DONE) workDie(sqlite3_sql(pStmt), sqlite3_errmsg(p->db));
  sqlite3_reset(pStmt);
  return n;
}

/* Runs a statement that must change or return n rows. */
static void must(Work *p, sqlite3_stmt *pStmt, int nRow, int nChange) {
  int n = finish(p, pStmt);
  if (n != nRow || (nChange >= 0 && sqlite3_changes(p->db) != nChange)) {
    workDie(sqlite3_sql(pStmt), "not the rows expected");
  }
}

/* The last n hex digits of x. Not by printf, which would cost a fifth of a replay by hand. */
static char *putHex(char *z, sqlite3_uint64 x, int n) {
  for (int i = n - 1; i >= 0; i--, x >>= 4) z[i] = "0123456789abcdef"[x & 15];
  z[n] = 0;
  return z + n;
}

void workKey(int iKey, int bOrdered, char zKey[40]) {
  sqlite3_uint64 x = ((sqlite3_uint64)iKey + 1) * 0x9e3779b97f4a7c15u;
  sqlite3_uint64 ms = 1764500000000u + (sqlite3_uint64)iKey;
  x ^= x >> 31;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 29;
  char *z = putHex(zKey, bOrdered ? ms >> 16 : x >> 32, 8);
  *z++ = '-';
  z = putHex(z, bOrdered ? ms : x >> 16, 4);
  *z++ = '-';
  *z++ = bOrdered ? '7' : '4';
  z = putHex(z, bOrdered ? x >> 52 : x >> 4, 3);
  *z++ = '-';
  *z++ = '8';
  z = putHex(z, bOrdered ? x >> 40 : x, 3);
  *z++ = '-';
  putHex(z, (sqlite3_uint64)iKey, 12);
}

void workToken(int iKey, int iAttempt, char zToken[40]) {
  putHex(putHex(zToken, (sqlite3_uint64)iAttempt, 2), (sqlite3_uint64)iKey, 30);
}

void workAnswerText(char *z, int nByte) {
  for (int i = 0; i < nByte; i++) z[i] = zPayment[(size_t)i % (sizeof(zPayment) - 1)];
  z[nByte] = 0;
}

/* bench_sha(x): the limit of idem_fingerprint(x), SHA-256 in hex and nothing else. */
static void shaFunction(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  static const char zDigit[] = "0123456789abcdef";
  unsigned char aDigest[32];
  char z[70] = "idem1:";
  EVP_MD_CTX *pDigest = sqlite3_user_data(pCtx);
  (void)nArg;
  const void *a = sqlite3_value_text(apArg[0]);
  size_t n = (size_t)sqlite3_value_bytes(apArg[0]);
  if (!EVP_DigestInit_ex(pDigest, NULL, NULL) || !EVP_DigestUpdate(pDigest, a, n) ||
      !EVP_DigestFinal_ex(pDigest, aDigest, NULL)) {
    workDie("bench_sha", "libcrypto failed");
  }
  for (int i = 0; i < 32; i++) {
    z[6 + 2 * i] = zDigit[aDigest[i] >> 4];
    z[7 + 2 * i] = zDigit[aDigest[i] & 15];
  }
  sqlite3_result_text(pCtx, z, sizeof(z), SQLITE_TRANSIENT);
}

static void freeDigest(void *p) {
  EVP_MD_CTX_free(p);
}

/* --- open and close ------------------------------------------------------------------------- */

void workOpen(Work *p, const WorkPlace *pPlace) {
  char *zErr = 0, zPragma[200];
  memset(p, 0, sizeof(*p));
  p->zOperation = "POST /v1/payments";
  if (sqlite3_open(pPlace->zFile, &p->db) != SQLITE_OK) workDie(pPlace->zFile, "cannot open");
  sqlite3_busy_timeout(p->db, 30000);
  sqlite3_enable_load_extension(p->db, 1);
  if (sqlite3_load_extension(p->db, pPlace->zExtension, 0, &zErr) != SQLITE_OK) {
    workDie(pPlace->zExtension, zErr);
  }
  EVP_MD_CTX *pDigest = EVP_MD_CTX_new();
  if (!pDigest || !EVP_DigestInit_ex(pDigest, EVP_sha256(), NULL)) workDie("open", "libcrypto");
  sqlite3_create_function_v2(p->db, "bench_sha", 1, SQLITE_UTF8, pDigest, shaFunction, 0, 0,
                             freeDigest);
  snprintf(zPragma, sizeof(zPragma), "PRAGMA journal_mode = WAL; PRAGMA synchronous = %s;",
           pPlace->zSync);
  workRun(p, zPragma);
  if (pPlace->nCacheKiB) {
    snprintf(zPragma, sizeof(zPragma), "PRAGMA cache_size = -%d", pPlace->nCacheKiB);
    workRun(p, zPragma);
  }
  workRun(p, "BEGIN IMMEDIATE; SELECT idem_init();");
  workRun(p, zHandSchema);
  workRun(p, "INSERT OR IGNORE INTO idem_policy(operation, on_stale, audit) VALUES"
             " ('retry', 'retry', 'exceptions'), ('retry unaudited', 'retry', 'off'),"
             " ('unaudited', 'unknown', 'off'); COMMIT;");
  workAnswer(p, WORK_ANSWER);
}

void workClose(Work *p) {
  for (int i = 0; i < S_COUNT; i++) sqlite3_finalize(p->apStmt[i]);
  if (sqlite3_close(p->db) != SQLITE_OK) workDie("close", sqlite3_errmsg(p->db));
  free(p->zAnswer);
}

void workAnswer(Work *p, int nByte) {
  free(p->zAnswer);
  p->zAnswer = malloc((size_t)nByte + 1);
  if (!p->zAnswer) workDie("answer", "out of memory");
  workAnswerText(p->zAnswer, nByte);
  p->nAnswer = nByte;
}

/* --- the pieces ------------------------------------------------------------------------------ */

void workBegin(Work *p) {
  finish(p, stmt(p, S_BEGIN));
}

void workCommit(Work *p) {
  finish(p, stmt(p, S_COMMIT));
}

void workClock(Work *p, sqlite3_int64 ms) {
  sqlite3_stmt *q = stmt(p, S_CLOCK);
  p->iClock = ms;
  if (ms) sqlite3_bind_int64(q, 1, ms);
  else sqlite3_bind_null(q, 1);
  must(p, q, 1, -1);
}

void workBusiness(Work *p) {
  sqlite3_stmt *q = stmt(p, S_BUSINESS);
  bind(q, 1, WORK_SCOPE);
  sqlite3_bind_int(q, 2, 1200);
  must(p, q, 0, 1);
}

/* Binds scope and key; zKey must live until the statement ends. */
static sqlite3_stmt *forKey(Work *p, int iStmt, int iKey, char zKey[40]) {
  sqlite3_stmt *q = stmt(p, iStmt);
  workKey(iKey, p->bOrdered, zKey);
  bind(q, 1, WORK_SCOPE);
  bind(q, 2, zKey);
  return q;
}

static void claimWith(Work *p, int iStmt, int iKey, const char *zPrint, const char *zOutcome) {
  char zKey[40], zToken[40];
  sqlite3_stmt *q = forKey(p, iStmt, iKey, zKey);
  workToken(iKey, p->iAttempt, zToken);
  bind(q, 3, zPrint);
  bind(q, 4, p->zOperation);
  bind(q, 5, zToken);
  row(p, q);
  const char *z = (const char *)sqlite3_column_text(q, 0);
  if (iStmt == S_CLAIM) z += sizeof("{\"outcome\":\"") - 1; /* the first member of the JSON */
  if (strncmp(z, zOutcome, strlen(zOutcome)) != 0) workDie(zOutcome, z);
  for (int i = 1; i < sqlite3_column_count(q); i++) readColumn(q, i);
  if (finish(p, q) != 0) workDie("claim", "two rows");
}

static void claimByHand(Work *p, int iKey) {
  char zKey[40], zToken[40];
  sqlite3_stmt *q = forKey(p, S_HAND_CLAIM, iKey, zKey);
  workToken(iKey, p->iAttempt, zToken);
  bind(q, 3, p->zOperation);
  bind(q, 4, zFingerprint);
  bind(q, 5, zToken);
  sqlite3_bind_int64(q, 6, wallMs(p));
  must(p, q, 0, 1);
}

/* Looks at a record by hand, and says what a claim would come to. */
static const char *lookByHand(Work *p, int iKey, const char *zPrint) {
  char zKey[40];
  const char *zOutcome = "in_progress";
  sqlite3_stmt *q = forKey(p, S_HAND_REPLAY, iKey, zKey);
  row(p, q);
  const char *zState = (const char *)sqlite3_column_text(q, 0);
  for (int i = 1; i < 7; i++) readColumn(q, i);
  sqlite3_int64 iDue = sqlite3_column_int64(q, 7);
  if (strcmp((const char *)sqlite3_column_text(q, 8), p->zOperation) != 0 ||
      strcmp((const char *)sqlite3_column_text(q, 9), zPrint) != 0) {
    zOutcome = "mismatch";
  } else if (strcmp(zState, "completed") == 0) {
    zOutcome = iDue > wallMs(p) ? "replay" : "expired";
  } else if (iDue <= wallMs(p)) {
    zOutcome = "unknown";
  }
  if (finish(p, q) != 0) workDie("replay by hand", "two rows");
  return zOutcome;
}

void workClaim(Work *p, int eBy, int iKey, const char *zOutcome) {
  if (eBy != BY_HAND) {
    claimWith(p, eBy == BY_TABLE ? S_CLAIM_TABLE : S_CLAIM, iKey, zFingerprint, zOutcome);
  } else if (strcmp(zOutcome, "claimed") == 0) {
    claimByHand(p, iKey);
  } else if (strcmp(lookByHand(p, iKey, zFingerprint), zOutcome) != 0) {
    workDie("by hand, not", zOutcome);
  }
}

void workReplay(Work *p, int eBy, int iKey) {
  workClaim(p, eBy, iKey, "replay");
}

void workComplete(Work *p, int eBy, int iKey) {
  char zKey[40], zToken[40];
  sqlite3_stmt *q = forKey(p, eBy == BY_HAND ? S_HAND_COMPLETE : S_COMPLETE, iKey, zKey);
  workToken(iKey, p->iAttempt, zToken);
  bind(q, 3, zToken);
  sqlite3_bind_text(q, 4, p->zAnswer, p->nAnswer, SQLITE_STATIC);
  sqlite3_bind_int(q, 5, 201);
  if (eBy == BY_HAND) sqlite3_bind_int64(q, 6, wallMs(p));
  must(p, q, eBy != BY_HAND, 1);
}

static void release(Work *p, int eBy, int iKey) {
  char zKey[40], zToken[40];
  sqlite3_stmt *q = forKey(p, eBy == BY_HAND ? S_HAND_RELEASE : S_RELEASE, iKey, zKey);
  workToken(iKey, p->iAttempt, zToken);
  bind(q, 3, zToken);
  must(p, q, eBy != BY_HAND, -1);
}

int workKnown(Work *p, int iKey) {
  char zKey[40];
  return finish(p, forKey(p, S_KNOWN, iKey, zKey));
}

void workCycle(Work *p, int eBy, int iKey) {
  workBegin(p);
  workClaim(p, eBy, iKey, "claimed");
  workBusiness(p);
  workComplete(p, eBy, iKey);
  workCommit(p);
}

void workTwo(Work *p, int eBy, int iKey) {
  workClaim(p, eBy, iKey, "claimed");
  workBegin(p);
  workBusiness(p);
  workComplete(p, eBy, iKey);
  workCommit(p);
}

/* Completes the keys of replays, and releases the rows of the scan, by idem and by hand. */
void workFill(Work *p) {
  workBegin(p);
  for (; p->iNext < WORK_DONE + WORK_ROWS; p->iNext++) {
    for (int eBy = BY_SCALAR; eBy <= BY_HAND; eBy += BY_HAND) {
      workClaim(p, eBy, p->iNext, "claimed");
      if (p->iNext < WORK_DONE) workComplete(p, eBy, p->iNext);
      else release(p, eBy, p->iNext);
    }
  }
  workCommit(p);
}

/* --- the list of operations ------------------------------------------------------------------ */

static void newKeys(Work *p, int eBy, int n) {
  (void)eBy;
  p->iFirst = p->iNext;
  p->iNext += n;
}

static void claimedKeys(Work *p, int eBy, int n) {
  newKeys(p, eBy, n);
  workBegin(p);
  for (int i = 0; i < n; i++) workClaim(p, eBy, p->iFirst + i, "claimed");
  workCommit(p);
}

static void staleKeys(Work *p, int eBy, const char *zOperation, int n) {
  p->zOperation = zOperation;
  claimedKeys(p, eBy, n);
  workClock(p, wallMs(p) + LEASE + 1000);
  p->iAttempt = 1;
}

static void staleAudited(Work *p, int eBy, int n) {
  staleKeys(p, eBy, "retry", n);
}

static void staleUnaudited(Work *p, int eBy, int n) {
  staleKeys(p, eBy, "retry unaudited", n);
}

static void expiredKeys(Work *p, int eBy, int n) {
  workClock(p, wallMs(p) - RETENTION - 60000);
  claimedKeys(p, eBy, n);
  workBegin(p);
  for (int i = 0; i < n; i++) workComplete(p, eBy, p->iFirst + i);
  workCommit(p);
  workClock(p, 0);
}

static void unauditedKeys(Work *p, int eBy, int n) {
  newKeys(p, eBy, n);
  p->zOperation = "unaudited";
}

static void oneClaim(Work *p, int eBy, int i) {
  workClaim(p, eBy, p->iFirst + i, "claimed");
}

static void oneCompletion(Work *p, int eBy, int i) {
  workComplete(p, eBy, p->iFirst + i);
}

static void onePair(Work *p, int eBy, int i) {
  workClaim(p, eBy, p->iFirst + i, "claimed");
  workComplete(p, eBy, p->iFirst + i);
}

static void oneCycle(Work *p, int eBy, int i) {
  workCycle(p, eBy, p->iFirst + i);
}

static void oneTwo(Work *p, int eBy, int i) {
  workTwo(p, eBy, p->iFirst + i);
}

static void oneBusiness(Work *p, int eBy, int i) {
  (void)eBy, (void)i;
  workBusiness(p);
}

static void oneReplay(Work *p, int eBy, int i) {
  workReplay(p, eBy, (int)((sqlite3_int64)i * 7919 % WORK_DONE));
}

static void oneRefusal(Work *p, int eBy, int i) {
  p->iAttempt = 1;
  workClaim(p, eBy, p->iFirst + i, "in_progress");
}

static void oneMismatch(Work *p, int eBy, int i) {
  int iKey = (int)((sqlite3_int64)i * 7919 % WORK_DONE);
  if (eBy != BY_HAND) {
    claimWith(p, eBy == BY_TABLE ? S_CLAIM_TABLE : S_CLAIM, iKey, zOther, "mismatch");
  } else if (strcmp(lookByHand(p, iKey, zOther), "mismatch") != 0) {
    workDie("by hand", "no mismatch");
  }
}

static void oneTakeOver(Work *p, int eBy, int i) {
  char zKey[40], zToken[40];
  if (eBy != BY_HAND) {
    workClaim(p, eBy, p->iFirst + i, "claimed");
    return;
  }
  sqlite3_stmt *q = forKey(p, S_HAND_TAKE, p->iFirst + i, zKey);
  workToken(p->iFirst + i, p->iAttempt, zToken);
  bind(q, 3, zToken);
  sqlite3_bind_int64(q, 4, wallMs(p));
  must(p, q, 0, 1);
  if (strcmp(p->zOperation, "retry") != 0) return;
  q = stmt(p, S_HAND_NOTE);
  sqlite3_bind_int64(q, 1, wallMs(p));
  bind(q, 2, WORK_SCOPE);
  bind(q, 3, zKey);
  must(p, q, 0, 1);
}

/* First seen, or seen before: i is an event of this turn. */
static void seen(Work *p, int eBy, int iEvent, int bNew) {
  char zKey[40];
  sqlite3_stmt *q = forKey(p, eBy == BY_HAND ? S_HAND_SEEN : S_SEEN, iEvent, zKey);
  bind(q, 1, "stripe");
  bind(q, 3, zFingerprint);
  if (eBy == BY_HAND) {
    sqlite3_bind_int64(q, 4, wallMs(p));
    must(p, q, 0, bNew);
  } else {
    row(p, q);
    if (sqlite3_column_int(q, 0) != bNew) workDie("idem_seen", "wrong answer");
    finish(p, q);
  }
}

static void oneSeen(Work *p, int eBy, int i) {
  seen(p, eBy, p->iFirst + i, 1);
}

static void seenEvents(Work *p, int eBy, int n) {
  newKeys(p, eBy, n);
  workBegin(p);
  for (int i = 0; i < n; i++) seen(p, eBy, p->iFirst + i, 1);
  workCommit(p);
}

static void oneSeenAgain(Work *p, int eBy, int i) {
  seen(p, eBy, p->iFirst + i, 0);
}

static void onePurge(Work *p, int eBy, int i) {
  sqlite3_stmt *q = stmt(p, eBy == BY_HAND ? S_HAND_PURGE : S_PURGE);
  (void)i;
  if (eBy == BY_HAND) {
    sqlite3_bind_int64(q, 1, wallMs(p));
    sqlite3_bind_int(q, 2, WORK_ROWS);
    must(p, q, 0, WORK_ROWS);
  } else {
    sqlite3_bind_int(q, 1, WORK_ROWS);
    row(p, q);
    if (sqlite3_column_int(q, 0) != WORK_ROWS) workDie("purge", "not so many rows");
    finish(p, q);
  }
}

static void onePoint(Work *p, int eBy, int i) {
  char zKey[40];
  int iKey = (int)((sqlite3_int64)i * 7919 % WORK_DONE);
  must(p, forKey(p, eBy == BY_HAND ? S_HAND_POINT : S_POINT, iKey, zKey), 1, -1);
}

static void oneScan(Work *p, int eBy, int i) {
  (void)i;
  must(p, stmt(p, eBy == BY_HAND ? S_HAND_SCAN : S_SCAN), WORK_ROWS, -1);
}

static void oneFingerprint(Work *p, int eBy, int i) {
  sqlite3_stmt *q = stmt(p, eBy == BY_HAND ? S_HAND_SHA : S_FINGERPRINT);
  (void)i;
  bind(q, 1, zPayment);
  must(p, q, 1, -1);
}

#define NORMAL AT_NORMAL
#define FILES  (AT_OFF | AT_NORMAL | AT_FULL)
#define PLACES (FILES | AT_MEMORY)

/* Name, who knows it, where it is measured, in one transaction, rows at once, before it, itself. */
const WorkOp aWorkOp[] = {
    {"claim", BY_ALL, NORMAL, 1, 1, newKeys, oneClaim},
    {"complete", BY_TWO, NORMAL, 1, 1, claimedKeys, oneCompletion},
    {"claim + complete", BY_ALL, NORMAL | AT_MEMORY, 1, 1, newKeys, onePair},
    {"claim + complete unaudited", BY_TWO, NORMAL, 1, 1, unauditedKeys, onePair},
    {"cycle in one transaction", BY_ALL, PLACES, 0, 1, newKeys, oneCycle},
    {"cycle in two commits", BY_ALL, PLACES, 0, 1, newKeys, oneTwo},
    {"claim in autocommit", BY_ALL, FILES, 0, 1, newKeys, oneClaim},
    {"raw commit", MASK(BY_HAND), FILES, 0, 1, NULL, oneBusiness},
    {"replay in a transaction", BY_ALL, NORMAL, 1, 1, NULL, oneReplay},
    {"replay in autocommit", BY_ALL, NORMAL | AT_MEMORY, 0, 1, NULL, oneReplay},
    {"refusal while in progress", BY_ALL, NORMAL, 1, 1, claimedKeys, oneRefusal},
    {"mismatch", BY_ALL, NORMAL, 1, 1, NULL, oneMismatch},
    {"take-over", BY_ALL, NORMAL, 1, 1, staleAudited, oneTakeOver},
    {"take-over unaudited", BY_ALL, NORMAL, 1, 1, staleUnaudited, oneTakeOver},
    {"purge per row", BY_TWO, NORMAL, 0, WORK_ROWS, expiredKeys, onePurge},
    {"idem_records by key", BY_TWO, NORMAL, 1, 1, NULL, onePoint},
    {"idem_records by state per row", BY_TWO, NORMAL, 1, WORK_ROWS, NULL, oneScan},
    {"idem_seen new", BY_TWO, NORMAL, 1, 1, newKeys, oneSeen},
    {"idem_seen repeated", BY_TWO, NORMAL, 1, 1, seenEvents, oneSeenAgain},
    {"fingerprint of a payment", BY_TWO, NORMAL, 1, 1, NULL, oneFingerprint},
};
const int nWorkOp = (int)(sizeof(aWorkOp) / sizeof(*aWorkOp));

void workPrepare(Work *p, const WorkOp *pOp, int eBy, int n) {
  p->iAttempt = 0;
  p->zOperation = "POST /v1/payments";
  workClock(p, 0);
  if (pOp->xPrepare) pOp->xPrepare(p, eBy, n);
  if (pOp->bTxn) workBegin(p);
}

void workEnd(Work *p, const WorkOp *pOp) {
  if (pOp->bTxn) workCommit(p);
  workClock(p, 0);
}

double workTurn(Work *p, const WorkOp *pOp, int eBy, int n) {
  workPrepare(p, pOp, eBy, n);
  double t = workNow();
  for (int i = 0; i < n; i += pOp->nUnit) pOp->xOne(p, eBy, i);
  t = workNow() - t;
  workEnd(p, pOp);
  return t;
}

const WorkOp *workOp(const char *zName) {
  for (int i = 0; i < nWorkOp; i++) {
    if (strcmp(aWorkOp[i].zName, zName) == 0) return &aWorkOp[i];
  }
  workDie("no such operation", zName);
  return 0;
}
