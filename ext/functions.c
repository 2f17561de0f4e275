/*
** functions.c: the scalar SQL functions on the store.
**
**     SELECT idem_init();                                              -- 1
**     SELECT idem_claim('acct_1', 'order-123', 'fp', 'POST /pay');  -- {"outcome":"claimed", ...}
**     SELECT idem_complete('acct_1', 'order-123', :token, '{"ok":1}', 201);            -- 1
**     SELECT idem_claim('acct_1', 'order-123', 'fp', 'POST /pay');  -- {"outcome":"replay", ...}
**
** All that write are SQLITE_DIRECTONLY: no view, trigger or generated column of a database file can
** call them. The list of functions is in idem.c.
*/
#include "functions.h"
#include "answer.h"
#include "claim_table.h"
#include "request.h"
#include "schema.h"

/* Begins a call of a function that works on the store; and looks after temp.idem_claim. */
static void begin(IdemCall *pCall, sqlite3_context *pCtx, const char *zFunc) {
  idemCallBegin(pCall, sqlite3_user_data(pCtx), zFunc);
  idemClaimTableEnsure(pCall->pConn, 0);
}

int idemCallResult(IdemCall *pCall, sqlite3_context *pCtx) {
  idemCallEnd(pCall);
  if (pCall->rc == SQLITE_OK) return 1;
  if ((pCall->rc & 0xff) == SQLITE_NOMEM) {
    sqlite3_result_error_nomem(pCtx);
  } else {
    /* The text first: setting it resets the code. */
    sqlite3_result_error(pCtx, pCall->zErr ? pCall->zErr : pCall->zFunc, -1);
    sqlite3_result_error_code(pCtx, pCall->rc);
  }
  sqlite3_free(pCall->zErr);
  return 0;
}

void idemFnInit(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  (void)nArg, (void)apArg;
  begin(&call, pCtx, "idem_init");
  idemClaimTableEnsure(call.pConn, 1);
  int iVersion = idemSchemaInit(&call);
  if (idemCallResult(&call, pCtx)) sqlite3_result_int(pCtx, iVersion);
}

void idemFnClaim(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  IdemRequest req;
  IdemAnswer answer;
  char *zJson = 0;
  begin(&call, pCtx, "idem_claim");
  idemRequestInit(&req, IDEM_CLAIM);
  idemRequestClaim(&call, &req, apArg[0], apArg[1], apArg[2], nArg > 3 ? apArg[3] : 0,
                   nArg > 4 ? apArg[4] : 0);
  req.nJsonMax = sqlite3_limit(call.db, SQLITE_LIMIT_LENGTH, -1);
  if (call.rc == SQLITE_OK) {
    idemClaim(&call, &req, &answer);
    if (call.rc == SQLITE_OK) {
      zJson = idemAnswerJson(&answer);
      if (!zJson) idemFailNomem(&call);
    }
    idemAnswerClear(&answer);
  }
  if (idemCallResult(&call, pCtx)) {
    /* Without a length: then SQLite knows that it is terminated, and need not see to that. */
    sqlite3_result_text(pCtx, zJson, -1, sqlite3_free);
    sqlite3_result_subtype(pCtx, 'J');
  }
}

/* Runs a verb of the token's holder; the rest of the request was made by the caller. */
static void finish(IdemCall *pCall, sqlite3_context *pCtx, IdemRequest *pReq) {
  int64_t iResult = pCall->rc == SQLITE_OK ? idemFinish(pCall, pReq) : 0;
  if (idemCallResult(pCall, pCtx)) sqlite3_result_int64(pCtx, iResult);
}

/* scope, key and token: the first three arguments of those verbs. */
static void beginFinish(IdemCall *pCall, sqlite3_context *pCtx, const char *zFunc, int eVerb,
                        IdemRequest *pReq, sqlite3_value **apArg) {
  begin(pCall, pCtx, zFunc);
  idemRequestInit(pReq, eVerb);
  idemArgScope(pCall, apArg[0], &pReq->scope);
  idemArgKey(pCall, apArg[1], &pReq->key);
  idemArgToken(pCall, apArg[2], 0, &pReq->token);
}

void idemFnComplete(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  IdemRequest req;
  beginFinish(&call, pCtx, "idem_complete", IDEM_COMPLETE, &req, apArg);
  idemRequestAnswer(&call, &req, apArg[3], nArg > 4 ? apArg[4] : 0, nArg > 5 ? apArg[5] : 0);
  finish(&call, pCtx, &req);
}

void idemFnRelease(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  IdemRequest req;
  beginFinish(&call, pCtx, "idem_release", IDEM_RELEASE, &req, apArg);
  idemRequestReason(&call, &req, nArg > 3 ? apArg[3] : 0);
  finish(&call, pCtx, &req);
}

void idemFnSuspend(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  IdemRequest req;
  beginFinish(&call, pCtx, "idem_suspend", IDEM_SUSPEND, &req, apArg);
  idemRequestReason(&call, &req, nArg > 3 ? apArg[3] : 0);
  finish(&call, pCtx, &req);
}

void idemFnRenew(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  IdemRequest req;
  (void)nArg;
  beginFinish(&call, pCtx, "idem_renew", IDEM_RENEW, &req, apArg);
  finish(&call, pCtx, &req);
}

void idemFnCheckpoint(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  IdemRequest req;
  beginFinish(&call, pCtx, "idem_checkpoint", IDEM_CHECKPOINT, &req, apArg);
  idemRequestPoint(&call, &req, apArg[3], nArg > 4 ? apArg[4] : 0);
  finish(&call, pCtx, &req);
}

/* True if the argument is the text z. The type first: reading a blob as text changes it. */
static int isWord(sqlite3_value *pArg, const char *z) {
  if (sqlite3_value_type(pArg) != SQLITE_TEXT) return 0;
  const char *zArg = (const char *)sqlite3_value_text(pArg);
  return zArg && sqlite3_value_bytes(pArg) == (int)strlen(z) && strcmp(zArg, z) == 0;
}

void idemFnResolve(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  IdemRequest req;
  begin(&call, pCtx, "idem_resolve");
  idemRequestInit(&req, IDEM_RESOLVE_RETRY);
  idemArgScope(&call, apArg[0], &req.scope);
  idemArgKey(&call, apArg[1], &req.key);
  if (isWord(apArg[2], "completed")) {
    req.eVerb = IDEM_RESOLVE_COMPLETED;
    if (nArg < 4) {
      idemFail(&call, IDEM_E_ARGUMENTS,
               "idem_resolve(scope, key, 'completed', response [, code [, headers]])");
    } else {
      idemRequestAnswer(&call, &req, apArg[3], nArg > 4 ? apArg[4] : 0, nArg > 5 ? apArg[5] : 0);
    }
  } else if (!isWord(apArg[2], "retry")) {
    idemFail(&call, IDEM_E_VERB);
  } else if (nArg > 4) {
    idemFail(&call, IDEM_E_ARGUMENTS, "idem_resolve(scope, key, 'retry' [, reason])");
  } else {
    idemRequestReason(&call, &req, nArg > 3 ? apArg[3] : 0);
  }
  finish(&call, pCtx, &req);
}

void idemFnSeen(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  IdemValue source, event, fingerprint = {SQLITE_NULL, 0, 0};
  int bNew = 0;
  begin(&call, pCtx, "idem_seen");
  idemArgText(&call, apArg[0], "source", 1, IDEM_SCOPE_CHARS, &source);
  idemArgText(&call, apArg[1], "event id", 1, IDEM_KEY_CHARS, &event);
  if (nArg > 2) idemArgFingerprint(&call, apArg[2], 1, &fingerprint);
  if (call.rc == SQLITE_OK) bNew = idemSeen(&call, &source, &event, &fingerprint);
  if (idemCallResult(&call, pCtx)) sqlite3_result_int(pCtx, bNew);
}

void idemFnPurge(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  int64_t nMax = IDEM_PURGE_DEFAULT, n = 0;
  begin(&call, pCtx, "idem_purge");
  if (nArg > 0) nMax = idemArgInt(&call, apArg[0], "max_rows", 1, IDEM_PURGE_MAX);
  if (call.rc == SQLITE_OK) n = idemPurge(&call, nMax);
  if (idemCallResult(&call, pCtx)) sqlite3_result_int64(pCtx, n);
}

void idemFnClock(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  begin(&call, pCtx, "idem_clock");
  if (nArg > 0 && sqlite3_value_type(apArg[0]) == SQLITE_NULL) {
    idemConnSetClock(call.pConn, 0, 0);
  } else if (nArg > 0) {
    int64_t ms = idemArgInt(&call, apArg[0], "ms", 0, IDEM_CLOCK_MAX);
    if (call.rc == SQLITE_OK) idemConnSetClock(call.pConn, 1, ms);
  }
  if (idemCallResult(&call, pCtx)) sqlite3_result_int64(pCtx, idemConnNow(call.pConn));
}

void idemFnSchema(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  const IdemSqlFile *pFile = idemSqlFiles;
  IdemValue name;
  (void)nArg;
  begin(&call, pCtx, "idem_schema");
  idemArgText(&call, apArg[0], "name", 1, 255, &name);
  if (call.rc == SQLITE_OK) {
    while (pFile->zName && !isWord(apArg[0], pFile->zName)) pFile++;
    if (!pFile->zName) {
      sqlite3_str *pNames = sqlite3_str_new(call.db);
      for (pFile = idemSqlFiles; pFile->zName; pFile++) {
        sqlite3_str_appendf(pNames, "%s'%s'", pFile == idemSqlFiles ? "" : ", ", pFile->zName);
      }
      char *zNames = sqlite3_str_finish(pNames);
      idemFail(&call, IDEM_E_SCHEMA_NAME, zNames ? zNames : "'store'");
      sqlite3_free(zNames);
    }
  }
  if (idemCallResult(&call, pCtx)) {
    sqlite3_result_text(pCtx, pFile->zText, pFile->nText, SQLITE_STATIC);
  }
}

void idemFnAuditVerify(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  IdemCall call;
  (void)nArg, (void)apArg;
  begin(&call, pCtx, "idem_audit_verify");
  int64_t iBad = 0;
  int bBad = idemAuditVerify(&call, &iBad);
  if (!idemCallResult(&call, pCtx)) return;
  if (bBad) {
    sqlite3_result_int64(pCtx, iBad);
  } else {
    sqlite3_result_null(pCtx);
  }
}

void idemFnVersion(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg) {
  (void)nArg, (void)apArg;
  char *z = sqlite3_mprintf("idem " IDEM_VERSION ", SQLite %s, %s", sqlite3_libversion(),
                            idemDigestVersion());
  if (z) {
    sqlite3_result_text(pCtx, z, -1, sqlite3_free);
  } else {
    sqlite3_result_error_nomem(pCtx);
  }
}
