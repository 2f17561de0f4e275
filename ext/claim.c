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

/* Carries the verdict out. 0 if somebody was quicker. */
static int carryOut(IdemCall *pCall, const IdemRequest *pReq, IdemAnswer *pAnswer) {
  int bClaimed = pAnswer->verdict.eOutcome == IDEM_OUT_CLAIMED;
  IdemWrite w = {pReq, &pAnswer->verdict, &pAnswer->loaded.record, &pAnswer->loaded.policy,
                 &pAnswer->token, pAnswer->now, 0};
  if (!pAnswer->loaded.bFound) w.pRec = 0;
  if (bClaimed) makeToken(pCall, pReq, pAnswer);
  if (pCall->rc != SQLITE_OK) return 0;
  if (pAnswer->verdict.eWrite != IDEM_WR_NONE) {
    int bDone = idemStoreWrite(pCall, &w);
    if (!bClaimed && (pCall->rc & 0xff) == SQLITE_READONLY) { /* a note, not a promise */
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
} Wait;

/*
** After an 'in progress': sleeps and says 1 if another look is worth it. Only where this connection
** holds no lock at all: the owner must be able to complete meanwhile.
*/
static int waitMore(IdemCall *pCall, const IdemAnswer *pAnswer, Wait *pWait) {
  int64_t left, now = monotonic();
  if (pAnswer->verdict.eOutcome != IDEM_OUT_IN_PROGRESS) return 0;
  if (pAnswer->loaded.policy.wait_ms == 0 || !idemConnMayWait(pCall->pConn)) return 0;
  if (pWait->pause == 0) {
    pWait->start = now;
    pWait->pause = PAUSE_FIRST;
  }
  left = pAnswer->loaded.policy.wait_ms - (now - pWait->start);
  if (left <= 0) return 0;
  sqlite3_sleep(left < pWait->pause ? (int)left : pWait->pause);
  if (pWait->pause < PAUSE_MAX) pWait->pause = pWait->pause * 2 < PAUSE_MAX ? pWait->pause * 2 : PAUSE_MAX;
  return 1; /* an interrupt shows at the next nested statement */
}

void idemAnswerClear(IdemAnswer *pAnswer) {
  idemLoadedClear(&pAnswer->loaded);
  memset(pAnswer, 0, sizeof(*pAnswer));
  pAnswer->token.eType = SQLITE_NULL;
}

void idemClaim(IdemCall *pCall, const IdemRequest *pReq, IdemAnswer *pAnswer) {
  Wait wait = {0, 0};
  int nRace = 0;
  assert(pReq->eVerb == IDEM_CLAIM);
  memset(pAnswer, 0, sizeof(*pAnswer));
  for (;;) {
    pAnswer->token.eType = SQLITE_NULL;
    idemConnLock(pCall);
    idemStoreLoad(pCall, pReq, &pAnswer->loaded);
    if (pCall->rc != SQLITE_OK) break;
    pAnswer->now = idemConnNow(pCall->pConn);
    idemVerdict(pAnswer->loaded.bFound ? &pAnswer->loaded.record : 0, pReq,
                &pAnswer->loaded.policy, pAnswer->now, &pAnswer->verdict);
    if (pAnswer->verdict.eError == IDEM_E_PREFIX) {
      const IdemValue *pOld = &pAnswer->loaded.record.fingerprint, *pNew = &pReq->fingerprint;
      idemFail(pCall, IDEM_E_PREFIX, idemFormLength(pOld), pOld->p, idemFormLength(pNew), pNew->p);
    } else if (pAnswer->verdict.eError) {
      idemFail(pCall, pAnswer->verdict.eError);
    }
    if (pCall->rc != SQLITE_OK) break;
    if (!waitMore(pCall, pAnswer, &wait)) {
      if (carryOut(pCall, pReq, pAnswer) || pCall->rc != SQLITE_OK) break;
      if (++nRace >= IDEM_RACES_MAX) {
        idemFail(pCall, IDEM_E_RACES, nRace);
        break;
      }
    }
    idemLoadedClear(&pAnswer->loaded);
  }
  idemConnUnlock(pCall);
  if (pCall->rc != SQLITE_OK) idemAnswerClear(pAnswer);
}
