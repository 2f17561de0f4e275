/*
** fuzz_canonical.c: libFuzzer target for the canonicaliser, scanner and paths.
**
** Input: the payload; or, if the first byte is 1 to 8, that many paths, each ended by a line feed,
** and then the payload. The input is copied to memory of exactly its size, so that the address
** sanitizer sees every read beyond it.
**
** Checked of every input, whatever it is:
**   - a refusal has a kind and an offset within the argument, and leaves no text;
**   - an accepted text is accepted again and is its own canonical text, with no paths;
**   - it is the same when the machine's buffers are new as when they were used before;
**   - it is at most 5.5 times as long as the input;
**   - leaving something out never makes a bad payload good or a good one bad, but for only_empty;
**   - a string, a number or a literal scanned alone gives what it gives in an array.
*/
#include "../../ext/canonical.h"
#include "../../ext/idem_int.h"

#include <stdio.h>
#include <stdlib.h>

#define PATHS 8

int LLVMFuzzerTestOneInput(const uint8_t *a, size_t n);

#define CHECK(x)                                                                                   \
  do {                                                                                             \
    if (!(x)) fail(#x, __LINE__);                                                                  \
  } while (0)

static void fail(const char *zWhat, int iLine) {
  fprintf(stderr, "fuzz_canonical.c:%d: not so: %s\n", iLine, zWhat);
  abort();
}

/* Memory that holds exactly these bytes. */
static uint8_t *exactCopy(const uint8_t *a, size_t n) {
  uint8_t *p = malloc(n > 0 ? n : 1);
  CHECK(p != NULL);
  if (n > 0) memcpy(p, a, n);
  return p;
}

/* The result of one run: a copy of the text, or the fault. */
typedef struct Result {
  IdemFault fault; /* kind 0 if there is a text */
  uint8_t *a;      /* the text, to be freed */
  size_t n;        /* its length */
} Result;

static Result run(IdemCanon *pCanon, const IdemPaths *pPaths, const uint8_t *a, size_t n) {
  Result r;
  uint8_t *aText;
  int rc;
  memset(&r, 0, sizeof r);
  rc = idemCanonRun(pCanon, pPaths, a, n, &aText, &r.n, &r.fault);
  CHECK((rc == SQLITE_OK) == (r.fault.eKind == IDEM_FAULT_NONE));
  CHECK((rc == SQLITE_OK) == (aText != NULL));
  if (rc == SQLITE_OK) {
    r.a = exactCopy(aText, r.n);
    memset(aText - IDEM_SLACK, 0x55, IDEM_SLACK); /* the caller may write there */
    CHECK(r.n > 0 && r.n * 2 <= n * 11);
  } else {
    CHECK(rc == SQLITE_ERROR && r.n == 0 && r.fault.iByte <= n);
    CHECK(r.fault.eKind < IDEM_FAULT_COUNT && r.fault.eKind != IDEM_FAULT_PATH);
  }
  return r;
}

static int same(const Result *p, const Result *q) {
  if (p->fault.eKind != q->fault.eKind || p->fault.iByte != q->fault.iByte) return 0;
  return p->n == q->n && (p->n == 0 || memcmp(p->a, q->a, p->n) == 0);
}

/* Finds the paths in front of a payload. Returns the bytes they take, 0 if there are none. */
static size_t findPaths(const uint8_t *a, size_t n, const uint8_t **apPath, size_t *an,
                        int *pnPath) {
  size_t iAt = 1;
  *pnPath = n > 0 && a[0] >= 1 && a[0] <= PATHS ? a[0] : 0;
  for (int i = 0; i < *pnPath; i++) {
    const uint8_t *pEnd = iAt < n ? memchr(a + iAt, '\n', n - iAt) : NULL;
    if (pEnd == NULL) {
      *pnPath = 0;
      break;
    }
    apPath[i] = a + iAt;
    an[i] = (size_t)(pEnd - apPath[i]);
    iAt += an[i] + 1;
  }
  return *pnPath > 0 ? iAt : 0;
}

/* Parses the paths in front of a payload. Returns the bytes they take; *pp is NULL if there are
** none or one is bad. */
static size_t readPaths(const uint8_t *a, size_t n, IdemPaths **pp) {
  const uint8_t *apPath[PATHS];
  char *azCopy[PATHS];
  const char *az[PATHS];
  size_t an[PATHS];
  IdemPathFault fault;
  int nPath;
  size_t nSkip = findPaths(a, n, apPath, an, &nPath);

  *pp = NULL;
  if (nPath == 0) return 0;
  for (int i = 0; i < nPath; i++) az[i] = azCopy[i] = (char *)exactCopy(apPath[i], an[i]);
  if (idemPathsNew(pp, nPath, az, an, &fault) == SQLITE_OK) {
    CHECK(*pp != NULL && idemPathsSame(*pp, nPath, az, an));
  } else {
    CHECK(*pp == NULL && fault.eKind == IDEM_FAULT_PATH && fault.zWhy != NULL);
    CHECK(fault.iPath < nPath && fault.iByte <= an[fault.iPath]);
  }
  for (int i = 0; i < nPath; i++) free(azCopy[i]);
  return nSkip;
}

/* The same scalar between brackets. */
static void checkInArray(IdemCanon *pCanon, const uint8_t *a, size_t n, const Result *pAlone) {
  uint8_t *aArray = malloc(n + 2);
  Result r;
  CHECK(aArray != NULL);
  aArray[0] = '[';
  memcpy(aArray + 1, a, n);
  aArray[n + 1] = ']';
  r = run(pCanon, NULL, aArray, n + 2);
  CHECK(r.fault.eKind == IDEM_FAULT_NONE && r.n == pAlone->n + 2);
  CHECK(memcmp(r.a + 1, pAlone->a, pAlone->n) == 0);
  free(r.a);
  free(aArray);
}

int LLVMFuzzerTestOneInput(const uint8_t *a, size_t n) {
  static IdemCanon *pUsed; /* lives as long as the process: its buffers hold older texts */
  IdemCanon *pNew = idemCanonNew();
  IdemPaths *pPaths;
  size_t nSkip = readPaths(a, n, &pPaths);
  uint8_t *aInput = exactCopy(a + nSkip, n - nSkip);
  Result plain, again;

  if (pUsed == NULL) pUsed = idemCanonNew();
  CHECK(pUsed != NULL && pNew != NULL);
  n -= nSkip;
  plain = run(pUsed, NULL, aInput, n);
  again = run(pNew, NULL, aInput, n);
  CHECK(same(&plain, &again));
  free(again.a);
  if (plain.a != NULL) {
    again = run(pUsed, NULL, plain.a, plain.n);
    CHECK(again.fault.eKind == IDEM_FAULT_NONE && same(&plain, &again));
    free(again.a);
    if (plain.a[0] != '[' && plain.a[0] != '{') checkInArray(pUsed, aInput, n, &plain);
  }
  if (pPaths != NULL) {
    Result chosen = run(pUsed, pPaths, aInput, n);
    if (plain.a == NULL) CHECK(same(&plain, &chosen));
    if (chosen.a != NULL) {
      again = run(pNew, NULL, chosen.a, chosen.n);
      CHECK(plain.a != NULL && chosen.n <= plain.n && same(&chosen, &again));
      free(again.a);
    } else if (plain.a != NULL) {
      CHECK(chosen.fault.eKind == IDEM_FAULT_ONLYEMPTY);
    }
    free(chosen.a);
    idemPathsFree(pPaths);
  }
  idemCanonTrim(pUsed);
  idemCanonFree(pNew);
  free(plain.a);
  free(aInput);
  return 0;
}
