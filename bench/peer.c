/*
** peer.c: one client of idem or of a peer, see peer.h.
**
**     peer KIND TARGET durable|relaxed FIRST_KEY
**
** bench/bench.py starts one for each client, and they all wait for its word, so that contenders can
** take turns. The first hundred keys are completed at once, for replays. Then each line of standard
** input is an order, "one|two|replay SECONDS", and each is answered by a line:
**
**     OPERATIONS TAB SECONDS TAB BUCKET:COUNT,BUCKET:COUNT ...
**
** where an operation that took t nanoseconds is in bucket round(16 log2 t).
*/
#include "peer.h"
#include "work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REPLAYED 100
#define BUCKETS  1024

void peerDie(const char *zWhere, const char *zWhat) {
  fprintf(stderr, "peer: %s: %s\n", zWhere, zWhat);
  exit(1);
}

const char *peerAnswer(void) {
  static char z[PEER_ANSWER + 1];
  if (!z[0]) workAnswerText(z, PEER_ANSWER);
  return z;
}

void peerKey(int iKey, char zKey[40]) {
  workKey(iKey, 0, zKey);
}

void peerToken(int iKey, char zToken[40]) {
  workToken(iKey, 0, zToken);
}

static double now(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static const PeerKind *find(const char *zName) {
  const PeerKind *const apKind[] = {aPeerSqlite, aPeerPostgres, aPeerRedis};
  for (int i = 0; i < 3; i++) {
    for (const PeerKind *p = apKind[i]; p->zName; p++) {
      if (strcmp(p->zName, zName) == 0) return p;
    }
  }
  peerDie("no such kind", zName);
  return 0;
}

/* Runs xWork until the time is up, and prints the answer to the order. */
static void obey(void (*xWork)(void *, int), void *p, int *piKey, int bReplay, int iFirst,
                 double rSecond) {
  static long anBucket[BUCKETS];
  long n = 0;
  memset(anBucket, 0, sizeof(anBucket));
  double tStart = now(), t = tStart;
  while (t - tStart < rSecond * 1e9) {
    double tBefore = t;
    xWork(p, bReplay ? iFirst + (int)(n * 37 % REPLAYED) : (*piKey)++);
    t = now();
    int iBucket = (int)lround(16 * log2(t - tBefore));
    anBucket[iBucket < 0 ? 0 : iBucket < BUCKETS ? iBucket : BUCKETS - 1]++;
    n++;
  }
  printf("%ld\t%.6f\t", n, (t - tStart) * 1e-9);
  for (int i = 0; i < BUCKETS; i++) {
    if (anBucket[i]) printf("%d:%ld,", i, anBucket[i]);
  }
  printf("\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  char zOrder[20];
  double rSecond;
  if (argc != 5) peerDie("usage", "peer KIND TARGET durable|relaxed FIRST_KEY");
  const PeerKind *pKind = find(argv[1]);
  int iFirst = atoi(argv[4]), iKey = iFirst;
  void *p = pKind->xOpen(argv[2], strcmp(argv[3], "durable") == 0);
  while (iKey < iFirst + REPLAYED) pKind->xTwo(p, iKey++);
  printf("ready\n");
  fflush(stdout);
  while (scanf("%19s %lf", zOrder, &rSecond) == 2) {
    int bReplay = strcmp(zOrder, "replay") == 0;
    void (*xWork)(void *, int) = bReplay                       ? pKind->xReplay
                                 : strcmp(zOrder, "one") == 0 ? pKind->xOne
                                                               : pKind->xTwo;
    if (!xWork) peerDie(pKind->zName, "cannot do that");
    obey(xWork, p, &iKey, bReplay, iFirst, rSecond);
  }
  pKind->xClose(p);
  return 0;
}
