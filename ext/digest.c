/*
** digest.c: SHA-256, HMAC, random bytes and constant-time comparison by OpenSSL's libcrypto.
**
**   SELECT idem_fingerprint_raw('abc');
**   -- idemr1:890f4f22975e34036bcb46e01fee462ccb68c16f7a1726345f985b7b246c6b90
**
** WHERE THE TIME GOES
**   Asking OpenSSL 3 for "SHA256" by name costs more than hashing 300 bytes does, and so does a
**   new context per call. So the algorithms are fetched once per process, and each connection
**   keeps one context per form that has already absorbed the form's prefix: a digest is a copy of
**   that context, one update, one final.
**
** THREADS
**   Fetched algorithms are reference counted and immutable, so threads share them. Two threads
**   may fetch at the same moment: the first to publish wins and the other frees its own. There is
**   no once-guard, because a fetch that failed for want of memory must be tried again later.
**
** SECRETS
**   HMAC keys go into a context that is made for the call and freed at its end; libcrypto wipes
**   what it frees of them. Nothing else here ever holds a secret, so nothing else needs wiping.
**
** FAILURES
**   What asks for no memory does not fail in a libcrypto that gave us the algorithm; its results
**   are looked at all the same. Such lines are marked GCOVR_EXCL_BR_LINE: no test can take their
**   other branch.
**
** CONFIGURATION
**   The very first call into the library forbids reading openssl.cnf: a host's configuration could
**   load modules into our private copy.
*/
#include "digest.h"

#include "idem_int.h"

#include <assert.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

/* The prefixes, indexed by enum IdemForm. */
static const char *const azPrefix[IDEM_FORM_COUNT] = {"", "idem-fp/1\n", "idem-raw/1\n"};

/* The algorithms of this process: NULL until first wanted, never freed, never replaced. */
static _Atomic(EVP_MD *) pSharedSha256;
static _Atomic(EVP_MAC *) pSharedHmac;

struct IdemDigest {
  EVP_MD_CTX *apStart[IDEM_FORM_COUNT]; /* has absorbed the form's prefix; only ever copied */
  EVP_MD_CTX *pWork;                    /* scratch, overwritten by each digest */
  EVP_MAC_CTX *pMac;                    /* HMAC over SHA-256 without a key; only ever copied */
};

/* Must come before any other use of libcrypto. Cheap and thread-safe when repeated. */
static int startLibrary(void) {
  return OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) == 1 ? SQLITE_OK : SQLITE_ERROR;
}

/* SHA-256, fetched on first use; NULL if that fails. */
static EVP_MD *sharedSha256(void) {
  EVP_MD *pOld = atomic_load(&pSharedSha256);
  if (pOld == NULL) {
    EVP_MD *pNew = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (pNew == NULL) return NULL;
    /* GCOVR_EXCL_BR_START: that another thread was quicker is for test-tsan */
    if (atomic_compare_exchange_strong(&pSharedSha256, &pOld, pNew)) return pNew;
    /* GCOVR_EXCL_BR_STOP */
    EVP_MD_free(pNew);
  }
  assert(pOld != NULL);
  return pOld;
}

/* HMAC, likewise. */
static EVP_MAC *sharedHmac(void) {
  EVP_MAC *pOld = atomic_load(&pSharedHmac);
  if (pOld == NULL) {
    EVP_MAC *pNew = EVP_MAC_fetch(NULL, "HMAC", NULL);
    if (pNew == NULL) return NULL;
    /* GCOVR_EXCL_BR_START: as above */
    if (atomic_compare_exchange_strong(&pSharedHmac, &pOld, pNew)) return pNew;
    /* GCOVR_EXCL_BR_STOP */
    EVP_MAC_free(pNew);
  }
  assert(pOld != NULL);
  return pOld;
}

/* Makes the contexts; what was made before a failure is left for idemDigestFree. */
static int makeContexts(IdemDigest *p, EVP_MD *pSha256, EVP_MAC *pHmac) {
  char zDigest[] = "SHA256"; /* OSSL_PARAM wants a writable text */
  OSSL_PARAM aParam[2];

  p->pWork = EVP_MD_CTX_new();
  if (p->pWork == NULL) return SQLITE_NOMEM;
  for (int i = 0; i < IDEM_FORM_COUNT; i++) {
    EVP_MD_CTX *pStart = p->apStart[i] = EVP_MD_CTX_new();
    if (pStart == NULL) return SQLITE_NOMEM;
    if (!EVP_DigestInit_ex2(pStart, pSha256, NULL)) return SQLITE_ERROR;
    size_t nPrefix = strlen(azPrefix[i]);
    if (!EVP_DigestUpdate(pStart, azPrefix[i], nPrefix))
      return SQLITE_ERROR; /* GCOVR_EXCL_BR_LINE */
  }
  p->pMac = EVP_MAC_CTX_new(pHmac);
  if (p->pMac == NULL) return SQLITE_NOMEM;
  aParam[0] = OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, zDigest, 0);
  aParam[1] = OSSL_PARAM_construct_end();
  return EVP_MAC_CTX_set_params(p->pMac, aParam) ? SQLITE_OK : SQLITE_ERROR;
}

/* Forbids the configuration file first, then fetches, then makes contexts: in that order, since the
** fetch is what would read the file. */
int idemDigestNew(IdemDigest **pp) {
  int rc = startLibrary();
  EVP_MD *pSha256 = rc == SQLITE_OK ? sharedSha256() : NULL;
  EVP_MAC *pHmac = pSha256 != NULL ? sharedHmac() : NULL;
  IdemDigest *p;

  assert(pp != NULL);
  *pp = NULL;
  if (pHmac == NULL) return SQLITE_ERROR;
  p = sqlite3_malloc64(sizeof *p);
  if (p == NULL) return SQLITE_NOMEM;
  memset(p, 0, sizeof *p);
  rc = makeContexts(p, pSha256, pHmac);
  if (rc != SQLITE_OK) {
    idemDigestFree(p);
    return rc;
  }
  *pp = p;
  return SQLITE_OK;
}

/* Also the way out of a half-made object: each of OpenSSL's own free functions accepts NULL. */
void idemDigestFree(IdemDigest *p) {
  if (p == NULL) return;
  for (int i = 0; i < IDEM_FORM_COUNT; i++) EVP_MD_CTX_free(p->apStart[i]);
  EVP_MD_CTX_free(p->pWork);
  EVP_MAC_CTX_free(p->pMac);
  sqlite3_free(p);
}

/* Static text, terminated. */
const char *idemDigestPrefix(int eForm) {
  assert(eForm >= 0 && eForm < IDEM_FORM_COUNT);
  return azPrefix[eForm];
}

/* The copy replaces whatever the scratch context held, so a failed call leaves nothing behind. */
int idemDigestSha256(IdemDigest *p, int eForm, const void *a, size_t n,
                     unsigned char out[IDEM_DIGEST_SIZE]) {
  unsigned nOut = 0;
  assert(p != NULL && eForm >= 0 && eForm < IDEM_FORM_COUNT);
  assert(a != NULL || n == 0);
  if (!EVP_MD_CTX_copy_ex(p->pWork, p->apStart[eForm])) return SQLITE_NOMEM;
  if (!EVP_DigestUpdate(p->pWork, a, n)) return SQLITE_ERROR;         /* GCOVR_EXCL_BR_LINE */
  if (!EVP_DigestFinal_ex(p->pWork, out, &nOut)) return SQLITE_ERROR; /* GCOVR_EXCL_BR_LINE */
  assert(nOut == IDEM_DIGEST_SIZE);
  return SQLITE_OK;
}

int idemDigestHmac(IdemDigest *p, const void *aSecret, size_t nSecret, int eForm, const void *a,
                   size_t n, unsigned char out[IDEM_DIGEST_SIZE]) {
  EVP_MAC_CTX *pMac;
  size_t nOut = 0;
  int rc = SQLITE_ERROR;

  assert(p != NULL && eForm >= 0 && eForm < IDEM_FORM_COUNT);
  assert(aSecret != NULL && nSecret > 0);
  /* The copy takes the key and is freed at once: freeing is how libcrypto wipes it. */
  pMac = EVP_MAC_CTX_dup(p->pMac);
  if (pMac == NULL) return SQLITE_NOMEM;
  if (EVP_MAC_init(pMac, aSecret, nSecret, NULL) &&
      EVP_MAC_update(pMac, (const unsigned char *)azPrefix[eForm], strlen(azPrefix[eForm])) &&
      (n == 0 || EVP_MAC_update(pMac, a, n)) && EVP_MAC_final(pMac, out, &nOut, IDEM_DIGEST_SIZE) &&
      nOut == IDEM_DIGEST_SIZE) {
    rc = SQLITE_OK;
  }
  EVP_MAC_CTX_free(pMac);
  return rc;
}

/* May be the first thing asked of the library by a thread, hence the start. */
int idemRandom(void *a, size_t n) {
  assert(a != NULL || n == 0);
  if (n > INT_MAX || startLibrary() != SQLITE_OK) return SQLITE_ERROR;
  return RAND_bytes(a, (int)n) == 1 ? SQLITE_OK : SQLITE_ERROR;
}

/* Lengths are no secret: who compares texts of different lengths need not call. */
int idemEqual(const void *a, const void *b, size_t n) {
  assert(n == 0 || (a != NULL && b != NULL));
  return n == 0 || CRYPTO_memcmp(a, b, n) == 0;
}

void idemHex(const unsigned char *a, size_t n, char *zOut) {
  static const char zDigit[] = "0123456789abcdef";
  assert(a != NULL && zOut != NULL);
  for (size_t i = 0; i < n; i++) {
    zOut[2 * i] = zDigit[a[i] >> 4];
    zOut[2 * i + 1] = zDigit[a[i] & 15];
  }
}

void idemWipe(void *a, size_t n) {
  assert(a != NULL || n == 0);
  OPENSSL_cleanse(a, n);
}

const char *idemDigestVersion(void) {
  return OpenSSL_version(OPENSSL_VERSION);
}
