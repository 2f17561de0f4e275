/*
** json.c: the tokens of strict JSON, each rewritten in its canonical spelling.
**
**   SELECT idem_canonical('"\u0041\/\u00e9\n"');   -- "A/é\n"
**   SELECT idem_canonical('[1200.0, 12E+2, -0, 0.5e-4, 1e21]');
**   -- [1200,1200,0,0.00005,1e+21]
**
** STRINGS
**   Only the quote, the backslash and characters below U+0020 are escaped, in their shortest form
**   or as \u00xx in lower case. All else is raw UTF-8. A string is never longer than it came.
**
** NUMBERS
**   A number is decimal text from beginning to end: no digit is ever dropped, no power of ten ever
**   expanded beyond 21 digits, and no arithmetic done but on the count of digits. The layout is
**   that of ECMAScript's Number::toString. What comes in that layout already is copied while it is
**   being checked; anything else is laid out anew from its digits.
**
** SPEED
**   Strings, digits and white space go 16 bytes at a time where SSE2 is there (every x86-64), and
**   one at a time elsewhere and near the end of the text. Blocks are written whole and the surplus
**   overwritten, hence IDEM_SLACK. Nothing is ever read beyond the end of the text.
*/
#include "json.h"

#include <assert.h>
#include <string.h>

#ifdef IDEM_BLOCK
/* Blocks need not be aligned: neither the input nor what was written so far is. */
static __m128i loadBlock(const uint8_t *p) {
  return _mm_loadu_si128((const __m128i *)(const void *)p);
}
#endif

/* Only the first fault counts: whoever sees a cursor without an input must return it untouched. */
IdemCursor idemScanFail(IdemScan *p, int eKind, const uint8_t *pWhere) {
  IdemCursor c = {NULL, NULL};
  assert(eKind > IDEM_FAULT_NONE && eKind < IDEM_FAULT_COUNT);
  assert(pWhere >= p->pStart && pWhere <= p->pEnd);
  assert(p->fault.eKind == IDEM_FAULT_NONE);
  p->fault.eKind = eKind;
  p->fault.iByte = (size_t)(pWhere - p->pStart);
  return c;
}

/* Pretty-printed text is mostly indentation, so blanks go in blocks too. The four blanks of JSON
** are compared one by one: "at most 0x20" would take control characters along, which are faults. */
const uint8_t *idemSkipBlanks(const uint8_t *pIn, const uint8_t *pEnd) {
#ifdef IDEM_BLOCK
  while (pEnd - pIn >= IDEM_BLOCK) {
    __m128i v = loadBlock(pIn);
    __m128i space = _mm_cmpeq_epi8(v, _mm_set1_epi8(' '));
    __m128i tab = _mm_cmpeq_epi8(v, _mm_set1_epi8('\t'));
    __m128i feed = _mm_cmpeq_epi8(v, _mm_set1_epi8('\n'));
    __m128i ret = _mm_cmpeq_epi8(v, _mm_set1_epi8('\r'));
    int m = _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(space, tab), _mm_or_si128(feed, ret)));
    if (m != 0xffff) return pIn + idemFirstBit(~m);
    pIn += IDEM_BLOCK;
  }
#endif
  while (pIn < pEnd && (*pIn == ' ' || *pIn == '\n' || *pIn == '\r' || *pIn == '\t')) pIn++;
  return pIn;
}

/* --- strings ------------------------------------------------------------------------------ */

/* Copies bytes up to the first that is not plain: a quote, a backslash, a control character, the
** first byte of a longer character, or the end. */
static inline IdemCursor copyPlain(IdemCursor c, const uint8_t *pEnd) {
#ifdef IDEM_BLOCK
  while (pEnd - c.pIn >= IDEM_BLOCK) {
    int m = idemCopyBlock(c.pOut, c.pIn);
    size_t n = m != 0 ? idemFirstBit(m) : IDEM_BLOCK;
    c.pIn += n;
    c.pOut += n;
    if (m) return c;
  }
#endif
  while (c.pIn < pEnd && *c.pIn >= ' ' && *c.pIn < 0x80 && *c.pIn != '"' && *c.pIn != '\\') {
    *c.pOut++ = *c.pIn++;
  }
  return c;
}

/* The Unicode standard's table of well-formed sequences, as a range for the second byte: it alone
** decides whether a sequence is overlong, a surrogate, or beyond U+10FFFF. */
size_t idemUtf8Length(const uint8_t *p, const uint8_t *pEnd) {
  size_t nLeft = (size_t)(pEnd - p);
  uint8_t iLow = 0x80, iHigh = 0xbf; /* what the second byte may be: narrower after four leads */
  size_t n;

  assert(nLeft > 0 && p[0] >= 0x80);
  if (p[0] < 0xc2 || p[0] > 0xf4) return 0; /* a stray continuation, overlong, or too large */
  n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
  if (p[0] == 0xe0) iLow = 0xa0;  /* below: overlong */
  if (p[0] == 0xed) iHigh = 0x9f; /* above: surrogates */
  if (p[0] == 0xf0) iLow = 0x90;  /* below: overlong */
  if (p[0] == 0xf4) iHigh = 0x8f; /* above: more than U+10FFFF */
  if (nLeft < n || p[1] < iLow || p[1] > iHigh) return 0;
  if (n > 2 && (p[2] & 0xc0) != 0x80) return 0;
  if (n > 3 && (p[3] & 0xc0) != 0x80) return 0;
  return n;
}

/* At most six bytes are written, for a character that took at least one byte in a path, and six in
** a payload: there it could only come as an escape. */
uint8_t *idemWriteEscape(uint8_t *pOut, unsigned ch) {
  static const char zShort[] = "uuuuuuuubtnufruuuuuuuuuuuuuuuuuu"; /* letter of each control */
  static const char zDigit[] = "0123456789abcdef";

  assert(ch < ' ' || ch == '"' || ch == '\\');
  *pOut++ = '\\';
  *pOut++ = (uint8_t)(ch < ' ' ? zShort[ch] : (char)ch);
  if (ch < ' ' && zShort[ch] == 'u') {
    *pOut++ = '0';
    *pOut++ = '0';
    *pOut++ = (uint8_t)zDigit[ch >> 4];
    *pOut++ = (uint8_t)zDigit[ch & 15];
  }
  return pOut;
}

/* The code unit of the escape \uXXXX at p, or -1 if there is none. */
static int32_t readUnit(const uint8_t *p, const uint8_t *pEnd) {
  int32_t iUnit = 0;
  if (pEnd - p < 6 || p[0] != '\\' || p[1] != 'u') return -1;
  for (int i = 2; i < 6; i++) {
    int ch = p[i];
    int iDigit = ch >= '0' && ch <= '9'   ? ch - '0'
                 : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
                 : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                          : -1;
    if (iDigit < 0) return -1;
    iUnit = iUnit * 16 + iDigit;
  }
  assert(iUnit >= 0 && iUnit <= 0xffff);
  return iUnit;
}

/* Writes a character that needs no escape as UTF-8: at most three bytes for an escape of six, and
** four for two of them. So decoding never makes a string longer. */
static uint8_t *writeUtf8(uint8_t *pOut, uint32_t ch) {
  assert(ch >= ' ' && ch <= 0x10ffff && (ch < 0xd800 || ch > 0xdfff));
  if (ch < 0x80) {
    *pOut++ = (uint8_t)ch;
  } else if (ch < 0x800) {
    *pOut++ = (uint8_t)(0xc0 | ch >> 6);
    *pOut++ = (uint8_t)(0x80 | (ch & 0x3f));
  } else if (ch < 0x10000) {
    *pOut++ = (uint8_t)(0xe0 | ch >> 12);
    *pOut++ = (uint8_t)(0x80 | (ch >> 6 & 0x3f));
    *pOut++ = (uint8_t)(0x80 | (ch & 0x3f));
  } else {
    *pOut++ = (uint8_t)(0xf0 | ch >> 18);
    *pOut++ = (uint8_t)(0x80 | (ch >> 12 & 0x3f));
    *pOut++ = (uint8_t)(0x80 | (ch >> 6 & 0x3f));
    *pOut++ = (uint8_t)(0x80 | (ch & 0x3f));
  }
  return pOut;
}

/* The escape at c.pIn. A high surrogate takes the low one behind it along; whatever else stands
** there, well formed or not, the fault is the lone surrogate, since it comes first. */
static IdemCursor copyEscape(IdemScan *p, IdemCursor c) {
  static const char zLetter[] = "\"\\/bfnrt";
  static const char zMeaning[] = "\"\\/\b\f\n\r\t";
  uint32_t ch;
  size_t nUsed = 2;

  assert(*c.pIn == '\\');
  if (p->pEnd - c.pIn < 2) return idemScanFail(p, IDEM_FAULT_EOF, p->pEnd);
  if (c.pIn[1] == 'u') {
    int32_t iUnit = readUnit(c.pIn, p->pEnd);
    if (iUnit < 0) return idemScanFail(p, IDEM_FAULT_ESCAPE, c.pIn);
    ch = (uint32_t)iUnit;
    nUsed = 6;
    if (ch >= 0xd800 && ch <= 0xdfff) {
      int32_t iLow = ch < 0xdc00 ? readUnit(c.pIn + 6, p->pEnd) : -1;
      if (iLow < 0xdc00 || iLow > 0xdfff) return idemScanFail(p, IDEM_FAULT_SURROGATE, c.pIn);
      ch = 0x10000 + ((ch - 0xd800) << 10) + ((uint32_t)iLow - 0xdc00);
      nUsed = 12;
    }
  } else {
    const char *z = c.pIn[1] ? strchr(zLetter, c.pIn[1]) : NULL;
    if (z == NULL) return idemScanFail(p, IDEM_FAULT_ESCAPE, c.pIn);
    ch = (uint8_t)zMeaning[z - zLetter];
  }
  if (ch < ' ' || ch == '"' || ch == '\\') {
    c.pOut = idemWriteEscape(c.pOut, ch);
    p->bEscaped = 1;
  } else {
    c.pOut = writeUtf8(c.pOut, ch);
  }
  c.pIn += nUsed;
  return c;
}

/* Works in three gears: whole blocks while characters are plain, one character at a time while they
** are longer ones (text in one script stays in it), and escapes one by one. */
IdemCursor idemScanChars(IdemScan *p, IdemCursor c, int bRawControl) {
  for (;;) {
    c = copyPlain(c, p->pEnd);
    if (c.pIn == p->pEnd || *c.pIn == '"') return c;
    if (*c.pIn >= 0x80) {
      do {
        size_t n = idemUtf8Length(c.pIn, p->pEnd);
        if (n == 0) return idemScanFail(p, IDEM_FAULT_UTF8, c.pIn);
        while (n-- > 0) *c.pOut++ = *c.pIn++;
      } while (c.pIn < p->pEnd && *c.pIn >= 0x80);
    } else if (*c.pIn == '\\') {
      c = copyEscape(p, c);
      if (c.pIn == NULL) return c;
    } else if (bRawControl) {
      c.pOut = idemWriteEscape(c.pOut, *c.pIn++);
    } else {
      return idemScanFail(p, IDEM_FAULT_CONTROL, c.pIn);
    }
  }
}

/* The end of the text inside a string is a fault at that end, not at the opening quote. */
IdemCursor idemScanStringRest(IdemScan *p, IdemCursor c) {
  c = idemScanChars(p, c, 0);
  if (c.pIn == NULL) return c;
  if (c.pIn == p->pEnd) return idemScanFail(p, IDEM_FAULT_EOF, p->pEnd);
  assert(*c.pIn == '"');
  c.pIn++;
  *c.pOut++ = '"';
  return c;
}

/* --- numbers ------------------------------------------------------------------------------ */

/* Whether there is a digit at p: the end of the text is none. */
static inline int isDigit(const uint8_t *p, const uint8_t *pEnd) {
  return p < pEnd && (uint8_t)(*p - '0') < 10;
}

/* Copies digits up to the first byte that is none. */
static inline IdemCursor copyDigits(IdemCursor c, const uint8_t *pEnd) {
#ifdef IDEM_BLOCK
  while (pEnd - c.pIn >= IDEM_BLOCK) {
    int m = idemCopyDigitBlock(c.pOut, c.pIn);
    size_t n = m ? idemFirstBit(m) : IDEM_BLOCK;
    c.pIn += n;
    c.pOut += n;
    if (m) return c;
  }
#endif
  while (isDigit(c.pIn, pEnd)) *c.pOut++ = *c.pIn++;
  return c;
}

/* The digits of a number, read as one row: integer digits, then fraction digits. */
typedef struct Digits {
  const uint8_t *pInt;  /* integer digits */
  size_t nInt;          /* how many, at least 1 */
  const uint8_t *pFrac; /* fraction digits */
  size_t nFrac;         /* how many, perhaps 0 */
} Digits;

/* Digit i of the row. */
static int digitAt(const Digits *p, size_t i) {
  assert(i < p->nInt + p->nFrac);
  return i < p->nInt ? p->pInt[i] : p->pFrac[i - p->nInt];
}

/* Writes digits iFrom to iTo-1 of the row: from the input, since what was written while the number
** was being read is what is being overwritten. */
static uint8_t *writeDigits(uint8_t *pOut, const Digits *p, size_t iFrom, size_t iTo) {
  assert(iFrom <= iTo && iTo <= p->nInt + p->nFrac);
  if (iFrom < p->nInt) {
    size_t n = (iTo < p->nInt ? iTo : p->nInt) - iFrom;
    memcpy(pOut, p->pInt + iFrom, n);
    pOut += n;
    iFrom += n;
  }
  if (iFrom < iTo) {
    memcpy(pOut, p->pFrac + (iFrom - p->nInt), iTo - iFrom);
    pOut += iTo - iFrom;
  }
  return pOut;
}

/* Lays out the digits iFrom to iTo-1 of the row, the point standing nPoint digits after iFrom
** (ECMAScript's n; the number of digits is its k). */
static uint8_t *writeLayout(uint8_t *pOut, const Digits *p, size_t iFrom, size_t iTo,
                            int64_t nPoint) {
  int64_t nDigit = (int64_t)(iTo - iFrom);
  assert(nDigit > 0 && digitAt(p, iFrom) != '0' && digitAt(p, iTo - 1) != '0');
  if (nPoint >= nDigit && nPoint <= 21) { /* an integer */
    pOut = writeDigits(pOut, p, iFrom, iTo);
    memset(pOut, '0', (size_t)(nPoint - nDigit));
    return pOut + (nPoint - nDigit);
  }
  if (nPoint > 0 && nPoint <= 21) { /* a point inside */
    pOut = writeDigits(pOut, p, iFrom, iFrom + (size_t)nPoint);
    *pOut++ = '.';
    return writeDigits(pOut, p, iFrom + (size_t)nPoint, iTo);
  }
  if (nPoint > -6 && nPoint <= 0) { /* a point before */
    memcpy(pOut, "0.00000", 7);
    return writeDigits(pOut + 2 - nPoint, p, iFrom, iTo);
  }
  pOut = writeDigits(pOut, p, iFrom, iFrom + 1);
  if (nDigit > 1) {
    *pOut++ = '.';
    pOut = writeDigits(pOut, p, iFrom + 1, iTo);
  }
  *pOut++ = 'e';
  *pOut++ = nPoint > 0 ? '+' : '-';
  {
    uint8_t aReverse[20];
    size_t n = 0;
    uint64_t i = (uint64_t)(nPoint > 0 ? nPoint - 1 : 1 - nPoint);
    assert(i > 0 && i <= IDEM_EXPONENT_MAX);
    for (; i > 0; i /= 10) aReverse[n++] = (uint8_t)('0' + i % 10);
    while (n > 0) *pOut++ = aReverse[--n];
  }
  return pOut;
}

/* Reads the exponent whose 'e' is at pIn; returns the byte after it, NULL on a fault. The value
** saturates far beyond any count of digits, so no length of exponent can wrap around. */
static const uint8_t *readExponent(IdemScan *p, const uint8_t *pIn, int64_t *piExponent,
                                   const uint8_t **ppDigits) {
  const int64_t iSaturate = INT64_C(1000000000000000); /* no text has as many digits */
  int64_t i = 0;
  int bNegative = 0;

  assert(*pIn == 'e' || *pIn == 'E');
  pIn++;
  if (pIn < p->pEnd && (*pIn == '+' || *pIn == '-')) bNegative = *pIn++ == '-';
  *ppDigits = pIn;
  if (!isDigit(pIn, p->pEnd)) return idemScanFail(p, IDEM_FAULT_NUMBER, pIn).pIn;
  for (; isDigit(pIn, p->pEnd); pIn++) {
    if (i < iSaturate) i = i * 10 + (*pIn - '0');
  }
  *piExponent = bNegative ? -i : i;
  return pIn;
}

/* A number whose spelling is not canonical: lays it out anew, from c.pOut on. The text after the
** fraction (or the integer) is at c.pIn. */
static IdemCursor rewriteNumber(IdemScan *p, IdemCursor c, const Digits *pRow, int bNegative) {
  const uint8_t *pDigits = c.pIn; /* where a fault of the exponent would be */
  int64_t iExponent = 0, nPoint;
  size_t iFrom = 0, iTo = pRow->nInt + pRow->nFrac;

  if (c.pIn < p->pEnd && (*c.pIn == 'e' || *c.pIn == 'E')) {
    c.pIn = readExponent(p, c.pIn, &iExponent, &pDigits);
    if (c.pIn == NULL) return c;
  }
  while (iFrom < iTo && digitAt(pRow, iFrom) == '0') iFrom++;
  while (iTo > iFrom && digitAt(pRow, iTo - 1) == '0') iTo--;
  if (iFrom == iTo) { /* zero, whatever the sign and the exponent */
    *c.pOut++ = '0';
    return c;
  }
  nPoint = (int64_t)pRow->nInt + iExponent - (int64_t)iFrom;
  if (nPoint - 1 > IDEM_EXPONENT_MAX || nPoint - 1 < -IDEM_EXPONENT_MAX) {
    return idemScanFail(p, IDEM_FAULT_EXPONENT, pDigits);
  }
  if (bNegative) *c.pOut++ = '-';
  c.pOut = writeLayout(c.pOut, pRow, iFrom, iTo, nPoint);
  return c;
}

/* Whether sign, integer and fraction, with no exponent behind, are the canonical spelling. */
static inline int isCanonical(const Digits *p, int bNegative) {
  if (p->nFrac == 0) return p->nInt <= 21 && !(bNegative && p->pInt[0] == '0');
  if (p->nInt > 21 || p->pFrac[p->nFrac - 1] == '0') return 0;
  if (p->pInt[0] != '0' || p->pFrac[0] != '0') return 1;
  for (size_t i = 1; i < 6 && i < p->nFrac; i++) {
    if (p->pFrac[i] != '0') return 1;
  }
  return 0; /* below 1e-6, which is written with an exponent */
}

/* Reads by the grammar and copies as it goes. Most numbers turn out to be canonical, and are done
** then; for the others the copy is forgotten and the digits are laid out anew. */
IdemCursor idemScanNumberWhole(IdemScan *p, IdemCursor c) {
  uint8_t *const pOutStart = c.pOut;
  const int bNegative = *c.pIn == '-';
  Digits row;

  assert(bNegative || isDigit(c.pIn, p->pEnd));
  if (bNegative) *c.pOut++ = *c.pIn++;
  row.pInt = c.pIn;
  c = copyDigits(c, p->pEnd);
  row.nInt = (size_t)(c.pIn - row.pInt);
  if (row.nInt == 0) return idemScanFail(p, IDEM_FAULT_NUMBER, c.pIn);
  if (row.nInt > 1 && row.pInt[0] == '0') return idemScanFail(p, IDEM_FAULT_NUMBER, row.pInt + 1);
  row.pFrac = c.pIn;
  row.nFrac = 0;
  if (c.pIn < p->pEnd && *c.pIn == '.') {
    *c.pOut++ = *c.pIn++;
    row.pFrac = c.pIn;
    c = copyDigits(c, p->pEnd);
    row.nFrac = (size_t)(c.pIn - row.pFrac);
    if (row.nFrac == 0) return idemScanFail(p, IDEM_FAULT_NUMBER, c.pIn);
  }
  if ((c.pIn < p->pEnd && (*c.pIn == 'e' || *c.pIn == 'E')) || !isCanonical(&row, bNegative)) {
    c.pOut = pOutStart;
    return rewriteNumber(p, c, &row, bNegative);
  }
  return c;
}

/* --- literals ----------------------------------------------------------------------------- */

/* A literal of n bytes, or a fault at its first byte, even if the text ends inside it. Inline, so
** that n is a constant and nothing is called. */
static inline IdemCursor copyLiteral(IdemScan *p, IdemCursor c, const char *z, size_t n) {
  if ((size_t)(p->pEnd - c.pIn) < n || memcmp(c.pIn, z, n) != 0) {
    return idemScanFail(p, IDEM_FAULT_SYNTAX, c.pIn);
  }
  memcpy(c.pOut, z, n);
  c.pIn += n;
  c.pOut += n;
  return c;
}

/* Whatever begins no other token comes here. */
IdemCursor idemScanLiteral(IdemScan *p, IdemCursor c) {
  assert(c.pIn < p->pEnd);
  switch (*c.pIn) {
  case 't': return copyLiteral(p, c, "true", 4);
  case 'f': return copyLiteral(p, c, "false", 5);
  case 'n': return copyLiteral(p, c, "null", 4);
  default: return idemScanFail(p, IDEM_FAULT_SYNTAX, c.pIn);
  }
}
