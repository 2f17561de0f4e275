/*
** errors.h: every message a user can meet, by number. The texts are in errors.c, one list.
*/
#ifndef IDEM_ERRORS_H
#define IDEM_ERRORS_H

#include "idem_int.h"

enum {
  IDEM_E_NONE = 0,
  /* arguments: (SQLITE_ERROR) */
  IDEM_E_NULL,              /* %s is NULL */
  IDEM_E_TYPE_TEXT,         /* %s is not text */
  IDEM_E_TYPE_DATA,         /* %s is not text, blob or NULL */
  IDEM_E_TYPE_FINGERPRINT,  /* neither is the fingerprint */
  IDEM_E_TYPE_INT,          /* %s is not an integer */
  IDEM_E_RANGE,             /* %s is outside %lld..%lld */
  IDEM_E_REAL,              /* %s is a REAL beyond 2^53, where integers are not exact */
  IDEM_E_EMPTY,             /* %s is empty, 1 to %d of %s are wanted */
  IDEM_E_CHARS,             /* %s is %lld characters, the limit is %d */
  IDEM_E_BYTES,             /* %s is %lld bytes, the limit is %d */
  IDEM_E_FINGERPRINT_BYTES, /* the fingerprint is %lld bytes, the limit is %d */
  IDEM_E_UTF8,              /* %s is not valid UTF-8 */
  IDEM_E_CONTROL,           /* %s holds a NUL or control character */
  IDEM_E_TOKEN_SHAPE,       /* token: 16 to 128 printable characters */
  IDEM_E_OPERATION,         /* operation '*' is the name of the default policy */
  IDEM_E_SWAPPED,           /* operation is what idem_fingerprint() makes */
  IDEM_E_VERB,              /* idem_resolve: second word */
  IDEM_E_ARGUMENTS,         /* wrong number of arguments, %s are wanted */
  IDEM_E_HEADER,            /* not an Idempotency-Key header */
  IDEM_E_SCHEMA_NAME,       /* no bundled SQL file of that name */
  IDEM_E_CONTENT_KEY,       /* the key is the fingerprint */
  IDEM_E_SCOPE_KEY,         /* the key is the scope */
  IDEM_E_PREFIX,            /* fingerprints of two forms: %.*s and %.*s */
  /* lost claims and refused decisions: (SQLITE_CONSTRAINT) */
  IDEM_E_TOKEN_USED, /* a token is good for one attempt only */
  IDEM_E_NO_RECORD,  /* there is no record of this key */
  IDEM_E_EXPIRED,    /* finished, answer gone */
  IDEM_E_LOST,       /* claim lost: another attempt, or a decision, superseded this token */
  IDEM_E_RELEASED,   /* claim lost: released */
  IDEM_E_ANSWERED,   /* completed with another answer */
  IDEM_E_COMPLETED,  /* already completed */
  IDEM_E_SUSPENDED,  /* suspended: complete or release it */
  IDEM_E_LIVE,       /* a live lease: nothing to resolve */
  IDEM_E_RESOLVED,   /* nothing to resolve: completed with another answer */
  IDEM_E_CLAIMABLE,  /* nothing to resolve: released */
  IDEM_E_ERASE,      /* only finished rows are erased */
  IDEM_E_SEEN_OTHER, /* idem_seen: same id, other content */
  /* claims refused, as constraint errors of INSERT INTO idem_records */
  IDEM_E_IN_PROGRESS,
  IDEM_E_MISMATCH,
  IDEM_E_UNKNOWN,
  IDEM_E_EXHAUSTED,
  IDEM_E_REPLAY,
  IDEM_E_GONE,
  /* writing through idem_records */
  IDEM_E_COLUMN,    /* column %s cannot be changed */
  IDEM_E_INSERT,    /* column %s cannot be inserted */
  IDEM_E_OWN_TOKEN, /* an INSERT brings its own token */
  IDEM_E_NO_TOKEN,  /* name the token in WHERE */
  IDEM_E_NO_CHANGE, /* an UPDATE that asks for nothing */
  IDEM_E_STATE,     /* state must be ... */
  IDEM_E_REPLACE,   /* OR REPLACE refused */
  /* the store */
  IDEM_E_NO_STORE,    /* run SELECT idem_init() */
  IDEM_E_FUTURE,      /* schema version %d is newer */
  IDEM_E_FOREIGN,     /* %s is not what idem created */
  IDEM_E_INCOMPLETE,  /* %.*s of the store is missing */
  IDEM_E_DAMAGED,     /* a row holds what idem never writes */
  IDEM_E_NO_POLICY,   /* no row '*' */
  IDEM_E_TRIGGERS,    /* triggers are switched off */
  IDEM_E_ANSWER_SIZE, /* the answer's JSON would be longer than SQLite allows */
  IDEM_E_REPLICATION, /* on dqlite, in a place whose writes are lost */
  IDEM_E_DEPTH,       /* a body runs inside %d others */
  IDEM_E_RACES,       /* lost too many races: busy */
  IDEM_E_LIBCRYPTO,   /* digest or random generator failed */
  IDEM_E_COUNT
};

/*
** One call of the API. Begun by a face, passed down, ended by the face. Once rc is set, everything
** that takes a call does nothing.
*/
typedef struct IdemCall {
  IdemConn *pConn;      /* the connection */
  sqlite3 *db;          /* its handle */
  const char *zFunc;    /* what the user called: every message starts with it */
  int rc;               /* SQLITE_OK, or the first failure */
  char *zErr;           /* its text, from sqlite3_malloc; NULL when memory ran out */
  sqlite3_int64 iRowid; /* last_insert_rowid() at entry, restored at the end */
} IdemCall;

/* Fails the call with message eError (IDEM_E_...) and its arguments. The first failure stays. */
void idemFail(IdemCall *pCall, int eError, ...);

/* Fails the call with what SQLite says, plus a hint where its text alone would not help. */
void idemFailDb(IdemCall *pCall, int rc);

/* Fails the call for want of memory. */
void idemFailNomem(IdemCall *pCall);

/* Fails the call with another call's failure, or with a text of one's own (taken over, may be NULL
** for want of memory). */
void idemFailText(IdemCall *pCall, int rc, char *zText);

/* True if the call failed because this connection may not write, or another one is writing. */
int idemCannotWrite(const IdemCall *pCall);

/* Forgets a failure that does not matter after all. */
void idemForgive(IdemCall *pCall);

/* A message without arguments, as it is in the list; NULL for IDEM_E_NONE. */
const char *idemErrorText(int eError);

#endif
