/*
** finish.c: what happens to a record after its claim: complete, release, suspend, renew, checkpoint
** by the holder of its token; resolve and erase by an operator.
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

/* One request as idemConnRun() runs it. */
typedef struct Finish {
  const IdemRequest *pReq; /* what is asked */
  IdemVerdict verdict;     /* what was decided */
  int nRace;               /* races lost so far */
  int rcWrite;             /* why the write from memory could not be had, or SQLITE_OK */
  int bDone;               /* it is carried out */
} Finish;

/* Decides on what is loaded, and writes. Not done if somebody was quicker, or the verdict is an
** error: from memory that may be a mistake, so the caller raises it. */
static void decideAndWrite(IdemCall *pCall, Finish *p, const IdemLoaded *pLoaded) {
  unsigned char aDigest[IDEM_DIGEST_SIZE];
  IdemRequest fitted = *p->pReq;
  int bOmitted = 0;
  fitAnswer(pCall, &fitted, pLoaded, &bOmitted, aDigest);
  if (pCall->rc != SQLITE_OK) return;
  IdemWrite w = {&fitted, &p->verdict, pLoaded, 0, idemConnNow(pCall->pConn), bOmitted};
  idemVerdict(pLoaded->bFound ? &pLoaded->record : 0, &fitted, &pLoaded->policy, w.now,
              &p->verdict);
  if (p->verdict.eError) return;
  if (p->verdict.eWrite != IDEM_WR_NONE && p->rcWrite != SQLITE_OK) {
    idemConnDemandWrite(pCall); /* it may be the reason, and says what to do */
    idemFailDb(pCall, p->rcWrite);
    return;
  }
  p->bDone = p->verdict.eWrite == IDEM_WR_NONE || idemStoreWrite(pCall, &w);
}

/* Load, decide, write. */
static void finishOnce(IdemCall *pCall, void *pArg) {
  Finish *p = pArg;
  IdemLoaded loaded;
  /* Most completions follow a claim of the same connection: the UPDATE itself finds out. */
  if (p->nRace == 0 && idemStoreRecall(pCall, p->pReq, &loaded)) decideAndWrite(pCall, p, &loaded);
  /* What memory took for a completion may be one that was done, and needs no write. */
  if (idemCannotWrite(pCall)) {
    p->rcWrite = pCall->rc;
    idemForgive(pCall);
  }
  if (p->bDone || pCall->rc != SQLITE_OK) return;
  idemStoreLoad(pCall, p->pReq, &loaded);
  if (pCall->rc == SQLITE_OK && !loaded.bFound) p->verdict.eError = IDEM_E_NO_RECORD;
  if (pCall->rc == SQLITE_OK && loaded.bFound) decideAndWrite(pCall, p, &loaded);
  if (p->pReq->eVerb == IDEM_ERASE && p->verdict.eError == IDEM_E_NO_RECORD) {
    p->bDone = 1; /* it went by itself meanwhile */
  } else if (pCall->rc == SQLITE_OK && p->verdict.eError) {
    idemFail(pCall, p->verdict.eError);
  }
  idemLoadedClear(&loaded);
}

int64_t idemFinish(IdemCall *pCall, const IdemRequest *pReq) {
  Finish finish = {.pReq = pReq};
  assert(pReq->eVerb != IDEM_CLAIM);
  while (pCall->rc == SQLITE_OK && !finish.bDone) {
    idemConnRun(pCall, finishOnce, &finish);
    if (!finish.bDone && ++finish.nRace >= IDEM_RACES_MAX) {
      idemFail(pCall, IDEM_E_RACES, finish.nRace);
    }
  }
  if (pCall->rc != SQLITE_OK) return 0;
  return finish.verdict.eWrite == IDEM_WR_RENEW ? finish.verdict.due : 1;
}
