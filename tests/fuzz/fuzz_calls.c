/*
** fuzz_calls.c: libFuzzer target for everything that SQL can call.
**
** The input is a program in a small language of bytes: the first chooses a store (UTF-8 or UTF-16,
** with records in every state), each further step a statement - a function below SELECT or in the
** carrier, the table-valued claim, a read or write of idem_records, a change of a policy, of the
** clock, of the transaction - and its values: NULL, numbers, texts and blobs of any bytes and size,
** in any number. Most names, tokens and states are drawn from a few, so that calls meet each
** other's records.
**
** Checked of every input, whatever it is:
**   - no crash, and nothing that the sanitizers or SQLite's assertions (with SQLITE_DEBUG) see;
**   - no error quotes a value: what may be secret begins with MARK, and no message holds it;
**   - nothing that idem wrote is corrupt to it: no SQLITE_CORRUPT, no SQLITE_INTERNAL, no misuse;
**   - a function neither opens nor ends a transaction, and leaves last_insert_rowid() alone;
**   - who is told 'claimed' has a live record; a pure function gives the same answer twice;
**   - at the end integrity_check is ok, every record can be listed, the audit chain is whole, other
**     tables are untouched, no statement is left over and the connection closes.
*/
#include "../../ext/idem.h"

#include <sqlite3.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *a, size_t n);
const char *__asan_default_options(void);

/* Freed memory is kept for less long than usual: a program frees two megabytes. */
const char *__asan_default_options(void) {
  return "quarantine_size_mb=16";
}

#define MARK         "Zq7#"
#define STEPS        24
#define ARGUMENTS    8
#define CHECK(db, x) checkThat((db), (x) != 0, #x, __LINE__)

static char aSql[2000]; /* the statement at hand, for messages */

static void checkThat(sqlite3 *db, int bOk, const char *zWhat, int iLine) {
  if (bOk) return;
  fprintf(stderr, "fuzz_calls.c:%d: not so: %s\n  after %s\n  %d %s\n", iLine, zWhat, aSql,
          db ? sqlite3_extended_errcode(db) : 0, db ? sqlite3_errmsg(db) : "");
  abort();
}

/* --- the input ------------------------------------------------------------------------------ */

typedef struct In {
  const uint8_t *a; /* what is left */
  size_t n;
} In;

static unsigned next(In *p) {
  if (p->n == 0) return 0;
  p->n--;
  return *p->a++;
}

/* The next bytes, as many as the next one says and there are. */
static const uint8_t *bytes(In *p, size_t *pn) {
  const uint8_t *a;
  size_t n = next(p);
  if (n > p->n) n = p->n;
  a = p->a;
  p->a += n;
  p->n -= n;
  *pn = n;
  return a;
}

#define COUNT(a)   (sizeof(a) / sizeof((a)[0]))
#define PICK(p, a) ((a)[next(p) % COUNT(a)])

/* --- values --------------------------------------------------------------------------------- */

static const char *const azWord[] = {
    "t",
    "u",
    "held",
    "dark",
    "done",
    "free",
    "over",
    "new",
    "token-0123456789",
    "token-of-another",
    "fp",
    "idem1:aa",
    "completed",
    "retry",
    "released",
    "unknown",
    "processing",
    "pay",
    "*",
    "store",
    "ledger",
    "evt",
    "",
    "step",
    "idem0:aa",
    "0",
    "-1",
    "1e3",
    "9223372036854775808",
    "\"quoted\"",
    "-$.a",
    "+$.a[*].b",
    "+$.*",
    "$",
    "all",
};
static const char *const azJson[] = {
    "{\"a\":1,\"b\":[1,2,{\"c\":\"" MARK "\"}]}",
    "[1.0,1e400,-0,0.1]",
    "{\"" MARK "\":1,\"" MARK "\":2}",
    "{\"a\":\"" MARK "\\ud800\"}",
    "[" MARK "]",
    "\"" MARK "\x80\"",
    "{\"a\":[{\"b\":\"" MARK "\"}]}",
    "\xef\xbb\xbf{}",
    "[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]",
    "nul",
};
static const sqlite3_int64 aInt[] = {0,
                                     1,
                                     -1,
                                     2,
                                     200,
                                     255,
                                     256,
                                     1000,
                                     60000,
                                     1700000000000,
                                     1700000100000,
                                     2147483647,
                                     2147483648,
                                     -2147483649,
                                     INT64_MAX,
                                     INT64_MIN,
                                     253402300799999};
static const double aReal[] = {0.0, -0.0, 1.0, 0.5, 1e18, 1e19, -1e19, 1e300, 200.0, 1.7e12};
static const int aSize[] = {15,   16,   127,  128,   129,   255,     256,
                            1000, 1001, 8192, 65536, 65537, 1048576, 1048577};

/* MARK, and a text of so many bytes; a few of them are not ASCII. */
static void bindLong(In *p, sqlite3_stmt *pStmt, int i, int bBlob) {
  int n = PICK(p, aSize);
  unsigned c = next(p);
  char *z = sqlite3_malloc(n);
  CHECK(0, z != 0);
  memset(z, c < 128 && c > 31 ? (int)c : 'x', (size_t)n);
  memcpy(z, MARK, 4);
  if (c >= 128) z[n - 1] = (char)c;
  if (bBlob) {
    sqlite3_bind_blob(pStmt, i, z, n, sqlite3_free);
  } else {
    sqlite3_bind_text(pStmt, i, z, n, sqlite3_free);
  }
}

static void bindBytes(In *p, sqlite3_stmt *pStmt, int i, int eKind) {
  uint8_t aCopy[4 + 256];
  size_t n;
  const uint8_t *a = bytes(p, &n);
  memcpy(aCopy, MARK, 4);
  if (n > 0) memcpy(aCopy + 4, a, n);
  switch (eKind) {
  case 0: sqlite3_bind_text(pStmt, i, (char *)aCopy, (int)n + 4, SQLITE_TRANSIENT); break;
  case 1: sqlite3_bind_blob(pStmt, i, aCopy, (int)n + 4, SQLITE_TRANSIENT); break;
  case 2: sqlite3_bind_text16(pStmt, i, aCopy + 4, (int)(n & ~(size_t)1), SQLITE_TRANSIENT); break;
  default: sqlite3_bind_blob(pStmt, i, aCopy + 4, (int)n, SQLITE_TRANSIENT);
  }
}

static void bindOne(In *p, sqlite3_stmt *pStmt, int i) {
  unsigned c = next(p);
  const char *z;
  double r;
  switch (c & 31) {
  case 0: sqlite3_bind_null(pStmt, i); break;
  case 1: sqlite3_bind_int64(pStmt, i, PICK(p, aInt)); break;
  case 2: sqlite3_bind_int64(pStmt, i, (sqlite3_int64)(next(p) << 8 | next(p)) - 32768); break;
  case 3: sqlite3_bind_double(pStmt, i, PICK(p, aReal)); break;
  case 4:
    r = next(p) % 2 ? INFINITY : -INFINITY;
    sqlite3_bind_double(pStmt, i, next(p) % 2 ? r : r - r); /* infinite, or NaN, which is NULL */
    break;
  case 5:
  case 6:
  case 7:
  case 8: bindBytes(p, pStmt, i, (int)(c & 31) - 5); break;
  case 9: bindLong(p, pStmt, i, 0); break;
  case 10: bindLong(p, pStmt, i, 1); break;
  case 11: sqlite3_bind_zeroblob(pStmt, i, PICK(p, aSize)); break;
  case 12:
  case 13:
    z = PICK(p, azJson);
    sqlite3_bind_text(pStmt, i, z, -1, SQLITE_STATIC);
    break;
  case 14:
    z = PICK(p, azJson);
    sqlite3_bind_blob(pStmt, i, z, (int)strlen(z), SQLITE_STATIC);
    break;
  default: z = PICK(p, azWord); sqlite3_bind_text(pStmt, i, z, -1, SQLITE_STATIC);
  }
}

/* --- running -------------------------------------------------------------------------------- */

/* What no error may be, and no message hold. */
static void checkError(sqlite3 *db, int rc) {
  const char *zErr = sqlite3_errmsg(db);
  if (rc == SQLITE_OK) return;
  CHECK(db, (rc & 0xff) != SQLITE_CORRUPT && (rc & 0xff) != SQLITE_INTERNAL);
  CHECK(db, (rc & 0xff) != SQLITE_MISUSE && (rc & 0xff) != SQLITE_NOMEM);
  CHECK(db, zErr[0] != 0 && strstr(zErr, MARK) == 0);
}

#define KEPT 3 /* columns of the first row that are looked at */

/* Reads every column of every row, at most 50, and keeps copies of the first ones. */
static int stepAll(sqlite3_stmt *pStmt, sqlite3_value **apKept) {
  int rc, nRow = 0;
  memset(apKept, 0, KEPT * sizeof(*apKept));
  while ((rc = sqlite3_step(pStmt)) == SQLITE_ROW && nRow++ < 50) {
    for (int i = 0; i < sqlite3_column_count(pStmt); i++) {
      if (i < KEPT && nRow == 1) apKept[i] = sqlite3_value_dup(sqlite3_column_value(pStmt, i));
      if (sqlite3_column_type(pStmt, i) == SQLITE_TEXT) sqlite3_column_text(pStmt, i);
    }
  }
  return rc == SQLITE_ROW ? SQLITE_OK : sqlite3_reset(pStmt);
}

static void freeKept(sqlite3_value **apKept) {
  for (int i = 0; i < KEPT; i++) sqlite3_value_free(apKept[i]);
}

static sqlite3_int64 number(sqlite3 *db, const char *zSql) {
  sqlite3_stmt *pStmt = 0;
  CHECK(db, sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0) == SQLITE_OK);
  CHECK(db, sqlite3_step(pStmt) == SQLITE_ROW);
  sqlite3_int64 i = sqlite3_column_int64(pStmt, 0);
  CHECK(db, sqlite3_finalize(pStmt) == SQLITE_OK);
  return i;
}

static int isClaimed(sqlite3_value *pOutcome) {
  const char *z = 0;
  if (pOutcome && sqlite3_value_type(pOutcome) == SQLITE_TEXT) {
    z = (const char *)sqlite3_value_text(pOutcome);
  }
  return z && (strcmp(z, "claimed") == 0 || strstr(z, "\"outcome\":\"claimed\"") != 0);
}

/* True for a text that begins with U+FEFF: in a UTF-16 database SQLite drops it on some ways, as a
** byte order mark, and keeps it on others. */
static int hasMark(sqlite3_value *p) {
  const char *z = p ? (const char *)sqlite3_value_text(p) : 0;
  return z && strncmp(z, "\xef\xbb\xbf", 3) == 0;
}

/* What a winner was promised: outcome, scope and key are the columns that were kept. */
static void checkClaimed(sqlite3 *db, sqlite3_value **apKept) {
  sqlite3_stmt *pStmt = 0;
  if (!isClaimed(apKept[0]) || hasMark(apKept[1]) || hasMark(apKept[2])) return;
  CHECK(db, sqlite3_prepare_v2(db,
                               "SELECT state = 'processing' AND due_at > idem_clock()"
                               " FROM main.idem_store WHERE scope = ? AND key = ?",
                               -1, &pStmt, 0) == SQLITE_OK);
  sqlite3_bind_value(pStmt, 1, apKept[1]);
  sqlite3_bind_value(pStmt, 2, apKept[2]);
  CHECK(db, sqlite3_step(pStmt) == SQLITE_ROW && sqlite3_column_int(pStmt, 0) == 1);
  sqlite3_finalize(pStmt);
}

static int same(sqlite3_value *p, sqlite3_value *q) {
  if (!p || !q) return p == q;
  int n = sqlite3_value_bytes(p);
  return sqlite3_value_type(p) == sqlite3_value_type(q) && n == sqlite3_value_bytes(q) &&
         (n == 0 || memcmp(sqlite3_value_blob(p), sqlite3_value_blob(q), (size_t)n) == 0);
}

enum { PLAIN, CALL, PURE_CALL, CLAIM }; /* what a statement is */

/* Prepares aSql, binds so many values, runs it and checks what came of it. */
static void runStatement(In *p, sqlite3 *db, int nArg, int eKind) {
  sqlite3_stmt *pStmt = 0;
  sqlite3_value *apKept[KEPT], *apAgain[KEPT];
  int bAuto = sqlite3_get_autocommit(db);
  sqlite3_int64 iRowid = sqlite3_last_insert_rowid(db);
  int rc = sqlite3_prepare_v2(db, aSql, -1, &pStmt, 0);
  checkError(db, rc);
  if (rc != SQLITE_OK) return;
  for (int i = 1; i <= nArg; i++) bindOne(p, pStmt, i);
  rc = stepAll(pStmt, apKept);
  checkError(db, rc);
  if (eKind != PLAIN) {
    CHECK(db, sqlite3_get_autocommit(db) == bAuto);
    CHECK(db, sqlite3_last_insert_rowid(db) == iRowid);
  }
  if (eKind == PURE_CALL) {
    CHECK(db, stepAll(pStmt, apAgain) == rc && same(apKept[0], apAgain[0]));
    freeKept(apAgain);
  }
  sqlite3_finalize(pStmt);
  if (eKind == CLAIM && rc == SQLITE_OK) checkClaimed(db, apKept);
  freeKept(apKept);
}

/* --- statements ----------------------------------------------------------------------------- */

static const struct {
  const char *zName;
  int eKind;
} aFunction[] = {
    {"idem_claim", CLAIM},
    {"idem_claim", CLAIM},
    {"idem_complete", CALL},
    {"idem_release", CALL},
    {"idem_suspend", CALL},
    {"idem_renew", CALL},
    {"idem_checkpoint", CALL},
    {"idem_resolve", CALL},
    {"idem_seen", CALL},
    {"idem_purge", CALL},
    {"idem_clock", CALL},
    {"idem_audit_verify", CALL},
    {"idem_fingerprint", PURE_CALL},
    {"idem_fingerprint_raw", PURE_CALL},
    {"idem_hmac_fingerprint", PURE_CALL},
    {"idem_canonical", PURE_CALL},
    {"idem_header_key", PURE_CALL},
    {"idem_derive_key", PURE_CALL},
    {"idem_key", CALL},
    {"idem_schema", PURE_CALL},
    {"idem_version", PURE_CALL},
    {"idem_init", CALL},
};

static const char *const azColumn[] = {
    "scope",   "key",      "operation",      "fingerprint",      "state",
    "outcome", "token",    "attempt",        "lease_until",      "code",
    "headers", "response", "recovery_point", "checkpoint",       "created_at",
    "age_ms",  "reason",   "expires_at",     "response_omitted", "http_status",
    "rowid",   "message",  "completed_at",   "retry_after_ms",   "tombstone_until",
};
static const char *const azCompare[] = {
    "=", "IS", "<>", "<", "<=", ">", ">=", "LIKE", "IN", "GLOB"};
static const char *const azOr[] = {"",         "",          "OR IGNORE ",  "OR REPLACE ",
                                   "OR FAIL ", "OR ABORT ", "OR ROLLBACK "};
static const char *const azTransaction[] = {
    "BEGIN",
    "BEGIN IMMEDIATE",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s",
    "RELEASE s",
    "ROLLBACK TO s",
    "VACUUM",
    "PRAGMA query_only = 1",
    "PRAGMA query_only = 0",
    "SELECT count(*) FROM idem_health",
    "SELECT * FROM idem_contract",
    "ANALYZE",
};
static const char *const azPolicy[] = {
    "lease_ms = ?1",           "retention_ms = ?1", "tombstone_ms = ?1", "on_stale = ?1",
    "max_response_bytes = ?1", "max_attempts = ?1", "audit = ?1",        "allow_content_key = ?1",
    "on_stale = 'retry'",      "audit = 'all'",     "audit = 'off'",     "lease_ms = 1",
};

static void say(const char *zFmt, ...) {
  size_t n = strlen(aSql);
  va_list ap;
  va_start(ap, zFmt);
  vsnprintf(aSql + n, sizeof(aSql) - n, zFmt, ap);
  va_end(ap);
}

/* Placeholders ?1 to ?n. */
static void sayMarks(int n) {
  for (int i = 1; i <= n; i++) say("%s?%d", i > 1 ? ", " : "", i);
}

/* A function below SELECT, or in the carrier. */
static void callFunction(In *p, sqlite3 *db) {
  unsigned i = next(p) % COUNT(aFunction), c = next(p);
  int nArg = (int)(c % ARGUMENTS);
  say(c & 128 ? "INSERT INTO idem_call DEFAULT VALUES RETURNING %s(" : "SELECT %s(",
      aFunction[i].zName);
  sayMarks(nArg);
  say(")%s", nArg >= 2 ? ", ?1, ?2" : "");
  /* In an explicit or deferred savepoint the first row of a carrier ends no transaction. */
  runStatement(p, db, nArg, aFunction[i].eKind);
}

static void callTable(In *p, sqlite3 *db) {
  int nArg = (int)(next(p) % 7);
  say("SELECT outcome%s, * FROM idem_claim(", nArg >= 2 ? ", ?1, ?2" : "");
  sayMarks(nArg);
  say(")");
  runStatement(p, db, nArg, CLAIM);
}

static void insertRecord(In *p, sqlite3 *db) {
  unsigned c = next(p);
  say("INSERT %sINTO idem_records(scope, key, fingerprint, token", azOr[c % COUNT(azOr)]);
  if (c & 32) say(", operation");
  if (c & 64) say(", %s", PICK(p, azColumn));
  say(") VALUES (");
  sayMarks(4 + (c & 32 ? 1 : 0) + (c & 64 ? 1 : 0));
  say(")%s", c & 128 ? " RETURNING scope, key, token" : "");
  runStatement(p, db, 4 + (c & 32 ? 1 : 0) + (c & 64 ? 1 : 0), PLAIN);
}

static void updateRecord(In *p, sqlite3 *db) {
  unsigned c = next(p);
  int nArg = 1 + (int)(c & 1) + (int)(c >> 1 & 1);
  say("UPDATE %sidem_records SET ", azOr[c >> 2 & 3]);
  for (int i = 1; i <= nArg; i++) {
    say("%s%s = ?%d", i > 1 ? ", " : "", c & 16 && i == 1 ? "state" : PICK(p, azColumn), i);
  }
  if (c & 32) say(" WHERE scope = ?%d AND key = ?%d", nArg + 1, nArg + 2);
  if (c & 32) nArg += 2;
  if (c & 64) say(" %s token = ?%d", c & 32 ? "AND" : "WHERE", nArg + 1);
  if (c & 64) nArg++;
  runStatement(p, db, nArg, PLAIN);
}

static void readRecords(In *p, sqlite3 *db) {
  unsigned c = next(p);
  int nArg = (int)(c & 3);
  say(c & 4 ? "DELETE FROM idem_records" : "SELECT * FROM idem_records");
  for (int i = 1; i <= nArg; i++) {
    const char *zCompare = PICK(p, azCompare);
    int bIn = strcmp(zCompare, "IN") == 0;
    say(" %s %s %s ", i == 1 ? "WHERE" : c & 8 ? "OR" : "AND", PICK(p, azColumn), zCompare);
    say(bIn ? "(?%d, 'done')" : "?%d", i);
  }
  if (!(c & 4) && c & 16) say(" ORDER BY %s %s", PICK(p, azColumn), c & 32 ? "DESC" : "");
  if (!(c & 4) && c & 64) say(" LIMIT %d OFFSET %d", (int)(next(p) % 4), (int)(next(p) % 3));
  runStatement(p, db, nArg, PLAIN);
}

static void changePolicy(In *p, sqlite3 *db) {
  const char *zSet = PICK(p, azPolicy), *zOf = next(p) & 1 ? "*" : "pay";
  say("UPDATE idem_policy SET %s WHERE operation = '%s'", zSet, zOf);
  runStatement(p, db, strstr(zSet, "?1") ? 1 : 0, PLAIN);
}

static void step(In *p, sqlite3 *db) {
  unsigned c = next(p);
  aSql[0] = 0;
  switch (c & 15) {
  case 0:
  case 1:
  case 2:
  case 3:
  case 4:
  case 5: callFunction(p, db); break;
  case 6:
  case 7: callTable(p, db); break;
  case 8: insertRecord(p, db); break;
  case 9:
  case 10: updateRecord(p, db); break;
  case 11:
  case 12: readRecords(p, db); break;
  case 13: changePolicy(p, db); break;
  case 14:
    say("%s", PICK(p, azTransaction));
    runStatement(p, db, 0, PLAIN);
    break;
  default:
    say("SELECT idem_clock(idem_clock() + %d)", (int)(next(p) << 8 | next(p)) * 16 - 100);
    runStatement(p, db, 0, PLAIN);
  }
}

/* --- the stores ----------------------------------------------------------------------------- */

static const char zStory[] =
    "SELECT idem_init(), idem_clock(1700000000000);"
    "CREATE TABLE loot(a); INSERT INTO loot VALUES ('untouched');"
    "INSERT INTO idem_policy(operation, lease_ms, on_stale, audit)"
    " VALUES ('pay', 200, 'retry', 'all');"
    "SELECT idem_claim('t', 'over', 'fp', NULL, 'token-0123456789');"
    "SELECT idem_complete('t', 'over', 'token-0123456789', 'old');"
    "SELECT idem_clock(1700000100000);"
    "SELECT idem_claim('t', 'held', 'fp', 'pay', 'token-0123456789');"
    "SELECT idem_claim('t', 'dark', 'fp', NULL, 'token-0123456789');"
    "SELECT idem_suspend('t', 'dark', 'token-0123456789', 'why');"
    "SELECT idem_claim('t', 'done', 'idem1:aa', 'pay', 'token-0123456789');"
    "SELECT idem_complete('t', 'done', 'token-0123456789', 'answer', 200, 'a: b');"
    "SELECT idem_claim('u', 'free', 'fp', NULL, 'token-0123456789');"
    "SELECT idem_release('u', 'free', 'token-0123456789', 'why');"
    "SELECT idem_seen('stripe', 'evt', 'fp');";

static void must(sqlite3 *db, const char *zSql) {
  snprintf(aSql, sizeof(aSql), "%.200s", zSql);
  CHECK(db, sqlite3_exec(db, zSql, 0, 0, 0) == SQLITE_OK);
}

/* A fresh copy of one of the stores, which are made once. */
static sqlite3 *openStore(unsigned iStore) {
  static const char *const azPragma[] = {"PRAGMA encoding = 'UTF-8'",
                                         "PRAGMA encoding = 'UTF-16le'",
                                         "PRAGMA encoding = 'UTF-16be'", "PRAGMA page_size = 512"};
  static struct {
    unsigned char *a;
    sqlite3_int64 n;
  } aImage[COUNT(azPragma)];
  unsigned i = iStore % COUNT(azPragma);
  sqlite3 *db = 0;
  if (!aImage[i].a) {
    CHECK(0, sqlite3_open(":memory:", &db) == SQLITE_OK);
    must(db, azPragma[i]);
    CHECK(db, sqlite3_idem_init(db, 0, 0) == SQLITE_OK);
    must(db, zStory);
    aImage[i].a = sqlite3_serialize(db, "main", &aImage[i].n, 0);
    CHECK(db, aImage[i].a != 0 && sqlite3_close(db) == SQLITE_OK);
  }
  CHECK(0, sqlite3_open(":memory:", &db) == SQLITE_OK);
  unsigned char *aCopy = sqlite3_malloc64((sqlite3_uint64)aImage[i].n);
  CHECK(db, aCopy != 0);
  memcpy(aCopy, aImage[i].a, (size_t)aImage[i].n);
  CHECK(db, sqlite3_deserialize(db, "main", aCopy, aImage[i].n, aImage[i].n,
                                SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE) ==
                SQLITE_OK);
  CHECK(db, sqlite3_idem_init(db, 0, 0) == SQLITE_OK);
  must(db, "SELECT idem_clock(1700000100100)");
  if (iStore & 16) must(db, "PRAGMA recursive_triggers = 1; PRAGMA foreign_keys = 1");
  return db;
}

/* What must hold at the end of every program. */
static void checkStore(sqlite3 *db) {
  if (!sqlite3_get_autocommit(db)) must(db, "ROLLBACK");
  must(db, "PRAGMA query_only = 0");
  CHECK(db, number(db, "SELECT integrity_check = 'ok' FROM pragma_integrity_check") == 1);
  must(db, "SELECT * FROM idem_records; SELECT * FROM idem_health");
  CHECK(db, number(db, "SELECT idem_audit_verify() IS NULL") == 1);
  CHECK(db, number(db, "SELECT count(*) FROM loot WHERE a = 'untouched'") == 1);
  CHECK(db, number(db, "SELECT count(*) FROM main.idem_store WHERE state NOT IN ('processing', "
                       "'completed', 'released', 'unknown', 'tombstone') OR attempt < 1") == 0);
  CHECK(db, sqlite3_close(db) == SQLITE_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *a, size_t n) {
  In in = {a, n};
  sqlite3 *db = openStore(next(&in));
  for (int i = 0; i < STEPS && in.n > 0; i++) step(&in, db);
  checkStore(db);
  return 0;
}
