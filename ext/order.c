/*
** order.c: members in the order of their names, without moving text more than once.
**
**   SELECT idem_canonical('{"b":{"d":1,"c":2},"a":3}');   -- {"a":3,"b":{"c":2,"d":1}}
**
** HOW IT WORKS
**   The text of a document is written with members in the order they came. What is remembered of an
**   open object is one IdemMember per name. When the object closes and its names were ascending,
**   its text is final, and its members are forgotten. Else the members are sorted, and a Shuffle
**   with one place per member remembers the order they should have had. Nothing is moved: moving
**   text at every level would copy the innermost text once per level, which is quadratic when
**   unsorted objects nest.
**
**   At the end, if there are shuffles, a second pass writes the final text. Shuffles were made as
**   objects closed, so the last one is outermost or rightmost; hence this pass runs from the end of
**   the text to its beginning, and each byte is copied once.
**
**   Dropped members are sorted like the others, so that a duplicate of one is seen, but get no
**   place.
**
** ORDER OF NAMES
**   By UTF-16 code units, as in RFC 8785. That is the order of the UTF-8 bytes but for one case:
**   characters above U+FFFF (lead bytes F0 to F4) come before U+E000 to U+FFFF (lead bytes EE and
**   EF). Exchanging those two ranges of bytes makes it byte order outright. A name that is written
**   with escapes is decoded while it is compared.
**
** COST
**   n log n comparisons for n members, whatever their order; none that leaves the array of members
**   unless two names share eight bytes. 32 bytes for each member of an open object (twice that
**   while it is sorted), 12 for each of a shuffled one.
*/
#include "order.h"

#include "idem_int.h"

/* Runs of this many members are sorted by insertion before they are merged. */
#define RUN_LENGTH  16
#define WORD_NUMBER UINT64_C(0xff)   /* the bits of a word that hold a member's number in its run */
#define RUN_WORDS   (1 + RUN_LENGTH) /* one for each member of a run, and one before them */

/* An object whose text is not final. */
typedef struct Shuffle {
  uint32_t iText;   /* its opening bracket */
  uint32_t iEnd;    /* one past its closing bracket */
  uint32_t iPlace;  /* its first place in the array of places */
  uint32_t nPlace;  /* members it keeps */
  uint32_t nBefore; /* shuffles made before its opening bracket: all others up to it are inside */
} Shuffle;

/* --- memory ------------------------------------------------------------------------------- */

/* The old items are kept, and kept even if this fails. */
int idemBufferGrow(IdemBuffer *p, size_t nNeed) {
  size_t nAlloc = p->nAlloc + p->nAlloc / 2;
  void *a;
  if (nAlloc < nNeed) nAlloc = nNeed;
  a = sqlite3_realloc64(p->a, nAlloc);
  if (a == NULL) return IDEM_FAULT_NOMEM;
  p->a = a;
  p->nAlloc = nAlloc;
  return IDEM_FAULT_NONE;
}

void idemBufferFree(IdemBuffer *p) {
  sqlite3_free(p->a);
  p->a = NULL;
  p->nAlloc = 0;
}

void idemOrderReset(IdemOrder *p) {
  p->nMember = p->nPlace = p->nShuffle = 0;
}

size_t idemOrderMemory(const IdemOrder *p) {
  return p->member.nAlloc + p->place.nAlloc + p->shuffle.nAlloc + p->final.nAlloc;
}

void idemOrderFree(IdemOrder *p) {
  idemBufferFree(&p->member);
  p->nMemberMax = 0;
  idemBufferFree(&p->place);
  idemBufferFree(&p->shuffle);
  idemBufferFree(&p->final);
}

/* --- the order of names ------------------------------------------------------------------- */

/* The next byte of a name that has escapes, decoded and as idemOrderByte has it; -1 at its end. */
static int nextByte(const uint8_t **pp, const uint8_t *pEnd) {
  static const char zLetter[] = "bfnrt";
  static const char zMeaning[] = "\b\f\n\r\t";
  const uint8_t *p = *pp;
  const char *z;

  if (p == pEnd) return -1;
  if (*p != '\\') {
    *pp = p + 1;
    return (int)idemOrderByte(*p);
  }
  assert(pEnd - p >= 2);
  *pp = p + 2;
  if (p[1] == 'u') { /* \u00xx, lower case */
    *pp = p + 6;
    return (p[4] - '0') * 16 + (p[5] <= '9' ? p[5] - '0' : p[5] - 'a' + 10);
  }
  z = strchr(zLetter, p[1]);
  return z ? zMeaning[z - zLetter] : p[1];
}

/* Names that begin with the same eight bytes, or of which one has escapes. */
static int compareWhole(const IdemOrder *p, const IdemMember *pA, const IdemMember *pB) {
  const uint8_t *a = p->aText + pA->place.iText + 1;
  const uint8_t *b = p->aText + pB->place.iText + 1;
  size_t nA = pA->nName, nB = pB->nName;

  if (pA->bEscaped || pB->bEscaped) {
    const uint8_t *const pEndA = a + nA, *const pEndB = b + nB;
    int iA, iB;
    do {
      iA = nextByte(&a, pEndA);
      iB = nextByte(&b, pEndB);
    } while (iA == iB && iA >= 0);
    return iA - iB;
  }
  for (size_t i = 8; i < nA && i < nB; i += 8) {
    uint64_t wA = idemOrderWord(a + i, nA - i);
    uint64_t wB = idemOrderWord(b + i, nB - i);
    if (wA != wB) return wA < wB ? -1 : 1;
  }
  return nA < nB ? -1 : nA > nB;
}

/* Whether B must stand before A. Notes it if they are equal: any sort compares, at some time, each
** two names that end up side by side, so no duplicate is missed. */
static inline int isBefore(IdemOrder *p, const IdemMember *pB, const IdemMember *pA) {
  int iOrder;
  if (pA->iPrefix != pB->iPrefix && !(pA->bEscaped | pB->bEscaped)) {
    return pB->iPrefix < pA->iPrefix;
  }
  iOrder = compareWhole(p, pB, pA);
  if (iOrder == 0) p->bEqual = 1;
  return iOrder < 0;
}

/* Sorts members in place, one after the other. Equal names keep their order, which is that of the
** input: findRepeat relies on it. */
static void insertMembers(IdemOrder *p, IdemMember *a, size_t n) {
  for (size_t i = 1; i < n; i++) {
    IdemMember x = a[i];
    size_t j = i;
    for (; j > 0 && isBefore(p, &x, &a[j - 1]); j--) a[j] = a[j - 1];
    a[j] = x;
  }
}

/* Sorts the numbers of at most RUN_LENGTH members, as single words of seven bytes of the name and
** the member's number. That is quick, and nearly always decides; returns 0 if it does not.
**
** A zero before the first word stops each insertion. Of words with equal bytes the second lands
** right behind the first, so that the tie is seen. The empty name ties with the zero: it is left to
** the comparison of names, like any other tie. */
static inline int sortWords(uint64_t *aWord, const IdemMember *a, size_t n) {
  int bEscaped = 0, bTie = 0;

  assert(n > 0 && n <= RUN_LENGTH);
  *aWord++ = 0;
  for (size_t i = 0; i < n; i++) {
    const uint64_t w = (a[i].iPrefix & ~WORD_NUMBER) | i;
    uint64_t *pWord = aWord + i;
    for (; w < pWord[-1]; pWord--) pWord[0] = pWord[-1];
    pWord[0] = w;
    bTie |= (w ^ pWord[-1]) <= WORD_NUMBER;
    bEscaped |= a[i].bEscaped;
  }
  return !(bEscaped | bTie);
}

/* Sorts a run of members into aTo. Words that do not decide still are in the order of the prefixes,
** and equal prefixes in that of the input, so that the second sort has little to do. */
static void sortRun(IdemOrder *p, IdemMember *aTo, const IdemMember *a, size_t n) {
  uint64_t aWord[RUN_WORDS];
  int bDecided = sortWords(aWord, a, n);
  for (size_t i = 0; i < n; i++) aTo[i] = a[aWord[1 + i] & WORD_NUMBER];
  if (!bDecided) insertMembers(p, aTo, n);
}

/* Merges a[0..nA-1] and a[nA..n-1] into aTo. Of equal names the one from the left goes first. */
static void mergeRuns(IdemOrder *p, IdemMember *aTo, const IdemMember *a, size_t nA, size_t n) {
  size_t i = 0, j = nA;
  assert(nA <= n);
  while (i < nA && j < n) *aTo++ = isBefore(p, &a[j], &a[i]) ? a[j++] : a[i++];
  if (i < nA) memcpy(aTo, a + i, (nA - i) * sizeof *a);
  if (j < n) memcpy(aTo, a + j, (n - j) * sizeof *a);
}

/* Sorts n members with the help of as many spare ones; returns whichever array holds the result.
** Merging from the bottom up is never worse than n log n and needs no stack. */
static IdemMember *sortMembers(IdemOrder *p, IdemMember *a, IdemMember *aSpare, size_t n) {
  for (size_t i = 0; i < n; i += RUN_LENGTH) {
    sortRun(p, aSpare + i, a + i, n - i < RUN_LENGTH ? n - i : RUN_LENGTH);
  }
  for (size_t nRun = RUN_LENGTH; nRun < n; nRun *= 2) {
    IdemMember *aSorted = aSpare;
    aSpare = a;
    a = aSorted;
    for (size_t i = 0; i < n; i += 2 * nRun) {
      size_t nBoth = n - i < 2 * nRun ? n - i : 2 * nRun;
      mergeRuns(p, aSpare + i, a + i, nBoth < nRun ? nBoth : nRun, nBoth);
    }
  }
  return aSpare;
}

/* The first repeating name of a sorted object: of equal names all but the first repeat. */
static uint32_t findRepeat(IdemOrder *p, const IdemMember *a, size_t n) {
  uint32_t iSource = UINT32_MAX;
  for (size_t i = 1; i < n; i++) {
    p->bEqual = 0;
    if (!isBefore(p, &a[i - 1], &a[i]) && p->bEqual && a[i].iSource < iSource) {
      iSource = a[i].iSource;
    }
  }
  assert(iSource != UINT32_MAX);
  return iSource;
}

/* --- objects that close ------------------------------------------------------------------- */

/* Makes room for n members. */
static int reserveMembers(IdemOrder *p, size_t n) {
  int eFault = idemBufferReserve(&p->member, n * sizeof(IdemMember));
  size_t nMax = p->member.nAlloc / sizeof(IdemMember);
  p->nMemberMax = nMax < UINT32_MAX ? (uint32_t)nMax : UINT32_MAX;
  return eFault;
}

/* Called by idemOrderPush once the room is used up. */
int idemOrderGrow(IdemOrder *p) {
  return reserveMembers(p, p->nMember + (size_t)1);
}

/* Fills in the place of a member, unless that is dropped; returns the next place. */
static inline IdemPlace *addPlace(IdemPlace *pPlace, const IdemMember *pMember) {
  *pPlace = pMember->place;
  return pPlace + !pMember->bDropped;
}

/* Remembers the final order of an object: the members a[0..n-1], but for dropped ones; in the order
** of aWord, unless that is NULL. */
static inline int addShuffle(IdemOrder *p, const IdemObject *pObject, const IdemMember *a,
                             const uint64_t *aWord, size_t n) {
  Shuffle *pShuffle;
  IdemPlace *pPlace;
  int eFault = idemBufferReserve(&p->shuffle, (p->nShuffle + (size_t)1) * sizeof *pShuffle);
  if (!eFault) eFault = idemBufferReserve(&p->place, (p->nPlace + n) * sizeof *pPlace);
  if (eFault) return eFault;
  pShuffle = (Shuffle *)p->shuffle.a + p->nShuffle;
  pPlace = (IdemPlace *)p->place.a + p->nPlace;
  pShuffle->iText = pObject->iText;
  pShuffle->iEnd = pObject->iEnd;
  pShuffle->iPlace = p->nPlace;
  pShuffle->nBefore = pObject->nShuffle;
  if (aWord != NULL) {
    for (size_t i = 1; i <= n; i++) pPlace = addPlace(pPlace, &a[aWord[i] & WORD_NUMBER]);
  } else {
    for (size_t i = 0; i < n; i++) pPlace = addPlace(pPlace, &a[i]);
  }
  p->nPlace = (uint32_t)(pPlace - (IdemPlace *)p->place.a);
  pShuffle->nPlace = p->nPlace - pShuffle->iPlace;
  assert(pShuffle->nBefore <= p->nShuffle && pShuffle->iEnd > pShuffle->iText);
  p->nShuffle++;
  return IDEM_FAULT_NONE;
}

/* Members are popped at once, but stay readable until the next push. The three ways out, by how
** often they are taken: in order already; few enough members to sort as words; anything else. */
int idemOrderClose(IdemOrder *p, const uint8_t *aText, const IdemObject *pObject,
                   uint32_t *piRepeat) {
  IdemMember *a = (IdemMember *)p->member.a + pObject->iMember;
  size_t n = p->nMember - pObject->iMember;
  uint64_t aWord[RUN_WORDS];
  size_t i = 1;
  int bWords;

  assert(n > 0 && pObject->iEnd > pObject->iText);
  p->aText = aText;
  p->nMember = pObject->iMember;
  while (i < n && isBefore(p, &a[i - 1], &a[i])) i++;
  if (i == n && !pObject->bGap) return IDEM_FAULT_NONE;
  bWords = n <= RUN_LENGTH && sortWords(aWord, a, n);
  if (!bWords && i < n) {
    int eFault = reserveMembers(p, p->nMember + 2 * n);
    if (eFault) return eFault;
    a = (IdemMember *)p->member.a + p->nMember;
    p->bEqual = 0;
    a = sortMembers(p, a, a + n, n);
    if (p->bEqual) {
      *piRepeat = findRepeat(p, a, n);
      return IDEM_FAULT_DUPKEY;
    }
  }
  return addShuffle(p, pObject, a, bWords ? aWord : NULL, n);
}

/* Places are forgotten with their shuffles: those of the last one left are the last ones. */
void idemOrderForget(IdemOrder *p, uint32_t nShuffle) {
  assert(nShuffle <= p->nShuffle);
  p->nShuffle = nShuffle;
  p->nPlace = 0;
  if (nShuffle > 0) {
    const Shuffle *pLast = (const Shuffle *)p->shuffle.a + nShuffle - 1;
    p->nPlace = pLast->iPlace + pLast->nPlace;
  }
}

/* --- second pass -------------------------------------------------------------------------- */

/* Copies n bytes to end at pOut; returns where they begin. Short pieces are copied in whole blocks,
** at least one: before both texts there are IDEM_SLACK bytes that may be read and written. */
static inline uint8_t *copyBefore(uint8_t *pOut, const uint8_t *pFrom, size_t n) {
  const uint8_t *pFromEnd = pFrom + n;
  uint8_t *const pStart = pOut - n;
  if (n > 256) {
    memcpy(pStart, pFrom, n);
    return pStart;
  }
  do {
    pOut -= 32;
    pFromEnd -= 32;
    memcpy(pOut, pFromEnd, 32);
  } while (pOut > pStart);
  return pStart;
}

/* Writes the final form of text [iLow,iHigh) so that it ends at pOut; returns where it begins.
** Works from the end of a range down: the last shuffle in it, if any, is the rightmost of the
** shuffled objects that lie directly in it. */
static uint8_t *writeRange(IdemOrder *p, uint8_t *pOut, uint32_t iLow, uint32_t iHigh) {
  const uint8_t *const aText = p->aText;
  const Shuffle *const aShuffle = p->shuffle.a;
  uint32_t nShuffle = p->nShuffle;  /* shuffles made before iHigh */
  IdemJob job = {0, NULL, NULL, 0}; /* the object of which this range is a member */
  int nJob = 0;                     /* 0: of none; else aJob[1..nJob-1] hold those around it */

  for (;;) {
    if (nShuffle > 0 && aShuffle[nShuffle - 1].iText >= iLow) { /* go into the object */
      const Shuffle *pInner = &aShuffle[nShuffle - 1];
      assert(pInner->iEnd <= iHigh && nJob < IDEM_DEPTH_MAX);
      pOut = copyBefore(pOut, aText + pInner->iEnd, iHigh - pInner->iEnd);
      *--pOut = '}';
      p->aJob[nJob++] = job;
      job.iShuffle = nShuffle - 1;
      job.pFirst = (const IdemPlace *)p->place.a + pInner->iPlace;
      job.pPlace = job.pFirst + pInner->nPlace;
      job.iLow = iLow;
    } else {
      assert(iLow <= iHigh);
      pOut = copyBefore(pOut, aText + iLow, iHigh - iLow);
      if (nJob == 0) return pOut;
      if (job.pPlace > job.pFirst) *--pOut = ',';
    }
    if (job.pPlace > job.pFirst) { /* its next member to the left */
      job.pPlace--;
      iLow = job.pPlace->iText;
      iHigh = job.pPlace->iEnd;
      nShuffle = job.pPlace->nShuffle;
    } else { /* what is left of it */
      *--pOut = '{';
      iLow = job.iLow;
      iHigh = aShuffle[job.iShuffle].iText;
      nShuffle = aShuffle[job.iShuffle].nBefore;
      job = p->aJob[--nJob];
    }
  }
}

/* Without shuffles the text is final as it stands. The final text can only be shorter than the text
** it is made from, by what was dropped. */
int idemOrderWrite(IdemOrder *p, uint8_t *aText, uint32_t iText, uint32_t iEnd, uint8_t **pa,
                   size_t *pn) {
  uint8_t *pEnd;
  *pa = aText + iText;
  *pn = iEnd - iText;
  if (p->nShuffle == 0) return IDEM_FAULT_NONE;
  if (idemBufferReserve(&p->final, *pn + IDEM_SLACK)) return IDEM_FAULT_NOMEM;
  pEnd = (uint8_t *)p->final.a + p->final.nAlloc;
  p->aText = aText;
  *pa = writeRange(p, pEnd, iText, iEnd);
  *pn = (size_t)(pEnd - *pa);
  return IDEM_FAULT_NONE;
}
