/*
** request.h: makes requests from SQL values, the same way for every face.
*/
#ifndef IDEM_REQUEST_H
#define IDEM_REQUEST_H

#include "text.h"

/* Empties a request. */
void idemRequestInit(IdemRequest *pReq, int eVerb);

/* claim: scope, key, fingerprint, operation (may be missing: NULL pointer), token (likewise). */
void idemRequestClaim(IdemCall *pCall, IdemRequest *pReq, sqlite3_value *pScope,
                      sqlite3_value *pKey, sqlite3_value *pFingerprint, sqlite3_value *pOperation,
                      sqlite3_value *pToken);

/* complete, resolve: the answer; code and headers may be missing. */
void idemRequestAnswer(IdemCall *pCall, IdemRequest *pReq, sqlite3_value *pResponse,
                       sqlite3_value *pCode, sqlite3_value *pHeaders);

/* checkpoint: a recovery point and its data, which may be missing. */
void idemRequestPoint(IdemCall *pCall, IdemRequest *pReq, sqlite3_value *pPoint,
                      sqlite3_value *pData);

/* release, suspend, resolve: a reason, which may be missing. */
void idemRequestReason(IdemCall *pCall, IdemRequest *pReq, sqlite3_value *pReason);

#endif
