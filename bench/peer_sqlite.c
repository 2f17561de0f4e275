/*
** peer_sqlite.c: idem, and SQLite by hand from C: both by work.h.
**
** The target is "EXTENSION,FILE". Durable is synchronous = FULL: a commit waits for the disk.
** Relaxed is NORMAL: it does not, and after a loss of power the last commits may be missing; the
** file stays sound.
**
**     idem          as SQLite comes: a checkpoint after 4 MB of log, waiting for the disk
**     idem-64       a checkpoint after 64 MB
**     sqlite-hand   by hand, as SQLite comes
*/
#include "peer.h"
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open(const char *zTarget, int bDurable) {
  char zExtension[1000];
  Work *p = malloc(sizeof(*p));
  const char *zFile = strchr(zTarget, ',');
  if (!p || !zFile) peerDie("sqlite", "EXTENSION,FILE");
  snprintf(zExtension, sizeof(zExtension), "%.*s", (int)(zFile - zTarget), zTarget);
  WorkPlace place = {zFile + 1, bDurable ? "FULL" : "NORMAL", zExtension, 65536};
  workOpen(p, &place);
  return p;
}

static void *openRare(const char *zTarget, int bDurable) {
  Work *p = open(zTarget, bDurable);
  workRun(p, "PRAGMA wal_autocheckpoint = 16384");
  return p;
}

static void oneIdem(void *p, int iKey) {
  workCycle(p, BY_SCALAR, iKey);
}

static void twoIdem(void *p, int iKey) {
  workTwo(p, BY_SCALAR, iKey);
}

static void replayIdem(void *p, int iKey) {
  workReplay(p, BY_SCALAR, iKey);
}

static void oneHand(void *p, int iKey) {
  workCycle(p, BY_HAND, iKey);
}

static void twoHand(void *p, int iKey) {
  workTwo(p, BY_HAND, iKey);
}

static void replayHand(void *p, int iKey) {
  workReplay(p, BY_HAND, iKey);
}

static void close(void *p) {
  workClose(p);
  free(p);
}

const PeerKind aPeerSqlite[] = {
    {"idem", open, oneIdem, twoIdem, replayIdem, close},
    {"idem-64", openRare, oneIdem, twoIdem, replayIdem, close},
    {"sqlite-hand", open, oneHand, twoHand, replayHand, close},
    {0},
};
