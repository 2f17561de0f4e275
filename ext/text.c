/*
** text.c: arguments as they come from SQL. Nothing is trimmed, folded or cut: what is not allowed
** is refused, with what was wrong and what the limit is.
*/
#include "digest.h"
#include "text.h"

/* Reads one character at a[i]: its code point, with *pn its bytes; -1 if it is not UTF-8. */
static int32_t readUtf8(const unsigned char *a, int i, int n, int *pn) {
  static const int32_t aMin[] = {0, 0, 0x80, 0x800, 0x10000};
  int32_t c = a[i];
  int k = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 0;
  if (k == 0 || c >= 0xf8 || i + k > n) return -1;
  if (k > 1) c &= 0x7f >> k;
  for (int j = 1; j < k; j++) {
    if ((a[i + j] & 0xc0) != 0x80) return -1;
    c = c << 6 | (a[i + j] & 0x3f);
  }
  if (c < aMin[k] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return -1;
  *pn = k;
  return c;
}

/* True if 8 bytes are all printable ASCII: none below 0x20, none above 0x7e. */
static int isPlain(const unsigned char *a) {
  const uint64_t mOnes = 0x0101010101010101u, mHigh = 0x80 * mOnes;
  uint64_t w;
  memcpy(&w, a, sizeof(w));
  return ((w | (w - 0x20 * mOnes) | (w + mOnes)) & mHigh) == 0;
}

int64_t idemUtf8Measure(const void *p, int n, int64_t *pnControl) {
  const unsigned char *a = p;
  int64_t nChar = 0;
  int k = 0;
  *pnControl = 0;
  for (int i = 0; i < n; i += k, nChar++) {
    for (; i + 8 <= n && isPlain(a + i); i += 8) nChar += 8;
    if (i == n) break;
    k = 1;
    if (a[i] >= 0x20 && a[i] < 0x7f) continue; /* nearly all of them */
    int32_t c = readUtf8(a, i, n, &k);
    if (c < 0) return -1;
    if (c < 0x20 || (c >= 0x7f && c <= 0x9f)) ++*pnControl;
  }
  return nChar;
}

/* Takes the bytes of a TEXT, BLOB or NULL as they are. */
static void take(IdemCall *pCall, sqlite3_value *pArg, const char *zWhat, IdemValue *pOut) {
  memset(pOut, 0, sizeof(*pOut));
  pOut->eType = sqlite3_value_type(pArg);
  switch (pOut->eType) {
  case SQLITE_NULL: return;
  case SQLITE_TEXT: pOut->p = sqlite3_value_text(pArg); break;
  case SQLITE_BLOB: pOut->p = sqlite3_value_blob(pArg); break;
  default:
    pOut->eType = SQLITE_NULL;
    idemFail(pCall, IDEM_E_TYPE_DATA, zWhat);
    return;
  }
  pOut->n = sqlite3_value_bytes(pArg);
  if (!pOut->p && (pOut->n > 0 || pOut->eType == SQLITE_TEXT)) idemFailNomem(pCall);
}

static int takeText(IdemCall *pCall, sqlite3_value *pArg, const char *zWhat, IdemValue *pOut) {
  memset(pOut, 0, sizeof(*pOut));
  pOut->eType = SQLITE_NULL;
  if (sqlite3_value_type(pArg) == SQLITE_NULL) {
    idemFail(pCall, IDEM_E_NULL, zWhat);
  } else if (sqlite3_value_type(pArg) != SQLITE_TEXT) {
    idemFail(pCall, IDEM_E_TYPE_TEXT, zWhat);
  } else {
    take(pCall, pArg, zWhat, pOut);
  }
  return pCall->rc == SQLITE_OK;
}

void idemArgText(IdemCall *pCall, sqlite3_value *pArg, const char *zWhat, int nMin, int nMax,
                 IdemValue *pOut) {
  int64_t nControl, nChar;
  if (!takeText(pCall, pArg, zWhat, pOut)) return;
  nChar = idemUtf8Measure(pOut->p, pOut->n, &nControl);
  if (nChar < 0) {
    idemFail(pCall, IDEM_E_UTF8, zWhat);
  } else if (nControl > 0) {
    idemFail(pCall, IDEM_E_CONTROL, zWhat);
  } else if (nChar < nMin) {
    idemFail(pCall, IDEM_E_EMPTY, zWhat, nMax, "characters");
  } else if (nChar > nMax) {
    idemFail(pCall, IDEM_E_CHARS, zWhat, nChar, nMax);
  }
}

void idemArgNote(IdemCall *pCall, sqlite3_value *pArg, const char *zWhat, int nMax,
                 IdemValue *pOut) {
  int64_t nControl, nChar;
  memset(pOut, 0, sizeof(*pOut));
  pOut->eType = SQLITE_NULL;
  if (sqlite3_value_type(pArg) == SQLITE_NULL || !takeText(pCall, pArg, zWhat, pOut)) return;
  nChar = idemUtf8Measure(pOut->p, pOut->n, &nControl);
  if (nChar < 0) {
    idemFail(pCall, IDEM_E_UTF8, zWhat);
  } else if (pOut->n && memchr(pOut->p, 0, (size_t)pOut->n)) {
    idemFail(pCall, IDEM_E_CONTROL, zWhat);
  } else if (nChar > nMax) {
    idemFail(pCall, IDEM_E_CHARS, zWhat, nChar, nMax);
  }
}

void idemArgData(IdemCall *pCall, sqlite3_value *pArg, const char *zWhat, int nMax,
                 IdemValue *pOut) {
  take(pCall, pArg, zWhat, pOut);
  if (nMax > 0 && pOut->n > nMax)
    idemFail(pCall, IDEM_E_BYTES, zWhat, (sqlite3_int64)pOut->n, nMax);
}

void idemArgFingerprint(IdemCall *pCall, sqlite3_value *pArg, int bNull, IdemValue *pOut) {
  int64_t nControl;
  int eType = sqlite3_value_type(pArg);
  if (eType == SQLITE_INTEGER || eType == SQLITE_FLOAT) idemFail(pCall, IDEM_E_TYPE_FINGERPRINT);
  take(pCall, pArg, "fingerprint", pOut);
  if (pOut->eType == SQLITE_NULL) {
    if (!bNull) idemFail(pCall, IDEM_E_NULL, "fingerprint");
  } else if (pOut->n == 0) {
    idemFail(pCall, IDEM_E_EMPTY, "fingerprint", IDEM_FINGERPRINT_MAX, "bytes");
  } else if (pOut->n > IDEM_FINGERPRINT_MAX) {
    idemFail(pCall, IDEM_E_FINGERPRINT_BYTES, (sqlite3_int64)pOut->n, IDEM_FINGERPRINT_MAX);
  } else if (pOut->eType == SQLITE_TEXT && idemUtf8Measure(pOut->p, pOut->n, &nControl) < 0) {
    idemFail(pCall, IDEM_E_UTF8, "fingerprint");
  }
}

void idemArgToken(IdemCall *pCall, sqlite3_value *pArg, int bNull, IdemValue *pOut) {
  int64_t nControl;
  memset(pOut, 0, sizeof(*pOut));
  pOut->eType = SQLITE_NULL;
  if (bNull && sqlite3_value_type(pArg) == SQLITE_NULL) return;
  if (!takeText(pCall, pArg, "token", pOut)) return;
  /* As many characters as bytes: that is ASCII. */
  if (pOut->n < IDEM_TOKEN_MIN || pOut->n > IDEM_TOKEN_MAX ||
      idemUtf8Measure(pOut->p, pOut->n, &nControl) != pOut->n || nControl > 0) {
    idemFail(pCall, IDEM_E_TOKEN_SHAPE);
  }
}

/* True if a TEXT is a decimal integer of at most 18 digits: Perl's DBI and Tcl bind numbers so. */
static int textInt(sqlite3_value *pArg, int64_t *pi) {
  const char *z = (const char *)sqlite3_value_text(pArg);
  int n = sqlite3_value_bytes(pArg), bMinus = n > 0 && z && z[0] == '-', i = bMinus;
  *pi = 0;
  if (!z || n <= i || n - i > 18) return 0;
  for (; i < n; i++) {
    if (z[i] < '0' || z[i] > '9') return 0;
    *pi = *pi * 10 + (z[i] - '0');
  }
  if (bMinus) *pi = -*pi;
  return 1;
}

int64_t idemArgInt(IdemCall *pCall, sqlite3_value *pArg, const char *zWhat, int64_t lo,
                   int64_t hi) {
  int64_t v = 0;
  if (sqlite3_value_type(pArg) == SQLITE_FLOAT) {
    double r = sqlite3_value_double(pArg);
    /* Within +-2^53 every integral double is exact; NaN is NULL in SQLite. */
    if (r < -9007199254740992.0 || r > 9007199254740992.0) {
      if (lo <= INT64_MIN && hi >= INT64_MAX) idemFail(pCall, IDEM_E_REAL, zWhat);
      idemFail(pCall, IDEM_E_RANGE, zWhat, (sqlite3_int64)lo, (sqlite3_int64)hi);
      return 0;
    }
    v = (int64_t)r;
    if (r < (double)v || r > (double)v) idemFail(pCall, IDEM_E_TYPE_INT, zWhat);
  } else if (sqlite3_value_type(pArg) == SQLITE_INTEGER) {
    v = sqlite3_value_int64(pArg);
  } else if (sqlite3_value_type(pArg) == SQLITE_NULL) {
    idemFail(pCall, IDEM_E_NULL, zWhat);
  } else if (sqlite3_value_type(pArg) != SQLITE_TEXT || !textInt(pArg, &v)) {
    idemFail(pCall, IDEM_E_TYPE_INT, zWhat);
  }
  if (pCall->rc == SQLITE_OK && (v < lo || v > hi)) {
    idemFail(pCall, IDEM_E_RANGE, zWhat, (sqlite3_int64)lo, (sqlite3_int64)hi);
  }
  return v;
}

void idemArgScope(IdemCall *pCall, sqlite3_value *pArg, IdemValue *pOut) {
  idemArgText(pCall, pArg, "scope", 0, IDEM_SCOPE_CHARS, pOut);
}

void idemArgKey(IdemCall *pCall, sqlite3_value *pArg, IdemValue *pOut) {
  idemArgText(pCall, pArg, "key", 1, IDEM_KEY_CHARS, pOut);
}

void idemArgOperation(IdemCall *pCall, sqlite3_value *pArg, IdemValue *pOut) {
  static const IdemValue none = {SQLITE_TEXT, 0, ""};
  *pOut = none;
  if (sqlite3_value_type(pArg) == SQLITE_NULL) return;
  idemArgText(pCall, pArg, "operation", 0, IDEM_OPERATION_CHARS, pOut);
  if (pCall->rc == SQLITE_OK && pOut->n == 1 && *(const char *)pOut->p == '*') {
    idemFail(pCall, IDEM_E_OPERATION);
  } else if (pCall->rc == SQLITE_OK) {
    int nForm = idemFormLength(pOut);
    if (nForm && pOut->n == nForm + 2 * IDEM_DIGEST_SIZE) idemFail(pCall, IDEM_E_SWAPPED);
  }
}
