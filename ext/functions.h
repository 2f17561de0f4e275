/*
** functions.h: the scalar SQL functions on the store. SQL arguments in, SQL results out: nothing is
** decided here.
*/
#ifndef IDEM_FUNCTIONS_H
#define IDEM_FUNCTIONS_H

#include "conn.h"

/* Ends the call; gives its failure, if there is one, to SQLite and says 0. */
int idemCallResult(IdemCall *pCall, sqlite3_context *pCtx);

void idemFnInit(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnClaim(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnComplete(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnRelease(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnSuspend(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnRenew(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnCheckpoint(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnResolve(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnSeen(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnPurge(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnClock(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnSchema(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnAuditVerify(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);
void idemFnVersion(sqlite3_context *pCtx, int nArg, sqlite3_value **apArg);

#endif
