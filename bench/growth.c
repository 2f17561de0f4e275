/*
** growth.c: what a record costs as their number grows, and whether the file stops growing.
**
**     growth FOLDER EXTENSION v4|v7 RECORDS CACHE_MIB
**     growth FOLDER EXTENSION churn HOURS KEYS
**
** bench/bench.py builds and runs it. The store grows by claims and completions with answers of 400
** bytes, so that its pages are as full as in service. At 10^4, 10^5 ... RECORDS it measures, on a
** file in WAL mode with synchronous = NORMAL and the usual checkpoints, rounds of
**
**     cycle    claim, business row, completion, in a transaction of their own
**     pair     claim and completion, 500 in one transaction
**     replay   the scalar form in autocommit, of any completed record
**     purge    of 1,000 expired answers, per row
**
** "churn" is the steady state: with answers kept an hour and tombstones a day, each hour brings
** KEYS new keys and one purge. The file must not grow any more once the first day is over, or the
** program fails.
**
** Prints "growth KIND RECORDS WHAT VALUE" and "churn HOUR RECORDS BYTES", separated by tabs.
*/
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS  7
#define CYCLES  300
#define PAIRS   500
#define REPLAYS 2000
#define HOUR    3600000
#define APART   2000000000 /* the keys of measurements begin here */

static void report(const char *zKind, int n, const char *zWhat, double r) {
  printf("growth\t%s\t%d\t%s\t%.3f\n", zKind, n, zWhat, r);
  fflush(stdout);
}

/* New records, all completed, until there are nRecord. */
static void grow(Work *p, int nRecord) {
  workRun(p, "PRAGMA synchronous = OFF");
  while (p->iNext < nRecord) {
    int iEnd = p->iNext + 10000 < nRecord ? p->iNext + 10000 : nRecord;
    workBegin(p);
    for (; p->iNext < iEnd; p->iNext++) {
      workClaim(p, BY_SCALAR, p->iNext, "claimed");
      workComplete(p, BY_SCALAR, p->iNext);
    }
    workCommit(p);
  }
  workRun(p, "PRAGMA synchronous = NORMAL; PRAGMA wal_checkpoint(TRUNCATE)");
}

/* Seconds for replays spread over all n completed records. */
static double replays(Work *p, int n, int iRound) {
  double t = workNow();
  for (int i = 0; i < REPLAYS; i++) {
    workReplay(p, BY_SCALAR, (int)((sqlite3_int64)(iRound * REPLAYS + i) * 1000003 % n));
  }
  return workNow() - t;
}

static void measure(Work *p, const char *zKind, int n, int *piApart) {
  const WorkOp *pCycle = workOp("cycle in one transaction"), *pPair = workOp("claim + complete");
  const WorkOp *pPurge = workOp("purge per row");
  sqlite3_int64 nByte = workInt(p, "SELECT page_count * page_size FROM"
                                   " pragma_page_count, pragma_page_size");
  int iNext = p->iNext;
  report(zKind, n, "bytes", (double)nByte / (double)workInt(p, "SELECT max(id) FROM idem_store"));
  p->iNext = *piApart;
  for (int i = 0; i < ROUNDS; i++) {
    report(zKind, n, "cycle", workTurn(p, pCycle, BY_SCALAR, CYCLES) / CYCLES * 1e6);
    report(zKind, n, "pair", workTurn(p, pPair, BY_SCALAR, PAIRS) / PAIRS * 1e6);
    report(zKind, n, "replay", replays(p, n, i) / REPLAYS * 1e6);
    report(zKind, n, "purge", workTurn(p, pPurge, BY_SCALAR, WORK_ROWS) / WORK_ROWS * 1e6);
  }
  *piApart = p->iNext;
  p->iNext = iNext;
}

static void growth(Work *p, const char *zKind, int nMax) {
  int iApart = APART;
  p->bOrdered = strcmp(zKind, "v7") == 0;
  for (int n = 10000; n <= nMax; n = n < nMax / 10 || n == nMax / 10 ? n * 10 : nMax + 1) {
    double t = workNow();
    int nNew = n - p->iNext;
    grow(p, n);
    report(zKind, n, "fill", (workNow() - t) / nNew * 1e6);
    measure(p, zKind, n, &iApart);
  }
}

/* Purges until nothing is left; returns the rows. */
static int purgeAll(Work *p) {
  int n, nAll = 0;
  do {
    n = (int)workInt(p, "SELECT idem_purge(1000)");
    nAll += n;
  } while (n == 1000);
  return nAll;
}

static int churn(Work *p, int nHour, int nKey) {
  sqlite3_int64 iTime = 1764500000000, nDay = 0, nEnd = 0;
  workRun(p, "UPDATE idem_policy SET retention_ms = 3600000, tombstone_ms = 86400000");
  for (int iHour = 1; iHour <= nHour; iHour++) {
    workClock(p, iTime += HOUR);
    workBegin(p);
    for (int i = 0; i < nKey; i++, p->iNext++) {
      workClaim(p, BY_SCALAR, p->iNext, "claimed");
      workComplete(p, BY_SCALAR, p->iNext);
    }
    workCommit(p);
    purgeAll(p);
    workRun(p, "PRAGMA wal_checkpoint(TRUNCATE)");
    nEnd = workInt(p, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
    if (iHour <= 30) nDay = nEnd;
    printf("churn\t%d\t%lld\t%lld\n", iHour, workInt(p, "SELECT count(*) FROM idem_store"), nEnd);
  }
  if (nEnd > nDay + nDay / 20) workDie("churn", "the file still grows after the first day");
  return 0;
}

int main(int argc, char **argv) {
  char zFile[1000];
  Work w;
  if (argc != 6) workDie("usage", "growth FOLDER EXTENSION v4|v7|churn NUMBER NUMBER");
  int bChurn = strcmp(argv[3], "churn") == 0;
  snprintf(zFile, sizeof(zFile), "%s/growth-%s.db", argv[1], argv[3]);
  WorkPlace place = {zFile, "NORMAL", argv[2], bChurn ? 0 : atoi(argv[5]) * 1024};
  workOpen(&w, &place);
  if (bChurn) churn(&w, atoi(argv[4]), atoi(argv[5]));
  else growth(&w, argv[3], atoi(argv[4]));
  workClose(&w);
  return 0;
}
