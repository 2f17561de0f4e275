/*
** errors.c: the one list of messages. Each says what was wrong, what the limit or rule is, and what
** to do. None quotes a payload, a token or a secret; keys and scopes are not quoted either.
*/
#include "errors.h"

#include <stdarg.h>

/* What the caller of a plain argument error has to do is in the message: SQLITE_ERROR is its class.
** A lost claim is SQLITE_CONSTRAINT, so that a program can tell it from its own mistakes. */
static const struct {
  int rc;           /* SQLite result code of the failure */
  const char *zFmt; /* sqlite3_vmprintf format; the function's name and ": " go before it */
} aMessage[IDEM_E_COUNT] = {
    [IDEM_E_NULL] = {SQLITE_ERROR, "%s is NULL, a value is required"},
    [IDEM_E_TYPE_TEXT] = {SQLITE_ERROR, "%s is not TEXT: bind it as a string"},
    [IDEM_E_TYPE_DATA] = {SQLITE_ERROR, "%s is a number: bind it as TEXT, BLOB or NULL"},
    [IDEM_E_TYPE_FINGERPRINT] = {SQLITE_ERROR, "fingerprint is a number: bind it as TEXT or BLOB, "
                                               "idem_fingerprint(body) makes one"},
    [IDEM_E_TYPE_INT] = {SQLITE_ERROR, "%s is not an integer"},
    [IDEM_E_RANGE] = {SQLITE_ERROR, "%s is out of range, %lld to %lld is allowed"},
    [IDEM_E_REAL] = {SQLITE_ERROR, "%s is a REAL beyond 2^53, where it is not exact: "
                                   "bind it as an INTEGER"},
    [IDEM_E_EMPTY] = {SQLITE_ERROR, "%s is empty, 1 to %d %s are required"},
    [IDEM_E_CHARS] = {SQLITE_ERROR, "%s is %lld characters, the limit is %d"},
    [IDEM_E_BYTES] = {SQLITE_ERROR, "%s is %lld bytes, the limit is %d"},
    [IDEM_E_FINGERPRINT_BYTES] = {SQLITE_ERROR, "fingerprint is %lld bytes, the limit is %d: pass "
                                                "idem_fingerprint(body), not the body"},
    [IDEM_E_UTF8] = {SQLITE_ERROR, "%s is not valid UTF-8"},
    [IDEM_E_CONTROL] = {SQLITE_ERROR, "%s holds a NUL or another control character, which is not "
                                      "allowed"},
    [IDEM_E_TOKEN_SHAPE] = {SQLITE_ERROR, "token must be 16 to 128 printable ASCII characters"},
    [IDEM_E_OPERATION] = {SQLITE_ERROR, "operation '*' is the name of the default policy, use "
                                        "another name"},
    [IDEM_E_SWAPPED] = {SQLITE_ERROR, "operation is a fingerprint: the order is scope, key, "
                                      "fingerprint, operation"},
    [IDEM_E_VERB] = {SQLITE_ERROR, "the third argument must be 'completed' or 'retry'"},
    [IDEM_E_ARGUMENTS] = {SQLITE_ERROR, "wrong number of arguments, the form is %s"},
    [IDEM_E_HEADER] = {SQLITE_ERROR,
                       "not an Idempotency-Key value: wanted is a quoted string (RFC 8941) or a "
                       "bare key of 1 to 255 visible ASCII characters without quotes, "
                       "backslash, comma and semicolon"},
    [IDEM_E_SCHEMA_NAME] = {SQLITE_ERROR, "there is no such file, the names are %s"},
    [IDEM_E_CONTENT_KEY] = {SQLITE_ERROR,
                            "key equals the fingerprint: a hash of the content as key makes two "
                            "honest equal operations collide; use a fresh key per operation, or "
                            "set allow_content_key = 1 in idem_policy"},
    [IDEM_E_SCOPE_KEY] = {SQLITE_ERROR,
                          "key equals the scope: the owner's name is not one operation; use a "
                          "fresh key per operation, or set allow_content_key = 1 in idem_policy"},
    [IDEM_E_PREFIX] = {SQLITE_ERROR,
                       "the stored fingerprint is of the form '%.*s' and the presented one of the "
                       "form '%.*s', they cannot be compared: retry with the form that was used "
                       "first"},
    [IDEM_E_TOKEN_USED] = {SQLITE_CONSTRAINT, "this token was used by an earlier attempt, a token "
                                              "is good for one attempt: claim with a new one"},
    [IDEM_E_NO_RECORD] = {SQLITE_CONSTRAINT,
                          "claim lost or never made: there is no record of this scope and key, "
                          "look in idem_records"},
    [IDEM_E_EXPIRED] = {SQLITE_CONSTRAINT,
                        "claim lost: the record is finished and its answer has expired"},
    [IDEM_E_LOST] = {SQLITE_CONSTRAINT, "claim lost: the token does not hold the record; another "
                                        "attempt or a decision superseded it, or it never did: "
                                        "roll back"},
    [IDEM_E_RELEASED] = {SQLITE_CONSTRAINT,
                         "claim lost: the record was released, claim again with a new token"},
    [IDEM_E_ANSWERED] = {SQLITE_CONSTRAINT,
                         "the record is completed with another answer, the first answer stays"},
    [IDEM_E_COMPLETED] = {SQLITE_CONSTRAINT, "claim lost: the record is already completed"},
    [IDEM_E_SUSPENDED] = {SQLITE_CONSTRAINT,
                          "the record is suspended: complete it, release it or let it be resolved"},
    [IDEM_E_LIVE] = {SQLITE_CONSTRAINT, "the record is processing under a live lease, wait until "
                                        "it is over: nothing to resolve yet"},
    [IDEM_E_RESOLVED] = {SQLITE_CONSTRAINT,
                         "the record is already completed, its answer stays: nothing to resolve"},
    [IDEM_E_CLAIMABLE] = {SQLITE_CONSTRAINT,
                          "the record is released, the next claim may execute: nothing to resolve"},
    [IDEM_E_ERASE] = {SQLITE_CONSTRAINT, "only finished records can be erased: this one is "
                                         "processing or unknown, resolve it first"},
    [IDEM_E_SEEN_OTHER] = {SQLITE_CONSTRAINT,
                           "this event id was seen with another fingerprint: a sender's fault or a "
                           "forgery, do not process it"},
    [IDEM_E_IN_PROGRESS] = {SQLITE_CONSTRAINT,
                            "A request with this Idempotency-Key is still being processed, retry "
                            "shortly."},
    [IDEM_E_MISMATCH] = {SQLITE_CONSTRAINT,
                         "Idempotency-Key was already used with a different request payload."},
    [IDEM_E_UNKNOWN] = {SQLITE_CONSTRAINT,
                        "The outcome of the request with this Idempotency-Key is unknown, it must "
                        "be resolved first."},
    [IDEM_E_EXHAUSTED] = {SQLITE_CONSTRAINT,
                          "All attempts with this Idempotency-Key are used up, it must be resolved "
                          "first."},
    [IDEM_E_REPLAY] = {SQLITE_CONSTRAINT, "The request with this Idempotency-Key was completed "
                                          "before, its answer is stored."},
    [IDEM_E_GONE] = {SQLITE_CONSTRAINT, "The request with this Idempotency-Key was completed "
                                        "before, its answer is no longer stored."},
    [IDEM_E_COLUMN] = {SQLITE_ERROR, "column %s cannot be written; an UPDATE sets state, response, "
                                     "code, headers, recovery_point, checkpoint or reason"},
    [IDEM_E_INSERT] = {SQLITE_ERROR, "column %s cannot be inserted; an INSERT brings scope, key, "
                                     "fingerprint, operation and token"},
    [IDEM_E_OWN_TOKEN] = {SQLITE_ERROR,
                          "token is NULL: an INSERT brings a token of its own, of 16 to 128 "
                          "printable characters, since idem_records shows none"},
    [IDEM_E_NO_TOKEN] = {SQLITE_ERROR, "name the token: UPDATE idem_records SET ... WHERE "
                                       "scope = ? AND key = ? AND token = ?"},
    [IDEM_E_NO_CHANGE] = {SQLITE_ERROR, "nothing to do: set state, or recovery_point"},
    [IDEM_E_STATE] = {SQLITE_ERROR, "state can be set to 'completed', 'released', 'unknown', or "
                                    "'processing' (renews the lease)"},
    [IDEM_E_REPLACE] = {SQLITE_ERROR, "OR REPLACE would forget that the operation ran: use "
                                      "INSERT or INSERT OR IGNORE"},
    [IDEM_E_NO_STORE] = {SQLITE_ERROR, "this database has no idem store: run SELECT idem_init()"},
    [IDEM_E_FUTURE] = {SQLITE_ERROR,
                       "the store has schema version %lld, this library knows version "
                       "%d: load a newer idem"},
    [IDEM_E_FOREIGN] = {SQLITE_ERROR,
                        "the database object %s is not as idem created it, or acts on its tables, "
                        "and is not trusted: drop it or restore the store"},
    [IDEM_E_INCOMPLETE] = {SQLITE_ERROR, "the store is incomplete, %.*s is missing: restore the "
                                         "database from a backup"},
    [IDEM_E_DAMAGED] = {SQLITE_CORRUPT_VTAB, "the record holds what idem never writes (column %s): "
                                             "restore the database from a backup"},
    [IDEM_E_NO_POLICY] = {SQLITE_ERROR, "idem_policy has no row '*': insert one with the defaults"},
    [IDEM_E_TRIGGERS] = {SQLITE_ERROR,
                         "triggers are switched off on this connection, the audit and the purge "
                         "need them: set SQLITE_DBCONFIG_ENABLE_TRIGGER"},
    [IDEM_E_ANSWER_SIZE] = {SQLITE_TOOBIG,
                            "the answer as JSON may exceed SQLite's length limit: use SELECT ... "
                            "FROM idem_claim(...), or raise SQLITE_LIMIT_LENGTH"},
    [IDEM_E_REPLICATION] = {SQLITE_READONLY,
                            "dqlite would not replicate what is written here: after BEGIN "
                            "IMMEDIATE, or in INSERT INTO ... SELECT without RETURNING, it does"},
    [IDEM_E_DEPTH] = {SQLITE_ERROR,
                      "called inside itself, by a trigger of this connection: at most "
                      "%d deep is allowed"},
    [IDEM_E_RACES] = {SQLITE_BUSY, "lost %d races in a row for this key, try again"},
    [IDEM_E_LIBCRYPTO] = {SQLITE_ERROR, "libcrypto failed, the generator or digest is unavailable"},
};

void idemFailNomem(IdemCall *pCall) {
  if (pCall->rc == SQLITE_OK) pCall->rc = SQLITE_NOMEM;
}

static void setText(IdemCall *pCall, const char *zFmt, va_list ap) {
  char *zText = sqlite3_vmprintf(zFmt, ap);
  pCall->zErr = zText ? sqlite3_mprintf("%s: %s", pCall->zFunc, zText) : 0;
  if (!pCall->zErr) pCall->rc = SQLITE_NOMEM;
  sqlite3_free(zText);
}

void idemFail(IdemCall *pCall, int eError, ...) {
  va_list ap;
  assert(eError > 0 && eError < IDEM_E_COUNT && aMessage[eError].zFmt);
  if (pCall->rc != SQLITE_OK) return;
  pCall->rc = aMessage[eError].rc;
  va_start(ap, eError);
  setText(pCall, aMessage[eError].zFmt, ap);
  va_end(ap);
}

/* A few of SQLite's codes deserve advice beyond its own text. */
static const char *hintFor(int rc) {
  switch (rc) {
  case SQLITE_BUSY_SNAPSHOT:
    return " (the transaction has read before another one committed: start it with BEGIN "
           "IMMEDIATE, then retry the whole transaction)";
  case SQLITE_AUTH: return " (an authorizer refused one of idem's tables)";
  default: break;
  }
  switch (rc & 0xff) {
  case SQLITE_BUSY: return " (another connection is writing: set busy_timeout, or retry)";
  case SQLITE_READONLY:
    return " (this connection is read-only; a pool may have routed a SELECT here: use the "
           "write-shaped INSERT INTO idem_call ... RETURNING)";
  default: return "";
  }
}

static void failFormat(IdemCall *pCall, const char *zFmt, ...) {
  va_list ap;
  va_start(ap, zFmt);
  setText(pCall, zFmt, ap);
  va_end(ap);
}

void idemFailDb(IdemCall *pCall, int rc) {
  if (pCall->rc != SQLITE_OK || rc == SQLITE_OK) return;
  /* A result is cut to its class unless the application asked for extended ones; this is not. */
  int rcFull = sqlite3_extended_errcode(pCall->db);
  if ((rcFull & 0xff) == rc) rc = rcFull;
  pCall->rc = rc;
  if ((rc & 0xff) == SQLITE_NOMEM) return;
  failFormat(pCall, "%s%s",
             (sqlite3_errcode(pCall->db) & 0xff) == (rc & 0xff) ? sqlite3_errmsg(pCall->db)
                                                                : sqlite3_errstr(rc),
             hintFor(rc));
}

void idemFailText(IdemCall *pCall, int rc, char *zText) {
  assert(rc != SQLITE_OK);
  if (pCall->rc == SQLITE_OK) {
    pCall->rc = zText ? rc : SQLITE_NOMEM;
    pCall->zErr = zText;
  } else {
    sqlite3_free(zText);
  }
}

int idemCannotWrite(const IdemCall *pCall) {
  int rc = pCall->rc & 0xff;
  return rc == SQLITE_READONLY || rc == SQLITE_BUSY || rc == SQLITE_LOCKED;
}

void idemForgive(IdemCall *pCall) {
  sqlite3_free(pCall->zErr);
  pCall->zErr = 0;
  pCall->rc = SQLITE_OK;
}

const char *idemErrorText(int eError) {
  assert(eError >= 0 && eError < IDEM_E_COUNT);
  return aMessage[eError].zFmt;
}
