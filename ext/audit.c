/*
** audit.c: the append-only chain of what may have to be explained later.
**
** Rows about a change are written by triggers of sql/store.sql in the statement that makes it. Here
** are the rows about what changes nothing, and the check of the whole chain.
*/
#include "operations.h"

void idemAuditRefusal(IdemCall *pCall, const IdemRequest *pReq, const IdemAnswer *pAnswer) {
  IdemWrite w = {pReq, &pAnswer->verdict, &pAnswer->loaded, 0, pAnswer->now, 0};
  if (pCall->rc != SQLITE_OK || pAnswer->verdict.eEvent == IDEM_EV_NONE) return;
  idemStoreAudit(pCall, &w, idemOutcomeName(pAnswer->verdict.eOutcome));
  if ((pCall->rc & 0xff) == SQLITE_READONLY) {
    idemForgive(pCall);
  }
}

int idemAuditVerify(IdemCall *pCall, int64_t *piBad) {
  return idemStoreAuditVerify(pCall, piBad);
}
