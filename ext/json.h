/*
** json.h: the tokens of strict JSON (RFC 8259), each checked and rewritten in its canonical
** spelling in one pass from an input to an output. Knows nothing of objects, arrays or databases.
**
** The caller promises room: at every token the output has at least as many bytes left as the input
** has, plus IDEM_SLACK. Strings and literals never grow. A number may grow by at most
** IDEM_NUMBER_GROWTH bytes, so the caller looks at its room again after each number.
*/
#ifndef IDEM_JSON_H
#define IDEM_JSON_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__) && defined(__GNUC__) && !defined(IDEM_PORTABLE)
#include <emmintrin.h>
#define IDEM_BLOCK 16 /* bytes looked at in one go; not defined where that cannot be done */
#endif

#define IDEM_EXPONENT_MAX  999999999 /* largest power of ten, of either sign, of a first digit */
#define IDEM_NUMBER_GROWTH 24        /* "1e20" becomes 21 digits; "-1e-6" becomes "-0.000001" */
#define IDEM_SLACK         64        /* room beyond the last byte, for copies in whole blocks */

/* What can be wrong with a payload or a path. The order is that of the table in fingerprint.c. */
enum IdemFaultKind {
  IDEM_FAULT_NONE = 0,
  IDEM_FAULT_EOF,       /* the text ends inside a value */
  IDEM_FAULT_SYNTAX,    /* a byte that cannot stand here */
  IDEM_FAULT_UTF8,      /* not UTF-8 inside a string */
  IDEM_FAULT_SURROGATE, /* half a surrogate pair */
  IDEM_FAULT_ESCAPE,    /* a backslash and what is not an escape */
  IDEM_FAULT_CONTROL,   /* a raw control character inside a string */
  IDEM_FAULT_NUMBER,    /* a number broken off or with a leading zero */
  IDEM_FAULT_EXPONENT,  /* beyond IDEM_EXPONENT_MAX */
  IDEM_FAULT_DUPKEY,    /* two members of one name */
  IDEM_FAULT_DEPTH,     /* nested too deeply */
  IDEM_FAULT_TRAILING,  /* more text after the value */
  IDEM_FAULT_TYPE,      /* the argument is a number */
  IDEM_FAULT_PATH,      /* a path that is not one */
  IDEM_FAULT_ONLYEMPTY, /* no selecting path found anything */
  IDEM_FAULT_TOOBIG,    /* the canonical text would be too long */
  IDEM_FAULT_NOMEM,     /* out of memory */
  IDEM_FAULT_COUNT
};

/* A fault and where it is. Never holds any of the text itself: it may be card data. */
typedef struct IdemFault {
  int eKind;    /* enum IdemFaultKind */
  size_t iByte; /* offset in the argument's bytes, from 0 */
} IdemFault;

/* One pass over one text. */
typedef struct IdemScan {
  const uint8_t *pStart; /* first byte of the text */
  const uint8_t *pEnd;   /* one past the last */
  IdemFault fault;       /* the first fault met; kind 0 while all is well */
  int bEscaped;          /* set when a string was written with a backslash; never cleared here */
} IdemScan;

/* Where the pass is. Two words, handed over and back in registers: held in a struct in memory they
** would have to be stored before every byte written, since a byte may alias anything. */
typedef struct IdemCursor {
  const uint8_t *pIn; /* next byte to read; NULL once a fault was met */
  uint8_t *pOut;      /* next byte to write */
} IdemCursor;

/* Notes the first fault; returns a cursor whose pIn is NULL. */
IdemCursor idemScanFail(IdemScan *p, int eKind, const uint8_t *pWhere);

/* The rest of a string, of which the cursor has passed the opening quote and perhaps more. */
IdemCursor idemScanStringRest(IdemScan *p, IdemCursor c);

/* Any number, from its first byte. */
IdemCursor idemScanNumberWhole(IdemScan *p, IdemCursor c);

/* Each reads one token at c.pIn < pEnd and writes its canonical spelling. The first byte decides
** which to call: '"', '-' or a digit, a letter. idemScanLiteral refuses every other byte. */
static inline IdemCursor idemScanString(IdemScan *p, IdemCursor c);
static inline IdemCursor idemScanNumber(IdemScan *p, IdemCursor c);
IdemCursor idemScanLiteral(IdemScan *p, IdemCursor c);

/* The text between two quotes, without them: the same rules, but it ends at the first bare quote
** or at pEnd and leaves the cursor there. With bRawControl, raw control characters are taken. */
IdemCursor idemScanChars(IdemScan *p, IdemCursor c, int bRawControl);

/* The canonical spelling of one character below U+0020, '"' or '\\'; returns the new end. */
uint8_t *idemWriteEscape(uint8_t *pOut, unsigned ch);

/* Length of the UTF-8 character at p, 2 to 4, or 0 if it is none. p[0] is 0x80 or more. */
size_t idemUtf8Length(const uint8_t *p, const uint8_t *pEnd);

/* First byte from pIn on that is not white space; may be pEnd. */
const uint8_t *idemSkipBlanks(const uint8_t *pIn, const uint8_t *pEnd);

/* The first byte from *ppIn on that is not white space, without taking it, or -1 at the end. Almost
** always that is the byte at hand, and then there is no call. */
static inline int idemPeek(const uint8_t **ppIn, const uint8_t *pEnd) {
  const uint8_t *pIn = *ppIn;
  if (pIn == pEnd) return -1;
  if (*pIn > ' ') return *pIn;
  pIn = idemSkipBlanks(pIn, pEnd);
  *ppIn = pIn;
  return pIn < pEnd ? *pIn : -1;
}

/* Takes the byte ch if it is the next that is not white space; else returns 0, with the white space
** skipped. */
static inline int idemTake(const uint8_t **ppIn, const uint8_t *pEnd, int ch) {
  if (*ppIn == pEnd || **ppIn != ch) {
    if (idemPeek(ppIn, pEnd) != ch) return 0;
  }
  ++*ppIn;
  return 1;
}

#ifdef IDEM_BLOCK
/* Number of bytes before the first whose bit is set in a mask that is not 0. */
static inline size_t idemFirstBit(int m) {
  return (size_t)__builtin_ctz((unsigned)m);
}

/* Copies a block. Returns the bits of the bytes in it that are not plain: quotes, backslashes,
** control characters, and bytes of longer characters. */
static inline int idemCopyBlock(uint8_t *pOut, const uint8_t *pIn) {
  __m128i v = _mm_loadu_si128((const __m128i *)(const void *)pIn);
  __m128i quote = _mm_cmpeq_epi8(v, _mm_set1_epi8('"'));
  __m128i slash = _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'));
  __m128i other = _mm_cmplt_epi8(v, _mm_set1_epi8(' ')); /* signed: 0x80 and more count too */
  _mm_storeu_si128((__m128i *)(void *)pOut, v);
  return _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, slash), other));
}

/* Copies a block. Returns the bits of the bytes in it that are not digits. */
static inline int idemCopyDigitBlock(uint8_t *pOut, const uint8_t *pIn) {
  __m128i v = _mm_loadu_si128((const __m128i *)(const void *)pIn);
  __m128i low = _mm_cmplt_epi8(v, _mm_set1_epi8('0')); /* signed: 0x80 and more count too */
  __m128i high = _mm_cmpgt_epi8(v, _mm_set1_epi8('9'));
  _mm_storeu_si128((__m128i *)(void *)pOut, v);
  return _mm_movemask_epi8(_mm_or_si128(low, high));
}
#endif

/* Most strings are plain: those are read here, without a call. Quotes are copied with the rest. */
static inline IdemCursor idemScanString(IdemScan *p, IdemCursor c) {
  assert(c.pIn < p->pEnd && *c.pIn == '"');
#ifdef IDEM_BLOCK
  if (p->pEnd - c.pIn >= IDEM_BLOCK) {
    int m = idemCopyBlock(c.pOut, c.pIn) & ~1; /* all but the opening quote */
    while (m == 0) {
      c.pIn += IDEM_BLOCK;
      c.pOut += IDEM_BLOCK;
      if (p->pEnd - c.pIn < IDEM_BLOCK) return idemScanStringRest(p, c);
      m = idemCopyBlock(c.pOut, c.pIn);
    }
    c.pIn += idemFirstBit(m);
    c.pOut += idemFirstBit(m);
    if (*c.pIn != '"') return idemScanStringRest(p, c);
    c.pIn++;
    c.pOut++;
    return c;
  }
#endif
  c.pIn++;
  *c.pOut++ = '"';
  return idemScanStringRest(p, c);
}

/* Most numbers are integers of a few digits, which are canonical as they come: those are read here,
** without a call. */
static inline IdemCursor idemScanNumber(IdemScan *p, IdemCursor c) {
  assert(c.pIn < p->pEnd && (*c.pIn == '-' || (*c.pIn >= '0' && *c.pIn <= '9')));
#ifdef IDEM_BLOCK
  if (p->pEnd - c.pIn >= IDEM_BLOCK && *c.pIn > '0') {
    int m = idemCopyDigitBlock(c.pOut, c.pIn);
    if (m != 0) {
      size_t n = idemFirstBit(m);
      if (c.pIn[n] != '.' && (c.pIn[n] | 0x20) != 'e') { /* it ends here */
        c.pIn += n;
        c.pOut += n;
        return c;
      }
    }
  }
#endif
  return idemScanNumberWhole(p, c);
}

#endif
