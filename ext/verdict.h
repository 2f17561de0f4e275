/*
** verdict.h: the heart of idem as a pure function.
**
**     (record or none, request, policy, now)  ->  verdict
**
** No SQL, no clock, no allocation, no I/O: everything idem promises about an idempotency key is
** decided here and can be enumerated by a test. The rest of the extension fetches the arguments and
** carries out the verdict.
*/
#ifndef IDEM_VERDICT_H
#define IDEM_VERDICT_H

#include "idem_int.h"

/* A borrowed SQL value: TEXT, BLOB or NULL (eType is an SQLite type code). */
typedef struct IdemValue {
  int eType;     /* SQLITE_NULL, SQLITE_TEXT or SQLITE_BLOB */
  int n;         /* bytes at p; 0 for NULL */
  const void *p; /* not terminated; may be NULL when n is 0 */
} IdemValue;

/* States as they are stored. What a reader sees also depends on the clock and the policy. */
enum {
  IDEM_ST_NONE = 0, /* no row */
  IDEM_ST_PROCESSING,
  IDEM_ST_COMPLETED,
  IDEM_ST_RELEASED,
  IDEM_ST_UNKNOWN,
  IDEM_ST_TOMBSTONE,
  IDEM_ST_COUNT
};

/* One row of idem_store. */
typedef struct IdemRecord {
  int64_t id;            /* rowid */
  int eState;            /* IDEM_ST_... */
  int64_t attempt;       /* 1, 2, 3 ...: counted at claim */
  int64_t granted;       /* attempts used up before an operator last granted a retry */
  int bDue;              /* true if due is not NULL */
  int64_t due;           /* processing: lease end; completed, tombstone: end of that stage; ms */
  int64_t tombstone_ms;  /* fixed at completion: how long the tombstone will stand */
  int64_t created_at;    /* ms */
  int64_t completed_at;  /* ms; 0 unless completed or tombstone */
  int bCode;             /* true if code is not NULL */
  int64_t code;          /* the answer's code, an HTTP status by custom */
  int bOmitted;          /* response is the 32-byte SHA-256 of an answer too large to keep */
  int bExhaustedLogged;  /* the audit already says that this record is exhausted */
  IdemValue operation;   /* TEXT, '' when none was given */
  IdemValue fingerprint; /* TEXT or BLOB */
  IdemValue token;       /* of the latest attempt; NULL once resolved */
  IdemValue spent;       /* earlier tokens, each followed by a line feed; or NULL */
  IdemValue headers;     /* TEXT or NULL */
  IdemValue response;    /* TEXT, BLOB or NULL */
  IdemValue point;       /* recovery point: TEXT or NULL */
  IdemValue checkpoint;  /* its data: TEXT, BLOB or NULL */
  IdemValue reason;      /* of the last release, suspend or resolve: TEXT or NULL */
} IdemRecord;

/* What somebody asks for. */
enum {
  IDEM_CLAIM = 0,
  IDEM_COMPLETE,
  IDEM_RELEASE,
  IDEM_SUSPEND,
  IDEM_RENEW,
  IDEM_CHECKPOINT,
  IDEM_RESOLVE_COMPLETED,
  IDEM_RESOLVE_RETRY,
  IDEM_ERASE,
  IDEM_VERB_COUNT
};

/* A request: made by a face, read by the operations, never changed. */
typedef struct IdemRequest {
  int eVerb;             /* IDEM_CLAIM ... */
  IdemValue scope;       /* TEXT */
  IdemValue key;         /* TEXT */
  IdemValue fingerprint; /* claim: TEXT or BLOB */
  IdemValue operation;   /* claim: TEXT, '' when none is given */
  IdemValue token;       /* claim: TEXT or NULL (one is made); the worker's verbs: TEXT */
  int bCode;             /* complete, resolve: true if code is given */
  int64_t code;          /* an integer */
  IdemValue headers;     /* complete, resolve: TEXT or NULL */
  IdemValue response;    /* complete, resolve: TEXT, BLOB or NULL */
  IdemValue point;       /* checkpoint: TEXT */
  IdemValue checkpoint;  /* checkpoint: TEXT, BLOB or NULL */
  IdemValue reason;      /* release, suspend, resolve: TEXT or NULL */
  int nJsonMax;          /* claim: the answer goes out as JSON of at most so many bytes; 0 = it does
                         ** not. Judged before the write: no error may come after it */
} IdemRequest;

enum { IDEM_STALE_UNKNOWN = 0, IDEM_STALE_RETRY };
enum { IDEM_AUDIT_OFF = 0, IDEM_AUDIT_EXCEPTIONS, IDEM_AUDIT_ALL };

/* One row of idem_policy. */
typedef struct IdemPolicy {
  int64_t lease_ms;           /* how long a claim is trusted without news */
  int64_t retention_ms;       /* how long an answer is replayed, from completion */
  int64_t tombstone_ms;       /* how long the key is refused after that */
  int64_t wait_ms;            /* how long a claim waits for an answer in progress */
  int eStale;                 /* IDEM_STALE_...: what a lease that ran out means */
  int64_t max_attempts;       /* 0 = unlimited */
  int64_t max_response_bytes; /* a larger answer is completed but not kept */
  int bContentKey;            /* keys equal to the fingerprint or the scope are allowed */
  int eAudit;                 /* IDEM_AUDIT_... */
} IdemPolicy;

enum {
  IDEM_OUT_NONE = 0, /* not a claim, or an error */
  IDEM_OUT_CLAIMED,
  IDEM_OUT_REPLAY,
  IDEM_OUT_IN_PROGRESS,
  IDEM_OUT_MISMATCH,
  IDEM_OUT_UNKNOWN,
  IDEM_OUT_EXPIRED,
  IDEM_OUT_EXHAUSTED,
  IDEM_OUT_COUNT
};

/* The one change of the store that a verdict asks for. */
enum {
  IDEM_WR_NONE = 0,
  IDEM_WR_INSERT,            /* a new row */
  IDEM_WR_RESTART,           /* a row whose time is over begins a new life: attempt 1 */
  IDEM_WR_RETRY,             /* the next attempt of a released or stale record */
  IDEM_WR_COMPLETE,          /* the answer, from the worker */
  IDEM_WR_RELEASE,           /* it did not happen */
  IDEM_WR_SUSPEND,           /* nobody knows */
  IDEM_WR_RENEW,             /* a later lease end */
  IDEM_WR_CHECKPOINT,        /* a recovery point and a later lease end */
  IDEM_WR_RESOLVE_COMPLETED, /* the answer, from an operator; the token is spent */
  IDEM_WR_RESOLVE_RETRY,     /* released by an operator; the token is spent */
  IDEM_WR_ERASE,             /* the row goes */
  IDEM_WR_MARK,              /* nothing but the audit's note that the record is exhausted */
  IDEM_WR_COUNT
};

/* What the audit calls it; the text is in store.c. */
enum {
  IDEM_EV_NONE = 0,
  IDEM_EV_CLAIM,
  IDEM_EV_TAKE_OVER,
  IDEM_EV_COMPLETE,
  IDEM_EV_RELEASE,
  IDEM_EV_SUSPEND,
  IDEM_EV_RESOLVE_COMPLETED,
  IDEM_EV_RESOLVE_RETRY,
  IDEM_EV_EXHAUSTED,
  IDEM_EV_ERASE,
  IDEM_EV_REPLAY,
  IDEM_EV_REFUSED,
  IDEM_EV_COUNT
};

typedef struct IdemVerdict {
  int eOutcome;           /* of a claim: IDEM_OUT_... */
  int eError;             /* IDEM_E_... (errors.h), or 0: the call fails, nothing is written */
  int eWrite;             /* IDEM_WR_... */
  int eEvent;             /* IDEM_EV_... to be written with it, already judged by the policy */
  int64_t attempt;        /* of the record after the write; 0 if there is no record */
  int64_t due;            /* claimed, renew, checkpoint: lease end; completing: end of retention */
  int64_t retry_after_ms; /* in progress: > 0 and at most what is left of the lease */
} IdemVerdict;

void idemVerdict(const IdemRecord *pRec, const IdemRequest *pReq, const IdemPolicy *pPol,
                 int64_t now, IdemVerdict *pOut);

/*
** The state a reader sees: one of IDEM_ST_NONE (its time is over), PROCESSING, COMPLETED, RELEASED,
** UNKNOWN (also stale, unless the policy is to retry), or TOMBSTONE (the answer's retention is
** over).
*/
int idemVisibleState(const IdemRecord *pRec, int eStale, int64_t now);

/* True if a and b hold the same bytes of the same type. Takes the same time wherever they differ.
*/
int idemSame(const IdemValue *a, const IdemValue *b);

/*
** Length of the name of a fingerprint's form: "idem", letters, digits, a colon ("idem1:" has 6).
** 0 if the value does not name one: foreign fingerprints are compared as they are.
*/
int idemFormLength(const IdemValue *pFp);

/* The end of retention and of the tombstone of a completed or expired record, ms. */
int64_t idemExpiresAt(const IdemRecord *pRec);
int64_t idemTombstoneUntil(const IdemRecord *pRec);

#endif
