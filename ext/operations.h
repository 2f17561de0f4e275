/*
** operations.h: what the API does, one function each. An operation takes a request, fetches what
** the verdict needs, carries the verdict out, and tells the outcome. It knows nothing of SQL
** values.
*/
#ifndef IDEM_OPERATIONS_H
#define IDEM_OPERATIONS_H

#include "store.h"

/* What a claim answers: the verdict, the record it was made on, and the token of its winner. */
typedef struct IdemAnswer {
  IdemVerdict verdict;         /* eOutcome and its numbers */
  IdemLoaded loaded;           /* the record before the write, and the policy */
  int64_t now;                 /* the clock when it was decided, ms */
  IdemValue token;             /* the winner's, else NULL */
  char aToken[IDEM_TOKEN_MAX]; /* holds it */
} IdemAnswer;

/* claim.c: asks for the right to execute. Clear the answer with idemAnswerClear(). */
void idemClaim(IdemCall *pCall, const IdemRequest *pReq, IdemAnswer *pAnswer);
void idemAnswerClear(IdemAnswer *pAnswer);

/* finish.c: every other verb. The lease end for renew, ms, else 1; 0 if the call failed. */
int64_t idemFinish(IdemCall *pCall, const IdemRequest *pReq);

/* inbox.c: 1 the first time, 0 on a repeat. */
int idemSeen(IdemCall *pCall, const IdemValue *pSource, const IdemValue *pEvent,
             const IdemValue *pFingerprint);

/* purge.c: one bounded batch; the rows touched. */
int64_t idemPurge(IdemCall *pCall, int64_t nMax);

/* audit.c: writes the event of a verdict that changes no record, if it has one. A connection that
** cannot write answers all the same: a replay must work there. */
void idemAuditRefusal(IdemCall *pCall, const IdemRequest *pReq, const IdemAnswer *pAnswer);

/* audit.c: 1 if the chain is broken, with the id of the first row that is missing or does not fit.
*/
int idemAuditVerify(IdemCall *pCall, int64_t *piBad);

/* The outcome's name, message and suggested HTTP status (0 = none); answer.c. */
const char *idemOutcomeName(int eOutcome);
const char *idemOutcomeMessage(int eOutcome);
int idemOutcomeStatus(int eOutcome);

/* The IDEM_E_... that INSERT INTO idem_records fails with when it is not told 'claimed'. */
int idemOutcomeError(int eOutcome);

#endif
