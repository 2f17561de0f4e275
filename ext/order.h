/*
** order.h: the order of an object's members, found when the object closes and carried out when the
** whole text is known. Knows names and offsets; nothing of JSON's grammar.
**
** The text it works on has IDEM_SLACK bytes before its beginning and after its end.
*/
#ifndef IDEM_ORDER_H
#define IDEM_ORDER_H

#include "json.h"

#include <stddef.h>
#include <stdint.h>

/* An array that grows. */
typedef struct IdemBuffer {
  void *a;       /* the items */
  size_t nAlloc; /* bytes there is room for */
} IdemBuffer;

/* A member's piece of the text. Offsets are into the text. */
typedef struct IdemPlace {
  uint32_t iText;    /* the name's opening quote */
  uint32_t iEnd;     /* one past the value */
  uint32_t nShuffle; /* shuffles made before iEnd: the last of them may be inside */
} IdemPlace;

/* A member of an object that is still open. */
typedef struct IdemMember {
  uint64_t iPrefix; /* first eight bytes of the name, by idemOrderWord */
  IdemPlace place;  /* where it is */
  uint32_t nName;   /* bytes of the name as written, without the quotes */
  uint32_t iSource; /* the name's opening quote in the input, for error reports */
  uint8_t bEscaped; /* the name is written with a backslash: bytes are not yet characters */
  uint8_t bDropped; /* left out of the final text */
} IdemMember;

/* An object as its closing bracket has just been written. */
typedef struct IdemObject {
  uint32_t iText;    /* its opening bracket */
  uint32_t iEnd;     /* one past its closing bracket */
  uint32_t iMember;  /* its first member; it has all from there on, at least one */
  uint32_t nShuffle; /* shuffles made before it was opened */
  int bGap;          /* some member is dropped */
} IdemObject;

/* An object being written by the second pass, from its end. */
typedef struct IdemJob {
  uint32_t iShuffle;       /* which */
  const IdemPlace *pFirst; /* its first place */
  const IdemPlace *pPlace; /* one past the place to be written next */
  uint32_t iLow;           /* where the range around the object begins */
} IdemJob;

#define IDEM_DEPTH_MAX 512 /* nested brackets; the next one is a fault */

typedef struct IdemOrder {
  IdemBuffer member;            /* IdemMember[]: a stack, open objects above one another */
  IdemBuffer place;             /* members of shuffled objects, in their final order */
  IdemBuffer shuffle;           /* shuffled objects, in the order they closed */
  IdemBuffer final;             /* the second pass's output, at its end */
  uint32_t nMember;             /* used of member */
  uint32_t nMemberMax;          /* members there is room for */
  uint32_t nPlace;              /* used of place */
  uint32_t nShuffle;            /* used of shuffle */
  int bEqual;                   /* a comparison of two names found them equal */
  const uint8_t *aText;         /* the text, while an object is being put in order */
  IdemJob aJob[IDEM_DEPTH_MAX]; /* the second pass's stack */
} IdemOrder;

/* Called by idemBufferReserve once the room is used up. */
int idemBufferGrow(IdemBuffer *p, size_t nNeed);

/* Makes room for nNeed bytes; half as much again if there was some, so that growing piece by piece
** costs no more than growing at once. IDEM_FAULT_NONE or IDEM_FAULT_NOMEM. */
static inline int idemBufferReserve(IdemBuffer *p, size_t nNeed) {
  return nNeed <= p->nAlloc ? IDEM_FAULT_NONE : idemBufferGrow(p, nNeed);
}
void idemBufferFree(IdemBuffer *p);

/* Forgets all members and shuffles; keeps the memory. */
void idemOrderReset(IdemOrder *p);

/* Bytes in use by buffers, and giving them back. */
size_t idemOrderMemory(const IdemOrder *p);
void idemOrderFree(IdemOrder *p);

/* A byte of a name, such that the order of the results is the order of names. */
static inline uint64_t idemOrderByte(uint64_t b) {
  return b < 0xee ? b : b < 0xf0 ? b + 5 : b - 2;
}

/* The next eight bytes of a name, or n if fewer are left, as a number whose order is that of names:
** first byte highest, zeros after the end. Reads eight bytes whatever n is. */
static inline uint64_t idemOrderWord(const uint8_t *a, size_t n) {
  uint64_t w = (uint64_t)a[0] << 56 | (uint64_t)a[1] << 48 | (uint64_t)a[2] << 40 |
               (uint64_t)a[3] << 32 | (uint64_t)a[4] << 24 | (uint64_t)a[5] << 16 |
               (uint64_t)a[6] << 8 | (uint64_t)a[7];
  if (n < 8) w &= ~(~UINT64_C(0) >> 8 * n);
  if ((w & UINT64_C(0x8080808080808080)) != 0) {
    uint64_t wPlain = w;
    w = 0;
    for (int nShift = 0; nShift < 64; nShift += 8) {
      w |= idemOrderByte(wPlain >> nShift & 0xff) << nShift;
    }
  }
  return w;
}

/* Makes room for one member more. */
int idemOrderGrow(IdemOrder *p);

/* One member more; NULL if there is no memory. The caller fills it in. */
static inline IdemMember *idemOrderPush(IdemOrder *p) {
  if (p->nMember == p->nMemberMax && idemOrderGrow(p)) return NULL;
  return (IdemMember *)p->member.a + p->nMember++;
}

/* The member pushed last. */
static inline IdemMember *idemOrderTop(const IdemOrder *p) {
  return (IdemMember *)p->member.a + p->nMember - 1;
}

/* Puts the members of an object that closes in order, and pops them. IDEM_FAULT_NONE, _NOMEM, or
** _DUPKEY with the offset in the input of the first repeating name in *piRepeat. */
int idemOrderClose(IdemOrder *p, const uint8_t *aText, const IdemObject *pObject,
                   uint32_t *piRepeat);

/* Forgets the shuffles made after the first nShuffle: their text is cut off. */
void idemOrderForget(IdemOrder *p, uint32_t nShuffle);

/* Writes text [iText,iEnd) with every object in its final order. IDEM_FAULT_NONE or _NOMEM. The
** result lives until the next use, and has IDEM_SLACK bytes before it that may be written. */
int idemOrderWrite(IdemOrder *p, uint8_t *aText, uint32_t iText, uint32_t iEnd, uint8_t **pa,
                   size_t *pn);

#endif
