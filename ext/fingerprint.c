/*
** fingerprint.c: SQL arguments in, fingerprints out.
**
**   SELECT idem_fingerprint('{"currency":"ILS","amount":1200.0}');
**   -- idem1:bc49dafa11b5a6f9a70541a35014de70bb2ba0b092563ba130428ac9e8218f99
**   SELECT idem_fingerprint('{"amount":12e2,"currency":"ILS"}');            -- the same
**   SELECT idem_hmac_fingerprint('0123456789abcdef', '{"currency":"ILS","amount":1200.0}');
**   -- idemh1:307ccce49868b9d77ea49471829257d30cfcc74deb9ff94d2c4146da0eedb991
**   SELECT idem_fingerprint_raw('abc');
**   -- idemr1:890f4f22975e34036bcb46e01fee462ccb68c16f7a1726345f985b7b246c6b90
**   SELECT idem_canonical('{"currency":"ILS","amount":1200.0}');
**   -- {"amount":1200,"currency":"ILS"}
**   SELECT idem_canonical('{"amount":1200,"at":5}', '-$.at');     -- {"amount":1200}
**   SELECT idem_fingerprint(NULL) IS NULL;                        -- 1
**
** ARGUMENTS
**   A payload is TEXT or a BLOB of UTF-8 bytes: the same bytes give the same fingerprint. NULL
**   gives NULL. Numbers are refused: SQLite would have to print them, and a REAL would lose digits.
**   Checked in this order: the secret, the paths, the payload. So a wrong path shows at the first
**   call, even if that call's payload is NULL.
**
** ERRORS
**   "idem_fingerprint: dupkey at byte 19: ...": function, kind, offset from 0 in the argument's
**   bytes, explanation. No text of a payload, a path or a secret is ever quoted: people pass card
**   data, and sometimes in the wrong argument.
**
** WHAT THE RESULT HANGS ON
**   Only the value the payload spells, and of it only what the paths leave. The paths themselves
**   are not hashed: a path added later that leaves out something no payload has must not turn
**   retries that are under way into mismatches. The prefix of the result names the rules; other
**   rules would need another prefix, here and in the hashed bytes.
**
** MEMORY
**   One set of buffers for each connection, used again by each call: in a scan nothing is allocated
**   but the result. Large ones are given back, see canonical.h.
**
** PATHS
**   Parsed once per statement, and kept as auxiliary data of the first path. SQLite keeps that as
**   long as the first path is constant, which says nothing of the others; so the texts of all are
**   compared at each call.
*/
#include "fingerprint.h"

#include "canonical.h"
#include "paths.h"

#define PREFIX_MAX 7 /* longest of "idem1:", "idemh1:", "idemr1:" */

struct IdemFingerprint {
  IdemDigest *pDigest; /* contexts */
  IdemCanon *pCanon;   /* buffers */
};

/* One call of one of the functions. */
typedef struct Call {
  sqlite3_context *pCtx;   /* where the result goes */
  const char *zFunction;   /* its name, for error messages */
  IdemFingerprint *pOwn;   /* what the connection keeps for it */
  sqlite3_value *pPayload; /* the payload */
  sqlite3_value **apPath;  /* the paths */
  int nPath;               /* how many */
  int iPathArg;            /* number of the first path's argument, from 0 */
} Call;

/* Kind of a fault and what it means, in the order of enum IdemFaultKind. */
static const struct {
  const char *zKind; /* the word programs may look for */
  const char *zWhy;  /* for people */
} aFault[IDEM_FAULT_COUNT] = {
    {"", ""},
    {"eof", "the text ends too early"},
    {"syntax", "not JSON"},
    {"utf8", "not valid UTF-8"},
    {"surrogate", "half a surrogate pair"},
    {"escape", "not an escape JSON knows"},
    {"control", "a raw control character in a string"},
    {"number", "not a JSON number"},
    {"exponent", "the exponent is out of range, the limit is 999999999"},
    {"dupkey", "a second member of the same name"},
    {"depth", "nested too deeply, the limit is 512"},
    {"trailing", "more text after the value"},
    {"type", "the payload must be TEXT or BLOB; json_array() or json_object() make text of values"},
    {"path", "not a path"},
    {"only_empty", "no selecting path was found in the payload"},
    {"toobig", "the canonical text is too long"},
    {"nomem", "out of memory"},
};

/* --- errors ------------------------------------------------------------------------------- */

/* Reports a text from sqlite3_mprintf, NULL if that had no memory. */
static void failText(sqlite3_context *pCtx, int rc, char *zOwned) {
  if (zOwned == NULL) {
    sqlite3_result_error_nomem(pCtx);
    return;
  }
  sqlite3_result_error(pCtx, zOwned, -1); /* the text first: it resets the code */
  if (rc != SQLITE_ERROR) sqlite3_result_error_code(pCtx, rc);
  sqlite3_free(zOwned);
}

/* Reports a fault of the payload. */
static void failFault(const Call *p, IdemFault fault) {
  int rc = fault.eKind == IDEM_FAULT_NOMEM    ? SQLITE_NOMEM
           : fault.eKind == IDEM_FAULT_TOOBIG ? SQLITE_TOOBIG
                                              : SQLITE_ERROR;
  assert(fault.eKind > IDEM_FAULT_NONE && fault.eKind < IDEM_FAULT_COUNT);
  int bEmpty = fault.eKind == IDEM_FAULT_EOF && fault.iByte == 0;
  int bOther =
      (bEmpty || fault.eKind == IDEM_FAULT_SYNTAX) && strcmp(p->zFunction, "idem_fingerprint") == 0;
  failText(p->pCtx, rc,
           sqlite3_mprintf("%s: %s at byte %llu: %s%s", p->zFunction, aFault[fault.eKind].zKind,
                           (sqlite3_uint64)fault.iByte,
                           bEmpty ? "the payload is empty" : aFault[fault.eKind].zWhy,
                           bOther ? "; idem_fingerprint_raw() takes any bytes" : ""));
}

/* Reports a fault that has no place: byte 0. */
static void failKind(const Call *p, int eKind) {
  IdemFault fault = {eKind, 0};
  failFault(p, fault);
}

/* Reports a fault of a path, which is told by its number, from 1. */
static void failPath(const Call *p, int iPath, size_t iByte, const char *zWhy) {
  failText(p->pCtx, SQLITE_ERROR,
           sqlite3_mprintf("%s: path at byte %llu: path %d: %s", p->zFunction,
                           (sqlite3_uint64)iByte, iPath + 1, zWhy));
}

/* libcrypto failed: the only way known is want of memory. */
static void failDigest(const Call *p, int rc) {
  if (rc == SQLITE_NOMEM) {
    failKind(p, IDEM_FAULT_NOMEM);
  } else {
    failText(p->pCtx, rc, sqlite3_mprintf("%s: libcrypto failed", p->zFunction));
  }
}

/* --- arguments ---------------------------------------------------------------------------- */

/* The bytes of a TEXT or BLOB. SQLITE_NOMEM if they had to be converted and could not. */
static int valueBytes(sqlite3_value *pValue, int eType, const void **pa, size_t *pn) {
  int bText = eType == SQLITE_TEXT;
  assert(bText || eType == SQLITE_BLOB);
  *pa = bText ? (const void *)sqlite3_value_text(pValue) : sqlite3_value_blob(pValue);
  *pn = (size_t)sqlite3_value_bytes(pValue);
  if (*pa != NULL) return SQLITE_OK;
  return bText || *pn > 0 ? SQLITE_NOMEM : SQLITE_OK; /* an empty BLOB is NULL */
}

/* The parsed paths. 0 if they are wrong and the error is reported. *pbFresh says that the caller
** owns the set; otherwise SQLite does. *pp is NULL if there are no paths. */
static inline int getPaths(const Call *p, IdemPaths **pp, int *pbFresh) {
  const char *az[IDEM_PATHS_MAX];
  size_t an[IDEM_PATHS_MAX];
  IdemPathFault fault;

  *pp = NULL;
  *pbFresh = 0;
  if (p->nPath == 0) return 1;
  for (int i = 0; i < p->nPath; i++) {
    if (i == IDEM_PATHS_MAX) {
      failPath(p, i, 0, "too many paths, the limit is 64");
      return 0;
    }
    if (sqlite3_value_type(p->apPath[i]) != SQLITE_TEXT) {
      failPath(p, i, 0, "a path must be TEXT");
      return 0;
    }
    az[i] = (const char *)sqlite3_value_text(p->apPath[i]);
    an[i] = (size_t)sqlite3_value_bytes(p->apPath[i]);
    if (az[i] == NULL) {
      failKind(p, IDEM_FAULT_NOMEM);
      return 0;
    }
  }
  *pp = sqlite3_get_auxdata(p->pCtx, p->iPathArg);
  if (*pp != NULL && idemPathsSame(*pp, p->nPath, az, an)) return 1;
  if (idemPathsNew(pp, p->nPath, az, an, &fault) != SQLITE_OK) {
    if (fault.eKind == IDEM_FAULT_PATH) {
      failPath(p, fault.iPath, fault.iByte, fault.zWhy);
    } else {
      failKind(p, fault.eKind);
    }
    return 0;
  }
  *pbFresh = 1;
  return 1;
}

/* The canonical text of the payload. 0 if there is none: then the result, NULL or an error, is set.
** The text lives until the canonicaliser's next call. */
static inline int canonicalText(const Call *p, uint8_t **pa, size_t *pn) {
  IdemPaths *pPaths;
  IdemFault fault = {IDEM_FAULT_NONE, 0};
  const void *aPayload;
  size_t nPayload;
  int bFresh, eType;

  if (!getPaths(p, &pPaths, &bFresh)) return 0;
  *pa = NULL;
  eType = sqlite3_value_type(p->pPayload);
  if (eType == SQLITE_INTEGER || eType == SQLITE_FLOAT) {
    failKind(p, IDEM_FAULT_TYPE);
  } else if (eType != SQLITE_NULL) {
    if (valueBytes(p->pPayload, eType, &aPayload, &nPayload) != SQLITE_OK) {
      failKind(p, IDEM_FAULT_NOMEM);
    } else if (idemCanonRun(p->pOwn->pCanon, pPaths, aPayload, nPayload, pa, pn, &fault)) {
      failFault(p, fault);
    }
  }
  /* Only now: SQLite may free at once what it is given. */
  if (bFresh) sqlite3_set_auxdata(p->pCtx, p->iPathArg, pPaths, idemPathsFree);
  return *pa != NULL;
}

/* SHA-256 of the prefix of form eForm and the canonical text a[0..n-1], before which there is room
** for the prefix. */
static int digestText(const Call *p, int eForm, uint8_t *a, size_t n, unsigned char *aDigest) {
  const char *zPrefix = idemDigestPrefix(eForm);
  size_t nPrefix = strlen(zPrefix);
  assert(nPrefix <= IDEM_SLACK);
  memcpy(a - nPrefix, zPrefix, nPrefix);
  return idemDigestSha256(p->pOwn->pDigest, IDEM_FORM_NONE, a - nPrefix, n + nPrefix, aDigest);
}

/* Fills in what the functions over JSON have in common. 0, with the error reported, if arguments
** are missing. */
static inline int startCall(Call *p, sqlite3_context *pCtx, const char *zFunction, int iPayload,
                            int nArg, sqlite3_value **apArg) {
  p->pCtx = pCtx;
  p->zFunction = zFunction;
  p->pOwn = idemConnFingerprint(sqlite3_user_data(pCtx));
  if (nArg <= iPayload) {
    failText(pCtx, SQLITE_ERROR,
             sqlite3_mprintf("%s: %d argument%s given, at least %d needed", zFunction, nArg,
                             nArg == 1 ? "" : "s", iPayload + 1));
    return 0;
  }
  p->pPayload = apArg[iPayload];
  p->iPathArg = iPayload + 1;
  p->apPath = apArg + p->iPathArg;
  p->nPath = nArg - p->iPathArg;
  return 1;
}

/* --- results ------------------------------------------------------------------------------ */

/* The result: a prefix and a digest in hex. */
static void resultDigest(sqlite3_context *pCtx, const char *zPrefix, const unsigned char *aDigest) {
  char z[PREFIX_MAX + 2 * IDEM_DIGEST_SIZE];
  size_t nPrefix = strlen(zPrefix);
  assert(nPrefix <= PREFIX_MAX);
  memcpy(z, zPrefix, nPrefix);
  idemHex(aDigest, IDEM_DIGEST_SIZE, z + nPrefix);
  sqlite3_result_text(pCtx, z, (int)nPrefix + 2 * IDEM_DIGEST_SIZE, SQLITE_TRANSIENT);
}

/* The hot one: canonical text, one hash, one result. */
void idemFnFingerprint(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  Call call;
  unsigned char aDigest[IDEM_DIGEST_SIZE];
  uint8_t *a;
  size_t n;
  int rc;

  if (!startCall(&call, pCtx, "idem_fingerprint", 0, nArg, apArg)) return;
  if (canonicalText(&call, &a, &n)) {
    rc = digestText(&call, IDEM_FORM_JSON, a, n, aDigest);
    if (rc == SQLITE_OK) {
      resultDigest(pCtx, "idem1:", aDigest);
    } else {
      failDigest(&call, rc);
    }
  }
  idemCanonTrim(call.pOwn->pCanon);
}

/* Opaque bytes are hashed as they are, under a prefix of their own: no JSON text can be made to
** have the fingerprint of a raw one, or the other way round. */
void idemFnFingerprintRaw(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  Call call;
  unsigned char aDigest[IDEM_DIGEST_SIZE];
  const void *a;
  size_t n;
  int eType, rc;

  if (!startCall(&call, pCtx, "idem_fingerprint_raw", 0, nArg, apArg)) return;
  eType = sqlite3_value_type(call.pPayload);
  if (eType == SQLITE_NULL) return;
  if (eType == SQLITE_INTEGER || eType == SQLITE_FLOAT) {
    failText(pCtx, SQLITE_ERROR,
             sqlite3_mprintf("%s: type at byte 0: the bytes must be TEXT or BLOB", call.zFunction));
    return;
  }
  rc = valueBytes(call.pPayload, eType, &a, &n);
  if (rc == SQLITE_OK) rc = idemDigestSha256(call.pOwn->pDigest, IDEM_FORM_RAW, a, n, aDigest);
  if (rc == SQLITE_OK) {
    resultDigest(pCtx, "idemr1:", aDigest);
  } else {
    failDigest(&call, rc);
  }
}

/* The secret is used where SQLite keeps it, and libcrypto's copy of the key is wiped with the
** context that holds it. */
void idemFnHmacFingerprint(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  Call call;
  unsigned char aDigest[IDEM_DIGEST_SIZE];
  const void *aSecret;
  uint8_t *a;
  size_t nSecret, n;
  int eType, rc;

  if (!startCall(&call, pCtx, "idem_hmac_fingerprint", 1, nArg, apArg)) return;
  eType = sqlite3_value_type(apArg[0]);
  if (eType != SQLITE_TEXT && eType != SQLITE_BLOB) {
    failText(pCtx, SQLITE_ERROR,
             sqlite3_mprintf("%s: the secret must be TEXT or BLOB of at least %d bytes",
                             call.zFunction, IDEM_SECRET_MIN));
    return;
  }
  if (valueBytes(apArg[0], eType, &aSecret, &nSecret) != SQLITE_OK) {
    failKind(&call, IDEM_FAULT_NOMEM);
    return;
  }
  if (nSecret < IDEM_SECRET_MIN) {
    failText(pCtx, SQLITE_ERROR,
             sqlite3_mprintf("%s: the secret is %d bytes, at least %d are needed", call.zFunction,
                             (int)nSecret, IDEM_SECRET_MIN));
    return;
  }
  if (canonicalText(&call, &a, &n)) {
    rc = idemDigestHmac(call.pOwn->pDigest, aSecret, nSecret, IDEM_FORM_JSON, a, n, aDigest);
    if (rc == SQLITE_OK) {
      resultDigest(pCtx, "idemh1:", aDigest);
    } else {
      failDigest(&call, rc);
    }
  }
  idemCanonTrim(call.pOwn->pCanon);
}

/* The only one whose result can be too long: the others are so and so many characters. */
void idemFnCanonical(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  Call call;
  uint8_t *a;
  size_t n;

  if (!startCall(&call, pCtx, "idem_canonical", 0, nArg, apArg)) return;
  if (canonicalText(&call, &a, &n)) {
    int nMax = sqlite3_limit(sqlite3_context_db_handle(pCtx), SQLITE_LIMIT_LENGTH, -1);
    if (n > (size_t)nMax) {
      failKind(&call, IDEM_FAULT_TOOBIG);
    } else {
      sqlite3_result_text64(pCtx, (const char *)a, n, SQLITE_TRANSIENT, SQLITE_UTF8);
    }
  }
  idemCanonTrim(call.pOwn->pCanon);
}

/* --- what belongs to a connection --------------------------------------------------------- */

/* Contexts and an empty canonicaliser: nothing here grows before it is used. */
int idemFingerprintNew(IdemFingerprint **pp) {
  IdemFingerprint *p = sqlite3_malloc64(sizeof *p);
  int rc = SQLITE_NOMEM;

  assert(pp != NULL);
  *pp = NULL;
  if (p == NULL) return rc;
  memset(p, 0, sizeof *p);
  p->pCanon = idemCanonNew();
  if (p->pCanon != NULL) rc = idemDigestNew(&p->pDigest);
  if (rc != SQLITE_OK) {
    idemFingerprintFree(p);
    return rc;
  }
  *pp = p;
  return SQLITE_OK;
}

void idemFingerprintFree(IdemFingerprint *p) {
  if (p == NULL) return;
  idemDigestFree(p->pDigest);
  idemCanonFree(p->pCanon);
  sqlite3_free(p);
}

IdemDigest *idemFingerprintDigest(IdemFingerprint *p) {
  assert(p != NULL && p->pDigest != NULL);
  return p->pDigest;
}
