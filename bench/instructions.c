/*
** instructions.c: how many instructions each operation of work.h costs, by idem and by hand.
**
**     valgrind --tool=callgrind --instr-atstart=no --collect-atstart=no
**              instructions FOLDER EXTENSION
**     instructions --versions EXTENSION
**
** bench/instructions.py builds and runs it. The counter runs around each operation alone and is
** written out after each turn, under the name "OPERATION/BY/NUMBER": start-up, preparation of
** statements and the keys that an operation needs beforehand are not in it. On a file in WAL mode;
** what the kernel does is not counted.
*/
#include "work.h"

#include <stdio.h>
#include <string.h>
#include <valgrind/callgrind.h>

#define TURN 250 /* operations of a turn; the rows of a purge or a scan are more */
#define WARM 25

/* Runs n operations; counted, if bCount. A completion follows its own claim, as in real life. */
static void turn(Work *p, const WorkOp *pOp, int eBy, int n, int bCount) {
  char zName[100];
  int bAfterClaim = strcmp(pOp->zName, "complete") == 0;
  WorkOp op = *pOp;
  if (bAfterClaim) op.xPrepare = workOp("claim")->xPrepare; /* keys that nobody has claimed yet */
  if (n < op.nUnit) n = op.nUnit;
  workPrepare(p, &op, eBy, n);
  if (bCount) CALLGRIND_ZERO_STATS;
  for (int i = 0; i < n; i += op.nUnit) {
    if (bAfterClaim) workClaim(p, eBy, p->iFirst + i, "claimed");
    if (bCount) CALLGRIND_TOGGLE_COLLECT;
    op.xOne(p, eBy, i);
    if (bCount) CALLGRIND_TOGGLE_COLLECT;
  }
  snprintf(zName, sizeof(zName), "%s/%s/%d", op.zName, azBy[eBy], n);
  if (bCount) CALLGRIND_DUMP_STATS_AT(zName);
  workEnd(p, &op);
}

static void countAll(Work *p) {
  workRun(p, "PRAGMA wal_autocheckpoint = 0"); /* a checkpoint would fall upon one side */
  workFill(p);
  CALLGRIND_START_INSTRUMENTATION;
  for (int i = 0; i < nWorkOp; i++) {
    if (!(aWorkOp[i].mBy & ~(1 << BY_HAND))) continue; /* idem has no part in it */
    for (int eBy = 0; eBy < BY_COUNT; eBy++) {
      if (!(aWorkOp[i].mBy >> eBy & 1)) continue;
      turn(p, &aWorkOp[i], eBy, WARM, 0);
      turn(p, &aWorkOp[i], eBy, TURN, 1);
    }
  }
}

int main(int argc, char **argv) {
  Work w;
  char zFile[1000];
  if (argc != 3) workDie("usage", "instructions FOLDER|--versions EXTENSION");
  int bVersions = strcmp(argv[1], "--versions") == 0;
  snprintf(zFile, sizeof(zFile), "%s/instructions.db", argv[1]);
  WorkPlace place = {bVersions ? ":memory:" : zFile, "OFF", argv[2], 65536};
  workOpen(&w, &place);
  if (bVersions) workVersions(&w);
  else countAll(&w);
  workClose(&w);
  return 0;
}
