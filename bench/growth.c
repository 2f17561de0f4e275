/*
** growth.c: what a record costs as their number grows, and whether the file stops growing.
**
**     growth FOLDER EXTENSION fill    v4|v7 RECORDS
**     growth FOLDER EXTENSION measure v4|v7 ROUNDS CACHE_MIB RECORDS ...
**     growth FOLDER EXTENSION churn   HOURS KEYS
**
** bench/bench.py builds and runs it. "fill" makes FOLDER/growth-KIND-RECORDS.db by claims and
** completions with answers of 400 bytes, so that its pages are as full as in service; it goes on
** where it was interrupted, and does nothing to a file that is full. The keys are UUIDv4 or UUIDv7.
**
** "measure" opens the files of all sizes at once and takes turns between them, so that a machine
** that slows down slows all. WAL, synchronous = NORMAL, the usual checkpoints; what fits into the
** page cache is read beforehand, the indexes last. It prints "growth KIND RECORDS WHAT US",
** separated by tabs, of
**
**     cycle    claim, business row, completion, in a transaction of their own
**     pair     claim and completion, 500 in one transaction
**     replay   the scalar form in autocommit, of any completed record
**     purge    of 1,000 expired answers, per row
**
** and once "bytes", of file per record. Each round adds 1,800 records.
**
** "churn" is the steady state: with answers kept an hour and tombstones a day, each hour brings
** KEYS new keys and one purge. The file must not grow any more once the first day is over, or the
** program fails. It prints "churn HOUR RECORDS BYTES".
*/
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CYCLES  300
#define PAIRS   500
#define REPLAYS 2000
#define HOUR    3600000
#define APART   2000000000 /* the keys of measurements begin here */
#define SIZES   8
#define BATCH   200000 /* records of one transaction of "fill": random leaves are written once */

static void openSize(Work *p, char **argv, const char *zKind, int nRecord, int nCacheMiB) {
  char zFile[1000];
  snprintf(zFile, sizeof(zFile), "%s/growth-%s-%d.db", argv[1], zKind, nRecord);
  WorkPlace place = {zFile, "NORMAL", argv[2], nCacheMiB * 1024};
  workOpen(p, &place);
  p->bOrdered = strcmp(zKind, "v7") == 0;
}

/* The first key from iFrom on that is not there; all before it are. */
static int firstNew(Work *p, int iFrom) {
  int nStep = 1, iLow = iFrom, iHigh = iFrom;
  while (workKnown(p, iHigh)) {
    iLow = iHigh + 1;
    iHigh = iFrom + (nStep *= 2);
  }
  while (iLow < iHigh) {
    int iMiddle = iLow + (iHigh - iLow) / 2;
    if (workKnown(p, iMiddle)) iLow = iMiddle + 1;
    else iHigh = iMiddle;
  }
  return iLow;
}

/* New records, all completed, until there are nRecord. */
static void fill(char **argv) {
  Work w;
  int nRecord = atoi(argv[5]);
  openSize(&w, argv, argv[4], nRecord, 2048);
  workRun(&w, "PRAGMA synchronous = OFF");
  w.iNext = firstNew(&w, 0);
  while (w.iNext < nRecord) {
    int iEnd = w.iNext + BATCH < nRecord ? w.iNext + BATCH : nRecord;
    workBegin(&w);
    for (; w.iNext < iEnd; w.iNext++) {
      workClaim(&w, BY_SCALAR, w.iNext, "claimed");
      workComplete(&w, BY_SCALAR, w.iNext);
    }
    workCommit(&w);
  }
  workClose(&w);
}

/* Seconds for replays spread over all n completed records. */
static double replays(Work *p, int n, int iRound) {
  double t = workNow();
  for (int i = 0; i < REPLAYS; i++) {
    workReplay(p, BY_SCALAR, (int)((sqlite3_int64)(iRound * REPLAYS + i) * 1000003 % n));
  }
  return workNow() - t;
}

static void measureRound(Work *p, const char *zKind, int n, int iRound) {
  const WorkOp *pCycle = workOp("cycle in one transaction"), *pPair = workOp("claim + complete");
  const WorkOp *pPurge = workOp("purge per row");
  double rCycle = workTurn(p, pCycle, BY_SCALAR, CYCLES) / CYCLES;
  double rPair = workTurn(p, pPair, BY_SCALAR, PAIRS) / PAIRS;
  double rReplay = replays(p, n, iRound) / REPLAYS;
  double rPurge = workTurn(p, pPurge, BY_SCALAR, WORK_ROWS) / WORK_ROWS;
  if (iRound == 0) return; /* warms up */
  printf("growth\t%s\t%d\tcycle\t%.3f\n", zKind, n, rCycle * 1e6);
  printf("growth\t%s\t%d\tpair\t%.3f\n", zKind, n, rPair * 1e6);
  printf("growth\t%s\t%d\treplay\t%.3f\n", zKind, n, rReplay * 1e6);
  printf("growth\t%s\t%d\tpurge\t%.3f\n", zKind, n, rPurge * 1e6);
}

static void measure(int argc, char **argv) {
  Work aWork[SIZES];
  int nSize = argc - 7, nRound = atoi(argv[5]);
  if (nSize > SIZES) workDie("growth", "too many sizes");
  workWarm(64);
  for (int i = 0; i < nSize; i++) {
    Work *p = &aWork[i];
    openSize(p, argv, argv[4], atoi(argv[7 + i]), atoi(argv[6]));
    p->iNext = firstNew(p, APART);
    sqlite3_int64 nByte = workInt(p, "SELECT page_count * page_size FROM"
                                     " pragma_page_count, pragma_page_size");
    sqlite3_int64 nRow = workInt(p, "SELECT max(id) FROM idem_store");
    printf("growth\t%s\t%s\tbytes\t%.1f\n", argv[4], argv[7 + i], (double)nByte / (double)nRow);
    workInt(p, "SELECT sum(length(response)) FROM idem_store NOT INDEXED");
    workInt(p, "SELECT sum(length(key)) FROM idem_store"
               " INDEXED BY sqlite_autoindex_idem_store_1");
  }
  for (int iRound = 0; iRound <= nRound; iRound++) {
    for (int i = 0; i < nSize; i++) measureRound(&aWork[i], argv[4], atoi(argv[7 + i]), iRound);
  }
  for (int i = 0; i < nSize; i++) workClose(&aWork[i]);
}

/* Purges until nothing is left. */
static void purgeAll(Work *p) {
  while (workInt(p, "SELECT idem_purge(1000)") == 1000) continue;
}

static void churn(char **argv) {
  Work w;
  int nHour = atoi(argv[4]), nKey = atoi(argv[5]);
  sqlite3_int64 iTime = 1764500000000, nDay = 0, nEnd = 0;
  openSize(&w, argv, "churn", nKey, 0);
  workRun(&w, "UPDATE idem_policy SET retention_ms = 3600000, tombstone_ms = 86400000");
  for (int iHour = 1; iHour <= nHour; iHour++) {
    workClock(&w, iTime += HOUR);
    workBegin(&w);
    for (int i = 0; i < nKey; i++, w.iNext++) {
      workClaim(&w, BY_SCALAR, w.iNext, "claimed");
      workComplete(&w, BY_SCALAR, w.iNext);
    }
    workCommit(&w);
    purgeAll(&w);
    workRun(&w, "PRAGMA wal_checkpoint(TRUNCATE)");
    nEnd = workInt(&w, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
    if (iHour <= 30) nDay = nEnd;
    printf("churn\t%d\t%lld\t%lld\n", iHour, workInt(&w, "SELECT count(*) FROM idem_store"), nEnd);
  }
  workClose(&w);
  if (nEnd > nDay + nDay / 20) workDie("churn", "the file still grows after the first day");
}

int main(int argc, char **argv) {
  const char *zVerb = argc >= 6 ? argv[3] : "";
  if (strcmp(zVerb, "fill") == 0) fill(argv);
  else if (strcmp(zVerb, "measure") == 0 && argc > 7) measure(argc, argv);
  else if (strcmp(zVerb, "churn") == 0) churn(argv);
  else workDie("usage", "growth FOLDER EXTENSION fill|measure|churn ...");
  return 0;
}
