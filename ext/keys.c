/*
** keys.c: idempotency keys: made, derived, and read from a header.
**
**     SELECT idem_key();                              -- 01932c07-…-7…: sorts by time
**     SELECT idem_derive_key('order-123', 'charge');  -- the same on every retry
**     SELECT idem_header_key('"8e03978e-40d5"');      -- 8e03978e-40d5
*/
#include "keys.h"
#include "functions.h"
#include "text.h"

/* Writes 16 bytes as a UUID of the given version (RFC 9562); 36 characters and a terminator. */
static void uuidText(unsigned char a[16], unsigned char iVersion, char z[37]) {
  static const int aAt[] = {0, 8, 9, 4, 14, 4, 19, 4, 24, 12}; /* place, digits of each group */
  char zHex[32], *zFrom = zHex;
  a[6] = (unsigned char)((a[6] & 0x0f) | (iVersion << 4));
  a[8] = (unsigned char)((a[8] & 0x3f) | 0x80);
  idemHex(a, 16, zHex);
  memset(z, '-', 36);
  for (int i = 0; i < 10; i += 2) {
    memcpy(z + aAt[i], zFrom, (size_t)aAt[i + 1]);
    zFrom += aAt[i + 1];
  }
  z[36] = 0;
}

void idemFnKey(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  unsigned char a[16];
  char z[37];
  (void)nArg, (void)apArg;
  idemCallBegin(&call, sqlite3_user_data(pCtx), "idem_key");
  int64_t ms = idemConnNow(call.pConn);
  if (idemRandom(a, sizeof(a)) != SQLITE_OK) idemFail(&call, IDEM_E_LIBCRYPTO);
  for (int i = 0; i < 6; i++) a[i] = (unsigned char)(ms >> (40 - 8 * i));
  uuidText(a, 7, z);
  if (idemCallResult(&call, pCtx)) sqlite3_result_text(pCtx, z, 36, SQLITE_TRANSIENT);
}

/*
** Appends one argument to what is hashed: a letter for its type, its length in 8 bytes, big end
** first, its bytes. So no two lists of arguments give the same bytes, whatever they hold.
*/
static void appendPart(sqlite3_str *pBytes, char cType, const void *p, int n) {
  unsigned char aLen[8];
  for (int i = 0; i < 8; i++) aLen[i] = (unsigned char)((uint64_t)n >> (56 - 8 * i));
  sqlite3_str_appendchar(pBytes, 1, cType);
  sqlite3_str_append(pBytes, (const char *)aLen, 8);
  sqlite3_str_append(pBytes, p ? p : "", n);
}

static void appendStep(IdemCall *pCall, sqlite3_str *pBytes, sqlite3_value *pArg) {
  char zInt[32];
  IdemValue v;
  int eType = sqlite3_value_type(pArg);
  if (eType == SQLITE_INTEGER || eType == SQLITE_FLOAT) {
    sqlite3_int64 i = idemArgInt(pCall, pArg, "step", INT64_MIN, INT64_MAX);
    sqlite3_snprintf(sizeof(zInt), zInt, "%lld", i);
    /* As its digits: a worker whose driver binds numbers as text derives the same key. */
    appendPart(pBytes, 't', zInt, (int)strlen(zInt));
  } else if (eType == SQLITE_NULL) {
    idemFail(pCall, IDEM_E_NULL, "step");
  } else {
    idemArgData(pCall, pArg, "step", 0, &v);
    appendPart(pBytes, eType == SQLITE_TEXT ? 't' : 'b', v.p, v.n);
  }
}

/*
** A UUIDv8 (RFC 9562: for uses of one's own): the first 16 bytes of SHA-256 over the 14 bytes
** "idem-derive/1\n", then each argument as appendPart() writes it, with version and variant set.
*/
void idemFnDeriveKey(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  IdemValue key;
  unsigned char aDigest[IDEM_DIGEST_SIZE];
  char z[37] = "";
  idemCallBegin(&call, sqlite3_user_data(pCtx), "idem_derive_key");
  if (nArg < 2) {
    idemFail(&call, IDEM_E_ARGUMENTS, "idem_derive_key(key, step ...)");
  } else {
    sqlite3_str *pBytes = sqlite3_str_new(call.db);
    sqlite3_str_appendall(pBytes, "idem-derive/1\n");
    idemArgKey(&call, apArg[0], &key);
    if (call.rc == SQLITE_OK) appendPart(pBytes, 't', key.p, key.n);
    for (int i = 1; i < nArg && call.rc == SQLITE_OK; i++) appendStep(&call, pBytes, apArg[i]);
    int n = sqlite3_str_length(pBytes), rc = sqlite3_str_errcode(pBytes);
    char *aBytes = sqlite3_str_finish(pBytes);
    if (rc != SQLITE_OK) {
      idemFailDb(&call, rc);
    } else if (call.rc == SQLITE_OK) {
      rc = idemDigestSha256(idemConnDigest(call.pConn), IDEM_FORM_NONE, aBytes, (size_t)n, aDigest);
      if (rc != SQLITE_OK) idemFail(&call, IDEM_E_LIBCRYPTO);
      uuidText(aDigest, 8, z);
    }
    sqlite3_free(aBytes);
  }
  if (idemCallResult(&call, pCtx)) sqlite3_result_text(pCtx, z, 36, SQLITE_TRANSIENT);
}

/* Strips spaces and tabs from both ends: they may surround a header's value (RFC 9110, 5.5). */
static void trim(const char **pz, int *pn) {
  while (*pn > 0 && ((*pz)[0] == ' ' || (*pz)[0] == '\t')) ++*pz, --*pn;
  while (*pn > 0 && ((*pz)[*pn - 1] == ' ' || (*pz)[*pn - 1] == '\t')) --*pn;
}

/* An RFC 8941 string, section 3.3.3: printable ASCII within quotes, \" and \\ its only escapes.
** Writes the key to zOut, of n bytes at least. Its length; -1 if it is malformed. */
static int quotedKey(const char *z, int n, char *zOut) {
  int nOut = 0;
  if (n < 2 || z[0] != '"' || z[n - 1] != '"') return -1;
  for (int i = 1; i < n - 1; i++) {
    if (z[i] < 0x20 || z[i] > 0x7e || z[i] == '"') return -1;
    if (z[i] == '\\' && (++i == n - 1 || (z[i] != '"' && z[i] != '\\'))) return -1;
    zOut[nOut++] = z[i];
  }
  return nOut;
}

/* The bare form that most clients send: visible ASCII, without what would need quotes, and without
** the comma that joins two headers into one. */
static int bareKey(const char *z, int n, char *zOut) {
  for (int i = 0; i < n; i++) {
    if (z[i] <= 0x20 || z[i] > 0x7e || strchr("\"\\,;", z[i])) return -1;
    zOut[i] = z[i];
  }
  return n;
}

void idemFnHeaderKey(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  IdemValue v;
  char zKey[2 * IDEM_KEY_CHARS + 2];
  int n = -1;
  (void)nArg;
  if (sqlite3_value_type(apArg[0]) == SQLITE_NULL) return;
  idemCallBegin(&call, sqlite3_user_data(pCtx), "idem_header_key");
  idemArgData(&call, apArg[0], "header", 0, &v);
  if (call.rc == SQLITE_OK) {
    const char *z = v.p;
    trim(&z, &v.n);
    if (v.n > 0 && v.n <= (int)sizeof(zKey)) {
      n = z[0] == '"' ? quotedKey(z, v.n, zKey) : bareKey(z, v.n, zKey);
    }
    if (n < 1 || n > IDEM_KEY_CHARS) idemFail(&call, IDEM_E_HEADER);
  }
  if (idemCallResult(&call, pCtx)) sqlite3_result_text(pCtx, zKey, n, SQLITE_TRANSIENT);
}
