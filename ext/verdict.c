/*
** verdict.c: see verdict.h. The rules are those of the life of a record:
**
**   (absent) --claim--> processing --complete--> completed --retention--> tombstone --> (absent)
**                        |   |   ^
**                        |   |   +-- renew / checkpoint (same token)
**                        |   +------ release ("did not happen")  --> released --claim--> processing
**                        +---------- suspend ("don't know")      --> unknown  --resolve--> either
**   lease over:  on_stale = 'unknown'  --> reads as unknown
**                on_stale = 'retry'    --> the next claim takes over, attempt + 1
**
** Order of checks: fingerprint and operation first, then state: a mismatch is a mismatch whatever
** the state. Expiry is logical: "now >= t" means over, everywhere, whether or not a purge has run.
*/
#include "verdict.h"
#include "digest.h"
#include "errors.h"

int idemSame(const IdemValue *a, const IdemValue *b) {
  if (a->eType != b->eType || a->n != b->n) return 0;
  return a->n == 0 || idemEqual(a->p, b->p, (size_t)a->n);
}

/* As idemSame, but a text equals a blob of the same bytes. */
static int sameBytes(const IdemValue *a, const IdemValue *b) {
  return a->n == b->n && (a->n == 0 || idemEqual(a->p, b->p, (size_t)a->n));
}

int64_t idemExpiresAt(const IdemRecord *pRec) {
  assert(pRec->eState == IDEM_ST_COMPLETED || pRec->eState == IDEM_ST_TOMBSTONE);
  return pRec->eState == IDEM_ST_COMPLETED ? pRec->due : pRec->due - pRec->tombstone_ms;
}

int64_t idemTombstoneUntil(const IdemRecord *pRec) {
  return idemExpiresAt(pRec) + pRec->tombstone_ms;
}

int idemVisibleState(const IdemRecord *pRec, int eStale, int64_t now) {
  switch (pRec->eState) {
  case IDEM_ST_PROCESSING:
    return now >= pRec->due && eStale == IDEM_STALE_UNKNOWN ? IDEM_ST_UNKNOWN : IDEM_ST_PROCESSING;
  case IDEM_ST_COMPLETED:
  case IDEM_ST_TOMBSTONE:
    if (now >= idemTombstoneUntil(pRec)) return IDEM_ST_NONE;
    /* A tombstone has no answer to give, even if the clock is set back into its retention. */
    if (pRec->eState == IDEM_ST_TOMBSTONE) return IDEM_ST_TOMBSTONE;
    return now >= idemExpiresAt(pRec) ? IDEM_ST_TOMBSTONE : IDEM_ST_COMPLETED;
  default: return pRec->eState;
  }
}

int idemFormLength(const IdemValue *pFp) {
  const char *z = pFp->p;
  int i = 4;
  if (pFp->n < 6 || memcmp(z, "idem", 4) != 0) return 0;
  while (i < pFp->n && z[i] >= 'a' && z[i] <= 'z') i++;
  int iDigit = i;
  while (i < pFp->n && z[i] >= '0' && z[i] <= '9') i++;
  return i > iDigit && i < pFp->n && z[i] == ':' ? i + 1 : 0;
}

/* True if both fingerprints name a form and the names differ: then they cannot be compared. */
static int formsDiffer(const IdemValue *a, const IdemValue *b) {
  int na = idemFormLength(a), nb = idemFormLength(b);
  return na && nb && (na != nb || memcmp(a->p, b->p, (size_t)na) != 0);
}

/* True if the token was that of an earlier attempt, or is that of the attempt now over. */
static int tokenUsed(const IdemRecord *pRec, const IdemValue *pToken) {
  const char *z = pRec->spent.n ? pRec->spent.p : "", *zEnd = z + pRec->spent.n;
  if (pToken->eType == SQLITE_NULL) return 0;
  if (idemSame(&pRec->token, pToken)) return 1;
  while (z < zEnd) {
    const char *zLf = memchr(z, '\n', (size_t)(zEnd - z));
    int n = (int)((zLf ? zLf : zEnd) - z);
    if (n == pToken->n && idemEqual(z, pToken->p, (size_t)n)) return 1;
    z += n + 1;
  }
  return 0;
}

static int attemptsUsedUp(const IdemRecord *pRec, const IdemPolicy *pPol) {
  return pPol->max_attempts > 0 && pRec->attempt - pRec->granted >= pPol->max_attempts;
}

/* The event, if the operation's audit level wants events of that level. */
static int auditAt(const IdemPolicy *pPol, int eLevel, int eEvent) {
  return pPol->eAudit >= eLevel ? eEvent : IDEM_EV_NONE;
}

/* The claim is not granted. */
static void refuse(IdemVerdict *pOut, const IdemPolicy *pPol, int eOutcome) {
  pOut->eOutcome = eOutcome;
  pOut->eEvent =
      auditAt(pPol, IDEM_AUDIT_ALL, eOutcome == IDEM_OUT_REPLAY ? IDEM_EV_REPLAY : IDEM_EV_REFUSED);
}

/* A claim that is granted. Where the audit's last word is 'exhausted' it is worth a row at the
** level of exceptions too: it says that the record runs again, and a later exhaustion is noted
** anew. */
static int claimEvent(const IdemRecord *pRec, const IdemPolicy *pPol) {
  int bAgain = pRec && pRec->bExhaustedLogged;
  return auditAt(pPol, bAgain ? IDEM_AUDIT_EXCEPTIONS : IDEM_AUDIT_ALL, IDEM_EV_CLAIM);
}

/* A row that never existed, or whose time is over, begins a life. */
static void startLife(IdemVerdict *pOut, const IdemRecord *pRec, const IdemPolicy *pPol,
                      int64_t now) {
  pOut->eOutcome = IDEM_OUT_CLAIMED;
  pOut->eWrite = pRec ? IDEM_WR_RESTART : IDEM_WR_INSERT;
  pOut->eEvent = claimEvent(pRec, pPol);
  pOut->attempt = 1;
  pOut->due = now + pPol->lease_ms;
}

/* The next attempt of a record that is released, or stale under on_stale = 'retry'. */
static void nextAttempt(IdemVerdict *pOut, const IdemRecord *pRec, const IdemRequest *pReq,
                        const IdemPolicy *pPol, int64_t now) {
  if (attemptsUsedUp(pRec, pPol)) {
    pOut->eOutcome = IDEM_OUT_EXHAUSTED;
    if (!pRec->bExhaustedLogged) {
      pOut->eEvent = auditAt(pPol, IDEM_AUDIT_EXCEPTIONS, IDEM_EV_EXHAUSTED);
    } else {
      pOut->eEvent = auditAt(pPol, IDEM_AUDIT_ALL, IDEM_EV_REFUSED);
    }
    if (pOut->eEvent == IDEM_EV_EXHAUSTED) pOut->eWrite = IDEM_WR_MARK;
  } else if (tokenUsed(pRec, &pReq->token)) {
    pOut->eError = IDEM_E_TOKEN_USED;
  } else {
    pOut->eOutcome = IDEM_OUT_CLAIMED;
    pOut->eWrite = IDEM_WR_RETRY;
    pOut->eEvent = pRec->eState == IDEM_ST_PROCESSING
                       ? auditAt(pPol, IDEM_AUDIT_EXCEPTIONS, IDEM_EV_TAKE_OVER)
                       : claimEvent(pRec, pPol);
    pOut->attempt = pRec->attempt + 1;
    pOut->due = now + pPol->lease_ms;
  }
}

/* A claim that finds work under a live lease. Asking again with the token that won is a claim too.
*/
static void claimLive(IdemVerdict *pOut, const IdemRecord *pRec, const IdemRequest *pReq,
                      const IdemPolicy *pPol, int64_t now) {
  assert(now < pRec->due);
  if (pReq->token.eType != SQLITE_NULL && idemSame(&pRec->token, &pReq->token)) {
    pOut->eOutcome = IDEM_OUT_CLAIMED;
    pOut->due = pRec->due;
  } else {
    int64_t left = pRec->due - now; /* more than a lease if the clock was set back */
    refuse(pOut, pPol, IDEM_OUT_IN_PROGRESS);
    pOut->retry_after_ms = left < pPol->lease_ms ? left : pPol->lease_ms;
  }
}

static void claimVerdict(const IdemRecord *pRec, const IdemRequest *pReq, const IdemPolicy *pPol,
                         int64_t now, IdemVerdict *pOut) {
  if (!pPol->bContentKey && sameBytes(&pReq->key, &pReq->fingerprint)) {
    pOut->eError = IDEM_E_CONTENT_KEY;
    return;
  }
  if (!pPol->bContentKey && sameBytes(&pReq->key, &pReq->scope)) {
    pOut->eError = IDEM_E_SCOPE_KEY;
    return;
  }
  int eSeen = pRec ? idemVisibleState(pRec, pPol->eStale, now) : IDEM_ST_NONE;
  if (eSeen == IDEM_ST_NONE) {
    startLife(pOut, pRec, pPol, now);
    return;
  }
  pOut->attempt = pRec->attempt;
  if (formsDiffer(&pRec->fingerprint, &pReq->fingerprint)) {
    pOut->eError = IDEM_E_PREFIX;
  } else if (!idemSame(&pRec->fingerprint, &pReq->fingerprint) ||
             !idemSame(&pRec->operation, &pReq->operation)) {
    refuse(pOut, pPol, IDEM_OUT_MISMATCH);
  } else if (eSeen == IDEM_ST_COMPLETED) {
    refuse(pOut, pPol, IDEM_OUT_REPLAY);
  } else if (eSeen == IDEM_ST_TOMBSTONE) {
    refuse(pOut, pPol, IDEM_OUT_EXPIRED);
  } else if (eSeen == IDEM_ST_UNKNOWN) {
    refuse(pOut, pPol, IDEM_OUT_UNKNOWN);
  } else if (eSeen == IDEM_ST_PROCESSING && now < pRec->due) {
    claimLive(pOut, pRec, pReq, pPol, now);
  } else {
    nextAttempt(pOut, pRec, pReq, pPol, now);
  }
}

/* True if the request gives the answer that the record holds, byte for byte. */
static int sameAnswer(const IdemRecord *pRec, const IdemRequest *pReq) {
  return pRec->bCode == pReq->bCode && (!pRec->bCode || pRec->code == pReq->code) &&
         idemSame(&pRec->headers, &pReq->headers) && idemSame(&pRec->response, &pReq->response);
}

/* What the holder of the token may do while nobody took over or decided: a late word is welcome. */
static void ownerVerdict(const IdemRecord *pRec, const IdemRequest *pReq, const IdemPolicy *pPol,
                         int64_t now, IdemVerdict *pOut) {
  int bSuspended = pRec->eState == IDEM_ST_UNKNOWN;
  switch (pReq->eVerb) {
  case IDEM_COMPLETE:
    pOut->eWrite = IDEM_WR_COMPLETE;
    pOut->eEvent = auditAt(pPol, IDEM_AUDIT_ALL, IDEM_EV_COMPLETE);
    pOut->due = now + pPol->retention_ms;
    break;
  case IDEM_RELEASE:
    pOut->eWrite = IDEM_WR_RELEASE;
    pOut->eEvent = auditAt(pPol, IDEM_AUDIT_EXCEPTIONS, IDEM_EV_RELEASE);
    break;
  case IDEM_SUSPEND:
    if (bSuspended) break; /* said before: fine, and nothing changes */
    pOut->eWrite = IDEM_WR_SUSPEND;
    pOut->eEvent = auditAt(pPol, IDEM_AUDIT_EXCEPTIONS, IDEM_EV_SUSPEND);
    break;
  default:
    assert(pReq->eVerb == IDEM_RENEW || pReq->eVerb == IDEM_CHECKPOINT);
    if (bSuspended) {
      pOut->eError = IDEM_E_SUSPENDED;
    } else {
      pOut->eWrite = pReq->eVerb == IDEM_RENEW ? IDEM_WR_RENEW : IDEM_WR_CHECKPOINT;
      pOut->due = now + pPol->lease_ms;
    }
  }
}

/* complete, release, suspend, renew, checkpoint: whoever has no token of the latest attempt lost.
*/
static void workerVerdict(const IdemRecord *pRec, const IdemRequest *pReq, const IdemPolicy *pPol,
                          int64_t now, IdemVerdict *pOut) {
  int bOwner = pReq->token.eType != SQLITE_NULL && idemSame(&pRec->token, &pReq->token);
  if (pRec->eState == IDEM_ST_RELEASED) {
    pOut->eError = bOwner ? IDEM_E_RELEASED : IDEM_E_LOST;
  } else if (!bOwner) {
    pOut->eError = IDEM_E_LOST;
  } else if (pRec->eState != IDEM_ST_COMPLETED) {
    ownerVerdict(pRec, pReq, pPol, now, pOut);
  } else if (pReq->eVerb != IDEM_COMPLETE) {
    pOut->eError = IDEM_E_COMPLETED;
  } else if (!sameAnswer(pRec, pReq)) {
    pOut->eError = IDEM_E_ANSWERED;
  }
}

/* An operator decides what happened: only where nobody else may know better. */
static void resolveVerdict(const IdemRecord *pRec, const IdemRequest *pReq, const IdemPolicy *pPol,
                           int64_t now, IdemVerdict *pOut) {
  int bCompleted = pReq->eVerb == IDEM_RESOLVE_COMPLETED;
  if (pRec->eState == IDEM_ST_COMPLETED) {
    if (!bCompleted || !sameAnswer(pRec, pReq)) pOut->eError = IDEM_E_RESOLVED;
  } else if (pRec->eState == IDEM_ST_PROCESSING && now < pRec->due) {
    pOut->eError = IDEM_E_LIVE;
  } else if (pRec->eState == IDEM_ST_RELEASED && !attemptsUsedUp(pRec, pPol)) {
    pOut->eError = IDEM_E_CLAIMABLE;
  } else if (bCompleted) {
    pOut->eWrite = IDEM_WR_RESOLVE_COMPLETED;
    pOut->eEvent = auditAt(pPol, IDEM_AUDIT_EXCEPTIONS, IDEM_EV_RESOLVE_COMPLETED);
    pOut->due = now + pPol->retention_ms;
  } else {
    pOut->eWrite = IDEM_WR_RESOLVE_RETRY;
    pOut->eEvent = auditAt(pPol, IDEM_AUDIT_EXCEPTIONS, IDEM_EV_RESOLVE_RETRY);
  }
}

/* Erasure is for what is over: never for work that runs, or that nobody has decided. */
static void eraseVerdict(const IdemRecord *pRec, const IdemPolicy *pPol, IdemVerdict *pOut) {
  if (pRec->eState == IDEM_ST_PROCESSING || pRec->eState == IDEM_ST_UNKNOWN) {
    pOut->eError = IDEM_E_ERASE;
  } else {
    pOut->eWrite = IDEM_WR_ERASE;
    pOut->eEvent = auditAt(pPol, IDEM_AUDIT_EXCEPTIONS, IDEM_EV_ERASE);
  }
}

void idemVerdict(const IdemRecord *pRec, const IdemRequest *pReq, const IdemPolicy *pPol,
                 int64_t now, IdemVerdict *pOut) {
  assert(pReq->eVerb >= 0 && pReq->eVerb < IDEM_VERB_COUNT);
  assert(pPol->lease_ms > 0 && pPol->retention_ms > 0 && pPol->tombstone_ms > 0);
  memset(pOut, 0, sizeof(*pOut));
  if (pReq->eVerb == IDEM_CLAIM) {
    claimVerdict(pRec, pReq, pPol, now, pOut);
    return;
  }
  int eSeen = pRec ? idemVisibleState(pRec, pPol->eStale, now) : IDEM_ST_NONE;
  if (eSeen != IDEM_ST_NONE) pOut->attempt = pRec->attempt;
  if (eSeen == IDEM_ST_NONE) {
    pOut->eError = IDEM_E_NO_RECORD;
  } else if (pReq->eVerb == IDEM_ERASE) {
    eraseVerdict(pRec, pPol, pOut);
  } else if (eSeen == IDEM_ST_TOMBSTONE) {
    pOut->eError = IDEM_E_EXPIRED;
  } else if (pReq->eVerb == IDEM_RESOLVE_COMPLETED || pReq->eVerb == IDEM_RESOLVE_RETRY) {
    resolveVerdict(pRec, pReq, pPol, now, pOut);
  } else {
    workerVerdict(pRec, pReq, pPol, now, pOut);
  }
  assert(pOut->eError == 0 || pOut->eWrite == IDEM_WR_NONE);
}
