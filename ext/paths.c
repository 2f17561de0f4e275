/*
** paths.c: signed SQLite paths.
**
**   SELECT idem_canonical('{"amount":5,"sent_at":1}', '-$.sent_at');      -- {"amount":5}
**   SELECT idem_canonical('{"amount":5,"nonce":1}', '+$.amount');         -- {"amount":5}
**   SELECT idem_canonical('{"a.b":1,"c":[{"t":1,"u":2}]}', '-$."a.b"', '-$.c[*].t');
**   -- {"c":[{"u":2}]}
**
** GRAMMAR
**   path     ::= sign '$' segment*          sign: '+' selects, '-' leaves out
**   segment  ::= '.' bare                   bare: one or more bytes up to the next '.' or '['
**              | '.' '"' characters '"'     with JSON's escapes
**              | '.*'                       every member
**              | '[' index ']'              0, or digits without a leading zero
**              | '[*]'                      every element
**
** MEANING
**   A node is left out if a '-' path is its path. If there are '+' paths, a node is kept if its
**   path begins, equals or continues one of them. Leaving out wins. So a node's fate hangs on its
**   own path alone, and one pass without look-ahead is enough: what is on the way to a selected
**   node stays as a shell.
**
** COST
**   One look at each path still alive for each child of a container, whatever the depth: the paths
**   that lead to a node are the bits of one word, handed down from its parent. Below a node that is
**   left out, or that no path leads to, nothing is looked at.
**
** NAMES
**   Names are kept in the canonical spelling of JSON strings. So is every key of a document by the
**   time it gets here, and comparing decoded names is comparing bytes.
*/
#include "paths.h"

#include "idem_int.h"

enum SegmentKind { SEGMENT_NAME, SEGMENT_ANY_NAME, SEGMENT_INDEX, SEGMENT_ANY_INDEX };

typedef struct Segment {
  int eKind;       /* enum SegmentKind */
  size_t iName;    /* SEGMENT_NAME: where in aName the name begins */
  size_t nName;    /* and its length */
  uint64_t iIndex; /* SEGMENT_INDEX; saturates beyond any array */
} Segment;

typedef struct Path {
  int bSelect;    /* '+' */
  int nSegment;   /* steps */
  size_t iFirst;  /* where in aSegment they begin */
  size_t iSource; /* where in aSource the path's text begins */
  size_t nSource; /* and its length */
} Path;

struct IdemPaths {
  int nPath;                  /* paths in aPath */
  uint64_t mSelect;           /* bit i: path i selects */
  Segment *aSegment;          /* the steps of all paths */
  uint8_t *aName;             /* the names of all steps */
  char *aSource;              /* the texts of all paths, for idemPathsSame */
  Path aPath[IDEM_PATHS_MAX]; /* the paths as they were given */
};

/* What one parse is doing. */
typedef struct Parse {
  IdemPaths *pSet;  /* being filled */
  IdemScan scan;    /* the text of the path in hand */
  const char *zWhy; /* why it was refused, once scan.fault is set */
  size_t nSegment;  /* used of aSegment */
  uint8_t *pName;   /* first free byte of aName */
} Parse;

/* Refuses the path in hand, with a reason that quotes none of it: people pass payloads where a path
** should be. */
static const uint8_t *refuse(Parse *p, const uint8_t *pWhere, const char *zWhy) {
  p->zWhy = zWhy;
  return idemScanFail(&p->scan, IDEM_FAULT_PATH, pWhere).pIn;
}

/* Reads a quoted name, the opening quote being at pIn. Raw control characters are taken, which a
** payload's strings may not have: here the quotes only mark where the name ends. */
static const uint8_t *parseQuoted(Parse *p, const uint8_t *pIn) {
  IdemCursor c = {pIn + 1, p->pName};
  assert(*pIn == '"');
  c = idemScanChars(&p->scan, c, 1);
  if (c.pIn == NULL) {
    p->zWhy = "a quoted name is not a JSON string";
    return NULL;
  }
  if (c.pIn == p->scan.pEnd) return refuse(p, c.pIn, "a quoted name has no closing quote");
  p->pName = c.pOut;
  return c.pIn + 1;
}

/* Reads a bare name beginning at pIn: every byte means itself. */
static const uint8_t *parseBare(Parse *p, const uint8_t *pIn) {
  const uint8_t *const pStart = pIn;
  while (pIn < p->scan.pEnd && *pIn != '.' && *pIn != '[') {
    if (*pIn >= 0x80) {
      size_t n = idemUtf8Length(pIn, p->scan.pEnd);
      if (n == 0) return refuse(p, pIn, "a name is not valid UTF-8");
      while (n-- > 0) *p->pName++ = *pIn++;
    } else if (*pIn < ' ' || *pIn == '"' || *pIn == '\\') {
      p->pName = idemWriteEscape(p->pName, *pIn++);
    } else {
      *p->pName++ = *pIn++;
    }
  }
  return pIn > pStart ? pIn : refuse(p, pIn, "a name is missing");
}

/* Reads "[n]" or "[*]", the bracket being at pIn. */
static const uint8_t *parseIndex(Parse *p, const uint8_t *pIn, Segment *pSegment) {
  const uint8_t *const pEnd = p->scan.pEnd;
  const uint8_t *const pStart = ++pIn;

  pSegment->eKind = SEGMENT_INDEX;
  if (pIn < pEnd && *pIn == '*') {
    pSegment->eKind = SEGMENT_ANY_INDEX;
    pIn++;
  } else {
    for (; pIn < pEnd && *pIn >= '0' && *pIn <= '9'; pIn++) {
      if (pSegment->iIndex < UINT32_MAX) pSegment->iIndex = pSegment->iIndex * 10 + (*pIn - '0');
    }
    if (pIn == pStart) return refuse(p, pIn, "an index must be a number or *");
    if (*pStart == '0' && pIn > pStart + 1) return refuse(p, pStart, "an index has a leading zero");
  }
  if (pIn == pEnd || *pIn != ']') return refuse(p, pIn, "an index does not end with ]");
  return pIn + 1;
}

/* Reads one segment and returns where it ends. A star counts as "every" only when it is all there
** is between two separators: .*x is a member of that name. */
static const uint8_t *parseSegment(Parse *p, const uint8_t *pIn, Segment *pSegment) {
  const uint8_t *const pEnd = p->scan.pEnd;
  const uint8_t *const pNameStart = p->pName;

  memset(pSegment, 0, sizeof *pSegment);
  if (*pIn == '[') return parseIndex(p, pIn, pSegment);
  if (*pIn != '.') return refuse(p, pIn, "expected . or [");
  pIn++;
  if (pIn < pEnd && *pIn == '*' && (pIn + 1 == pEnd || pIn[1] == '.' || pIn[1] == '[')) {
    pSegment->eKind = SEGMENT_ANY_NAME;
    return pIn + 1;
  }
  pSegment->eKind = SEGMENT_NAME;
  pIn = pIn < pEnd && *pIn == '"' ? parseQuoted(p, pIn) : parseBare(p, pIn);
  pSegment->iName = (size_t)(pNameStart - p->pSet->aName);
  pSegment->nName = (size_t)(p->pName - pNameStart);
  return pIn;
}

/* Reads the path whose text is in p->scan. NULL on a fault. */
static const uint8_t *parsePath(Parse *p, Path *pPath) {
  const uint8_t *pIn = p->scan.pStart;
  const uint8_t *const pEnd = p->scan.pEnd;

  if (pIn == pEnd || (*pIn != '+' && *pIn != '-')) {
    return refuse(p, pIn, "a path begins with + (select) or - (leave out)");
  }
  pPath->bSelect = *pIn++ == '+';
  if (pIn == pEnd || *pIn != '$') return refuse(p, pIn, "expected $ after the sign");
  pPath->iFirst = p->nSegment;
  for (pIn++; pIn < pEnd; pPath->nSegment++) {
    if (pPath->nSegment == IDEM_SEGMENTS_MAX) return refuse(p, pIn, "more than 64 segments");
    pIn = parseSegment(p, pIn, &p->pSet->aSegment[p->nSegment]);
    if (pIn == NULL) return NULL;
    p->nSegment++;
  }
  if (!pPath->bSelect && pPath->nSegment == 0) {
    return refuse(p, p->scan.pStart, "the whole payload cannot be left out");
  }
  return pIn;
}

/* One allocation holds the set and its three arrays. A segment takes at least two bytes of text;
** a name grows at most to \u00xx for each byte, and is written with slack. */
static IdemPaths *newSet(size_t nText) {
  size_t nSegment = nText / 2 + 1;
  size_t nName = 6 * nText + IDEM_SLACK;
  IdemPaths *p = sqlite3_malloc64(sizeof *p + nSegment * sizeof *p->aSegment + nName + nText);
  if (p == NULL) return NULL;
  memset(p, 0, sizeof *p);
  p->aSegment = (Segment *)(void *)(p + 1);
  p->aName = (uint8_t *)(p->aSegment + nSegment);
  p->aSource = (char *)p->aName + nName;
  return p;
}

/* The texts are copied first and read from the copy. One bad path spoils the set. */
int idemPathsNew(IdemPaths **pp, int n, const char *const *az, const size_t *an,
                 IdemPathFault *pFault) {
  Parse parse;
  size_t nText = 0;

  assert(n > 0 && n <= IDEM_PATHS_MAX);
  memset(&parse, 0, sizeof parse);
  memset(pFault, 0, sizeof *pFault);
  for (int i = 0; i < n; i++) nText += an[i];
  *pp = NULL;
  parse.pSet = newSet(nText);
  if (parse.pSet == NULL) {
    pFault->eKind = IDEM_FAULT_NOMEM;
    return SQLITE_NOMEM;
  }
  parse.pName = parse.pSet->aName;
  nText = 0;
  for (int i = 0; i < n; i++) {
    Path *pPath = &parse.pSet->aPath[i];
    pPath->iSource = nText;
    pPath->nSource = an[i];
    memcpy(parse.pSet->aSource + nText, az[i], an[i]);
    /* Read the copy, so that what is compared later is what was parsed. */
    parse.scan.pStart = (const uint8_t *)parse.pSet->aSource + nText;
    parse.scan.pEnd = parse.scan.pStart + an[i];
    nText += an[i];
    if (parsePath(&parse, pPath) == NULL) {
      pFault->iPath = i;
      pFault->iByte = parse.scan.fault.iByte;
      pFault->zWhy = parse.zWhy;
      pFault->eKind = IDEM_FAULT_PATH;
      idemPathsFree(parse.pSet);
      return SQLITE_ERROR;
    }
    if (pPath->bSelect) parse.pSet->mSelect |= UINT64_C(1) << i;
  }
  parse.pSet->nPath = n;
  *pp = parse.pSet;
  return SQLITE_OK;
}

void idemPathsFree(void *p) {
  sqlite3_free(p);
}

/* Comparing texts is much cheaper than parsing them, and tells more than SQLite does of whether the
** arguments are the same as at the last call. */
int idemPathsSame(const IdemPaths *p, int n, const char *const *az, const size_t *an) {
  if (p->nPath != n) return 0;
  for (int i = 0; i < n; i++) {
    const Path *pPath = &p->aPath[i];
    if (pPath->nSource != an[i]) return 0;
    if (memcmp(p->aSource + pPath->iSource, az[i], an[i]) != 0) return 0;
  }
  return 1;
}

/* The verdict on a node to which the paths mLive lead and at which the paths mEnd end. */
static IdemScope judge(const IdemPaths *p, uint64_t mLive, uint64_t mEnd, int bWhole,
                       uint64_t *pmFound) {
  IdemScope scope = {mLive, 0, bWhole};
  assert((mEnd & ~mLive) == 0);
  if ((mEnd & ~p->mSelect) != 0) {
    scope.bDropped = 1;
  } else if (mEnd != 0) {
    scope.bWhole = 1;
    *pmFound |= mEnd;
  } else if (!bWhole && (mLive & p->mSelect) == 0) {
    scope.bDropped = 1;
  }
  if (scope.bDropped) { /* below, nothing is judged and nothing counts as found */
    scope.mLive = 0;
    scope.bWhole = 1;
  }
  return scope;
}

/* Every path leads to the root; "+$" ends there. */
IdemScope idemPathsRoot(const IdemPaths *p, uint64_t *pmFound) {
  uint64_t mEnd = 0;
  assert(p->nPath > 0 && p->nPath <= IDEM_PATHS_MAX);
  for (int i = 0; i < p->nPath; i++) {
    if (p->aPath[i].nSegment == 0) mEnd |= UINT64_C(1) << i;
  }
  assert((mEnd & ~p->mSelect) == 0); /* "-$" was refused */
  return judge(p, ~UINT64_C(0) >> (IDEM_PATHS_MAX - p->nPath), mEnd, p->mSelect == 0, pmFound);
}

/* Whether a step takes a member of this name (aName not NULL) or the element at index n. */
static int takes(const IdemPaths *p, const Segment *pSegment, const uint8_t *aName, size_t n) {
  switch (pSegment->eKind) {
  case SEGMENT_ANY_NAME: return aName != NULL;
  case SEGMENT_ANY_INDEX: return aName == NULL;
  case SEGMENT_INDEX: return aName == NULL && pSegment->iIndex == n;
  default:
    assert(pSegment->eKind == SEGMENT_NAME);
    return aName != NULL && pSegment->nName == n &&
           memcmp(p->aName + pSegment->iName, aName, n) == 0;
  }
}

/* Paths that ended further up are passed over: what they say is in the parent's scope already. */
IdemScope idemPathsChild(const IdemPaths *p, const IdemScope *pParent, int nDepth,
                         const uint8_t *aName, size_t n, uint64_t *pmFound) {
  uint64_t mLive = 0, mEnd = 0;
  for (int i = 0; i < p->nPath && pParent->mLive >> i != 0; i++) {
    const Path *pPath = &p->aPath[i];
    if ((pParent->mLive >> i & 1) == 0 || pPath->nSegment <= nDepth) continue;
    if (!takes(p, &p->aSegment[pPath->iFirst + (size_t)nDepth], aName, n)) continue;
    mLive |= UINT64_C(1) << i;
    if (pPath->nSegment == nDepth + 1) mEnd |= UINT64_C(1) << i;
  }
  return judge(p, mLive, mEnd, pParent->bWhole, pmFound);
}

/* What was found inside left-out parts never counted, so a set that selects only there has missed:
** all payloads would be equal. */
int idemPathsMissed(const IdemPaths *p, uint64_t mFound) {
  return p->mSelect != 0 && (mFound & p->mSelect) == 0;
}
