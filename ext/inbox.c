/*
** inbox.c: idem_seen(source, event_id [, fingerprint]): was this event handled before?
**
**     BEGIN IMMEDIATE;
**     SELECT idem_seen('stripe', 'evt_1');   -- 1 the first time: handle it; 0: answer 200, done
**     ...                                    -- the handler's own rows
**     COMMIT;                                -- a rollback makes the redelivery new again
*/
#include "operations.h"

int idemSeen(IdemCall *pCall, const IdemValue *pSource, const IdemValue *pEvent,
             const IdemValue *pFingerprint) {
  IdemEvent event;
  int bNew = 0;
  for (int nRace = 0; pCall->rc == SQLITE_OK && !bNew; nRace++) {
    idemConnLock(pCall);
    idemStoreEvent(pCall, pSource, pEvent, pFingerprint, &event);
    if (pCall->rc != SQLITE_OK) break;
    int64_t now = idemConnNow(pCall->pConn);
    if (event.bFound && now < event.expires_at) {
      /* A delivery without a fingerprint says nothing about content, then or now. */
      if (event.bFingerprint && pFingerprint->eType != SQLITE_NULL && !event.bSame) {
        idemFail(pCall, IDEM_E_SEEN_OTHER);
      }
      break;
    }
    bNew = idemStoreSee(pCall, pSource, pEvent, pFingerprint, now, now + event.retention_ms);
    if (nRace >= IDEM_RACES_MAX) idemFail(pCall, IDEM_E_RACES, nRace);
  }
  idemConnUnlock(pCall);
  return bNew && pCall->rc == SQLITE_OK;
}
