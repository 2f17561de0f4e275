/*
** canonical.c: one canonical text for every spelling of a JSON value.
**
**   SELECT idem_canonical(' {"b" : [1.0, 2e0], "a" : "\u0041"} ');   -- {"a":"A","b":[1,2]}
**   SELECT idem_canonical('{"a":1,"a":2}');   -- error: dupkey at byte 7
**
** HOW IT WORKS
**   One pass copies the input to a text: tokens in canonical spelling, no white space, members in
**   the order they came. No tree is built: a stack of open brackets is all the structure there is.
**   order.c puts the members in order afterwards.
**
**   Each child of a bracket is followed by a comma in the text as soon as it ends; the closing
**   bracket overwrites the last one. So a child that is left out leaves nothing to repair.
**
** LEAVING OUT
**   A part that paths leave out is read and checked like any other, then the text is cut back to
**   where the part began. Only the name of a left-out member stays until its object closes, so that
**   a duplicate of it is still seen; order.c then leaves it out of the final text.
**
** LIMITS
**   Time is linear in the input, but for the sorting of names. Memory: the text (at most 5.5 times
**   the input, and as long as the input if no number grows), as much again if anything was out of
**   order, and what order.c keeps of members. Nothing recurses.
*/
#include "canonical.h"

#include "idem_int.h"
#include "order.h"

/* Room the text must have beyond what is left to read: what json.h asks for, and the one comma that
** is written before it is read. */
#define TEXT_ROOM (IDEM_SLACK + 1)

/* A bracket not yet closed. Of the second half, only child.bDropped is used without paths. */
typedef struct Frame {
  IdemObject object;      /* the bracket's offset and, of an object, its members */
  uint8_t chClose;        /* the byte that closes it: '}' or ']' */
  IdemScope scope;        /* what the paths say of it */
  IdemScope child;        /* and of the child being read */
  uint32_t iChild;        /* offset of the child's value in the text */
  uint32_t nChildShuffle; /* shuffles made before that */
  size_t iElement;        /* array: index of the next element */
} Frame;

struct IdemCanon {
  IdemScan scan;                    /* the input */
  const IdemPaths *pPaths;          /* NULL if there are none */
  IdemScope root;                   /* what the paths say of the document */
  uint64_t mFound;                  /* selecting paths that found something */
  IdemBuffer text;                  /* the text, from byte IDEM_SLACK on */
  size_t nText;                     /* bytes the last call used of it, 0 if it failed */
  int nDepth;                       /* open brackets */
  Frame *pFrame;                    /* the innermost of them */
  Frame aFrame[1 + IDEM_DEPTH_MAX]; /* all of them, from aFrame[1] on, outermost first */
  IdemOrder order;                  /* members of open objects, and the order of closed ones */
};

/* Where in the text pOut is. Offsets are kept instead of pointers, since the text may move. */
static inline uint32_t textOffset(const IdemCanon *p, const uint8_t *pOut) {
  return (uint32_t)(pOut - (const uint8_t *)p->text.a);
}

/* Whether the text has room for what is left to read, and nMore bytes. */
static inline int hasRoom(const IdemCanon *p, IdemCursor c, size_t nMore) {
  const uint8_t *pTextEnd = (const uint8_t *)p->text.a + p->text.nAlloc;
  return (size_t)(pTextEnd - c.pOut) >= (size_t)(p->scan.pEnd - c.pIn) + nMore;
}

/* Fails for a reason that has no place in the input. */
static IdemCursor failWhole(IdemCanon *p, int eKind) {
  return idemScanFail(&p->scan, eKind, p->scan.pStart);
}

/* Fails because what must follow does not: the text ends, or another byte is there. */
static IdemCursor failByte(IdemCanon *p, const uint8_t *pWhere) {
  return idemScanFail(&p->scan, pWhere == p->scan.pEnd ? IDEM_FAULT_EOF : IDEM_FAULT_SYNTAX,
                      pWhere);
}

/* Gives the text room for what is left to read: at the beginning, and again when a number has used
** some up. Offsets into the text are 32 bits wide. */
static IdemCursor growText(IdemCanon *p, IdemCursor c) {
  size_t nText = p->text.a == NULL ? IDEM_SLACK : (size_t)(c.pOut - (uint8_t *)p->text.a);
  size_t nNeed = nText + (size_t)(p->scan.pEnd - c.pIn) + TEXT_ROOM;
  int eFault = nNeed <= UINT32_MAX ? idemBufferReserve(&p->text, nNeed) : IDEM_FAULT_TOOBIG;
  if (eFault) return failWhole(p, eFault);
  c.pOut = (uint8_t *)p->text.a + nText;
  return c;
}

/* --- children ----------------------------------------------------------------------------- */

/* Asks the paths about the child whose value begins at c. aName is NULL for an element. */
static void enterChild(IdemCanon *p, IdemCursor c, const uint8_t *aName, size_t nName) {
  Frame *pFrame = p->pFrame;
  size_t n = aName != NULL ? nName : pFrame->iElement++;
  pFrame->child = idemPathsChild(p->pPaths, &pFrame->scope, p->nDepth - 1, aName, n, &p->mFound);
  pFrame->iChild = textOffset(p, c.pOut);
  pFrame->nChildShuffle = p->order.nShuffle;
}

/* Reads a member's name and colon, and pushes the member. A repeated name is no fault yet: it
** counts when the object closes, after whatever else is wrong inside. */
static inline IdemCursor readName(IdemCanon *p, IdemCursor c) {
  const uint8_t *pSource;
  const uint8_t *const aName = c.pOut + 1;
  size_t nName;
  IdemMember *pMember;

  if (idemPeek(&c.pIn, p->scan.pEnd) != '"') return failByte(p, c.pIn);
  pSource = c.pIn;
  p->scan.bEscaped = 0;
  c = idemScanString(&p->scan, c);
  if (c.pIn == NULL) return c;
  nName = (size_t)(c.pOut - aName) - 1;
  pMember = idemOrderPush(&p->order);
  if (pMember == NULL) return failWhole(p, IDEM_FAULT_NOMEM);
  pMember->place.iText = textOffset(p, aName) - 1;
  pMember->nName = (uint32_t)nName;
  pMember->iPrefix = idemOrderWord(aName, nName);
  pMember->iSource = (uint32_t)(pSource - p->scan.pStart);
  pMember->bEscaped = (uint8_t)p->scan.bEscaped;
  pMember->bDropped = 0;
  if (!idemTake(&c.pIn, p->scan.pEnd, ':')) return failByte(p, c.pIn);
  *c.pOut++ = ':';
  if (p->pPaths != NULL) enterChild(p, c, aName, nName);
  return c;
}

/* Begins the next child of the innermost bracket: afterwards a value must follow. */
static inline IdemCursor beginChild(IdemCanon *p, IdemCursor c) {
  if (p->pFrame->chClose == '}') return readName(p, c);
  if (p->pPaths != NULL) enterChild(p, c, NULL, 0);
  return c;
}

/* A value has been read whole: ends it as a child of the innermost bracket. */
static inline IdemCursor endChild(IdemCanon *p, IdemCursor c) {
  Frame *pFrame = p->pFrame;

  assert(p->nDepth > 0);
  if (pFrame->child.bDropped) {
    c.pOut = (uint8_t *)p->text.a + pFrame->iChild;
    idemOrderForget(&p->order, pFrame->nChildShuffle);
    if (pFrame->chClose == ']') return c;
    idemOrderTop(&p->order)->bDropped = 1;
    pFrame->object.bGap = 1;
  }
  if (pFrame->chClose == '}') {
    IdemMember *pMember = idemOrderTop(&p->order);
    assert(p->order.nMember > pFrame->object.iMember);
    pMember->place.iEnd = textOffset(p, c.pOut);
    pMember->place.nShuffle = p->order.nShuffle;
  }
  *c.pOut++ = ',';
  return c;
}

/* --- values ------------------------------------------------------------------------------- */

/* Pushes a frame for the bracket at c.pIn. The scope of the root was asked for at the beginning,
** that of any other bracket when its parent's child began. */
static inline IdemCursor openBracket(IdemCanon *p, IdemCursor c) {
  Frame *pFrame = p->pFrame + 1;
  assert(c.pIn != NULL && c.pOut != NULL);
  if (p->nDepth == IDEM_DEPTH_MAX) return idemScanFail(&p->scan, IDEM_FAULT_DEPTH, c.pIn);
  pFrame->object.iText = textOffset(p, c.pOut);
  pFrame->object.iMember = p->order.nMember;
  pFrame->object.nShuffle = p->order.nShuffle;
  pFrame->object.bGap = 0;
  pFrame->chClose = *c.pIn == '{' ? '}' : ']';
  pFrame->child.bDropped = 0; /* and so it stays if there are no paths */
  if (p->pPaths != NULL) {
    pFrame->scope = p->nDepth > 0 ? pFrame[-1].child : p->root;
    pFrame->iElement = 0;
  }
  p->nDepth++;
  p->pFrame = pFrame;
  *c.pOut++ = *c.pIn++;
  return c;
}

/* Pops the frame whose closing bracket is at c.pIn. Its members' order is settled now, when their
** text is whole. */
static inline IdemCursor closeBracket(IdemCanon *p, IdemCursor c) {
  Frame *pFrame = p->pFrame--;
  uint32_t iRepeat = 0;
  int eFault;

  assert(p->nDepth > 0 && *c.pIn == pFrame->chClose);
  p->nDepth--;
  c.pIn++;
  if (c.pOut[-1] == ',') c.pOut--;
  *c.pOut++ = pFrame->chClose;
  if (p->order.nMember > pFrame->object.iMember) {
    pFrame->object.iEnd = textOffset(p, c.pOut);
    eFault = idemOrderClose(&p->order, p->text.a, &pFrame->object, &iRepeat);
    if (eFault) return idemScanFail(&p->scan, eFault, p->scan.pStart + iRepeat);
  }
  return c;
}

/* Reads a scalar, of which ch is the first byte, or -1 at the end of the input. */
static inline IdemCursor readScalar(IdemCanon *p, IdemCursor c, int ch) {
  assert(hasRoom(p, c, IDEM_SLACK));
  switch (ch) {
  case -1: return failByte(p, c.pIn);
  case '"': return idemScanString(&p->scan, c);
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

/* A child has ended that no comma follows, or an empty container is about to: closes the brackets
** that end here, up to and with the comma before the next child, or to the end of the document. */
static inline IdemCursor closeBrackets(IdemCanon *p, IdemCursor c) {
  do {
    if (idemPeek(&c.pIn, p->scan.pEnd) != p->pFrame->chClose) return failByte(p, c.pIn);
    c = closeBracket(p, c);
    if (c.pIn == NULL || p->nDepth == 0) return c;
    c = endChild(p, c);
  } while (!idemTake(&c.pIn, p->scan.pEnd, ','));
  return c;
}

/* Reads the document: one value, then as long as a bracket is open its next child. The loop is the
** whole of the structure; what is below it knows one value, one child or one bracket. */
static IdemCursor readDocument(IdemCanon *p, IdemCursor c) {
  for (;;) {
    int ch = idemPeek(&c.pIn, p->scan.pEnd);
    int bEnded = 1; /* the value, or the container it opens, has no child to read first */
    if (ch == '{' || ch == '[') {
      c = openBracket(p, c);
      if (c.pIn == NULL) return c;
      bEnded = idemPeek(&c.pIn, p->scan.pEnd) == p->pFrame->chClose;
    } else {
      c = readScalar(p, c, ch);
      if (c.pIn == NULL) return c;
      if (p->nDepth == 0) break;
      c = endChild(p, c);
    }
    if (bEnded && !idemTake(&c.pIn, p->scan.pEnd, ',')) {
      c = closeBrackets(p, c);
      if (c.pIn == NULL) return c;
      if (p->nDepth == 0) break;
    }
    c = beginChild(p, c);
    if (c.pIn == NULL) return c;
  }
  return idemPeek(&c.pIn, p->scan.pEnd) < 0 ? c
                                            : idemScanFail(&p->scan, IDEM_FAULT_TRAILING, c.pIn);
}

/* --- the public face ---------------------------------------------------------------------- */

/* The buffers come with the first call. */
IdemCanon *idemCanonNew(void) {
  IdemCanon *p = sqlite3_malloc64(sizeof *p);
  if (p != NULL) memset(p, 0, sizeof *p);
  return p;
}

void idemCanonFree(IdemCanon *p) {
  if (p == NULL) return;
  idemBufferFree(&p->text);
  idemOrderFree(&p->order);
  sqlite3_free(p);
}

/* A call that needed the memory is taken as a sign that the next one will, too. */
void idemCanonTrim(IdemCanon *p) {
  size_t n = p->text.nAlloc + idemOrderMemory(&p->order);
  if (n <= IDEM_KEEP_IDLE) return;
  if (n <= IDEM_KEEP_BUSY && p->nText >= p->text.nAlloc / 4) return;
  idemBufferFree(&p->text);
  idemOrderFree(&p->order);
}

/* Reads the document, looks whether the paths found anything, writes the final text. */
static void canonicalise(IdemCanon *p, uint8_t **pa, size_t *pn) {
  IdemCursor c = {p->scan.pStart, NULL};

  if (p->text.a != NULL) c.pOut = (uint8_t *)p->text.a + IDEM_SLACK;
  c = growText(p, c);
  if (c.pIn == NULL) return;
  if (p->pPaths != NULL) p->root = idemPathsRoot(p->pPaths, &p->mFound);
  c = readDocument(p, c);
  if (c.pIn == NULL) return;
  if (p->pPaths != NULL && idemPathsMissed(p->pPaths, p->mFound)) {
    failWhole(p, IDEM_FAULT_ONLYEMPTY);
    return;
  }
  p->nText = textOffset(p, c.pOut);
  if (idemOrderWrite(&p->order, p->text.a, IDEM_SLACK, (uint32_t)p->nText, pa, pn)) {
    failWhole(p, IDEM_FAULT_NOMEM);
  }
}

int idemCanonRun(IdemCanon *p, const IdemPaths *pPaths, const void *a, size_t n, uint8_t **pa,
                 size_t *pn, IdemFault *pFault) {
  static const uint8_t aNothing[1]; /* an empty BLOB may come as NULL */
  assert(a != NULL || n == 0);
  memset(&p->scan, 0, sizeof p->scan);
  p->scan.pStart = a != NULL ? a : aNothing;
  p->scan.pEnd = p->scan.pStart + n;
  p->pPaths = pPaths;
  p->mFound = 0;
  p->nText = 0;
  p->nDepth = 0;
  p->pFrame = p->aFrame;
  idemOrderReset(&p->order);
  canonicalise(p, pa, pn);
  *pFault = p->scan.fault;
  if (pFault->eKind == IDEM_FAULT_NONE) return SQLITE_OK;
  *pa = NULL;
  *pn = 0;
  return pFault->eKind == IDEM_FAULT_NOMEM    ? SQLITE_NOMEM
         : pFault->eKind == IDEM_FAULT_TOOBIG ? SQLITE_TOOBIG
                                              : SQLITE_ERROR;
}
