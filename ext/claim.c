/*
** claim.c: asks for the right to execute.
**
** Load, decide, write: and the write is conditional on what was loaded. If somebody was quicker it
** changes nothing, and the claim begins again with what is there now. So the race is decided by one
** conditional write, and nobody is told 'claimed' unless a durable row says so.
*/
#include "operations.h"

#include <time.h>

/* Pauses of a waiting claim, ms: short at first, then steady. */
#define PAUSE_FIRST 1
#define PAUSE_MAX   20

/* The monotonic clock, ms: the clock of idemConnNow() may be set and may jump. */
static int64_t monotonic(void) {
  struct timespec ts = {0, 0};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The token of the attempt that begins: the caller's own, or 128 random bits in hex. */
static void makeToken(IdemCall *pCall, const IdemRequest *pReq, IdemAnswer *pAnswer) {
  unsigned char a[16];
  pAnswer->token.eType = SQLITE_TEXT;
  pAnswer->token.p = pAnswer->aToken;
  if (pReq->token.eType != SQLITE_NULL) {
    assert(pReq->token.n <= IDEM_TOKEN_MAX);
    memcpy(pAnswer->aToken, pReq->token.p, (size_t)pReq->token.n);
    pAnswer->token.n = pReq->token.n;
  } else {
    if (idemRandom(a, sizeof(a)) != SQLITE_OK) idemFail(pCall, IDEM_E_LIBCRYPTO);
    idemHex(a, sizeof(a), pAnswer->aToken);
    pAnswer->token.n = 32;
  }
}

/* Fails the call if the winner's answer would be too long; a text may grow sixfold in JSON. */
static void demandRoom(IdemCall *pCall, const IdemRequest *pReq, const IdemAnswer *pAnswer) {
  const IdemRecord *pRec = &pAnswer->loaded.record;
  int64_t n = 1000 + 6 * ((int64_t)pRec->point.n + pRec->checkpoint.n);
  if (pReq->nJsonMax > 0 && n > pReq->nJsonMax) idemFail(pCall, IDEM_E_ANSWER_SIZE);
}

/* Carries the verdict out. 0 if somebody was quicker. */
static int carryOut(IdemCall *pCall, const IdemRequest *pReq, IdemAnswer *pAnswer) {
  int bClaimed = pAnswer->verdict.eOutcome == IDEM_OUT_CLAIMED;
  IdemWrite w = {pReq, &pAnswer->verdict, &pAnswer->loaded, &pAnswer->token, pAnswer->now, 0};
  if (bClaimed) demandRoom(pCall, pReq, pAnswer);
  if (bClaimed) makeToken(pCall, pReq, pAnswer);
  if (pCall->rc != SQLITE_OK) return 0;
  if (pAnswer->verdict.eWrite != IDEM_WR_NONE) {
    int bDone = idemStoreWrite(pCall, &w);
    /* A note, not a promise: the next such claim makes it. Who audits all does not want to wait. */
    int bMayWait = pAnswer->loaded.policy.eAudit != IDEM_AUDIT_ALL && idemCannotWrite(pCall);
    if (!bClaimed && (bMayWait || (pCall->rc & 0xff) == SQLITE_READONLY)) {
      idemForgive(pCall);
      bDone = 1;
    }
    return bDone;
  }
  idemAuditRefusal(pCall, pReq, pAnswer);
  return pCall->rc == SQLITE_OK;
}

/* What a waiting claim remembers between its looks. */
typedef struct Wait {
  int64_t start; /* monotonic, ms; 0 until the first pause */
  int pause;     /* the next one, ms */
  int bOver;     /* the time is up: the next look is the last */
} Wait;

/* True if the policy wants an 'in progress' to wait, and this connection holds no lock at all: the
** owner must be able to complete meanwhile. */
static int mayWait(IdemCall *pCall, const IdemAnswer *pAnswer, const Wait *pWait) {
  return pAnswer->verdict.eOutcome == IDEM_OUT_IN_PROGRESS && !pWait->bOver &&
         pAnswer->loaded.policy.wait_ms > 0 && idemConnMayWait(pCall->pConn);
}

/* Sleeps. An interrupt shows at the next nested statement. */
static void waitMore(const IdemAnswer *pAnswer, Wait *pWait) {
  int64_t now = monotonic(), left;
  if (pWait->pause == 0) {
    pWait->start = now;
    pWait->pause = PAUSE_FIRST;
  }
  left = pAnswer->loaded.policy.wait_ms - (now - pWait->start);
  pWait->bOver = left <= pWait->pause;
  if (left > 0) sqlite3_sleep(pWait->bOver ? (int)left : pWait->pause);
  pWait->pause = pWait->pause * 2 < PAUSE_MAX ? pWait->pause * 2 : PAUSE_MAX;
}

void idemAnswerClear(IdemAnswer *pAnswer) {
  idemLoadedClear(&pAnswer->loaded);
  memset(pAnswer, 0, sizeof(*pAnswer));
  pAnswer->token.eType = SQLITE_NULL;
}

/* Asks the verdict on what is loaded. */
static void decide(IdemCall *pCall, const IdemRequest *pReq, IdemAnswer *pAnswer) {
  const IdemLoaded *pLoaded = &pAnswer->loaded;
  pAnswer->token.eType = SQLITE_NULL;
  pAnswer->now = idemConnNow(pCall->pConn);
  idemVerdict(pLoaded->bFound ? &pLoaded->record : 0, pReq, &pLoaded->policy, pAnswer->now,
              &pAnswer->verdict);
}

/* Fails the call with the verdict's error, if it has one. */
static void raiseError(IdemCall *pCall, const IdemRequest *pReq, const IdemAnswer *pAnswer) {
  const IdemLoaded *pLoaded = &pAnswer->loaded;
  int eError = pAnswer->verdict.eError;
  if (eError == IDEM_E_PREFIX) {
    const IdemValue *pOld = &pLoaded->record.fingerprint, *pNew = &pReq->fingerprint;
    idemFail(pCall, eError, idemFormLength(pOld), pOld->p, idemFormLength(pNew), pNew->p);
  } else if (eError) {
    idemFail(pCall, eError);
  }
}

/* One claim as idemConnRun() runs it. */
typedef struct Claim {
  const IdemRequest *pReq; /* what is asked */
  IdemAnswer *pAnswer;     /* what is answered */
  Wait wait;               /* so far */
  int nRace;               /* lost so far */
  int eNext;               /* what to do next: */
} Claim;
enum { CLAIM_DONE = 0, CLAIM_AGAIN, CLAIM_WAIT };

/* Load, decide, write. */
static void claimOnce(IdemCall *pCall, void *pArg) {
  Claim *p = pArg;
  IdemAnswer *pAnswer = p->pAnswer;
  p->eNext = CLAIM_DONE;
  /* Most keys are new: while the write lock is held, the INSERT itself finds out. */
  if (p->nRace == 0 && idemStoreRecall(pCall, p->pReq, &pAnswer->loaded)) {
    decide(pCall, p->pReq, pAnswer);
    int bPlain = !pAnswer->verdict.eError && pAnswer->verdict.eEvent == IDEM_EV_NONE;
    if (bPlain && carryOut(pCall, p->pReq, pAnswer)) return;
  }
  idemStoreLoad(pCall, p->pReq, &pAnswer->loaded);
  if (pCall->rc != SQLITE_OK) return;
  decide(pCall, p->pReq, pAnswer);
  raiseError(pCall, p->pReq, pAnswer);
  if (pCall->rc != SQLITE_OK) return;
  if (mayWait(pCall, pAnswer, &p->wait)) {
    p->eNext = CLAIM_WAIT;
  } else if (!carryOut(pCall, p->pReq, pAnswer)) {
    p->eNext = CLAIM_AGAIN;
  }
}

void idemClaim(IdemCall *pCall, const IdemRequest *pReq, IdemAnswer *pAnswer) {
  /* cppcheck-suppress ctuuninitvar ; it is filled in below */
  Claim claim = {pReq, pAnswer, {0, 0, 0}, 0, CLAIM_AGAIN};
  assert(pReq->eVerb == IDEM_CLAIM);
  memset(pAnswer, 0, sizeof(*pAnswer));
  while (pCall->rc == SQLITE_OK && claim.eNext != CLAIM_DONE) {
    idemLoadedClear(&pAnswer->loaded);
    idemConnRun(pCall, claimOnce, &claim);
    if (pCall->rc != SQLITE_OK) break;
    if (claim.eNext == CLAIM_WAIT) waitMore(pAnswer, &claim.wait);
    if (claim.eNext == CLAIM_AGAIN && ++claim.nRace >= IDEM_RACES_MAX) {
      idemFail(pCall, IDEM_E_RACES, claim.nRace);
    }
  }
  if (pCall->rc != SQLITE_OK) idemAnswerClear(pAnswer);
}
