/*
** finish.c: what happens to a record after its claim: complete, release, suspend, renew, checkpoint by
** the holder of its token; resolve and erase by an operator.
*/
#include "operations.h"

/*
** The answer as it will be kept: an answer over the policy's limit is represented by its digest, so
** that at-most-once is kept though the body is not. A repeated completion is compared in the form
** that the record has.
*/
static void fitAnswer(IdemCall *pCall, IdemRequest *pReq, const IdemLoaded *pLoaded, int *pbOmitted,
                      unsigned char aDigest[IDEM_DIGEST_SIZE]) {
  int bAnswer = pReq->eVerb == IDEM_COMPLETE || pReq->eVerb == IDEM_RESOLVE_COMPLETED;
  int bDone = pLoaded->bFound && pLoaded->record.eState == IDEM_ST_COMPLETED;
  *pbOmitted = 0;
  if (!bAnswer || !pLoaded->bFound || pReq->response.eType == SQLITE_NULL) return;
  if (bDone ? !pLoaded->record.bOmitted : pReq->response.n <= pLoaded->policy.max_response_bytes) {
    return;
  }
  if (idemDigestSha256(idemConnDigest(pCall->pConn), IDEM_FORM_NONE, pReq->response.p,
                       (size_t)pReq->response.n, aDigest) != SQLITE_OK) {
    idemFail(pCall, IDEM_E_LIBCRYPTO);
  }
  pReq->response.eType = SQLITE_BLOB;
  pReq->response.n = IDEM_DIGEST_SIZE;
  pReq->response.p = aDigest;
  *pbOmitted = 1;
}

/* Load, decide, write. 1 when it is done; 0 to begin again, or when the call has failed. */
static int attempt(IdemCall *pCall, const IdemRequest *pReq, IdemLoaded *pLoaded,
                   IdemVerdict *pVerdict) {
  unsigned char aDigest[IDEM_DIGEST_SIZE];
  IdemRequest fitted = *pReq;
  int64_t now;
  int bOmitted = 0;
  idemConnLock(pCall);
  idemStoreLoad(pCall, pReq, pLoaded);
  fitAnswer(pCall, &fitted, pLoaded, &bOmitted, aDigest);
  if (pCall->rc != SQLITE_OK) return 0;
  now = idemConnNow(pCall->pConn);
  if (!pLoaded->bFound) {
    idemFail(pCall, IDEM_E_NO_RECORD);
    return 0;
  }
  idemVerdict(&pLoaded->record, &fitted, &pLoaded->policy, now, pVerdict);
  if (pVerdict->eError) idemFail(pCall, pVerdict->eError);
  if (pCall->rc != SQLITE_OK) return 0;
  if (pVerdict->eWrite == IDEM_WR_NONE) return 1;
  IdemWrite w = {&fitted, pVerdict, &pLoaded->record, &pLoaded->policy, 0, now, bOmitted};
  return idemStoreWrite(pCall, &w);
}

int64_t idemFinish(IdemCall *pCall, const IdemRequest *pReq) {
  IdemLoaded loaded;
  IdemVerdict verdict;
  int nRace = 0, bDone = 0;
  assert(pReq->eVerb != IDEM_CLAIM);
  while (!bDone && pCall->rc == SQLITE_OK) {
    memset(&loaded, 0, sizeof(loaded));
    bDone = attempt(pCall, pReq, &loaded, &verdict);
    idemLoadedClear(&loaded);
    if (!bDone && ++nRace >= IDEM_RACES_MAX) idemFail(pCall, IDEM_E_RACES, nRace);
  }
  idemConnUnlock(pCall);
  if (pCall->rc != SQLITE_OK) return 0;
  return verdict.eWrite == IDEM_WR_RENEW ? verdict.due : 1;
}
