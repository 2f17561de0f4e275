/*
** ledger.c - the issuing loop of bench/ledger.py without Python: cached prepared statements in C.
**
**   ledger BOOK EXTENSION DOCUMENTS SLICES STATEMENT...
**
** bench/ledger.py --driver c builds and runs this. It makes the book and hands over the
** statements in the order of the enumeration below, so both drivers run the same recipe. EXTENSION
** is the path of idem.so, or "" to leave out claim and complete.
*/
#define _POSIX_C_SOURCE 200809L

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BEGIN, CLAIM, DRAFT, LINE, TAX, ENTRY, POSTING, ISSUE, COMPLETE, COMMIT, N_STATEMENT };

#define RUN 200

/* One invoice of 35.00 net and 6.75 tax. The accounts are those of the tests' book. */
static const struct {
  const char *zDescription;
  int iQuantity, iPrice, iNet;
  const char *zTaxCode;
} aLine[] = {{"Blue widget", 1000, 1000, 1000, "V21"},
             {"Red widget", 2000, 1500, 2000, "V21"},
             {"Book", 1000, 500, 500, "V9"}};
static const struct {
  const char *zTaxCode;
  int iTaxable, iTax;
} aTax[] = {{"V21", 3000, 630}, {"V9", 500, 45}};
static const struct {
  int iAccount, iAmount;
  const char *zTaxCode;
} aPosting[] = {{1, 4175, NULL}, {7, -3500, NULL}, {5, -630, "V21"}, {5, -45, "V9"}};

static sqlite3 *db;
static sqlite3_stmt *apStmt[N_STATEMENT];

static void fail(const char *zWhere) {
  fprintf(stderr, "%s: %s\n", zWhere, db ? sqlite3_errmsg(db) : "out of memory");
  exit(1);
}

static void execute(const char *zSql) {
  if (sqlite3_exec(db, zSql, NULL, NULL, NULL) != SQLITE_OK) fail(zSql);
}

static void bindText(int i, int iParam, const char *zText) {
  if (sqlite3_bind_text(apStmt[i], iParam, zText, -1, SQLITE_STATIC) != SQLITE_OK) fail("bind");
}

static void bindInt(int i, int iParam, sqlite3_int64 iValue) {
  if (sqlite3_bind_int64(apStmt[i], iParam, iValue) != SQLITE_OK) fail("bind");
}

/* Runs a statement that returns a row, which the caller reads before finish(). */
static void row(int i) {
  if (sqlite3_step(apStmt[i]) != SQLITE_ROW) fail(sqlite3_sql(apStmt[i]));
}

/* Runs a statement to its end. */
static void finish(int i) {
  if (sqlite3_step(apStmt[i]) != SQLITE_DONE) fail(sqlite3_sql(apStmt[i]));
  sqlite3_reset(apStmt[i]);
}

/* A draft with its lines and tax rows. Returns its id. */
static sqlite3_int64 writeDraft(int n, int iCustomer, const char *zDate) {
  char zOrder[32], zIdem[16];
  sqlite3_int64 iDocument;
  snprintf(zOrder, sizeof zOrder, "SO-%d", n);
  snprintf(zIdem, sizeof zIdem, "%d", n);
  bindInt(DRAFT, 1, iCustomer);
  bindText(DRAFT, 2, zOrder);
  bindText(DRAFT, 3, zDate);
  bindText(DRAFT, 4, zIdem);
  finish(DRAFT);
  iDocument = sqlite3_last_insert_rowid(db);
  for (int i = 0; i < 3; i++) {
    bindInt(LINE, 1, iDocument);
    bindInt(LINE, 2, i + 1);
    bindText(LINE, 3, aLine[i].zDescription);
    bindInt(LINE, 4, aLine[i].iQuantity);
    bindInt(LINE, 5, aLine[i].iPrice);
    bindInt(LINE, 6, aLine[i].iNet);
    bindText(LINE, 7, aLine[i].zTaxCode);
    finish(LINE);
  }
  for (int i = 0; i < 2; i++) {
    bindInt(TAX, 1, iDocument);
    bindText(TAX, 2, aTax[i].zTaxCode);
    bindInt(TAX, 3, aTax[i].iTaxable);
    bindInt(TAX, 4, aTax[i].iTax);
    finish(TAX);
  }
  return iDocument;
}

/* The entry of a document with its lines. Returns its id. */
static sqlite3_int64 writeEntry(sqlite3_int64 iDocument, int iCustomer, const char *zDate) {
  sqlite3_int64 iEntry;
  bindText(ENTRY, 1, zDate);
  bindInt(ENTRY, 2, iDocument);
  finish(ENTRY);
  iEntry = sqlite3_last_insert_rowid(db);
  for (int i = 0; i < 4; i++) {
    bindInt(POSTING, 1, iEntry);
    bindInt(POSTING, 2, i + 1);
    bindInt(POSTING, 3, aPosting[i].iAccount);
    bindInt(POSTING, 4, aPosting[i].iAmount);
    if (i == 0) {
      bindInt(POSTING, 5, iCustomer);
    } else {
      sqlite3_bind_null(apStmt[POSTING], 5);
    }
    bindText(POSTING, 6, aPosting[i].zTaxCode);
    finish(POSTING);
  }
  return iEntry;
}

/* One invoice. */
static void issue(int n, int bIdem) {
  char zKey[80], zFingerprint[80], zDate[16], zToken[80], zAnswer[160];
  sqlite3_int64 iDocument, iEntry;
  int iCustomer = 1000 + (int)((sqlite3_int64)n * 7919 % 2000);
  snprintf(zDate, sizeof zDate, "2026-%02d-%02d", 1 + n / 2500 % 12, 1 + n % 28);

  finish(BEGIN);
  if (bIdem) {
    const char *zClaim, *zBegin;
    snprintf(zKey, sizeof zKey, "order-%d-%032d", n, n);
    snprintf(zFingerprint, sizeof zFingerprint, "idem1:%064x", (unsigned)n);
    bindText(CLAIM, 1, zKey);
    bindText(CLAIM, 2, zFingerprint);
    row(CLAIM);
    zClaim = (const char *)sqlite3_column_text(apStmt[CLAIM], 0);
    zBegin = zClaim ? strstr(zClaim, "\"token\":\"") : NULL;
    if (!zBegin || sscanf(zBegin + 9, "%79[^\"]", zToken) != 1) fail("claim");
    finish(CLAIM);
  }

  iDocument = writeDraft(n, iCustomer, zDate);
  iEntry = writeEntry(iDocument, iCustomer, zDate);
  bindInt(ISSUE, 1, iEntry);
  bindText(ISSUE, 2, zDate);
  bindInt(ISSUE, 3, iDocument);
  row(ISSUE);
  snprintf(zAnswer, sizeof zAnswer, "{\"id\":%lld,\"number\":\"%s\"}", iDocument,
           (const char *)sqlite3_column_text(apStmt[ISSUE], 1));
  finish(ISSUE);

  if (bIdem) {
    bindText(COMPLETE, 1, zKey);
    bindText(COMPLETE, 2, zToken);
    bindText(COMPLETE, 3, zAnswer);
    row(COMPLETE);
    finish(COMPLETE);
  }
  finish(COMMIT);
}

static double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  int nDocument, nSlice, bIdem, n = 0;
  double start, best = 1e9;
  if (argc != 5 + N_STATEMENT) {
    fprintf(stderr, "usage: bench/ledger.py --driver c\n");
    return 2;
  }
  bIdem = argv[2][0] != 0;
  nDocument = atoi(argv[3]);
  nSlice = atoi(argv[4]);
  if (nSlice < 1) nSlice = 1;
  /* One thread uses the connection, and nobody asks how much memory is in use. */
  sqlite3_config(SQLITE_CONFIG_MULTITHREAD);
  sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  if (sqlite3_open(argv[1], &db) != SQLITE_OK) fail(argv[1]);
  if (bIdem) {
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
    if (sqlite3_load_extension(db, argv[2], NULL, NULL) != SQLITE_OK) fail(argv[2]);
  }
  execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;"
          "PRAGMA recursive_triggers = ON; PRAGMA busy_timeout = 5000; PRAGMA cache_size = -65536");
  for (int i = 0; i < N_STATEMENT; i++) {
    if (!bIdem && (i == CLAIM || i == COMPLETE)) continue;
    if (sqlite3_prepare_v3(db, argv[5 + i], -1, SQLITE_PREPARE_PERSISTENT, &apStmt[i], NULL) !=
        SQLITE_OK)
      fail(argv[5 + i]);
  }

  start = seconds(CLOCK_MONOTONIC);
  for (int iSlice = 0; iSlice < nSlice; iSlice++) {
    int nRun = nDocument / nSlice / RUN > 0 ? nDocument / nSlice / RUN : 1;
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int iRun = 0; iRun < nRun; iRun++) {
      double run = seconds(CLOCK_MONOTONIC);
      for (int i = 0; i < RUN; i++) issue(n++, bIdem);
      run = seconds(CLOCK_MONOTONIC) - run;
      if (run < best) best = run;
    }
    wall = seconds(CLOCK_MONOTONIC) - wall;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("%8d documents: %6.0f per second, %5.0f us each (%5.0f us of processor time)\n", n,
           nRun * RUN / wall, wall / (nRun * RUN) * 1e6, cpu / (nRun * RUN) * 1e6);
    fflush(stdout);
  }
  printf("all: %.0f per second; best run of %d documents: %.0f per second\n",
         n / (seconds(CLOCK_MONOTONIC) - start), RUN, RUN / best);
  for (int i = 0; i < N_STATEMENT; i++) sqlite3_finalize(apStmt[i]);
  return sqlite3_close(db) == SQLITE_OK ? 0 : 1;
}
