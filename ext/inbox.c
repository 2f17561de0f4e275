/*
** inbox.c: idem_seen(source, event_id [, fingerprint]): was this event handled before?
**
**     BEGIN IMMEDIATE;
**     SELECT idem_seen('stripe', 'evt_1');   -- 1 the first time: handle it; 0: answer 200, done
**     ...                                    -- the handler's own rows
**     COMMIT;                                -- a rollback makes the redelivery new again
*/
#include "operations.h"

/* One delivery as idemConnRun() runs it. */
typedef struct Seen {
  const IdemValue *pSource, *pEvent, *pFingerprint; /* of the delivery */
  int bNew;                                         /* it is the first */
  int bDone;                                        /* it is decided */
} Seen;

/* The event is known by another fingerprint: of other content, or of a form that cannot tell. */
static void failOther(IdemCall *pCall, const IdemEvent *pEvent, const IdemValue *pNew) {
  int nOld = pEvent->nForm, nNew = idemFormLength(pNew);
  if (nOld && nNew && (nOld != nNew || memcmp(pEvent->aForm, pNew->p, (size_t)nOld) != 0)) {
    idemFail(pCall, IDEM_E_PREFIX, nOld, pEvent->aForm, nNew, pNew->p);
  } else {
    idemFail(pCall, IDEM_E_SEEN_OTHER);
  }
}

static void seenOnce(IdemCall *pCall, void *pArg) {
  Seen *p = pArg;
  IdemEvent event;
  idemStoreEvent(pCall, p->pSource, p->pEvent, p->pFingerprint, &event);
  if (pCall->rc != SQLITE_OK) return;
  int64_t now = idemConnNow(pCall->pConn);
  if (event.bFound && now < event.expires_at) {
    /* A delivery without a fingerprint says nothing about content, then or now. */
    if (event.bFingerprint && p->pFingerprint->eType != SQLITE_NULL && !event.bSame) {
      failOther(pCall, &event, p->pFingerprint);
    }
    p->bDone = 1;
  } else {
    p->bNew = p->bDone =
        idemStoreSee(pCall, p->pSource, p->pEvent, p->pFingerprint, now, now + event.retention_ms);
  }
}

int idemSeen(IdemCall *pCall, const IdemValue *pSource, const IdemValue *pEvent,
             const IdemValue *pFingerprint) {
  Seen seen = {pSource, pEvent, pFingerprint, 0, 0};
  for (int nRace = 0; pCall->rc == SQLITE_OK && !seen.bDone; nRace++) {
    if (nRace >= IDEM_RACES_MAX) idemFail(pCall, IDEM_E_RACES, nRace);
    if (pCall->rc == SQLITE_OK) idemConnRun(pCall, seenOnce, &seen);
  }
  return seen.bNew && pCall->rc == SQLITE_OK;
}
