/*
** request.c: makes requests from SQL values. The values must outlive the request.
*/
#include "request.h"

void idemRequestInit(IdemRequest *pReq, int eVerb) {
  static const IdemValue null = {SQLITE_NULL, 0, 0}, none = {SQLITE_TEXT, 0, ""};
  memset(pReq, 0, sizeof(*pReq));
  pReq->eVerb = eVerb;
  pReq->scope = pReq->key = pReq->fingerprint = pReq->token = null;
  pReq->headers = pReq->response = pReq->point = pReq->checkpoint = pReq->reason = null;
  pReq->operation = none;
}

void idemRequestClaim(IdemCall *pCall, IdemRequest *pReq, sqlite3_value *pScope,
                      sqlite3_value *pKey, sqlite3_value *pFingerprint, sqlite3_value *pOperation,
                      sqlite3_value *pToken) {
  idemArgScope(pCall, pScope, &pReq->scope);
  idemArgKey(pCall, pKey, &pReq->key);
  idemArgFingerprint(pCall, pFingerprint, 0, &pReq->fingerprint);
  if (pOperation) idemArgOperation(pCall, pOperation, &pReq->operation);
  if (pToken) idemArgToken(pCall, pToken, 1, &pReq->token);
}

void idemRequestAnswer(IdemCall *pCall, IdemRequest *pReq, sqlite3_value *pResponse,
                       sqlite3_value *pCode, sqlite3_value *pHeaders) {
  idemArgData(pCall, pResponse, "response", 0, &pReq->response);
  pReq->bCode = pCode && sqlite3_value_type(pCode) != SQLITE_NULL;
  if (pReq->bCode) pReq->code = idemArgInt(pCall, pCode, "code", INT32_MIN, INT32_MAX);
  if (pHeaders) idemArgNote(pCall, pHeaders, "headers", IDEM_HEADERS_MAX, &pReq->headers);
}

void idemRequestPoint(IdemCall *pCall, IdemRequest *pReq, sqlite3_value *pPoint,
                      sqlite3_value *pData) {
  idemArgText(pCall, pPoint, "recovery point", 1, IDEM_POINT_CHARS, &pReq->point);
  if (pData) idemArgData(pCall, pData, "data", IDEM_CHECKPOINT_MAX, &pReq->checkpoint);
}

void idemRequestReason(IdemCall *pCall, IdemRequest *pReq, sqlite3_value *pReason) {
  if (pReason) idemArgNote(pCall, pReason, "reason", IDEM_REASON_CHARS, &pReq->reason);
}
