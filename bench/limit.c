/*
** limit.c: idem against the limit: the same work by hand in C, see work.h.
**
**     limit FOLDER EXTENSION ROUNDS
**
** bench/bench.py builds and runs it. Prints one line per turn, with the microseconds that one
** operation took:
**
**     limit  PLACE  OPERATION  BY  US     memory; or a file in WAL: OFF, NORMAL, FULL
**     size   BYTES  OPERATION  BY  US     answers of so many bytes, on a file, NORMAL
**
** separated by tabs. Sides take turns within a round, so that a machine that slows down slows all;
** only ratios within one run are worth quoting. The page cache is 256 MiB: all there is.
*/
#include "work.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
  const char *zName; /* as printed */
  const char *zSync; /* PRAGMA synchronous */
  int mAt;           /* the operations measured here */
  int nTurn;         /* operations of a turn */
  int nTimes;        /* times as many rounds: a disk is less steady than a processor */
} aPlace[] = {
    {"memory", "OFF", AT_MEMORY, 1000, 1},
    {"OFF", "OFF", AT_OFF, 300, 1},
    {"NORMAL", "NORMAL", AT_NORMAL, 300, 1},
    {"FULL", "FULL", AT_FULL, 100, 3},
};

static const int aSize[] = {0, 400, 1024, 4096, 16384, 65536, 262144, 1048576};

static void openAt(Work *p, const char *zFolder, const char *zName, const char *zSync,
                   const char *zExtension) {
  char zFile[1000];
  snprintf(zFile, sizeof(zFile), "%s/limit-%s.db", zFolder, zName);
  WorkPlace place = {zName[0] == 'm' ? ":memory:" : zFile, zSync, zExtension, 262144};
  workOpen(p, &place);
  workFill(p);
}

/* One turn of each side, another one first in each round: a checkpoint falls upon them alike. Round
** 0 warms up and is not printed. */
static void turns(Work *p, const char *zPlace, const WorkOp *pOp, int n, int iRound) {
  if (n < pOp->nUnit) n = pOp->nUnit;
  for (int i = 0; i < BY_COUNT; i++) {
    int eBy = (i + iRound) % BY_COUNT;
    if (!(pOp->mBy >> eBy & 1)) continue;
    double t = workTurn(p, pOp, eBy, n) / n * 1e6;
    if (iRound) printf("limit\t%s\t%s\t%s\t%.3f\n", zPlace, pOp->zName, azBy[eBy], t);
  }
}

static void places(const char *zFolder, const char *zExtension, int nRound) {
  Work w;
  for (size_t i = 0; i < sizeof(aPlace) / sizeof(*aPlace); i++) {
    openAt(&w, zFolder, aPlace[i].zName, aPlace[i].zSync, zExtension);
    for (int iRound = 0; iRound <= nRound * aPlace[i].nTimes; iRound++) {
      for (int iOp = 0; iOp < nWorkOp; iOp++) {
        if (!(aWorkOp[iOp].mAt & aPlace[i].mAt)) continue;
        turns(&w, aPlace[i].zName, &aWorkOp[iOp], aPlace[i].nTurn, iRound);
      }
    }
    workClose(&w);
  }
}

/* Cycles with the present answer, and replays of what they stored. */
static void oneSize(Work *p, int nByte, int eBy, int bPrint) {
  int n = nByte > 100000 ? 5 : 50;
  double t = workTurn(p, workOp("cycle in one transaction"), eBy, n) / n * 1e6;
  if (bPrint) printf("size\t%d\tcycle in one transaction\t%s\t%.3f\n", nByte, azBy[eBy], t);
  t = workNow();
  for (int i = 0; i < 4 * n; i++) workReplay(p, eBy, p->iFirst + i % n);
  t = (workNow() - t) / (4 * n) * 1e6;
  if (bPrint) printf("size\t%d\treplay in autocommit\t%s\t%.3f\n", nByte, azBy[eBy], t);
}

static void sizes(const char *zFolder, const char *zExtension, int nRound) {
  Work w;
  openAt(&w, zFolder, "sizes", "NORMAL", zExtension);
  for (int iRound = 0; iRound <= nRound; iRound++) {
    for (size_t i = 0; i < sizeof(aSize) / sizeof(*aSize); i++) {
      workAnswer(&w, aSize[i]);
      for (int j = 0; j < BY_COUNT; j++) {
        oneSize(&w, aSize[i], (j + iRound) % BY_COUNT, iRound > 0);
      }
    }
  }
  workClose(&w);
}

int main(int argc, char **argv) {
  if (argc != 4) workDie("usage", "limit FOLDER EXTENSION ROUNDS");
  workWarm(768);
  places(argv[1], argv[2], atoi(argv[3]));
  sizes(argv[1], argv[2], atoi(argv[3]));
  return 0;
}
