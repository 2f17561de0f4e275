/*
** store.h: rows of the store's tables to and from C. store.c is the only file with SQL on them.
*/
#ifndef IDEM_STORE_H
#define IDEM_STORE_H

#include "conn.h"
#include "verdict.h"

/* A record and its policy as loaded, with the memory that the record's values point into. */
typedef struct IdemLoaded {
  int bFound;             /* a row of this scope and key exists */
  IdemRecord record;      /* the row, if bFound */
  IdemPolicy policy;      /* of the operation */
  int64_t iPolicyVersion; /* of idem_meta, when the policy was read */
  void *aCopy;            /* owns the bytes of the record's values; NULL if there are none */
} IdemLoaded;

/*
** Loads the record of (scope, key), with the policy of the request's operation for a claim, else
** with that of the record's own operation. Fails the call if there is no store or the row is
** damaged. Release with idemLoadedClear().
*/
void idemStoreLoad(IdemCall *pCall, const IdemRequest *pReq, IdemLoaded *pLoaded);
void idemLoadedClear(IdemLoaded *pLoaded);

/*
** The same from memory, if this connection remembers enough: for a claim, that there is no record
** (worth a try where the write lock is held and the last key was new); for a completion, the record
** as this connection's own claim left it. 1 if so. It may be wrong: the write that follows finds
** out, since it demands what it was decided on, and then everything begins again with
** idemStoreLoad().
*/
int idemStoreRecall(IdemCall *pCall, const IdemRequest *pReq, IdemLoaded *pLoaded);

/* What a write needs beside the request and the verdict. */
typedef struct IdemWrite {
  const IdemRequest *pReq;     /* what was asked */
  const IdemVerdict *pVerdict; /* what was decided */
  const IdemLoaded *pLoaded;   /* what it was decided on */
  const IdemValue *pToken;     /* the token of the attempt that begins */
  int64_t now;                 /* ms */
  int bOmitted;                /* pReq->response is the digest of an answer too large to keep */
} IdemWrite;

/*
** Carries out pVerdict->eWrite with one statement, which changes nothing if record and policy are
** no longer as pLoaded says. 1 if it was carried out; 0 if somebody was quicker, or the call
** failed.
*/
int idemStoreWrite(IdemCall *pCall, const IdemWrite *pWrite);

/* Writes an audit row alone: for what changes no record. */
void idemStoreAudit(IdemCall *pCall, const IdemWrite *pWrite, const char *zDetail);

/* The name of an audit event, and of a state as stored. */
const char *idemEventName(int eEvent);
const char *idemStateName(int eState);

/* What a purge would find now, at most nMax rows in all. */
typedef struct IdemPurge {
  int64_t nTombstone; /* tombstones to delete */
  int64_t nAnswer;    /* expired answers to turn into tombstones */
  int64_t nEvent;     /* expired events of the inbox to delete */
} IdemPurge;
void idemStorePurgeable(IdemCall *pCall, int64_t now, int64_t nMax, IdemPurge *pPurge);

/* Does it with one statement. The rows touched. */
int64_t idemStorePurge(IdemCall *pCall, int64_t now, const IdemPurge *pPurge);

/* An event of the inbox as remembered. */
typedef struct IdemEvent {
  int bFound;       /* there is a row, perhaps an expired one */
  int bFingerprint; /* it has a fingerprint */
  int bSame;        /* which equals the presented one */
  int nForm;        /* bytes of the form that it names, as in "idem1:"; 0 if it names none */
  char aForm[IDEM_FINGERPRINT_MAX];
  int64_t expires_at;   /* ms */
  int64_t retention_ms; /* policy: how long an event is remembered */
} IdemEvent;
void idemStoreEvent(IdemCall *pCall, const IdemValue *pSource, const IdemValue *pEvent,
                    const IdemValue *pFp, IdemEvent *pOut);

/* Remembers an event. 1 if this call did it; 0 if somebody was quicker, or the call failed. */
int idemStoreSee(IdemCall *pCall, const IdemValue *pSource, const IdemValue *pEvent,
                 const IdemValue *pFp, int64_t now, int64_t expires_at);

/* 1 if a row of idem_audit is missing or does not fit the chain, with the id of the first such row.
*/
int idemStoreAuditVerify(IdemCall *pCall, int64_t *piBad);

/* A listing of the records, for idem_records. eScan chooses the text and what is bound: */
enum {
  IDEM_SCAN_ALL = 0, /* every record, oldest first */
  IDEM_SCAN_KEY,     /* one scope and key */
  IDEM_SCAN_SCOPE,   /* one scope */
  IDEM_SCAN_STATE,   /* one stored state in a range of due_at, and all of another */
  IDEM_SCAN_ROWID,   /* one id */
  IDEM_SCAN_COUNT
};
typedef struct IdemListing {
  int eScan;       /* IDEM_SCAN_... */
  IdemValue scope; /* KEY, SCOPE */
  IdemValue key;   /* KEY */
  int aState[2];   /* STATE: the one with the range, and the other; IDEM_ST_NONE for neither */
  int64_t lo, hi;  /* STATE: the range, both ends included; ROWID: lo */
} IdemListing;

/* Begins a listing: a bound statement, given back with idemConnDone() or idemConnRelease(). */
sqlite3_stmt *idemStoreScan(IdemCall *pCall, const IdemListing *pScan);

/* Reads the row that pStmt (of idemStoreScan) stands on; its values live until the next step. The
** scope and key are given apart, since a record does not hold them. */
void idemStoreScanRow(IdemCall *pCall, sqlite3_stmt *pStmt, IdemRecord *pRec, IdemPolicy *pPol,
                      IdemValue *pScope, IdemValue *pKey);

/* Finds scope and key of a record by its id, into memory that the caller frees (*paCopy). 0 if
** there is none, or the call failed. */
int idemStoreKeyOf(IdemCall *pCall, int64_t id, IdemValue *pScope, IdemValue *pKey, char **paCopy);

#endif
