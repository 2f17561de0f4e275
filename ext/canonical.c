/*
** canonical.c: one canonical text for every spelling of a JSON value.
**
**   SELECT idem_canonical(' {"b" : [1.0, 2e0], "a" : "\u0041"} ');   -- {"a":"A","b":[1,2]}
**   SELECT idem_canonical('{"a":1,"a":2}');   -- error: dupkey at byte 7
**
** HOW IT WORKS
**   One pass copies the input to a text: tokens in canonical spelling, without white space, members
**   in the order they came. No tree is built. What is remembered of an object while it is open is
**   one Member per key: where its text is, and the first eight bytes of its name.
**
**   When an object closes and its names came in ascending order, its text is final, and its members
**   are forgotten. Else the members are sorted, and a Shuffle remembers the order they should have
**   had. Nothing is moved yet: moving text at every level would copy the innermost text once per
**   level, which is quadratic when unsorted objects nest.
**
**   At the end, if there are shuffles, one second pass writes the final text. Shuffles were made as
**   objects closed, so the last one is outermost or rightmost; hence this pass runs from the end of
**   the text to its beginning, and each byte is copied once.
**
** ORDER OF NAMES
**   By UTF-16 code units, as in RFC 8785. That is the order of the UTF-8 bytes but for one case:
**   characters above U+FFFF (lead bytes F0 to F4) come before U+E000 to U+FFFF (lead bytes EE and
**   EF). Exchanging those two ranges of bytes makes it byte order outright.
**
** LEAVING OUT
**   A part that paths leave out is read and checked like any other, then the text is cut back to
**   where the part began. Only the name of a left-out member stays until its object closes, so that
**   a duplicate of it is still seen; a shuffle then leaves it out of the final text.
**
** LIMITS
**   Time is linear in the input, but for sorting n names in n log n comparisons whatever their
**   order. Memory: the text (at most 5.5 times the input, and as long as the input if no number
**   grows), a second text and 12 bytes a member if anything was out of order, and 32 bytes for each
**   member of objects still open. Nothing recurses.
*/
#include "canonical.h"

#include "idem_int.h"

/* Room the text must have beyond what is left to read: what json.h asks for, and the one comma that
** is written before it is read. */
#define TEXT_ROOM (IDEM_SLACK + 1)

/* Runs of this many members are sorted by insertion before they are merged. */
#define RUN_LENGTH 16

/* An array that grows. */
typedef struct Buffer {
  void *a;       /* the items */
  size_t nAlloc; /* bytes there is room for */
} Buffer;

/* A member of an object that is still open. Offsets are into the text. */
typedef struct Member {
  uint32_t iText;    /* the name's opening quote */
  uint32_t nName;    /* bytes of the name as written, without the quotes */
  uint32_t iEnd;     /* one past the value */
  uint32_t nShuffle; /* shuffles made before the value's end */
  uint32_t iSource;  /* the name's opening quote in the input, for error reports */
  uint8_t bEscaped;  /* the name is written with a backslash: bytes are not yet characters */
  uint8_t bDropped;  /* left out */
} Member;

/* What the order of an open object's members is found with, beside the array of members: sorting
** moves less, and mostly need not look at the members at all. */
typedef struct Name {
  uint64_t iPrefix;  /* first eight bytes of the name, see nameWord */
  uint32_t iMember;  /* the member it names */
  uint32_t bEscaped; /* as in Member */
} Name;

/* A member of a shuffled object, in its final place. */
typedef struct Place {
  uint32_t iText;    /* the name's opening quote */
  uint32_t iEnd;     /* one past the value */
  uint32_t nShuffle; /* shuffles made before iEnd: the last of them may be inside */
} Place;

/* An object whose text is not final. */
typedef struct Shuffle {
  uint32_t iText;   /* its opening bracket */
  uint32_t iEnd;    /* one past its closing bracket */
  uint32_t iPlace;  /* its first place in the array of places */
  uint32_t nPlace;  /* members it keeps */
  uint32_t nBefore; /* shuffles made before its opening bracket: all others up to it are inside */
} Shuffle;

/* A bracket not yet closed. The second half is used only when there are paths. */
typedef struct Frame {
  uint32_t iText;         /* the bracket's offset in the text */
  uint32_t iMember;       /* object: its first member */
  uint32_t nShuffle;      /* shuffles made before it */
  uint8_t chClose;        /* the byte that closes it: '}' or ']' */
  uint8_t bGap;           /* object: a member was left out */
  IdemScope scope;        /* what the paths say of it */
  IdemScope child;        /* and of the child being read */
  uint32_t iChild;        /* offset of the child's value in the text */
  uint32_t nChildShuffle; /* shuffles made before that */
  uint64_t iElement;      /* array: index of the next element */
} Frame;

/* An object being written by the second pass, from its end. */
typedef struct Job {
  uint32_t iShuffle; /* which */
  uint32_t nLeft;    /* places still to be written */
  uint32_t iLow;     /* where the range around the object begins */
} Job;

struct IdemCanon {
  IdemScan scan;                /* the input */
  const IdemPaths *pPaths;      /* NULL if there are none */
  IdemScope root;               /* what the paths say of the document */
  uint64_t mFound;              /* selecting paths that found something */
  Buffer text;                  /* the first pass's output, from byte IDEM_SLACK on */
  Buffer final;                 /* the second pass's output, at its end */
  Buffer name;                  /* Name[], one for each member, and spare ones to sort with */
  Buffer member;                /* Member[]: a stack, open objects above one another */
  Buffer place;                 /* Place[] */
  Buffer shuffle;               /* Shuffle[] */
  uint32_t nText;               /* used of text by the last call, 0 if it failed */
  uint32_t nMember;             /* used of member */
  uint32_t nPlace;              /* used of place */
  uint32_t nShuffle;            /* used of shuffle */
  int bEqual;                   /* a comparison of two names found them equal */
  int nDepth;                   /* used of aFrame */
  Frame aFrame[IDEM_DEPTH_MAX]; /* open brackets, outermost first */
  Job aJob[IDEM_DEPTH_MAX];     /* the second pass's stack */
};

/* --- memory ------------------------------------------------------------------------------- */

/* Makes room for nNeed bytes, and for half as much again if it had some, so that growing piece by
** piece costs no more than growing at once. Returns a fault kind. */
static int reserve(Buffer *p, size_t nNeed) {
  size_t nAlloc = p->nAlloc + p->nAlloc / 2;
  void *a;
  if (nNeed <= p->nAlloc) return IDEM_FAULT_NONE;
  if (nAlloc < nNeed) nAlloc = nNeed;
  a = sqlite3_realloc64(p->a, nAlloc);
  if (a == NULL) return IDEM_FAULT_NOMEM;
  p->a = a;
  p->nAlloc = nAlloc;
  return IDEM_FAULT_NONE;
}

static void release(Buffer *p) {
  sqlite3_free(p->a);
  p->a = NULL;
  p->nAlloc = 0;
}

/* Fails for want of memory or offsets: that has no place in the input. */
static IdemCursor failRoom(IdemCanon *p, int eKind) {
  return idemScanFail(&p->scan, eKind, p->scan.pStart);
}

/* Gives the text room for what is left to read: at the beginning, and again when a number has used
** some up. Offsets into the text are 32 bits wide. */
static IdemCursor growText(IdemCanon *p, IdemCursor c) {
  size_t nText = p->text.a == NULL ? IDEM_SLACK : (size_t)(c.pOut - (uint8_t *)p->text.a);
  size_t nNeed = nText + (size_t)(p->scan.pEnd - c.pIn) + TEXT_ROOM;
  int eFault = nNeed <= UINT32_MAX ? reserve(&p->text, nNeed) : IDEM_FAULT_TOOBIG;
  if (eFault) return failRoom(p, eFault);
  c.pOut = (uint8_t *)p->text.a + nText;
  return c;
}

static inline int hasRoom(const IdemCanon *p, IdemCursor c, size_t nMore) {
  const uint8_t *pTextEnd = (const uint8_t *)p->text.a + p->text.nAlloc;
  return (size_t)(pTextEnd - c.pOut) >= (size_t)(p->scan.pEnd - c.pIn) + nMore;
}

static inline uint32_t textOffset(const IdemCanon *p, const uint8_t *pOut) {
  return (uint32_t)(pOut - (const uint8_t *)p->text.a);
}

/* --- the order of names ------------------------------------------------------------------- */

/* A byte of a name, such that the order of the results is the order of names. */
static inline uint64_t byteOrder(uint64_t b) {
  return b < 0xee ? b : b < 0xf0 ? b + 5 : b - 2;
}

/* The next eight bytes at a, or n if fewer are left, as a number whose order is that of the names:
** first byte highest, zeros after the end. Reads eight bytes whatever n is. */
static inline uint64_t nameWord(const uint8_t *a, size_t n) {
  uint64_t w = (uint64_t)a[0] << 56 | (uint64_t)a[1] << 48 | (uint64_t)a[2] << 40 |
               (uint64_t)a[3] << 32 | (uint64_t)a[4] << 24 | (uint64_t)a[5] << 16 |
               (uint64_t)a[6] << 8 | (uint64_t)a[7];
  if (n < 8) w = n == 0 ? 0 : w & ~UINT64_C(0) << (64 - 8 * n);
  if ((w & UINT64_C(0x8080808080808080)) != 0) {
    uint64_t wPlain = w;
    w = 0;
    for (int nShift = 0; nShift < 64; nShift += 8)
      w |= byteOrder(wPlain >> nShift & 0xff) << nShift;
  }
  return w;
}

/* The next byte of a name that has escapes, decoded and as byteOrder has it; -1 at its end. */
static int nextByte(const uint8_t **pp, const uint8_t *pEnd) {
  static const char zLetter[] = "bfnrt";
  static const char zMeaning[] = "\b\f\n\r\t";
  const uint8_t *p = *pp;
  const char *z;

  if (p == pEnd) return -1;
  if (*p != '\\') {
    *pp = p + 1;
    return (int)byteOrder(*p);
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
static int compareWhole(const IdemCanon *p, const Member *pA, const Member *pB) {
  const uint8_t *a = (const uint8_t *)p->text.a + pA->iText + 1;
  const uint8_t *b = (const uint8_t *)p->text.a + pB->iText + 1;
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
    uint64_t wA = nameWord(a + i, nA - i);
    uint64_t wB = nameWord(b + i, nB - i);
    if (wA != wB) return wA < wB ? -1 : 1;
  }
  return nA < nB ? -1 : nA > nB;
}

/* Whether B must stand before A. Notes it if they are equal: any sort compares, at some time, each
** two names that end up side by side, so no duplicate is missed. */
static inline int isBefore(IdemCanon *p, const Name *pB, const Name *pA) {
  const Member *a = (const Member *)p->member.a;
  int iOrder;
  if (pA->iPrefix != pB->iPrefix && !(pA->bEscaped | pB->bEscaped)) {
    return pB->iPrefix < pA->iPrefix;
  }
  iOrder = compareWhole(p, a + pB->iMember, a + pA->iMember);
  if (iOrder == 0) p->bEqual = 1;
  return iOrder < 0;
}

/* Sorts a short run in place. Equal names keep their order. */
static void sortRun(IdemCanon *p, Name *a, size_t n) {
  for (size_t i = 1; i < n; i++) {
    Name x = a[i];
    size_t j = i;
    for (; j > 0 && isBefore(p, &x, &a[j - 1]); j--) a[j] = a[j - 1];
    a[j] = x;
  }
}

/* Merges a[0..nA-1] and a[nA..n-1] into aTo. */
static void mergeRuns(IdemCanon *p, Name *aTo, const Name *a, size_t nA, size_t n) {
  size_t i = 0, j = nA;
  assert(nA <= n);
  while (i < nA && j < n) *aTo++ = isBefore(p, &a[j], &a[i]) ? a[j++] : a[i++];
  if (i < nA) memcpy(aTo, a + i, (nA - i) * sizeof *a);
  if (j < n) memcpy(aTo, a + j, (n - j) * sizeof *a);
}

/* Sorts n names with the help of as many spare ones; returns whichever array holds the result.
** Merging from the bottom up is never worse than n log n and needs no stack. */
static Name *sortNames(IdemCanon *p, Name *a, Name *aSpare, size_t n) {
  for (size_t i = 0; i < n; i += RUN_LENGTH) {
    sortRun(p, a + i, n - i < RUN_LENGTH ? n - i : RUN_LENGTH);
  }
  for (size_t nRun = RUN_LENGTH; nRun < n; nRun *= 2) {
    Name *aSwap = a;
    for (size_t i = 0; i < n; i += 2 * nRun) {
      size_t nBoth = n - i < 2 * nRun ? n - i : 2 * nRun;
      mergeRuns(p, aSpare + i, a + i, nBoth < nRun ? nBoth : nRun, nBoth);
    }
    a = aSpare;
    aSpare = aSwap;
  }
  return a;
}

/* The first repeating name of a sorted object: of equal names all but the first repeat. */
static const uint8_t *findRepeat(IdemCanon *p, const Name *a, size_t n) {
  const Member *aMember = (const Member *)p->member.a;
  uint32_t iSource = UINT32_MAX;
  for (size_t i = 1; i < n; i++) {
    const Member *pMember = aMember + a[i].iMember;
    p->bEqual = 0;
    if (!isBefore(p, &a[i - 1], &a[i]) && p->bEqual && pMember->iSource < iSource) {
      iSource = pMember->iSource;
    }
  }
  assert(iSource != UINT32_MAX);
  return p->scan.pStart + iSource;
}

/* --- first pass: reading ------------------------------------------------------------------ */

/* Remembers the final order of an object whose closing bracket has just been written. */
static int addShuffle(IdemCanon *p, const Frame *pFrame, const Name *a, size_t n,
                      const uint8_t *pOut) {
  Shuffle *pShuffle;
  Place *pPlace;
  int eFault = reserve(&p->shuffle, (p->nShuffle + (size_t)1) * sizeof *pShuffle);
  if (!eFault) eFault = reserve(&p->place, (p->nPlace + n) * sizeof *pPlace);
  if (eFault) return eFault;
  pShuffle = (Shuffle *)p->shuffle.a + p->nShuffle;
  pShuffle->iText = pFrame->iText;
  pShuffle->iEnd = textOffset(p, pOut);
  pShuffle->iPlace = p->nPlace;
  pShuffle->nBefore = pFrame->nShuffle;
  for (size_t i = 0; i < n; i++) {
    const Member *pMember = (const Member *)p->member.a + a[i].iMember;
    if (pMember->bDropped) continue;
    pPlace = (Place *)p->place.a + p->nPlace++;
    pPlace->iText = pMember->iText;
    pPlace->iEnd = pMember->iEnd;
    pPlace->nShuffle = pMember->nShuffle;
  }
  pShuffle->nPlace = p->nPlace - pShuffle->iPlace;
  assert(pShuffle->nBefore <= p->nShuffle && pShuffle->iEnd > pShuffle->iText);
  p->nShuffle++;
  return IDEM_FAULT_NONE;
}

/* Puts the n > 0 members of an object that closes in order. The input is past the bracket. */
static IdemCursor settleMembers(IdemCanon *p, IdemCursor c, const Frame *pFrame, size_t n) {
  Name *a = (Name *)p->name.a + pFrame->iMember;
  size_t i = 1;
  int eFault;

  while (i < n && isBefore(p, &a[i - 1], &a[i])) i++;
  if (i == n && !pFrame->bGap) return c;
  if (i < n) {
    eFault = reserve(&p->name, (p->nMember + n) * sizeof *a);
    if (eFault) return failRoom(p, eFault);
    a = (Name *)p->name.a + pFrame->iMember;
    p->bEqual = 0;
    a = sortNames(p, a, a + n, n);
    if (p->bEqual) return idemScanFail(&p->scan, IDEM_FAULT_DUPKEY, findRepeat(p, a, n));
  }
  eFault = addShuffle(p, pFrame, a, n, c.pOut);
  return eFault ? failRoom(p, eFault) : c;
}

/* Cuts the text back to where the child of the innermost bracket began. */
static IdemCursor dropChild(IdemCanon *p, IdemCursor c, const Frame *pFrame) {
  assert(pFrame->nChildShuffle <= p->nShuffle);
  c.pOut = (uint8_t *)p->text.a + pFrame->iChild;
  p->nShuffle = pFrame->nChildShuffle;
  p->nPlace = 0;
  if (p->nShuffle > 0) {
    const Shuffle *pLast = (const Shuffle *)p->shuffle.a + p->nShuffle - 1;
    p->nPlace = pLast->iPlace + pLast->nPlace;
  }
  return c;
}

/* A value has been read whole: ends it as a member or an element. Each is followed by a comma,
** which the closing bracket overwrites. */
static inline IdemCursor endChild(IdemCanon *p, IdemCursor c) {
  Frame *pFrame;
  int bDropped = 0;

  if (p->nDepth == 0) return c;
  pFrame = &p->aFrame[p->nDepth - 1];
  if (p->pPaths != NULL && pFrame->child.bDropped) {
    c = dropChild(p, c, pFrame);
    bDropped = 1;
  }
  if (pFrame->chClose == '}') {
    Member *pMember = (Member *)p->member.a + p->nMember - 1;
    assert(p->nMember > pFrame->iMember);
    pMember->iEnd = textOffset(p, c.pOut);
    pMember->nShuffle = p->nShuffle;
    pMember->bDropped = (uint8_t)bDropped;
    pFrame->bGap |= (uint8_t)bDropped;
  } else if (bDropped) {
    return c;
  }
  *c.pOut++ = ',';
  return c;
}

/* Asks the paths about the child whose value begins at c. aName is NULL for an element. */
static void enterChild(IdemCanon *p, IdemCursor c, const uint8_t *aName, size_t nName) {
  Frame *pFrame = &p->aFrame[p->nDepth - 1];
  size_t n = aName != NULL ? nName : (size_t)pFrame->iElement++;
  pFrame->child = idemPathsChild(p->pPaths, &pFrame->scope, p->nDepth - 1, aName, n, &p->mFound);
  pFrame->iChild = textOffset(p, c.pOut);
  pFrame->nChildShuffle = p->nShuffle;
}

/* The first eight bytes of a name just written. A name as long as it came has no escapes (or is
** compared whole anyway), and then they are read from the input: reading what was written a moment
** ago in other portions makes the processor wait. */
static inline uint64_t namePrefix(const IdemCanon *p, const uint8_t *pSource, const uint8_t *pIn,
                                  uint32_t iText, uint32_t nName) {
  const uint8_t *a = (const uint8_t *)p->text.a + iText;
  if ((size_t)(pIn - pSource) == nName + (size_t)2 && p->scan.pEnd - pSource > 8) a = pSource;
  return nameWord(a + 1, nName);
}

/* Reads a member's name and colon. */
static IdemCursor readName(IdemCanon *p, IdemCursor c) {
  const uint8_t *const pEnd = p->scan.pEnd;
  const uint8_t *const pSource = c.pIn;
  uint32_t iText = textOffset(p, c.pOut);
  Member *pMember;
  Name *pName;
  int eFault;

  if (c.pIn == pEnd) return idemScanFail(&p->scan, IDEM_FAULT_EOF, pEnd);
  if (*c.pIn != '"') return idemScanFail(&p->scan, IDEM_FAULT_SYNTAX, c.pIn);
  p->scan.bEscaped = 0;
  c = idemScanString(&p->scan, c);
  if (c.pIn == NULL) return c;
  eFault = reserve(&p->member, (p->nMember + (size_t)1) * sizeof *pMember);
  if (!eFault) eFault = reserve(&p->name, (p->nMember + (size_t)1) * sizeof *pName);
  if (eFault) return failRoom(p, eFault);
  pMember = (Member *)p->member.a + p->nMember;
  pName = (Name *)p->name.a + p->nMember;
  pName->iMember = p->nMember++;
  pMember->iText = iText;
  pMember->nName = textOffset(p, c.pOut) - iText - 2;
  pName->bEscaped = (uint32_t)p->scan.bEscaped;
  pName->iPrefix = namePrefix(p, pSource, c.pIn, iText, pMember->nName);
  pMember->iSource = (uint32_t)(pSource - p->scan.pStart);
  pMember->bEscaped = (uint8_t)p->scan.bEscaped;
  c.pIn = idemSkipSpace(c.pIn, pEnd);
  if (c.pIn == pEnd) return idemScanFail(&p->scan, IDEM_FAULT_EOF, pEnd);
  if (*c.pIn != ':') return idemScanFail(&p->scan, IDEM_FAULT_SYNTAX, c.pIn);
  c.pIn = idemSkipSpace(c.pIn + 1, pEnd);
  *c.pOut++ = ':';
  if (p->pPaths != NULL) {
    enterChild(p, c, (const uint8_t *)p->text.a + iText + 1, pMember->nName);
  }
  return c;
}

/* Begins the next child of the innermost bracket: afterwards a value must follow. */
static inline IdemCursor beginChild(IdemCanon *p, IdemCursor c) {
  c.pIn = idemSkipSpace(c.pIn, p->scan.pEnd);
  if (p->aFrame[p->nDepth - 1].chClose == '}') return readName(p, c);
  if (p->pPaths != NULL) enterChild(p, c, NULL, 0);
  return c;
}

static IdemCursor openBracket(IdemCanon *p, IdemCursor c) {
  Frame *pFrame = &p->aFrame[p->nDepth];
  if (p->nDepth == IDEM_DEPTH_MAX) return idemScanFail(&p->scan, IDEM_FAULT_DEPTH, c.pIn);
  pFrame->iText = textOffset(p, c.pOut);
  pFrame->iMember = p->nMember;
  pFrame->nShuffle = p->nShuffle;
  pFrame->chClose = *c.pIn == '{' ? '}' : ']';
  pFrame->bGap = 0;
  if (p->pPaths != NULL) {
    pFrame->scope = p->nDepth > 0 ? pFrame[-1].child : p->root;
    pFrame->iElement = 0;
  }
  p->nDepth++;
  *c.pOut++ = *c.pIn++;
  return c;
}

static IdemCursor closeBracket(IdemCanon *p, IdemCursor c) {
  const Frame *pFrame = &p->aFrame[--p->nDepth];
  size_t n = p->nMember - pFrame->iMember;

  assert(p->nDepth >= 0 && *c.pIn == pFrame->chClose);
  c.pIn++;
  if (c.pOut[-1] == ',') c.pOut--;
  *c.pOut++ = pFrame->chClose;
  if (n > 0) {
    c = settleMembers(p, c, pFrame, n);
    p->nMember = pFrame->iMember;
  }
  return c;
}

/* Reads a scalar whole, or of a container the opening bracket. */
static inline IdemCursor readValue(IdemCanon *p, IdemCursor c) {
  if (c.pIn == p->scan.pEnd) return idemScanFail(&p->scan, IDEM_FAULT_EOF, c.pIn);
  assert(hasRoom(p, c, IDEM_SLACK));
  switch (*c.pIn) {
  case '"': return idemScanString(&p->scan, c);
  case '{':
  case '[': return openBracket(p, c);
  case '-':
  case '0':
  case '1':
  case '2':
  case '3':
  case '4':
  case '5':
  case '6':
  case '7':
  case '8':
  case '9':
    c = idemScanNumber(&p->scan, c);
    return c.pIn == NULL || hasRoom(p, c, TEXT_ROOM) ? c : growText(p, c);
  default: return idemScanLiteral(&p->scan, c);
  }
}

/* A value has ended: closes the brackets that end here, up to the beginning of the next value or
** the end of the document. */
static IdemCursor nextValue(IdemCanon *p, IdemCursor c) {
  while (p->nDepth > 0) {
    c.pIn = idemSkipSpace(c.pIn, p->scan.pEnd);
    if (c.pIn == p->scan.pEnd) return idemScanFail(&p->scan, IDEM_FAULT_EOF, c.pIn);
    if (*c.pIn == ',') {
      c.pIn++;
      return beginChild(p, c);
    }
    if (*c.pIn != p->aFrame[p->nDepth - 1].chClose) {
      return idemScanFail(&p->scan, IDEM_FAULT_SYNTAX, c.pIn);
    }
    c = closeBracket(p, c);
    if (c.pIn == NULL) return c;
    c = endChild(p, c);
  }
  return c;
}

/* Reads the document. */
static IdemCursor readDocument(IdemCanon *p, IdemCursor c) {
  const uint8_t *const pEnd = p->scan.pEnd;
  c.pIn = idemSkipSpace(c.pIn, pEnd);
  if (p->pPaths != NULL) p->root = idemPathsRoot(p->pPaths, &p->mFound);
  do {
    int nDepth = p->nDepth;
    c = readValue(p, c);
    if (c.pIn == NULL) return c;
    if (p->nDepth > nDepth) { /* a bracket was opened */
      c.pIn = idemSkipSpace(c.pIn, pEnd);
      if (c.pIn == pEnd || *c.pIn != p->aFrame[nDepth].chClose) {
        c = beginChild(p, c);
        if (c.pIn == NULL) return c;
        continue;
      }
    } else {
      c = endChild(p, c);
    }
    c = nextValue(p, c);
  } while (c.pIn != NULL && p->nDepth > 0);
  if (c.pIn == NULL) return c;
  c.pIn = idemSkipSpace(c.pIn, pEnd);
  return c.pIn == pEnd ? c : idemScanFail(&p->scan, IDEM_FAULT_TRAILING, c.pIn);
}

/* --- second pass: writing shuffled objects ------------------------------------------------ */

/* Copies n bytes to end at pOut; returns where they begin. Short pieces are copied in whole blocks:
** before both texts there are IDEM_SLACK bytes that may be read and written. */
static inline uint8_t *copyBefore(uint8_t *pOut, const uint8_t *pFrom, size_t n) {
  const uint8_t *pFromEnd = pFrom + n;
  uint8_t *const pStart = pOut - n;
  if (n > 256) {
    memcpy(pStart, pFrom, n);
    return pStart;
  }
  for (; pOut > pStart; pOut -= 16, pFromEnd -= 16) memcpy(pOut - 16, pFromEnd - 16, 16);
  return pStart;
}

/* Writes the final text so that it ends at pOut; returns where it begins. Works from the end of a
** range of the text, [iLow,iHigh), down: the last shuffle in it, if any, is the rightmost of the
** shuffled objects that lie directly in it. */
static const uint8_t *writeFinal(IdemCanon *p, uint8_t *pOut, uint32_t iHigh) {
  const uint8_t *const aText = p->text.a;
  const Shuffle *const aShuffle = p->shuffle.a;
  const Place *const aPlace = p->place.a;
  uint32_t iLow = IDEM_SLACK, nShuffle = p->nShuffle;
  Job *pJob = NULL; /* the innermost job: the object this range is a member of */
  int nJob = 0;

  for (;;) {
    const Shuffle *pNext = nShuffle > 0 ? &aShuffle[nShuffle - 1] : NULL;
    if (pNext != NULL && pNext->iText < iLow) pNext = NULL; /* it is left of this range */
    uint32_t iFrom = pNext ? pNext->iEnd : iLow;
    assert(iLow <= iFrom && iFrom <= iHigh);
    pOut = copyBefore(pOut, aText + iFrom, iHigh - iFrom);
    if (pNext != NULL) { /* go into the object */
      assert(nJob < IDEM_DEPTH_MAX);
      pJob = &p->aJob[nJob++];
      pJob->iShuffle = nShuffle - 1;
      pJob->nLeft = pNext->nPlace;
      pJob->iLow = iLow;
      *--pOut = '}';
    } else if (nJob == 0) {
      return pOut;
    } else if (pJob->nLeft > 0) {
      *--pOut = ',';
    }
    pNext = &aShuffle[pJob->iShuffle];
    if (pJob->nLeft > 0) { /* its next member to the left */
      const Place *pPlace = &aPlace[pNext->iPlace + --pJob->nLeft];
      iLow = pPlace->iText;
      iHigh = pPlace->iEnd;
      nShuffle = pPlace->nShuffle;
    } else { /* what is left of it */
      *--pOut = '{';
      iLow = pJob->iLow;
      iHigh = pNext->iText;
      nShuffle = pNext->nBefore;
      pJob = --nJob > 0 ? &p->aJob[nJob - 1] : NULL;
    }
  }
}

/* --- the public face ---------------------------------------------------------------------- */

IdemCanon *idemCanonNew(void) {
  IdemCanon *p = sqlite3_malloc64(sizeof *p);
  if (p != NULL) memset(p, 0, sizeof *p);
  return p;
}

void idemCanonFree(IdemCanon *p) {
  if (p == NULL) return;
  release(&p->text);
  release(&p->final);
  release(&p->name);
  release(&p->member);
  release(&p->place);
  release(&p->shuffle);
  sqlite3_free(p);
}

void idemCanonTrim(IdemCanon *p) {
  size_t n = p->text.nAlloc + p->final.nAlloc + p->name.nAlloc + p->member.nAlloc + p->place.nAlloc;
  n += p->shuffle.nAlloc;
  if (n <= IDEM_KEEP_IDLE) return;
  if (n <= IDEM_KEEP_BUSY && p->nText >= p->text.nAlloc / 4) return;
  release(&p->text);
  release(&p->final);
  release(&p->name);
  release(&p->member);
  release(&p->place);
  release(&p->shuffle);
}

/* Both passes. */
static IdemCursor canonicalise(IdemCanon *p, const uint8_t **pa, size_t *pn) {
  IdemCursor c = {p->scan.pStart, (uint8_t *)p->text.a + (p->text.a != NULL ? IDEM_SLACK : 0)};
  int eFault;

  c = growText(p, c);
  if (c.pIn != NULL) c = readDocument(p, c);
  if (c.pIn == NULL) return c;
  if (p->pPaths != NULL && idemPathsMissed(p->pPaths, p->mFound)) {
    return failRoom(p, IDEM_FAULT_ONLYEMPTY);
  }
  p->nText = textOffset(p, c.pOut);
  *pa = (const uint8_t *)p->text.a + IDEM_SLACK;
  *pn = p->nText - IDEM_SLACK;
  if (p->nShuffle > 0) {
    uint8_t *pEnd;
    eFault = reserve(&p->final, p->nText);
    if (eFault) return failRoom(p, eFault);
    pEnd = (uint8_t *)p->final.a + p->final.nAlloc;
    *pa = writeFinal(p, pEnd, p->nText);
    *pn = (size_t)(pEnd - *pa);
  }
  return c;
}

int idemCanonRun(IdemCanon *p, const IdemPaths *pPaths, const void *a, size_t n, const uint8_t **pa,
                 size_t *pn, IdemFault *pFault) {
  static const uint8_t aNothing[1]; /* an empty BLOB may come as NULL */
  assert(a != NULL || n == 0);
  memset(&p->scan, 0, sizeof p->scan);
  p->scan.pStart = a != NULL ? a : aNothing;
  p->scan.pEnd = p->scan.pStart + n;
  p->pPaths = pPaths;
  p->mFound = 0;
  p->nMember = p->nPlace = p->nShuffle = 0;
  p->nDepth = 0;
  p->nText = 0;
  *pa = NULL;
  *pn = 0;
  if (canonicalise(p, pa, pn).pIn == NULL) *pa = NULL;
  *pFault = p->scan.fault;
  switch (pFault->eKind) {
  case IDEM_FAULT_NONE: return SQLITE_OK;
  case IDEM_FAULT_NOMEM: return SQLITE_NOMEM;
  case IDEM_FAULT_TOOBIG: return SQLITE_TOOBIG;
  default: return SQLITE_ERROR;
  }
}
