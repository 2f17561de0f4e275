/*
** bench/fingerprint.c: what a fingerprint costs, as a multiple of SHA-256 alone.
**
**   bench/fingerprint [-q] payment | FILE ...
**   bench/fingerprint --print                   the payment itself
**
** bench/fingerprint.py builds and runs this, adds the peers, and prints the ratios.
**
** Prints one line per measurement: input, contender, nanoseconds per call. Contenders take turns
** within a round and the median over the rounds is printed, so that a neighbour's load falls on all
** alike; still, only ratios within one run mean anything. Time is the thread's CPU time.
**
**   sha           SHA-256 of the input, context used again, nothing else
**   canonical     the canonical text alone
**   fingerprint   canonical text and SHA-256
**   jansson       jansson: load, dump with sorted keys, SHA-256
**   sql nop       SELECT f(?): a function that does nothing
**   sql sha       SELECT f(?): SHA-256 alone
**   sql json      SELECT json(?)
**   sql fingerprint
**   scan ...      the same per row of a table of 20,000 payments (for "payment" only)
*/
#define _POSIX_C_SOURCE 200809L

#include "../ext/canonical.h"
#include "../ext/fingerprint.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS_MAX 51

static const char zPayment[] =
    "{\"id\":\"pay_3NqK8s2eZvKYlo2C\",\"amount\":129900,\"currency\":\"ILS\",\"customer\":{\"id\":"
    "\"cus_9s6XKzkNRiz8i3\",\"name\":\"Dana Levi\",\"email\":\"dana@example.com\"},"
    "\"description\":\"Invoice 2024-00317\",\"metadata\":{\"order\":\"10048823\",\"channel\":"
    "\"web\"},\"capture\":true,\"created\":1718900123,\"livemode\":true,\"items\":[{\"sku\":"
    "\"A-100\",\"qty\":2}]}";

struct IdemConn {
  IdemFingerprint *pFingerprint; /* all the functions under test need */
};

IdemFingerprint *idemConnFingerprint(struct IdemConn *p) {
  return p->pFingerprint;
}

/* What is measured, and with what. */
typedef struct Bench {
  const char *zInput;      /* name of the input */
  char *aInput;            /* the input, terminated */
  size_t nInput;           /* its length */
  struct IdemConn conn;    /* contexts and buffers */
  IdemCanon *pCanon;       /* for "canonical" */
  sqlite3 *db;             /* for "sql" and "scan" */
  sqlite3_stmt *apStmt[8]; /* one per SQL contender */
  int nScan;               /* rows of the table scanned */
} Bench;

/* Runs one contender once; returns the number of calls that was. */
typedef int (*Contender)(Bench *p, int iStmt);

static void die(const char *zWhat) {
  fprintf(stderr, "bench/fingerprint: %s\n", zWhat);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* --- contenders --------------------------------------------------------------------------- */

static int runSha(Bench *p, int iStmt) {
  unsigned char aDigest[IDEM_DIGEST_SIZE];
  IdemDigest *pDigest = idemFingerprintDigest(p->conn.pFingerprint);
  (void)iStmt;
  if (idemDigestSha256(pDigest, IDEM_FORM_NONE, p->aInput, p->nInput, aDigest)) die("sha");
  return 1;
}

static int runCanonical(Bench *p, int iStmt) {
  uint8_t *a;
  size_t n;
  IdemFault fault;
  (void)iStmt;
  if (idemCanonRun(p->pCanon, NULL, p->aInput, p->nInput, &a, &n, &fault)) die("canonical");
  idemCanonTrim(p->pCanon);
  return 1;
}

static int runFingerprint(Bench *p, int iStmt) {
  unsigned char aDigest[IDEM_DIGEST_SIZE];
  uint8_t *a;
  size_t n;
  IdemFault fault;
  IdemDigest *pDigest = idemFingerprintDigest(p->conn.pFingerprint);
  (void)iStmt;
  if (idemCanonRun(p->pCanon, NULL, p->aInput, p->nInput, &a, &n, &fault)) die("canonical");
  if (idemDigestSha256(pDigest, IDEM_FORM_JSON, a, n, aDigest)) die("sha");
  idemCanonTrim(p->pCanon);
  return 1;
}

static int runJansson(Bench *p, int iStmt) {
  unsigned char aDigest[IDEM_DIGEST_SIZE];
  IdemDigest *pDigest = idemFingerprintDigest(p->conn.pFingerprint);
  json_error_t error;
  json_t *pJson =
      json_loadb(p->aInput, p->nInput, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
  char *z = pJson ? json_dumps(pJson, JSON_SORT_KEYS | JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
  (void)iStmt;
  if (z == NULL) die(error.text);
  if (idemDigestSha256(pDigest, IDEM_FORM_NONE, z, strlen(z), aDigest)) die("sha");
  free(z);
  json_decref(pJson);
  return 1;
}

static int runBound(Bench *p, int iStmt) {
  sqlite3_stmt *pStmt = p->apStmt[iStmt];
  sqlite3_bind_text(pStmt, 1, p->aInput, (int)p->nInput, SQLITE_STATIC);
  if (sqlite3_step(pStmt) != SQLITE_ROW) die(sqlite3_errmsg(p->db));
  if (sqlite3_column_bytes(pStmt, 0) == 0) die("no result");
  sqlite3_reset(pStmt);
  return 1;
}

static int runScan(Bench *p, int iStmt) {
  sqlite3_stmt *pStmt = p->apStmt[iStmt];
  if (sqlite3_step(pStmt) != SQLITE_ROW) die(sqlite3_errmsg(p->db));
  if (sqlite3_column_int(pStmt, 0) != p->nScan) die("rows missing");
  sqlite3_reset(pStmt);
  return p->nScan;
}

static const struct {
  const char *zName; /* as printed */
  Contender xRun;    /* one turn */
  int iStmt;         /* its statement, for SQL */
  const char *zSql;  /* the statement's text */
} aContender[] = {
    {"sha", runSha, 0, NULL},
    {"canonical", runCanonical, 0, NULL},
    {"fingerprint", runFingerprint, 0, NULL},
    {"jansson", runJansson, 0, NULL},
    {"sql nop", runBound, 0, "SELECT bench_nop(?1)"},
    {"sql sha", runBound, 1, "SELECT bench_sha(?1)"},
    {"sql json", runBound, 2, "SELECT json(?1)"},
    {"sql fingerprint", runBound, 3, "SELECT idem_fingerprint(?1)"},
    {"scan nop", runScan, 4, "SELECT count(bench_nop(x)) FROM t"},
    {"scan sha", runScan, 5, "SELECT count(bench_sha(x)) FROM t"},
    {"scan json", runScan, 6, "SELECT count(json(x)) FROM t"},
    {"scan fingerprint", runScan, 7, "SELECT count(idem_fingerprint(x)) FROM t"},
};
#define CONTENDERS ((int)(sizeof aContender / sizeof *aContender))

/* --- SQL functions to compare with --------------------------------------------------------- */

static void benchNop(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  char z[70];
  (void)nArg;
  memset(z, 'x', sizeof z);
  if (sqlite3_value_text(apArg[0]) == NULL) die("nop");
  sqlite3_result_text(pCtx, z, sizeof z, SQLITE_TRANSIENT);
}

static void benchSha(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  struct IdemConn *pConn = sqlite3_user_data(pCtx);
  unsigned char aDigest[IDEM_DIGEST_SIZE];
  char z[70] = "idem1:";
  const unsigned char *a = sqlite3_value_text(apArg[0]);
  size_t n = (size_t)sqlite3_value_bytes(apArg[0]);
  IdemDigest *pDigest = idemFingerprintDigest(pConn->pFingerprint);
  (void)nArg;
  if (idemDigestSha256(pDigest, IDEM_FORM_NONE, a, n, aDigest)) die("sha");
  idemHex(aDigest, sizeof aDigest, z + 6);
  sqlite3_result_text(pCtx, z, sizeof z, SQLITE_TRANSIENT);
}

/* --- the frame ---------------------------------------------------------------------------- */

/* The payment of the scan's row i: other amount, other number, same length. */
static void fillTable(Bench *p) {
  sqlite3_stmt *pStmt;
  p->nScan = 20000;
  if (sqlite3_exec(p->db, "CREATE TABLE t(x TEXT); BEGIN", 0, 0, 0)) die(sqlite3_errmsg(p->db));
  if (sqlite3_prepare_v2(p->db, "INSERT INTO t VALUES(?1)", -1, &pStmt, 0)) die("prepare");
  for (int i = 0; i < p->nScan; i++) {
    char *z = sqlite3_mprintf("%s", p->aInput);
    char *zAmount = z ? strstr(z, "129900") : NULL;
    char aDigits[16];
    if (zAmount == NULL) die("payment");
    snprintf(aDigits, sizeof aDigits, "%06d", 100000 + i);
    memcpy(zAmount, aDigits, 6);
    sqlite3_bind_text(pStmt, 1, z, -1, sqlite3_free);
    if (sqlite3_step(pStmt) != SQLITE_DONE) die(sqlite3_errmsg(p->db));
    sqlite3_reset(pStmt);
  }
  sqlite3_finalize(pStmt);
  if (sqlite3_exec(p->db, "COMMIT", 0, 0, 0)) die(sqlite3_errmsg(p->db));
}

static void openInput(Bench *p, const char *zInput) {
  memset(p, 0, sizeof *p);
  p->zInput = zInput;
  if (strcmp(zInput, "payment") == 0) {
    p->nInput = sizeof zPayment - 1;
    p->aInput = malloc(p->nInput + 1);
    if (p->aInput == NULL) die("memory");
    memcpy(p->aInput, zPayment, p->nInput + 1);
  } else {
    FILE *pFile = fopen(zInput, "rb");
    long n;
    if (pFile == NULL || fseek(pFile, 0, SEEK_END) || (n = ftell(pFile)) < 0) die("cannot read");
    rewind(pFile);
    p->nInput = (size_t)n;
    p->aInput = calloc(1, p->nInput + 1);
    if (p->aInput == NULL || fread(p->aInput, 1, p->nInput, pFile) != p->nInput) die("cannot read");
    fclose(pFile);
  }
  if (idemFingerprintNew(&p->conn.pFingerprint)) die("contexts");
  p->pCanon = idemCanonNew();
  if (p->pCanon == NULL || sqlite3_open(":memory:", &p->db)) die("memory");
}

static void prepareSql(Bench *p) {
  sqlite3_create_function(p->db, "bench_nop", 1, SQLITE_UTF8, &p->conn, benchNop, 0, 0);
  sqlite3_create_function(p->db, "bench_sha", 1, SQLITE_UTF8, &p->conn, benchSha, 0, 0);
  sqlite3_create_function(p->db, "idem_fingerprint", -1, SQLITE_UTF8, &p->conn, idemFnFingerprint,
                          0, 0);
  if (strcmp(p->zInput, "payment") == 0) fillTable(p);
  for (int i = 0; i < CONTENDERS; i++) {
    int bScan = aContender[i].xRun == runScan;
    if (aContender[i].zSql == NULL || (bScan && p->nScan == 0)) continue;
    if (sqlite3_prepare_v2(p->db, aContender[i].zSql, -1, &p->apStmt[aContender[i].iStmt], 0)) {
      die(sqlite3_errmsg(p->db));
    }
  }
}

static int compareDouble(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Measures every contender on one input. A turn lasts about nsTurn. */
static void measure(Bench *p, int nRound, double nsTurn) {
  static double aTime[CONTENDERS][ROUNDS_MAX];
  int anRepeat[CONTENDERS];

  for (int i = 0; i < CONTENDERS; i++) {
    double t;
    anRepeat[i] = 0;
    if (aContender[i].xRun == runScan && p->nScan == 0) continue;
    aContender[i].xRun(p, aContender[i].iStmt); /* warms caches and grows buffers */
    t = now();
    aContender[i].xRun(p, aContender[i].iStmt);
    t = now() - t;
    anRepeat[i] = t > nsTurn ? 1 : (int)(nsTurn / (t + 1)) + 1;
  }
  for (int iRound = 0; iRound < nRound; iRound++) {
    for (int i = 0; i < CONTENDERS; i++) {
      int nCall = 0;
      double t = now();
      for (int j = 0; j < anRepeat[i]; j++) nCall += aContender[i].xRun(p, aContender[i].iStmt);
      if (nCall > 0) aTime[i][iRound] = (now() - t) / nCall;
    }
  }
  for (int i = 0; i < CONTENDERS; i++) {
    if (anRepeat[i] == 0) continue;
    qsort(aTime[i], (size_t)nRound, sizeof(double), compareDouble);
    printf("%s\t%zu\t%s\t%.1f\n", p->zInput, p->nInput, aContender[i].zName, aTime[i][nRound / 2]);
  }
}

int main(int argc, char **argv) {
  int nRound = 21, iFirst = 1;
  double nsTurn = 1e7;
  if (argc > 1 && strcmp(argv[1], "--print") == 0) return fputs(zPayment, stdout) < 0;
  if (argc > 1 && strcmp(argv[1], "-q") == 0) {
    nRound = 7;
    nsTurn = 3e6;
    iFirst = 2;
  }
  if (iFirst >= argc) die("usage: fingerprint [-q] payment | FILE ...");
  for (int i = iFirst; i < argc; i++) {
    Bench b;
    openInput(&b, argv[i]);
    prepareSql(&b);
    measure(&b, nRound, nsTurn);
    for (int j = 0; j < 8; j++) sqlite3_finalize(b.apStmt[j]);
    sqlite3_close(b.db);
    idemCanonFree(b.pCanon);
    idemFingerprintFree(b.conn.pFingerprint);
    free(b.aInput);
  }
  return 0;
}
