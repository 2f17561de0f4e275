/*
** work.h: the work that the benchmarks measure, done by idem and by hand.
**
** "By hand" is the limit: the same effects in C with cached prepared statements, on a table of
** idem_store's columns and indexes, and nothing more. A claim is one INSERT ON CONFLICT DO NOTHING
** that takes its lease from a policy table; a completion one UPDATE that demands the token; a
** replay one SELECT by somebody who knows that the key is there, with fingerprint, operation and
** expiry compared in C. Every operation checks what came out: a wrong outcome ends the program.
*/
#ifndef WORK_H
#define WORK_H

#include <sqlite3.h>

/* Who does it: idem's scalar function, its table-valued form, or the statements written by hand. */
enum { BY_SCALAR, BY_TABLE, BY_HAND, BY_COUNT };
extern const char *const azBy[BY_COUNT];

#define WORK_SCOPE "acct_1"
#define WORK_ANSWER 400  /* bytes of the stored answer, unless workAnswer() says otherwise */
#define WORK_DONE   5000 /* keys below this are completed by workFill() */
#define WORK_ROWS   1000 /* rows of a purge, and of the scan */

/* Where: a database that is created, or opened if it is there. */
typedef struct WorkPlace {
  const char *zFile;      /* ":memory:", or a path */
  const char *zSync;      /* PRAGMA synchronous */
  const char *zExtension; /* path of idem.so */
  int nCacheKiB;          /* page cache; 0 leaves SQLite's default, 2000 */
} WorkPlace;

enum {
  S_BEGIN,
  S_COMMIT,
  S_BUSINESS,
  S_CLOCK,
  S_CLAIM,
  S_CLAIM_TABLE,
  S_COMPLETE,
  S_RELEASE,
  S_SEEN,
  S_PURGE,
  S_POINT,
  S_KNOWN,
  S_SCAN,
  S_FINGERPRINT,
  S_HAND_CLAIM,
  S_HAND_COMPLETE,
  S_HAND_RELEASE,
  S_HAND_REPLAY,
  S_HAND_TAKE,
  S_HAND_NOTE,
  S_HAND_SEEN,
  S_HAND_PURGE,
  S_HAND_POINT,
  S_HAND_SCAN,
  S_HAND_SHA,
  S_COUNT
};

typedef struct Work {
  sqlite3 *db;
  sqlite3_stmt *apStmt[S_COUNT];
  char *zAnswer;      /* what a completion stores */
  int nAnswer;        /* its bytes */
  int iNext;          /* the next key that nobody has used */
  int iFirst;         /* the first key of this turn */
  int iAttempt;       /* makes tokens differ from one attempt to the next */
  int bOrdered;       /* keys are UUIDv7: in order; else UUIDv4: anywhere */
  sqlite3_int64 iClock; /* ms; 0: the real time */
  const char *zOperation;
} Work;

/* Where an operation is measured: in memory, or on a file in WAL with this synchronous. */
enum { AT_MEMORY = 1, AT_OFF = 2, AT_NORMAL = 4, AT_FULL = 8 };

/* One kind of operation. A turn is n of them. */
typedef struct WorkOp {
  const char *zName;                         /* as printed, and as in the baseline */
  int mBy;                                   /* who knows it: bits 1 << BY_... */
  int mAt;                                   /* where: bits AT_... */
  int bTxn;                                  /* the turn is one transaction; else autocommit */
  int nUnit;                                 /* rows handled by one call */
  void (*xPrepare)(Work *p, int eBy, int n); /* before the turn, not measured; or NULL */
  void (*xOne)(Work *p, int eBy, int i);     /* operation i of the turn */
} WorkOp;
extern const WorkOp aWorkOp[];
extern const int nWorkOp;

void workOpen(Work *p, const WorkPlace *pPlace);
void workClose(Work *p);
void workAnswer(Work *p, int nByte);
void workFill(Work *p);

/* A turn of n operations: before the first, after the last, and the whole in seconds. */
void workPrepare(Work *p, const WorkOp *pOp, int eBy, int n);
void workEnd(Work *p, const WorkOp *pOp);
double workTurn(Work *p, const WorkOp *pOp, int eBy, int n);
const WorkOp *workOp(const char *zName);

/* The pieces. zOutcome is what a claim must come to. */
void workBegin(Work *p);
void workCommit(Work *p);
void workBusiness(Work *p);
void workClaim(Work *p, int eBy, int iKey, const char *zOutcome);
void workComplete(Work *p, int eBy, int iKey);
void workReplay(Work *p, int eBy, int iKey);
void workCycle(Work *p, int eBy, int iKey); /* claim, business row, completion: one transaction */
void workTwo(Work *p, int eBy, int iKey);   /* the claim committed first, the rest by itself */

int workKnown(Work *p, int iKey);           /* 1 if idem has a record of this key */

/* A key: its number mixed over all of 64 bits like a UUIDv4, or behind a time that grows, like a
** UUIDv7. The caller's own token, as a program sends it that wants to survive a lost answer. An
** answer: JSON, as most are, with one byte in six a quotation mark. */
void workKey(int iKey, int bOrdered, char zKey[40]);
void workToken(int iKey, int iAttempt, char zToken[40]);
void workAnswerText(char *z, int nByte); /* terminated: nByte + 1 bytes */

/*
** Takes nMiB of memory from the system, for good. On a virtual machine the first touch of a page
** can cost more than the operation that needed it, and says nothing about either side.
*/
void workWarm(int nMiB);

/* Small words that the programs share. */
void workDie(const char *zWhere, const char *zWhat);
void workRun(Work *p, const char *zSql);
void workVersions(Work *p); /* prints idem's, SQLite's and OpenSSL's */
sqlite3_int64 workInt(Work *p, const char *zSql);
void workClock(Work *p, sqlite3_int64 ms); /* sets the clock of both; 0: the real time again */
double workNow(void);                      /* monotonic, seconds */

#endif
