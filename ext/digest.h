/*
** digest.h: everything idem asks of a cryptographic library, and nothing else.
**
** No other file includes OpenSSL, so the library could be exchanged by writing one file anew.
** Every function returns a SQLite result code unless it says otherwise.
**
** Threads: an IdemDigest belongs to one connection and is never shared; what is shared by the
** whole process (the fetched algorithms) is read-only once published.
*/
#ifndef IDEM_DIGEST_H
#define IDEM_DIGEST_H

#include <stddef.h>

#define IDEM_DIGEST_SIZE 32 /* bytes of a SHA-256 */

/* The form of the hashed bytes. Each has its own prefix, so that bytes hashed under one form can
** never have the digest of bytes hashed under another. The prefixes are a promise to every stored
** fingerprint: a changed rule needs a new form, never a changed prefix. */
enum IdemForm {
  IDEM_FORM_NONE = 0, /* the bytes as they are */
  IDEM_FORM_JSON = 1, /* "idem-fp/1\n", then canonical JSON text */
  IDEM_FORM_RAW = 2,  /* "idem-raw/1\n", then opaque bytes */
  IDEM_FORM_COUNT = 3
};

typedef struct IdemDigest IdemDigest;

/* Makes the contexts of one connection. SQLITE_OK, SQLITE_NOMEM, or SQLITE_ERROR if libcrypto has
** no SHA-256 or HMAC to offer. *pp is NULL unless the result is SQLITE_OK. */
int idemDigestNew(IdemDigest **pp);

/* Frees what idemDigestNew made; NULL is fine. */
void idemDigestFree(IdemDigest *p);

/* The prefix of a form. Whoever has room before the bytes may put it there, and hash under
** IDEM_FORM_NONE: that is the same digest, a little sooner. */
const char *idemDigestPrefix(int eForm);

/* SHA-256 of the prefix of form eForm followed by a[0..n-1]. */
int idemDigestSha256(IdemDigest *p, int eForm, const void *a, size_t n,
                     unsigned char out[IDEM_DIGEST_SIZE]);

/* HMAC-SHA-256 of the same bytes under a secret. No copy of the secret outlives the call. */
int idemDigestHmac(IdemDigest *p, const void *aSecret, size_t nSecret, int eForm, const void *a,
                   size_t n, unsigned char out[IDEM_DIGEST_SIZE]);

/* Fills a[0..n-1] from the library's generator (safe across fork). SQLITE_ERROR if it has no
** entropy: then the bytes must not be used. */
int idemRandom(void *a, size_t n);

/* 1 if the n bytes are equal, else 0, in a time that depends on n alone. */
int idemEqual(const void *a, const void *b, size_t n);

/* Writes 2n lower-case hex digits, no terminator. */
void idemHex(const unsigned char *a, size_t n, char *zOut);

/* Overwrites bytes that were secret; the compiler cannot leave it out. */
void idemWipe(void *a, size_t n);

/* Name and version of the library in use, for idem_version(). */
const char *idemDigestVersion(void);

#endif
