/*
** purge.c: idem_purge([max_rows]): one bounded batch of what is over.
**
** Expired answers become tombstones, expired tombstones and inbox events go. Every row is found
** through an index, so the cost follows the rows touched and not the size of the store; if nothing
** is due, nothing is locked. Records that are processing, released or unknown are never touched.
*/
#include "operations.h"

int64_t idemPurge(IdemCall *pCall, int64_t nMax) {
  IdemPurge purge;
  int64_t n = 0;
  idemConnLock(pCall);
  int64_t now = idemConnNow(pCall->pConn);
  idemStorePurgeable(pCall, now, nMax, &purge);
  if (pCall->rc == SQLITE_OK && purge.nTombstone + purge.nAnswer + purge.nEvent > 0) {
    n = idemStorePurge(pCall, now, &purge);
  }
  idemConnUnlock(pCall);
  return pCall->rc == SQLITE_OK ? n : 0;
}
