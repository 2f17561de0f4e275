/*
** unit_digest.c: digest.c against published answers, and what no SQL statement can show.
** Prints the number of checks; exit status 1 at the first that fails.
*/
#include "../../ext/digest.h"
#include "../../ext/idem_int.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int nCheck;

static void check(int bTrue, const char *zWhat, int iLine) {
  nCheck++;
  if (bTrue) return;
  fprintf(stderr, "unit_digest.c:%d: not so: %s\n", iLine, zWhat);
  exit(1);
}
#define CHECK(x) check((x) != 0, #x, __LINE__)

static int hexIs(const unsigned char *a, const char *zHex) {
  char z[2 * IDEM_DIGEST_SIZE];
  idemHex(a, IDEM_DIGEST_SIZE, z);
  return strlen(zHex) == sizeof z && memcmp(z, zHex, sizeof z) == 0;
}

/* FIPS 180-2, appendix B. */
static void testSha256(IdemDigest *p) {
  unsigned char a[IDEM_DIGEST_SIZE], aWhole[IDEM_DIGEST_SIZE];
  const char *zLong = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  CHECK(idemDigestSha256(p, IDEM_FORM_NONE, "abc", 3, a) == SQLITE_OK);
  CHECK(hexIs(a, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
  CHECK(idemDigestSha256(p, IDEM_FORM_NONE, zLong, strlen(zLong), a) == SQLITE_OK);
  CHECK(hexIs(a, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));
  CHECK(idemDigestSha256(p, IDEM_FORM_NONE, NULL, 0, a) == SQLITE_OK);
  CHECK(hexIs(a, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
  CHECK(idemDigestSha256(p, IDEM_FORM_JSON, "{}", 2, a) == SQLITE_OK);
  CHECK(idemDigestSha256(p, IDEM_FORM_NONE, "idem-fp/1\n{}", 12, aWhole) == SQLITE_OK);
  CHECK(idemEqual(a, aWhole, sizeof a));
  CHECK(idemDigestSha256(p, IDEM_FORM_RAW, "{}", 2, a) == SQLITE_OK);
  CHECK(idemDigestSha256(p, IDEM_FORM_NONE, "idem-raw/1\n{}", 13, aWhole) == SQLITE_OK);
  CHECK(idemEqual(a, aWhole, sizeof a));
  CHECK(strcmp(idemDigestPrefix(IDEM_FORM_JSON), "idem-fp/1\n") == 0);
  CHECK(strcmp(idemDigestPrefix(IDEM_FORM_RAW), "idem-raw/1\n") == 0);
}

/* RFC 4231, cases 1, 2 and 6 (a key longer than a block). */
static void testHmac(IdemDigest *p) {
  unsigned char a[IDEM_DIGEST_SIZE], aKey[131];
  const char *zLarge = "Test Using Larger Than Block-Size Key - Hash Key First";
  memset(aKey, 0x0b, 20);
  CHECK(idemDigestHmac(p, aKey, 20, IDEM_FORM_NONE, "Hi There", 8, a) == SQLITE_OK);
  CHECK(hexIs(a, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"));
  CHECK(idemDigestHmac(p, "Jefe", 4, IDEM_FORM_NONE, "what do ya want for nothing?", 28, a) == 0);
  CHECK(hexIs(a, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
  memset(aKey, 0xaa, 131);
  CHECK(idemDigestHmac(p, aKey, 131, IDEM_FORM_NONE, zLarge, strlen(zLarge), a) == SQLITE_OK);
  CHECK(hexIs(a, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"));
  CHECK(idemDigestHmac(p, "Jefe", 4, IDEM_FORM_NONE, NULL, 0, a) == SQLITE_OK);
  CHECK(idemDigestHmac(p, "Jefe", 4, IDEM_FORM_NONE, "what do ya want for nothing?", 28, a) == 0);
  CHECK(hexIs(a, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
}

static void testBytes(void) {
  unsigned char a[64], b[64];
  char z[8];
  static const unsigned char aHex[] = {0x00, 0x1f, 0xa0, 0xff};
  idemHex(aHex, 4, z);
  CHECK(memcmp(z, "001fa0ff", 8) == 0);
  CHECK(idemRandom(a, sizeof a) == SQLITE_OK && idemRandom(b, sizeof b) == SQLITE_OK);
  CHECK(!idemEqual(a, b, sizeof a) && idemEqual(a, a, sizeof a) && idemEqual(NULL, NULL, 0));
  for (size_t i = 0; i < sizeof a; i++) { /* a difference is seen wherever it is */
    memcpy(b, a, sizeof a);
    b[i] ^= 0x80;
    CHECK(!idemEqual(a, b, sizeof a));
  }
  CHECK(idemRandom(a, (size_t)1 << 40) == SQLITE_ERROR);
  idemWipe(a, sizeof a);
  memset(b, 0, sizeof b);
  CHECK(idemEqual(a, b, sizeof a));
  CHECK(strncmp(idemDigestVersion(), "OpenSSL ", 8) == 0);
}

/* libcrypto's memory: allocation number nLeft fails, if it is not 0. */
static long nLeft;
static int bFailed;

static int failsNow(void) {
  if (nLeft == 0 || --nLeft > 0) return 0;
  bFailed = 1;
  return 1;
}
static void *cryptoMalloc(size_t n, const char *zFile, int iLine) {
  (void)zFile, (void)iLine;
  return failsNow() ? NULL : malloc(n);
}
static void *cryptoRealloc(void *p, size_t n, const char *zFile, int iLine) {
  (void)zFile, (void)iLine;
  return failsNow() ? NULL : realloc(p, n);
}
static void cryptoFree(void *p, const char *zFile, int iLine) {
  (void)zFile, (void)iLine;
  free(p);
}

/* One life of an object with one allocation failing: every call is right or says that it is not. */
static void liveWithout(long n) {
  unsigned char a[IDEM_DIGEST_SIZE];
  IdemDigest *p = NULL;
  nLeft = n;
  int rc = idemDigestNew(&p);
  CHECK((rc == SQLITE_OK) == (p != NULL));
  if (p) {
    rc = idemDigestSha256(p, IDEM_FORM_NONE, "abc", 3, a);
    CHECK(rc || hexIs(a, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    rc = idemDigestHmac(p, "Jefe", 4, IDEM_FORM_NONE, "what do ya want for nothing?", 28, a);
    CHECK(rc || hexIs(a, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
  }
  idemRandom(a, sizeof a);
  nLeft = 0;
  idemDigestFree(p);
}

/* Each in a process of its own, in which libcrypto has started (its own start is not always proof
** against a failure). */
static void testMemory(void) {
  int bOver = 0, status;
  for (long n = 1; !bOver; n++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      liveWithout(0);
      liveWithout(n);
      exit(bFailed ? 0 : 77);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    bOver = WEXITSTATUS(status) == 77;
    CHECK(bOver || WEXITSTATUS(status) == 0);
    CHECK(n < 10000);
  }
}

int main(void) {
  IdemDigest *p = NULL;
  CHECK(CRYPTO_set_mem_functions(cryptoMalloc, cryptoRealloc, cryptoFree) == 1);
  testMemory();
  CHECK(idemDigestNew(&p) == SQLITE_OK && p != NULL);
  testSha256(p);
  testHmac(p);
  testBytes();
  idemDigestFree(p);
  idemDigestFree(NULL);
  printf("%d checks\n", nCheck);
  return 0;
}
