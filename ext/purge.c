/*
** purge.c: idem_purge([max_rows]): one bounded batch of what is over.
**
** Expired answers become tombstones, expired tombstones and inbox events go. Every row is found
** through an index, so the cost follows the rows touched and not the size of the store; if nothing
** is due, nothing is locked. Records that are processing, released or unknown are never touched.
*/
#include "operations.h"

/* One batch as idemConnRun() runs it. */
typedef struct Batch {
  int64_t nMax; /* rows at most */
  int64_t n;    /* rows touched */
} Batch;

static void purgeOnce(IdemCall *pCall, void *pArg) {
  Batch *p = pArg;
  IdemPurge purge;
  int64_t now = idemConnNow(pCall->pConn);
  idemStorePurgeable(pCall, now, p->nMax, &purge);
  if (pCall->rc == SQLITE_OK && purge.nTombstone + purge.nAnswer + purge.nEvent > 0) {
    p->n = idemStorePurge(pCall, now, &purge);
  }
}

int64_t idemPurge(IdemCall *pCall, int64_t nMax) {
  Batch batch = {nMax, 0};
  idemConnRun(pCall, purgeOnce, &batch);
  return pCall->rc == SQLITE_OK ? batch.n : 0;
}
