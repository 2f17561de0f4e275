/*
** disk.h: a disk that can lose its power at every write.
**
** A shim over SQLite's own VFS. The real files are what a running program sees. Beside them it
** keeps, for the files of one database, what is on the medium: for each file its content at its
** last sync and the writes since then, for each name which file it stands for. diskCut() tells what
** a power failure would leave now, and writes that to another place; the program runs on, so one
** run can be cut everywhere.
**
** WHAT IS MODELLED.
**   - A write or truncation is durable after xSync of its file; not before, and not in any order,
**     but a later write to a place never gives way to an earlier one (there is one page cache).
**   - A file that was created, or deleted, may have its old name's meaning back until its directory
**     is synced: by xDelete with syncDir, and by the first xSync of a journal or WAL after each
**     opening, as SQLite's unix VFS does it. So a deleted rollback journal may come back.
**   - DEVICE_512 has sectors of 512 bytes and promises POWERSAFE_OVERWRITE, as SQLite assumes of
**     disks by default: of a write that was under way some sectors are new, some old, some partly
**     new from one end; bytes beside the write never change.
**   - DEVICE_4096 has sectors of 4096 bytes and promises nothing: a sector that was being written
**     may hold garbage altogether.
**   - A file that grew without a sync holds zeroes or garbage where a write did not arrive.
** What SQLite takes for granted is so here as well: a sync that returned is a sync, and memory,
** controllers and cosmic rays change nothing. The shared memory of WAL does not survive.
**
** HOW IT ENDS.
**   CUT_STOP    the process ends, the machine lives on: whatever was written is there
**   CUT_LOSE    nothing that was not synced is there
**   CUT_TEAR    any part of it is, as above
**   CUT_ORDER   it came down to the medium in the order of writing, up to some point: a disk that
**               does not reorder. What DELETE with synchronous=NORMAL is made for.
*/
#ifndef CRASH_DISK_H
#define CRASH_DISK_H

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CUT_STOP, CUT_LOSE, CUT_TEAR, CUT_ORDER, CUT_COUNT };
enum { DEVICE_512, DEVICE_4096 };

typedef struct Op { /* a write or truncation that is not durable yet */
  long iSeq;
  int bTruncate;
  size_t iOff, n;
  unsigned char *a;
} Op;

typedef struct Inode { /* a file, whatever its name */
  unsigned char *a;    /* durable content */
  size_t n;
  Op *aOp;
  int nOp, nOpAlloc;
  struct Inode *pNext; /* all there are */
} Inode;

typedef struct Meaning { /* what a name stands for, from iSeq on; [0] is durable */
  long iSeq;
  Inode *p;
} Meaning;

static const char *const azEnd[] = {"", "-journal", "-wal"};
#define NAMES 3

static struct Disk {
  char zBase[1000];    /* the database that is watched; "" = none */
  int eDevice;         /* DEVICE_... */
  int bLying;          /* a mistake to be noticed: sync does nothing */
  long iSeq;           /* operations so far */
  Inode *pInode;       /* every file there was */
  Meaning aName[NAMES][64];
  int nName[NAMES];
  void (*xBoundary)(void); /* called before each operation */
} disk;

/* --- a generator of our own: the same everywhere -------------------------------------------- */

static unsigned long long iRandom = 1;

static unsigned random_(void) {
  iRandom ^= iRandom << 13;
  iRandom ^= iRandom >> 7;
  iRandom ^= iRandom << 17;
  return (unsigned)(iRandom >> 32);
}

static void *need(void *p) {
  if (p) return p;
  fprintf(stderr, "no memory for the test itself\n");
  exit(2);
}

/* --- files and names ------------------------------------------------------------------------ */

static void opApply(unsigned char **pa, size_t *pn, const Op *pOp, int eFill);

static void opsDone(Inode *p) {
  for (int i = 0; i < p->nOp; i++) free(p->aOp[i].a);
  p->nOp = 0;
}

static void inodeSync(Inode *p) {
  for (int i = 0; i < p->nOp; i++) opApply(&p->a, &p->n, &p->aOp[i], 0);
  opsDone(p);
}

static void directorySync(void) {
  for (int i = 0; i < NAMES; i++) {
    if (disk.nName[i] == 0) continue;
    disk.aName[i][0] = disk.aName[i][disk.nName[i] - 1];
    disk.nName[i] = 1;
  }
}

static Inode *nameNow(int i) {
  return disk.nName[i] ? disk.aName[i][disk.nName[i] - 1].p : 0;
}

static void nameMeans(int i, Inode *p) {
  if (disk.nName[i] == 0) disk.aName[i][disk.nName[i]++] = (Meaning){0, 0};
  if (disk.nName[i] == 64) { /* only where nothing is ever synced: forget one in between */
    memmove(&disk.aName[i][1], &disk.aName[i][2], 62 * sizeof(Meaning));
    disk.nName[i]--;
  }
  disk.aName[i][disk.nName[i]++] = (Meaning){disk.iSeq, p};
}

static Inode *inodeNew(void) {
  Inode *p = need(calloc(1, sizeof(*p)));
  p->pNext = disk.pInode;
  return disk.pInode = p;
}

/* The number of a watched name, or -1. */
static int nameOf(const char *z) {
  size_t n = strlen(disk.zBase);
  if (!z || n == 0 || strncmp(z, disk.zBase, n) != 0) return -1;
  for (int i = 0; i < NAMES; i++) {
    if (strcmp(z + n, azEnd[i]) == 0) return i;
  }
  return -1;
}

/* Begins to watch a database that is closed, all on the medium. */
static void diskWatch(const char *zBase, int eDevice) {
  FILE *pIn = need(fopen(zBase, "rb"));
  fseek(pIn, 0, SEEK_END);
  size_t n = (size_t)ftell(pIn);
  unsigned char *a = need(malloc(n + 1));
  rewind(pIn);
  if (fread(a, 1, n, pIn) != n) exit(2);
  fclose(pIn);
  snprintf(disk.zBase, sizeof(disk.zBase), "%s", zBase);
  disk.eDevice = eDevice;
  nameMeans(0, inodeNew());
  *nameNow(0) = (Inode){.a = a, .n = n};
  directorySync();
}

static void diskForget(void) {
  for (Inode *p = disk.pInode, *pNext; p; p = pNext) {
    pNext = p->pNext;
    opsDone(p);
    free(p->aOp);
    free(p->a);
    free(p);
  }
  memset(&disk, 0, sizeof(disk));
}

static void opAdd(Inode *p, int bTruncate, size_t iOff, size_t n, const void *a) {
  if (p->nOp == p->nOpAlloc) {
    p->nOpAlloc = 2 * p->nOpAlloc + 16;
    p->aOp = need(realloc(p->aOp, (size_t)p->nOpAlloc * sizeof(Op)));
  }
  Op *pOp = &p->aOp[p->nOp++];
  *pOp = (Op){disk.iSeq, bTruncate, iOff, n, 0};
  if (n) pOp->a = memcpy(need(malloc(n)), a, n);
}

/* --- what is left after a cut --------------------------------------------------------------- */

static void fill(unsigned char *a, size_t n, int eFill) {
  for (size_t i = 0; i < n; i++) a[i] = eFill ? (unsigned char)random_() : 0;
}

/* Makes an image long enough; what no write reached is filled. */
static void grow(unsigned char **pa, size_t *pn, size_t n, int eFill) {
  if (n <= *pn) return;
  *pa = need(realloc(*pa, n));
  fill(*pa + *pn, n - *pn, eFill);
  *pn = n;
}

static void opApply(unsigned char **pa, size_t *pn, const Op *pOp, int eFill) {
  if (pOp->bTruncate) {
    grow(pa, pn, pOp->iOff, eFill);
    *pn = pOp->iOff;
  } else {
    grow(pa, pn, pOp->iOff + pOp->n, eFill);
    if (pOp->n) memcpy(*pa + pOp->iOff, pOp->a, pOp->n);
  }
}

/* Part of a write arrives: each sector with a chance of iChance in 100. */
static void opTear(unsigned char **pa, size_t *pn, const Op *pOp, unsigned iChance, int eFill) {
  size_t nSector = disk.eDevice == DEVICE_512 ? 512 : 4096;
  for (size_t i = pOp->iOff; i < pOp->iOff + pOp->n;) {
    size_t iEnd = (i / nSector + 1) * nSector, iSector = i / nSector * nSector;
    if (iEnd > pOp->iOff + pOp->n) iEnd = pOp->iOff + pOp->n;
    unsigned iFate = random_() % 100;
    size_t n = iEnd - i, nPart = random_() % n, iFrom = random_() % 2 ? n - nPart : 0;
    if (iFate < iChance) {
      opApply(pa, pn, &(Op){0, 0, i, n, pOp->a + (i - pOp->iOff)}, eFill);
    } else if (iFate < iChance + 8 && disk.eDevice == DEVICE_512) {
      opApply(pa, pn, &(Op){0, 0, i + iFrom, nPart, pOp->a + (i + iFrom - pOp->iOff)}, eFill);
    } else if (iFate < iChance + 8) {
      grow(pa, pn, iEnd, eFill);
      fill(*pa + iSector, (iSector + nSector < *pn ? iSector + nSector : *pn) - iSector, 1);
    }
    i = iEnd;
  }
}

/* The file as it is found after the cut. */
static void inodeLeft(const Inode *p, int eCut, long iLast, unsigned char **pa, size_t *pn) {
  static const unsigned aChance[] = {8, 50, 92};
  unsigned iChance = aChance[random_() % 3];
  int eFill = (int)(random_() % 2);
  *pn = p->n;
  *pa = need(malloc(p->n + 1));
  if (p->n) memcpy(*pa, p->a, p->n);
  for (int i = 0; i < p->nOp && eCut != CUT_LOSE; i++) {
    const Op *pOp = &p->aOp[i];
    if (eCut == CUT_STOP || (eCut == CUT_ORDER && pOp->iSeq < iLast)) {
      opApply(pa, pn, pOp, 0);
    } else if (eCut == CUT_TEAR || pOp->iSeq == iLast) {
      if (!pOp->bTruncate) {
        opTear(pa, pn, pOp, iChance, eFill);
      } else if (random_() % 100 < iChance) {
        opApply(pa, pn, pOp, eFill);
      }
    }
  }
}

/* What a name stands for after the cut. */
static Inode *nameLeft(int i, int eCut, long iLast) {
  int n = disk.nName[i], k = 0;
  if (n == 0) return 0;
  if (eCut == CUT_STOP) k = n - 1;
  if (eCut == CUT_TEAR) k = (int)(random_() % (unsigned)n);
  while (eCut == CUT_ORDER && k + 1 < n && disk.aName[i][k + 1].iSeq <= iLast) k++;
  return disk.aName[i][k].p;
}

/* In CUT_ORDER the last operation that reaches the medium, in part. */
static long lastToArrive(void) {
  long iOldest = disk.iSeq;
  for (Inode *p = disk.pInode; p; p = p->pNext) {
    if (p->nOp && p->aOp[0].iSeq < iOldest) iOldest = p->aOp[0].iSeq;
  }
  for (int i = 0; i < NAMES; i++) {
    if (disk.nName[i] > 1 && disk.aName[i][1].iSeq < iOldest) iOldest = disk.aName[i][1].iSeq;
  }
  return iOldest + (long)(random_() % (unsigned)(disk.iSeq - iOldest + 1));
}

static void removeFiles(const char *zBase) {
  char z[1100];
  for (int i = 0; i <= NAMES; i++) {
    snprintf(z, sizeof(z), "%s%s", zBase, i < NAMES ? azEnd[i] : "-shm");
    unlink(z);
  }
}

/* Writes what a cut of this kind leaves to the files of another database. */
static void diskCut(int eCut, const char *zTo) {
  long iLast = eCut == CUT_ORDER ? lastToArrive() : 0;
  char z[1100];
  removeFiles(zTo);
  for (int i = 0; i < NAMES; i++) {
    Inode *p = nameLeft(i, eCut, iLast);
    unsigned char *a;
    size_t n;
    if (!p) continue;
    inodeLeft(p, eCut, iLast, &a, &n);
    snprintf(z, sizeof(z), "%s%s", zTo, azEnd[i]);
    FILE *pOut = need(fopen(z, "wb"));
    if (fwrite(a, 1, n, pOut) != n || fclose(pOut) != 0) exit(2);
    free(a);
  }
}

/* --- the VFS -------------------------------------------------------------------------------- */

static sqlite3_vfs vfs, *pReal;
static sqlite3_io_methods methods, methodsShm;
typedef struct File {
  sqlite3_file base; /* ours; the real one follows */
  Inode *p;          /* NULL if not watched */
  int bDirectory;    /* its first sync syncs the directory */
} File;
#define REAL(p) ((sqlite3_file *)((File *)(p) + 1))
#define CALL(p, x) REAL(p)->pMethods->x

static void boundary(void) {
  disk.iSeq++;
  if (disk.xBoundary) disk.xBoundary();
}

static int fClose(sqlite3_file *p) {
  return REAL(p)->pMethods ? CALL(p, xClose)(REAL(p)) : SQLITE_OK;
}
static int fRead(sqlite3_file *p, void *a, int n, sqlite3_int64 i) {
  return CALL(p, xRead)(REAL(p), a, n, i);
}
static int fWrite(sqlite3_file *p, const void *a, int n, sqlite3_int64 i) {
  Inode *pInode = ((File *)p)->p;
  if (pInode) {
    boundary();
    opAdd(pInode, 0, (size_t)i, (size_t)n, a);
  }
  return CALL(p, xWrite)(REAL(p), a, n, i);
}
static int fTruncate(sqlite3_file *p, sqlite3_int64 n) {
  Inode *pInode = ((File *)p)->p;
  if (pInode) {
    boundary();
    opAdd(pInode, 1, (size_t)n, 0, 0);
  }
  return CALL(p, xTruncate)(REAL(p), n);
}
static int fSync(sqlite3_file *pFile, int m) {
  File *p = (File *)pFile;
  (void)m;
  if (!p->p) return SQLITE_OK;
  boundary();
  if (disk.bLying) return SQLITE_OK;
  inodeSync(p->p);
  if (p->bDirectory) directorySync();
  p->bDirectory = 0;
  return SQLITE_OK; /* the real disk keeps its power */
}
static int fSize(sqlite3_file *p, sqlite3_int64 *pn) {
  return CALL(p, xFileSize)(REAL(p), pn);
}
static int fLock(sqlite3_file *p, int e) {
  return CALL(p, xLock)(REAL(p), e);
}
static int fUnlock(sqlite3_file *p, int e) {
  return CALL(p, xUnlock)(REAL(p), e);
}
static int fReserved(sqlite3_file *p, int *pb) {
  return CALL(p, xCheckReservedLock)(REAL(p), pb);
}
static int fControl(sqlite3_file *p, int e, void *a) {
  return CALL(p, xFileControl)(REAL(p), e, a);
}
static int fSector(sqlite3_file *p) {
  (void)p;
  return disk.eDevice == DEVICE_512 ? 512 : 4096;
}
static int fDevice(sqlite3_file *p) {
  (void)p;
  return disk.eDevice == DEVICE_512 ? SQLITE_IOCAP_POWERSAFE_OVERWRITE : 0;
}
static int fShmMap(sqlite3_file *p, int i, int n, int b, void volatile **pp) {
  return CALL(p, xShmMap)(REAL(p), i, n, b, pp);
}
static int fShmLock(sqlite3_file *p, int i, int n, int m) {
  return CALL(p, xShmLock)(REAL(p), i, n, m);
}
static void fShmBarrier(sqlite3_file *p) {
  CALL(p, xShmBarrier)(REAL(p));
}
static int fShmUnmap(sqlite3_file *p, int b) {
  return CALL(p, xShmUnmap)(REAL(p), b);
}

static int vOpen(sqlite3_vfs *pVfs, const char *z, sqlite3_file *pFile, int m, int *pm) {
  File *p = (File *)pFile;
  int i = m & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL) ? nameOf(z) : -1;
  (void)pVfs;
  *p = (File){{0}, 0, 0};
  memset(REAL(p), 0, sizeof(sqlite3_file));
  int bCreate = i >= 0 && nameNow(i) == 0 && (m & SQLITE_OPEN_CREATE);
  if (bCreate) boundary();
  int rc = pReal->xOpen(pReal, z, REAL(p), m, pm);
  if (REAL(p)->pMethods) p->base.pMethods = CALL(p, iVersion) > 1 ? &methodsShm : &methods;
  if (rc == SQLITE_OK && bCreate) nameMeans(i, inodeNew());
  if (rc == SQLITE_OK && i >= 0) p->p = nameNow(i);
  p->bDirectory = i > 0 && (m & SQLITE_OPEN_CREATE);
  return rc;
}
static int vDelete(sqlite3_vfs *pVfs, const char *z, int bSync) {
  int i = nameOf(z);
  (void)pVfs;
  if (i >= 0 && nameNow(i)) {
    boundary();
    nameMeans(i, 0);
    if (bSync && !disk.bLying) directorySync();
  }
  return pReal->xDelete(pReal, z, 0);
}
static int vAccess(sqlite3_vfs *pVfs, const char *z, int m, int *pb) {
  (void)pVfs;
  return pReal->xAccess(pReal, z, m, pb);
}
static int vPath(sqlite3_vfs *pVfs, const char *z, int n, char *zOut) {
  (void)pVfs;
  return pReal->xFullPathname(pReal, z, n, zOut);
}
/* It is always noon of 15 June 2026, so that equal histories give equal rows. */
#define JULIAN_MS 212648284800000LL
static int vTimeInt64(sqlite3_vfs *pVfs, sqlite3_int64 *p) {
  (void)pVfs;
  *p = JULIAN_MS;
  return SQLITE_OK;
}
static int vTime(sqlite3_vfs *pVfs, double *p) {
  (void)pVfs;
  *p = (double)JULIAN_MS / 86400000.0;
  return SQLITE_OK;
}

static void diskRegister(void) {
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
  vfs.iVersion = 2;
  vfs.zName = "disk";
  vfs.szOsFile = pReal->szOsFile + (int)sizeof(File);
  vfs.xOpen = vOpen;
  vfs.xDelete = vDelete;
  vfs.xAccess = vAccess;
  vfs.xFullPathname = vPath;
  vfs.xCurrentTime = vTime;
  vfs.xCurrentTimeInt64 = vTimeInt64;
  sqlite3_vfs_register(&vfs, 1);
}

#endif
