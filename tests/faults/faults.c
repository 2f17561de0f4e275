/*
** faults.c: what idem does when something under it fails.
**
**     faults DIR KIND STRIDE[:FIRST] [OPERATION]
**
** idem is linked in; if FAULTS_EXTENSION names a library, that is loaded instead (for all kinds
** but crypto: the library's libcrypto is its own). For each operation of the list below, for each
** N = 1, 2, 3 ... until it runs clean: make the state it wants, run it with the N-th thing failing,
** look at what is left, repeat it without a fault. KIND is what fails:
**
**     oom oom16    memory (in a UTF-8 and a UTF-16 database)
**     auth         the authorizer denies
**     ignore       the authorizer lets a column read as NULL (then no answer is compared)
**     interrupt    the progress handler interrupts
**     wal delete   I/O fails, in these journal modes
**     full busy    the disk is full, a lock cannot be had (fulldelete and busydelete: as above)
**     crypto       libcrypto's memory
**
** each once; from N on until it is over; and from N on until the connection is closed.
**
** WHAT IS CHECKED.  A run without faults tells the state before (S0), the result and state of one
** call (R1, S1), and of one more (R2, S2). With a fault, the call
**   - returns R1, and a second connection sees S1; or
**   - fails with a code of the fault's class, and a second connection sees S0 or, as in any
**     database whose answer was lost, S1. Repeated without a fault, it does R1 and S1, or R2
**     and S2.
** The clock stands still and tokens are chosen, so states and results are compared byte for byte:
** there is no half of an operation, no claim without its row, no replay of another answer. Beside
** that: no statement is left running, no lock left behind, last_insert_rowid() is what it was,
** close succeeds, and all memory is given back.
**
** STRIDE 1 takes every N of every operation. Else it is a sample: about every STRIDE-th, of a share
** of the operations that differs from kind to kind, each in one of the three ways. FIRST (or 0) is
** the number of the sample: another one takes other places, operations and ways.
*/
#include <sqlite3.h>

#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "idem.h"

/* --- the fault ---------------------------------------------------------------------------- */

enum { NONE, OOM, AUTH, IGNORE, INTERRUPT, IO, FULL, BUSY, CRYPTO };
enum { ONCE, PERSISTENT, TO_THE_CLOSE, MODE_COUNT };
static const char *const azMode[] = {"once", "persistent", "to the close"};

static struct {
  int eKind;   /* what fails */
  int eMode;   /* once or on */
  int bArmed;  /* counting */
  long nLeft;  /* until it fails */
  long nFired; /* failures so far */
} fault;

/* True if a thing of this kind is to fail now. */
static int fails(int eKind) {
  if (!fault.bArmed || fault.eKind != eKind) return 0;
  if (fault.nLeft > 1) {
    fault.nLeft--;
    return 0;
  }
  if (fault.eMode == ONCE && fault.nFired > 0) return 0;
  fault.nFired++;
  return 1;
}

/* --- reports ------------------------------------------------------------------------------ */

static char zDoing[300]; /* what is being done, for messages */
static long nCheck, nFailed, nPoint, nAbsorbed, nLost;

static int check(int bOk, const char *zFmt, ...) {
  va_list ap;
  nCheck++;
  if (bOk) return 1;
  if (++nFailed > 2000) return 0;
  printf("FAILED [%s] ", zDoing);
  va_start(ap, zFmt);
  vprintf(zFmt, ap);
  va_end(ap);
  putchar('\n');
  fflush(stdout);
  return 0;
}

static void die(const char *zFmt, ...) {
  va_list ap;
  printf("STOPPED [%s] ", zDoing);
  va_start(ap, zFmt);
  vprintf(zFmt, ap);
  va_end(ap);
  putchar('\n');
  exit(2);
}

/* A growing text of our own memory. */
typedef struct Text {
  char *z;
  size_t n, nAlloc;
} Text;

static void add(Text *p, const char *z, size_t n) {
  if (p->n + n + 1 > p->nAlloc) {
    p->nAlloc = 2 * (p->n + n) + 64;
    p->z = realloc(p->z, p->nAlloc);
    if (!p->z) die("no memory for the test itself");
  }
  memcpy(p->z + p->n, z, n);
  p->n += n;
  p->z[p->n] = 0;
}

static void reset(Text *p) {
  p->n = 0;
  add(p, "", 0);
}

/* Replaces every zOld, for answers that hold a random token. */
static void replace(Text *p, const char *zOld, const char *zNew) {
  Text out = {0, 0, 0};
  const char *z = p->z, *zAt;
  reset(&out);
  for (; (zAt = strstr(z, zOld)) != 0; z = zAt + strlen(zOld)) {
    add(&out, z, (size_t)(zAt - z));
    add(&out, zNew, strlen(zNew));
  }
  add(&out, z, strlen(z));
  free(p->z);
  *p = out;
}

/* --- memory ------------------------------------------------------------------------------- */

static sqlite3_mem_methods mem; /* SQLite's own */

static void *memMalloc(int n) {
  return fails(OOM) ? 0 : mem.xMalloc(n);
}

static void *memRealloc(void *p, int n) {
  return fails(OOM) ? 0 : mem.xRealloc(p, n);
}

static void *cryptoMalloc(size_t n, const char *zFile, int iLine) {
  (void)zFile, (void)iLine;
  return fails(CRYPTO) ? 0 : malloc(n);
}

static void *cryptoRealloc(void *p, size_t n, const char *zFile, int iLine) {
  (void)zFile, (void)iLine;
  return fails(CRYPTO) ? 0 : realloc(p, n);
}

static void cryptoFree(void *p, const char *zFile, int iLine) {
  (void)zFile, (void)iLine;
  free(p);
}

/* --- authorizer and interrupt ------------------------------------------------------------- */

static int authorize(void *pArg, int eAction, const char *z1, const char *z2, const char *z3,
                     const char *z4) {
  (void)pArg, (void)z1, (void)z2, (void)z3, (void)z4;
  /* The column then reads as NULL. SQLite 3.40.1 itself crashes if CREATE is ignored. */
  if (eAction == SQLITE_READ && fails(IGNORE)) return SQLITE_IGNORE;
  return fails(AUTH) ? SQLITE_DENY : SQLITE_OK;
}

static int progress(void *pArg) {
  if (!fails(INTERRUPT)) return 0;
  if (fault.eMode != ONCE) sqlite3_interrupt(pArg);
  return 1;
}

/* --- files -------------------------------------------------------------------------------- */

static sqlite3_vfs vfs, *pReal;
static sqlite3_io_methods methods, methodsShm;
typedef struct File {
  sqlite3_file base; /* ours; the real one follows */
} File;
#define REAL(p) ((sqlite3_file *)((File *)(p) + 1))
#define CALL(p, x) REAL(p)->pMethods->x

static int fClose(sqlite3_file *p) {
  return REAL(p)->pMethods ? CALL(p, xClose)(REAL(p)) : SQLITE_OK;
}
static int fRead(sqlite3_file *p, void *a, int n, sqlite3_int64 i) {
  return fails(IO) ? SQLITE_IOERR_READ : CALL(p, xRead)(REAL(p), a, n, i);
}
static int fWrite(sqlite3_file *p, const void *a, int n, sqlite3_int64 i) {
  if (fails(FULL)) return SQLITE_FULL;
  if (fails(IO)) {
    if (n > 1 && fault.nFired % 2) CALL(p, xWrite)(REAL(p), a, n / 2, i); /* half of it arrives */
    return SQLITE_IOERR_WRITE;
  }
  return CALL(p, xWrite)(REAL(p), a, n, i);
}
static int fTruncate(sqlite3_file *p, sqlite3_int64 n) {
  return fails(IO) ? SQLITE_IOERR_TRUNCATE : CALL(p, xTruncate)(REAL(p), n);
}
static int fSync(sqlite3_file *p, int m) {
  (void)p, (void)m;
  return fails(IO) ? SQLITE_IOERR_FSYNC : SQLITE_OK; /* no power is lost here */
}
static int fSize(sqlite3_file *p, sqlite3_int64 *pn) {
  return fails(IO) ? SQLITE_IOERR_FSTAT : CALL(p, xFileSize)(REAL(p), pn);
}
static int fLock(sqlite3_file *p, int e) {
  return fails(BUSY) ? SQLITE_BUSY : fails(IO) ? SQLITE_IOERR_LOCK : CALL(p, xLock)(REAL(p), e);
}
static int fUnlock(sqlite3_file *p, int e) {
  return CALL(p, xUnlock)(REAL(p), e);
}
static int fReserved(sqlite3_file *p, int *pb) {
  return fails(IO) ? SQLITE_IOERR_CHECKRESERVEDLOCK : CALL(p, xCheckReservedLock)(REAL(p), pb);
}
static int fControl(sqlite3_file *p, int e, void *a) {
  return CALL(p, xFileControl)(REAL(p), e, a);
}
static int fSector(sqlite3_file *p) {
  return CALL(p, xSectorSize)(REAL(p));
}
static int fDevice(sqlite3_file *p) {
  return CALL(p, xDeviceCharacteristics)(REAL(p));
}
static int fShmMap(sqlite3_file *p, int i, int n, int b, void volatile **pp) {
  return fails(IO) ? SQLITE_IOERR_SHMMAP : CALL(p, xShmMap)(REAL(p), i, n, b, pp);
}
static int fShmLock(sqlite3_file *p, int i, int n, int m) {
  if (m & SQLITE_SHM_LOCK) {
    if (fails(BUSY)) return SQLITE_BUSY;
    if (fails(IO)) return SQLITE_IOERR_SHMLOCK;
  }
  return CALL(p, xShmLock)(REAL(p), i, n, m);
}
static void fShmBarrier(sqlite3_file *p) {
  CALL(p, xShmBarrier)(REAL(p));
}
static int fShmUnmap(sqlite3_file *p, int b) {
  return CALL(p, xShmUnmap)(REAL(p), b);
}
static int vOpen(sqlite3_vfs *pVfs, const char *z, sqlite3_file *p, int m, int *pm) {
  int rc;
  (void)pVfs;
  p->pMethods = 0;
  if (fails(IO)) return SQLITE_CANTOPEN;
  memset(REAL(p), 0, sizeof(sqlite3_file));
  rc = pReal->xOpen(pReal, z, REAL(p), m, pm);
  if (REAL(p)->pMethods) p->pMethods = CALL(p, iVersion) > 1 ? &methodsShm : &methods;
  return rc;
}
static int vDelete(sqlite3_vfs *pVfs, const char *z, int b) {
  (void)pVfs, (void)b;
  return fails(IO) ? SQLITE_IOERR_DELETE : pReal->xDelete(pReal, z, 0);
}
static int vAccess(sqlite3_vfs *pVfs, const char *z, int m, int *pb) {
  (void)pVfs;
  return fails(IO) ? SQLITE_IOERR_ACCESS : pReal->xAccess(pReal, z, m, pb);
}
static int vPath(sqlite3_vfs *pVfs, const char *z, int n, char *zOut) {
  (void)pVfs;
  return pReal->xFullPathname(pReal, z, n, zOut);
}
static int vSleep(sqlite3_vfs *pVfs, int n) {
  (void)pVfs;
  return n; /* the fault will not go away by itself */
}

static void makeVfs(void) {
  methods = (sqlite3_io_methods){.iVersion = 1, .xClose = fClose, .xRead = fRead, .xWrite = fWrite,
      .xTruncate = fTruncate, .xSync = fSync, .xFileSize = fSize, .xLock = fLock,
      .xUnlock = fUnlock, .xCheckReservedLock = fReserved, .xFileControl = fControl,
      .xSectorSize = fSector, .xDeviceCharacteristics = fDevice};
  methodsShm = methods;
  methodsShm.iVersion = 2;
  methodsShm.xShmMap = fShmMap;
  methodsShm.xShmLock = fShmLock;
  methodsShm.xShmBarrier = fShmBarrier;
  methodsShm.xShmUnmap = fShmUnmap;
  pReal = sqlite3_vfs_find(0);
  vfs = *pReal;
  vfs.zName = "faults";
  vfs.szOsFile = pReal->szOsFile + (int)sizeof(File);
  vfs.xOpen = vOpen;
  vfs.xDelete = vDelete;
  vfs.xAccess = vAccess;
  vfs.xFullPathname = vPath;
  vfs.xSleep = vSleep;
  sqlite3_vfs_register(&vfs, 1);
}

/* --- the operations ----------------------------------------------------------------------- */

#define T1 "'token-0000000001'"
#define T2 "'token-0000000002'"
#define CLAIMED "SELECT idem_claim('t','k','fp','op'," T1 ");"
#define DONE CLAIMED "SELECT idem_complete('t','k'," T1 ",'the answer',201,'a: b');"
#define NOW(t) "SELECT idem_clock(" #t ");"
#define AUDITED "UPDATE idem_policy SET audit='all';"
#define PAYLOAD "'{\"b\":{\"d\":[1,2.50,\"\\u0041\"],\"c\":null},\"a\":1e2,\"at\":5}'"
#define MANY                                                                                       \
  "WITH c(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM c LIMIT 5)"                                   \
  " SELECT idem_claim('t','m'||i,'fp','op'," T1 ") FROM c;"

static const struct Operation {
  const char *zName;  /* for messages, and to be chosen by */
  const char *zState; /* makes the store's state, at time 1000000 */
  const char *zPrep;  /* run on the same connection before, in its own right */
  const char *zSql;   /* the operation, one statement */
} aOperation[] = {
    {"init", 0, "", "SELECT idem_init()"},
    {"init in a transaction", 0, "BEGIN;", "SELECT idem_init()"},
    {"init again", "", "", "SELECT idem_init()"},
    {"no store", 0, "", "SELECT idem_claim('t','k','fp')"},
    {"claim", "", "", "SELECT idem_claim('t','k','fp')"},
    {"claim with a token", "", "", "SELECT idem_claim('t','k','fp','op'," T1 ")"},
    {"claim, audited", AUDITED, "", "SELECT idem_claim('t','k','fp','op'," T1 ")"},
    {"claim in BEGIN", "", "BEGIN;", "SELECT idem_claim('t','k','fp','op'," T1 ")"},
    {"claim in BEGIN IMMEDIATE", "", "BEGIN IMMEDIATE;", "SELECT idem_claim('t','k','fp')"},
    {"claim warm", "", MANY, "SELECT idem_claim('t','k','fp','op'," T1 ")"},
    {"claim warm in a transaction", "", "BEGIN IMMEDIATE;" MANY,
     "SELECT idem_claim('t','k','fp','op'," T1 ")"},
    {"claim by table", "", "", "SELECT * FROM idem_claim('t','k','fp')"},
    {"claim by table, warm", "", "SELECT * FROM idem_claim('t','w','fp');",
     "SELECT * FROM idem_claim('t','k','fp','op'," T1 ")"},
    {"claim by table in BEGIN", "", "BEGIN;", "SELECT * FROM idem_claim('t','k','fp','op'," T1 ")"},
    {"claim by carrier", "", "",
     "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','k','fp','op'," T1 ")"},
    {"claim by carrier in BEGIN", "", "BEGIN;",
     "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','k','fp')"},
    {"claim by insert", "", "",
     "INSERT INTO idem_records(scope,key,fingerprint,operation,token) VALUES('t','k','fp','op'," T1
     ")"},
    {"claim by insert in BEGIN", "", "BEGIN;",
     "INSERT INTO idem_records(scope,key,fingerprint,operation,token) VALUES('t','k','fp','op'," T1
     ")"},
    {"claim twice", CLAIMED, "", "SELECT idem_claim('t','k','fp','op'," T1 ")"},
    {"in progress", CLAIMED, "", "SELECT idem_claim('t','k','fp','op')"},
    {"in progress, audited", AUDITED CLAIMED, "", "SELECT * FROM idem_claim('t','k','fp','op')"},
    {"insert in progress", CLAIMED, "",
     "INSERT INTO idem_records(scope,key,fingerprint,operation,token) VALUES('t','k','fp','op'," T2
     ")"},
    {"mismatch", CLAIMED, "", "SELECT idem_claim('t','k','fp2','op')"},
    {"replay", DONE, "", "SELECT idem_claim('t','k','fp','op')"},
    {"replay warm", DONE, MANY, "SELECT idem_claim('t','k','fp','op')"},
    {"replay by table", DONE, "", "SELECT * FROM idem_claim('t','k','fp','op')"},
    {"replay by carrier", DONE, "",
     "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','k','fp','op')"},
    {"replay, audited", AUDITED DONE, "", "SELECT idem_claim('t','k','fp','op')"},
    {"replay of a blob",
     CLAIMED "SELECT idem_complete('t','k'," T1 ",x'00ff80414243444546474849');", "",
     "SELECT idem_claim('t','k','fp','op')"},
    {"claim after release", CLAIMED "SELECT idem_release('t','k'," T1 ",'why');", "",
     "SELECT idem_claim('t','k','fp','op'," T2 ")"},
    {"claim after release, by table",
     CLAIMED "SELECT idem_checkpoint('t','k'," T1 ",'half','data');"
             "SELECT idem_release('t','k'," T1 ",'why');",
     "", "SELECT * FROM idem_claim('t','k','fp','op')"},
    {"spent token", CLAIMED "SELECT idem_release('t','k'," T1 ",'why');", "",
     "SELECT idem_claim('t','k','fp','op'," T1 ")"},
    {"stale", CLAIMED, NOW(9000000), "SELECT idem_claim('t','k','fp','op')"},
    {"take-over", "UPDATE idem_policy SET on_stale='retry';" CLAIMED, NOW(9000000),
     "SELECT idem_claim('t','k','fp','op'," T2 ")"},
    {"exhausted", "UPDATE idem_policy SET on_stale='retry',max_attempts=1;" CLAIMED, NOW(9000000),
     "SELECT idem_claim('t','k','fp','op'," T2 ")"},
    {"expired", DONE, NOW(90000000), "SELECT idem_claim('t','k','fp','op')"},
    {"forgotten", DONE, NOW(9000000000), "SELECT idem_claim('t','k','fp','op'," T2 ")"},
    {"complete", CLAIMED, "", "SELECT idem_complete('t','k'," T1 ",'the answer',201,'a: b')"},
    {"complete a claim of one's own", "", CLAIMED,
     "SELECT idem_complete('t','k'," T1 ",'the answer',201,'a: b')"},
    {"complete in one transaction", "", "BEGIN;" CLAIMED,
     "SELECT idem_complete('t','k'," T1 ",x'00010203',201)"},
    {"complete, audited", AUDITED CLAIMED, "", "SELECT idem_complete('t','k'," T1 ",'the answer')"},
    {"complete too much", "UPDATE idem_policy SET max_response_bytes=5;" CLAIMED, "",
     "SELECT idem_complete('t','k'," T1 ",'the answer')"},
    {"complete again", DONE, "", "SELECT idem_complete('t','k'," T1 ",'the answer',201,'a: b')"},
    {"complete otherwise", DONE, "", "SELECT idem_complete('t','k'," T1 ",'another answer')"},
    {"complete a lost claim", CLAIMED, "", "SELECT idem_complete('t','k'," T2 ",'the answer')"},
    {"complete by carrier", CLAIMED, "",
     "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_complete('t','k'," T1 ",'the answer')"},
    {"release", CLAIMED, "", "SELECT idem_release('t','k'," T1 ",'why')"},
    {"release in BEGIN", CLAIMED, "BEGIN;", "SELECT idem_release('t','k'," T1 ",'why')"},
    {"suspend", CLAIMED, "", "SELECT idem_suspend('t','k'," T1 ",'why')"},
    {"renew", CLAIMED, NOW(1010000), "SELECT idem_renew('t','k'," T1 ")"},
    {"checkpoint", CLAIMED, NOW(1010000), "SELECT idem_checkpoint('t','k'," T1 ",'half','data')"},
    {"resolve completed", CLAIMED "SELECT idem_suspend('t','k'," T1 ");", "",
     "SELECT idem_resolve('t','k','completed','the answer',201,'a: b')"},
    {"resolve retry", CLAIMED "SELECT idem_suspend('t','k'," T1 ");", "",
     "SELECT idem_resolve('t','k','retry','why')"},
    {"resolve nothing", CLAIMED, "", "SELECT idem_resolve('t','k','retry')"},
    {"purge", DONE "SELECT idem_seen('s','e');", NOW(9000000000), "SELECT idem_purge()"},
    {"purge answers", DONE, NOW(90000000), "SELECT idem_purge(1)"},
    {"purge nothing", DONE, "", "SELECT idem_purge()"},
    {"scan", MANY DONE, "", "SELECT * FROM idem_records"},
    {"scan one", MANY DONE, "", "SELECT * FROM idem_records WHERE scope='t' AND key='k'"},
    {"scan a state", MANY DONE, "",
     "SELECT * FROM idem_records WHERE state='processing' AND lease_until>5 ORDER BY key"},
    {"update: complete", CLAIMED, "",
     "UPDATE idem_records SET state='completed',response='the answer',code=201"
     " WHERE scope='t' AND key='k' AND token=" T1},
    {"update: checkpoint in BEGIN", CLAIMED, "BEGIN;",
     "UPDATE idem_records SET recovery_point='half',checkpoint='data'"
     " WHERE scope='t' AND key='k' AND token=" T1},
    {"update: release", CLAIMED, "",
     "UPDATE idem_records SET state='released',reason='why'"
     " WHERE scope='t' AND key='k' AND token=" T1},
    {"erase", DONE, "", "DELETE FROM idem_records WHERE scope='t'"},
    {"erase a live one", CLAIMED, "", "DELETE FROM idem_records WHERE scope='t'"},
    {"seen", "", "", "SELECT idem_seen('s','e','fp')"},
    {"seen in BEGIN", "", "BEGIN;", "SELECT idem_seen('s','e','fp')"},
    {"seen again", "SELECT idem_seen('s','e','fp');", "", "SELECT idem_seen('s','e','fp')"},
    {"seen otherwise", "SELECT idem_seen('s','e','fp');", "", "SELECT idem_seen('s','e','fp2')"},
    {"verify", AUDITED DONE "SELECT idem_release('t','none'," T1 ");", "",
     "SELECT idem_audit_verify()"},
    {"fingerprint", 0, "", "SELECT idem_fingerprint(" PAYLOAD ",'-$.at','-$.b.d[*]')"},
    {"fingerprint of a blob", 0, "", "SELECT idem_fingerprint(CAST(" PAYLOAD " AS BLOB))"},
    {"fingerprint, raw", 0, "", "SELECT idem_fingerprint_raw('abc')"},
    {"fingerprint, hmac", 0, "",
     "SELECT idem_hmac_fingerprint('0123456789abcdef'," PAYLOAD ",'+$.a')"},
    {"fingerprint of nonsense", 0, "", "SELECT idem_fingerprint('{\"a\":1,\"a\":2}')"},
    {"canonical", 0, "", "SELECT idem_canonical(" PAYLOAD ")"},
    {"keys", 0, "",
     "SELECT length(idem_key()), idem_derive_key('k','step',1), idem_header_key('\"k\"')"},
    {"words", 0, "",
     "SELECT length(idem_version())>0, length(idem_schema('store')), idem_clock()"},
    {"load", "", "", 0},
    {0, 0, 0, 0},
};

/* --- one connection ----------------------------------------------------------------------- */

static char zFile[1000];       /* the database */
static int bUtf16, bWal;       /* how it is made */
static const char *zExtension; /* the library to load; NULL: what is linked in */
static sqlite3_int64 nMemory;  /* in use when nothing is open */
#define ROWID 4711             /* last_insert_rowid() before each operation */

/* What a call gave: its rows as text, or its error. */
typedef struct Result {
  int rc;
  Text text; /* rows; or the error's message */
} Result;

static void runOne(sqlite3 *db, const char *zSql, Result *p) {
  sqlite3_stmt *pStmt = 0;
  int bArmed = fault.bArmed;
  reset(&p->text);
  p->rc = sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0);
  while (p->rc == SQLITE_OK && (p->rc = sqlite3_step(pStmt)) == SQLITE_ROW) {
    p->rc = SQLITE_OK;
    fault.bArmed = 0; /* reading the row is the test's own doing */
    for (int i = 0; i < sqlite3_column_count(pStmt); i++) {
      int e = sqlite3_column_type(pStmt, i);
      char zType[2] = {"?ifsbn"[e], 0};
      const void *a = sqlite3_column_blob(pStmt, i);
      if (e == SQLITE_TEXT) a = sqlite3_column_text(pStmt, i);
      if (e == SQLITE_INTEGER) a = sqlite3_column_text(pStmt, i);
      add(&p->text, zType, 1);
      add(&p->text, ":", 1);
      if (a) add(&p->text, a, (size_t)sqlite3_column_bytes(pStmt, i));
      add(&p->text, "|", 1);
    }
    add(&p->text, "\n", 1);
    fault.bArmed = bArmed;
  }
  if (p->rc == SQLITE_DONE) p->rc = SQLITE_OK;
  if (p->rc != SQLITE_OK) {
    const char *z = sqlite3_errmsg(db);
    p->rc = sqlite3_extended_errcode(db);
    reset(&p->text);
    add(&p->text, z, strlen(z));
  }
  sqlite3_finalize(pStmt);
}

static void must(sqlite3 *db, const char *zSql) {
  char *zErr = 0;
  int rc = sqlite3_exec(db, zSql, 0, 0, &zErr);
  if (rc != SQLITE_OK) die("%s: %d %s", zSql, rc, zErr ? zErr : "");
}

static sqlite3 *openPlain(void) {
  sqlite3 *db = 0;
  int rc = sqlite3_open(zFile, &db);
  if (rc != SQLITE_OK) die("open: %d", rc);
  return db;
}

/* Registers idem: the copy that is linked in, or the library. */
static int load(sqlite3 *db, char **pzErr) {
  if (!zExtension) return sqlite3_idem_init(db, pzErr, 0);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, 0);
  return sqlite3_load_extension(db, zExtension, 0, pzErr);
}

static sqlite3 *openIdem(void) {
  sqlite3 *db = openPlain();
  char *zErr = 0;
  if (load(db, &zErr) != SQLITE_OK) die("load: %s", zErr ? zErr : "");
  must(db, NOW(1000000));
  return db;
}

static void closeAll(sqlite3 *db) {
  int rc = sqlite3_close(db);
  check(rc == SQLITE_OK, "close: %d %s", rc, rc ? sqlite3_errmsg(db) : "");
  if (rc != SQLITE_OK) sqlite3_close_v2(db);
}

/* What another connection, without idem, sees of the store. */
static void durable(Text *pState, Text *pToken) {
  static const char *const azSql[] = {
      "SELECT count(*), coalesce(sum(length(sql)),0) FROM sqlite_schema",
      "SELECT id,scope,key,operation,fingerprint,state,attempt,granted,"
      "CASE length(token) WHEN 32 THEN 'TOKEN' ELSE token END,spent,due_at,tombstone_ms,"
      "created_at,updated_at,completed_at,code,headers,response,response_omitted,recovery_point,"
      "checkpoint,reason,audit_event FROM idem_store ORDER BY id",
      "SELECT * FROM idem_inbox",
      "SELECT * FROM idem_audit ORDER BY id",
      "SELECT audit,on_stale,lease_ms FROM idem_policy",
      "SELECT token FROM idem_store WHERE length(token)=32",
  };
  sqlite3 *db = openPlain();
  Result r = {0, {0, 0, 0}};
  reset(pState);
  reset(pToken);
  for (size_t i = 0; i < sizeof(azSql) / sizeof(azSql[0]); i++) {
    runOne(db, azSql[i], &r);
    if (r.rc != SQLITE_OK && (r.rc != SQLITE_ERROR || !strstr(r.text.z, "no such table"))) {
      die("second connection: %d %s", r.rc, r.text.z);
    }
    if (r.rc == SQLITE_OK && i == 5) {
      if (r.text.n == 36) add(pToken, r.text.z + 2, 32);
    } else {
      add(pState, r.text.z, r.text.n);
    }
  }
  free(r.text.z);
  closeAll(db);
}

static void integrity(void) {
  sqlite3 *db = openIdem();
  Result r = {0, {0, 0, 0}};
  runOne(db, "PRAGMA integrity_check", &r);
  check(r.rc == SQLITE_OK && strcmp(r.text.z, "s:ok|\n") == 0, "integrity: %d %s", r.rc, r.text.z);
  runOne(db, "SELECT idem_audit_verify()", &r);
  check(strcmp(r.text.z, "n:|\n") == 0 || strstr(r.text.z, "no idem store"), "audit: %s", r.text.z);
  free(r.text.z);
  closeAll(db);
}

/* --- files to begin with ------------------------------------------------------------------ */

static Text image; /* the database file that the operation begins with */

static void removeFiles(void) {
  static const char *const azEnd[] = {"", "-journal", "-wal", "-shm"};
  char z[1100];
  for (int i = 0; i < 4; i++) {
    snprintf(z, sizeof(z), "%s%s", zFile, azEnd[i]);
    unlink(z);
  }
}

static void makeImage(const struct Operation *pOp) {
  char a[4096];
  size_t n;
  removeFiles();
  sqlite3 *db = openIdem();
  if (bUtf16) must(db, "PRAGMA encoding='UTF-16le'");
  must(db, bWal ? "PRAGMA journal_mode=WAL" : "PRAGMA journal_mode=DELETE");
  must(db, "CREATE TABLE business(x)");
  if (pOp->zState) must(db, "SELECT idem_init()");
  if (pOp->zState) sqlite3_exec(db, pOp->zState, 0, 0, 0); /* a refusal may be part of it */
  closeAll(db);
  FILE *f = fopen(zFile, "rb");
  if (!f) die("no file");
  reset(&image);
  while ((n = fread(a, 1, sizeof(a), f)) > 0) add(&image, a, n);
  fclose(f);
}

static void restoreImage(void) {
  removeFiles();
  FILE *f = fopen(zFile, "wb");
  if (!f || fwrite(image.z, 1, image.n, f) != image.n) die("cannot write the file");
  fclose(f);
}

/* --- one operation ------------------------------------------------------------------------ */

/* What happens without faults. */
static struct {
  Text s0, s1, s2; /* states */
  Result r1, r2;   /* results */
} want;

static int inTransaction(const struct Operation *pOp) {
  return strncmp(pOp->zPrep, "BEGIN", 5) == 0;
}

/* A connection ready for the operation: loaded, unless loading is the operation. */
static sqlite3 *prepare(const struct Operation *pOp) {
  sqlite3 *db = pOp->zSql ? openIdem() : openPlain();
  if (*pOp->zPrep) must(db, pOp->zPrep);
  sqlite3_set_last_insert_rowid(db, ROWID);
  return db;
}

/* Runs it. Loading is followed by a claim, so that there is a result. */
static void operate(sqlite3 *db, const struct Operation *pOp, Result *p) {
  if (pOp->zSql) {
    runOne(db, pOp->zSql, p);
    return;
  }
  char *zErr = 0;
  reset(&p->text);
  p->rc = load(db, &zErr);
  fault.bArmed = 0;
  if (p->rc != SQLITE_OK) {
    add(&p->text, zErr ? zErr : "", zErr ? strlen(zErr) : 0);
  } else {
    must(db, NOW(1000000));
    runOne(db, "SELECT outcome,attempt FROM idem_claim('t','k','fp','op'," T1 ")", p);
    sqlite3_set_last_insert_rowid(db, ROWID);
  }
  sqlite3_free(zErr);
}

/* SQLite refuses to commit a transaction in which it has met a corrupt schema: so it calls what it
** finds when a column of sqlite_schema reads as NULL. */
static void endTransaction(sqlite3 *db, int eKind, int rcCall) {
  if (sqlite3_get_autocommit(db)) return;
  int rc = sqlite3_exec(db, "COMMIT", 0, 0, 0);
  int bCorrupt = eKind == IGNORE && rcCall == SQLITE_CORRUPT && rc == SQLITE_CORRUPT;
  if (rc != SQLITE_OK && !bCorrupt) die("COMMIT: %s", sqlite3_errmsg(db));
}

static void runClean(const struct Operation *pOp) {
  Text token = {0, 0, 0};
  fault.eKind = NONE;
  for (int i = 0; i < 2; i++) { /* the state after one call, and after two */
    restoreImage();
    sqlite3 *db = prepare(pOp);
    endTransaction(db, NONE, SQLITE_OK);
    if (i == 0) durable(&want.s0, &token);
    closeAll(db);
    restoreImage();
    db = prepare(pOp);
    operate(db, pOp, i ? &want.r2 : &want.r1);
    endTransaction(db, NONE, SQLITE_OK);
    if (i) {
      if (inTransaction(pOp)) must(db, "BEGIN");
      operate(db, pOp, &want.r2);
      endTransaction(db, NONE, SQLITE_OK);
    }
    durable(i ? &want.s2 : &want.s1, &token);
    if (token.n) replace(i ? &want.r2.text : &want.r1.text, token.z, "TOKEN");
    closeAll(db);
  }
  free(token.z);
}

/* The codes that SQLite itself gives for such a fault. */
static int mayBe(int rc, const char *zText) {
  int c = rc & 0xff;
  switch (fault.eKind) {
  case OOM: return c == SQLITE_NOMEM || rc == SQLITE_IOERR_NOMEM;
  case CRYPTO: return c == SQLITE_NOMEM || c == SQLITE_ERROR;
  case AUTH: /* a function that is denied is an error of class SQLITE_ERROR */
    return c == SQLITE_AUTH || (c == SQLITE_ERROR && (strstr(zText, "not authorized") ||
                                                       strstr(zText, "constructor failed")));
  case IGNORE: return 1;
  case INTERRUPT: return c == SQLITE_INTERRUPT;
  case FULL: return c == SQLITE_FULL;
  case BUSY: return c == SQLITE_BUSY || c == SQLITE_PROTOCOL;
  default: return c == SQLITE_IOERR || c == SQLITE_CANTOPEN;
  }
}

/* sqlite3_load_extension() gives SQLITE_ERROR whatever the library gave, and its text if there is
** memory for it. */
static int mayBeLoaders(const struct Operation *pOp, int rc, const char *zText) {
  return zExtension && !pOp->zSql && fault.eKind == OOM && rc == SQLITE_ERROR &&
         (!*zText || strstr(zText, "memory"));
}

static int same(const Text *pA, const Text *pB) {
  return pA->n == pB->n && memcmp(pA->z, pB->z, pA->n) == 0;
}

/* Compares a call that was not disturbed with what it should do. */
static void compare(const char *zWhen, Result *pGot, const Result *pWant, const Text *pState,
                    const Text *pWantState, const Text *pToken) {
  if (pToken->n) replace(&pGot->text, pToken->z, "TOKEN");
  check(pGot->rc == pWant->rc && same(&pGot->text, &pWant->text), "%s: %d '%s' instead of %d '%s'",
        zWhen, pGot->rc, pGot->text.z, pWant->rc, pWant->text.z);
  check(same(pState, pWantState), "%s: state\n%sinstead of\n%s", zWhen, pState->z, pWantState->z);
}

static void arm(sqlite3 *db, int eKind, int eMode, long n) {
  fault.eKind = eKind;
  fault.eMode = eMode;
  fault.nLeft = n;
  fault.nFired = 0;
  if (eKind == AUTH || eKind == IGNORE) sqlite3_set_authorizer(db, authorize, 0);
  if (eKind == INTERRUPT) sqlite3_progress_handler(db, 1, progress, db);
  fault.bArmed = 1;
}

static void disarm(sqlite3 *db) {
  fault.bArmed = 0;
  if (!db) return;
  sqlite3_set_authorizer(db, 0, 0);
  sqlite3_progress_handler(db, 0, 0, 0);
}

/* The connection as it is left by a call, whatever became of it. */
static void lookAround(sqlite3 *db, const struct Operation *pOp) {
  for (sqlite3_stmt *p = sqlite3_next_stmt(db, 0); p; p = sqlite3_next_stmt(db, p)) {
    check(!sqlite3_stmt_busy(p), "left running: %s", sqlite3_sql(p));
  }
  check(sqlite3_last_insert_rowid(db) == ROWID, "last_insert_rowid() is %lld",
        sqlite3_last_insert_rowid(db));
  if (!inTransaction(pOp)) {
    check(sqlite3_get_autocommit(db), "a transaction is left open");
    check(sqlite3_txn_state(db, 0) == SQLITE_TXN_NONE, "a lock is left behind");
  }
}

/* 'exhausted' is answered while another connection writes; the next one makes the note of it. */
static int noteMayWait(const struct Operation *pOp, int eKind, const Text *pState) {
  return eKind == BUSY && strcmp(pOp->zName, "exhausted") == 0 && same(pState, &want.s0);
}

/* What the operation answered and what it left. Returns whether it was done. */
static int judge(const struct Operation *pOp, int eKind, long nFired, Result *pGot,
                 const Text *pState, const Text *pToken) {
  int bDone = same(pState, &want.s1);
  if (pGot->rc == SQLITE_OK || (pGot->rc == want.r1.rc && same(&pGot->text, &want.r1.text))) {
    if (nFired) nAbsorbed++;
    const Text *pWantState = noteMayWait(pOp, eKind, pState) ? &want.s0 : &want.s1;
    if (eKind != IGNORE) compare("undisturbed", pGot, &want.r1, pState, pWantState, pToken);
  } else {
    int bTextLost = eKind == OOM && pGot->rc == want.r1.rc;
    check(bTextLost || mayBe(pGot->rc, pGot->text.z) || mayBeLoaders(pOp, pGot->rc, pGot->text.z),
          "wrong class: %d '%s'", pGot->rc, pGot->text.z);
    if (bDone && !same(&want.s0, &want.s1)) {
      nLost++;
      if (getenv("FAULTS_LOST")) printf("lost [%s] %d %s\n", zDoing, pGot->rc, pGot->text.z);
    }
    int bRolledBack = inTransaction(pOp) && !same(&want.s0, pState) && !bDone;
    if (!bRolledBack && eKind != IGNORE) {
      check(bDone || same(pState, &want.s0), "half done: %d '%s', state\n%sbefore\n%sdone\n%s",
            pGot->rc, pGot->text.z, pState->z, want.s0.z, want.s1.z);
    }
  }
  return bDone;
}

/* One fault. 0 if it did not come to pass: the operation has no so many points. */
static int runFault(const struct Operation *pOp, int eKind, int eMode, long n) {
  Result got = {0, {0, 0, 0}};
  Text state = {0, 0, 0}, token = {0, 0, 0};
  int bDone;
  long nFired;
  snprintf(zDoing, sizeof(zDoing), "%s, %s, N = %ld", pOp->zName, azMode[eMode], n);
  restoreImage();
  sqlite3 *db = prepare(pOp);
  arm(db, eKind, eMode, n);
  operate(db, pOp, &got);
  if (eMode == TO_THE_CLOSE) {
    if (inTransaction(pOp) && got.rc == SQLITE_OK) { /* what is not committed is gone */
      disarm(db);
      endTransaction(db, NONE, SQLITE_OK);
    } else {
      fault.bArmed = 1;
    }
    closeAll(db);
    nFired = fault.nFired;
    disarm(0);
  } else {
    nFired = fault.nFired;
    disarm(db);
    lookAround(db, pOp);
    endTransaction(db, eKind, got.rc);
  }
  durable(&state, &token);
  bDone = judge(pOp, eKind, nFired, &got, &state, &token);
  if (eMode == TO_THE_CLOSE) {
    db = prepare(pOp);
  } else if (inTransaction(pOp)) {
    must(db, "BEGIN");
  }
  /* What the transaction did before is lost with it if SQLite rolled it back. */
  if (eMode != TO_THE_CLOSE && eKind != IGNORE && (bDone || same(&state, &want.s0))) {
    int bS0 = same(&state, &want.s0), bTwice = bDone && got.rc == SQLITE_OK;
    if (bS0 && bDone) bTwice = 1;
    operate(db, pOp, &got);
    endTransaction(db, NONE, SQLITE_OK);
    durable(&state, &token);
    if (bDone || bTwice) {
      compare("again", &got, &want.r2, &state, &want.s2, &token);
    } else {
      compare("repeated", &got, &want.r1, &state, &want.s1, &token);
    }
  }
  closeAll(db);
  check(sqlite3_memory_used() == nMemory, "%lld bytes of memory are lost",
        sqlite3_memory_used() - nMemory);
  nMemory = sqlite3_memory_used(); /* say it once */
  free(got.text.z);
  free(state.z);
  free(token.z);
  if (nFired) nPoint++;
  return nFired > 0;
}

static unsigned iRandom = 12345;

static void runOperation(const struct Operation *pOp, int eKind, long nStride, unsigned mMode) {
  snprintf(zDoing, sizeof(zDoing), "%s, without faults", pOp->zName);
  makeImage(pOp);
  runClean(pOp);
  for (int eMode = 0; eMode < MODE_COUNT; eMode++) {
    long nRun = 0;
    if (!(mMode >> eMode & 1)) continue;
    for (long n = 1; runFault(pOp, eKind, eMode, n);) {
      if (++nRun % 50 == 0) integrity();
      iRandom = iRandom * 1103515245u + 12345u;
      n += nStride == 1 ? 1 : 1 + (long)((iRandom >> 16) % (unsigned)(2 * nStride - 1));
    }
    integrity();
  }
}

int main(int argc, char **argv) {
  static const struct {
    const char *zName;
    int eKind, bUtf16, bWal;
  } aKind[] = {
      {"oom", OOM, 0, 0},     {"oom16", OOM, 1, 1},           {"auth", AUTH, 0, 0},
      {"ignore", IGNORE, 0, 0}, {"interrupt", INTERRUPT, 0, 1}, {"wal", IO, 0, 1},
      {"delete", IO, 0, 0},   {"full", FULL, 0, 1},           {"fulldelete", FULL, 0, 0},
      {"busy", BUSY, 0, 1},   {"busydelete", BUSY, 0, 0},     {"crypto", CRYPTO, 0, 0},
      {0, 0, 0, 0},
  };
  int i = 0;
  zExtension = getenv("FAULTS_EXTENSION");
  if (argc < 4) die("faults DIR KIND STRIDE[:FIRST] [OPERATION]");
  while (aKind[i].zName && strcmp(aKind[i].zName, argv[2]) != 0) i++;
  if (!aKind[i].zName) die("what is %s?", argv[2]);
  CRYPTO_set_mem_functions(cryptoMalloc, cryptoRealloc, cryptoFree);
  sqlite3_config(SQLITE_CONFIG_GETMALLOC, &mem);
  sqlite3_mem_methods ours = mem;
  ours.xMalloc = memMalloc;
  ours.xRealloc = memRealloc;
  sqlite3_config(SQLITE_CONFIG_MALLOC, &ours);
  sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0); /* each allocation of its own */
  sqlite3_initialize();
  makeVfs();
  bUtf16 = aKind[i].bUtf16;
  bWal = aKind[i].bWal;
  snprintf(zFile, sizeof(zFile), "%s/faults-%s.db", argv[1], argv[2]);
  removeFiles();
  closeAll(openIdem()); /* whatever is allocated once */
  nMemory = sqlite3_memory_used();
  const char *zFirst = strchr(argv[3], ':');
  long nOperation = 0, nStride = atol(argv[3]);
  unsigned iFirst = zFirst ? (unsigned)atol(zFirst + 1) : 0;
  if (nStride < 1) die("what is %s?", argv[3]);
  iRandom += iFirst;
  for (const struct Operation *pOp = aOperation; pOp->zName; pOp++) {
    unsigned iOp = (unsigned)(pOp - aOperation), mMode = 7;
    if (argc > 4 && strcmp(argv[4], pOp->zName) != 0) continue;
    if (argc == 4 && nStride > 1) {
      if ((iOp + (unsigned)i + iFirst) % 4 != 0) continue;
      mMode = 1u << (iOp / 4 + (unsigned)i + iFirst / 4) % MODE_COUNT;
    }
    runOperation(pOp, aKind[i].eKind, nStride, mMode);
    nOperation++;
  }
  removeFiles();
  printf("%s %s: %ld operations, %ld faults, %ld absorbed, %ld answers lost, %ld checks,"
         " %ld failed\n",
         argv[2], argv[3], nOperation, nPoint, nAbsorbed, nLost, nCheck, nFailed);
  return nFailed ? 1 : 0;
}
