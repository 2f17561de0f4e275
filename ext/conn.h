/*
** conn.h: what belongs to one database connection: its cached statements, its clock, its digest
** contexts, and the rules for when a nested statement may run. See conn.c for the traps behind it.
*/
#ifndef IDEM_CONN_H
#define IDEM_CONN_H

#include "errors.h"
#include "fingerprint.h"

/* The statements that are kept prepared: those of conn.c, then store.c's. */
#define IDEM_STMT_LOCK  0
#define IDEM_STMT_BODY  1
#define IDEM_STMT_WHOLE 2 /* never kept */
#define IDEM_STMT_FIRST 3
#define IDEM_STMT_COUNT 48

/* Allocates the connection's object with one reference. */
int idemConnNew(sqlite3 *db, IdemConn **ppConn);

/* One reference more, and one less: functions, modules and virtual table objects hold them. */
IdemConn *idemConnRef(IdemConn *pConn);
void idemConnUnref(void *pConn);

sqlite3 *idemConnDb(IdemConn *pConn);
IdemFingerprint *idemConnFingerprint(IdemConn *pConn);
IdemDigest *idemConnDigest(IdemConn *pConn);

/* A virtual table object of ours was connected, or is being disconnected. While at least one is
** connected, statements may stay prepared: SQLite disconnects them before it looks for open ones.
*/
void idemConnGuardUp(IdemConn *pConn, int bClaimTable);
void idemConnGuardDown(IdemConn *pConn, int bClaimTable);

/* How many of them are tables temp.idem_claim. */
int idemConnClaimTables(IdemConn *pConn);

/* Whether temp.idem_claim was created in a transaction: a rollback takes it along, though an object
** of it lives on as long as a prepared statement refers to it. */
int idemConnClaimDraft(IdemConn *pConn);
void idemConnSetClaimDraft(IdemConn *pConn, int bDraft);

/* The clock, ms since 1970 UTC; and the means to set it for this connection alone. */
int64_t idemConnNow(IdemConn *pConn);
void idemConnSetClock(IdemConn *pConn, int bSet, int64_t ms);

/* Begins and ends a call of the API. The end restores last_insert_rowid(); the caller frees zErr.
*/
void idemCallBegin(IdemCall *pCall, IdemConn *pConn, const char *zFunc);
void idemCallEnd(IdemCall *pCall);

/*
** Runs xBody, which reads and then perhaps writes, with the write lock of main taken first where a
** read would have to be upgraded to a write later. SQLite refuses such an upgrade without waiting
** when another connection is quicker. That is so
**
**   - in an explicit transaction that has not touched main yet;
**   - in autocommit, while an outer statement holds a transaction on another schema (a SELECT from
**     temp.idem_claim does): then even a nested read stays open until the outer statement ends.
**
** Elsewhere xBody is simply run: in autocommit a replay must not take the write lock.
*/
void idemConnRun(IdemCall *pCall, void (*xBody)(IdemCall *, void *), void *pArg);

/* Runs xBody inside a write statement of its own, which fails if the body does: then SQLite undoes
** what the body wrote, in a transaction as well as in autocommit. */
void idemConnRunWhole(IdemCall *pCall, void (*xBody)(IdemCall *, void *), void *pArg);

/* For idem_call's xUpdate alone: runs the body that waits for it, if there is one. Returns what
** xUpdate must. */
int idemConnRunBody(IdemConn *pConn);

/* On dqlite: whether a write would be replicated now. Elsewhere: true. The second fails the call if
** not: to be asked before anything is written. */
int idemConnReplicates(IdemConn *pConn);
void idemConnDemandWrite(IdemCall *pCall);

/* True if this connection holds the write lock of main already. */
int idemConnWriting(IdemConn *pConn);

/* A block of memory that store.c keeps for the connection, from sqlite3_malloc; NULL at first. */
void **idemConnCache(IdemConn *pConn);

/* True where a claim may wait for somebody else: this connection holds no lock on any schema but,
** perhaps, temp, and no transaction is open. */
int idemConnMayWait(IdemConn *pConn);

/* Whether the schema was compared with sql/store.sql, and its cookie at that time (schema.c). */
int idemConnVerified(IdemConn *pConn);
int64_t idemConnCookie(IdemConn *pConn);
void idemConnSetVerified(IdemConn *pConn, int bVerified, int64_t iCookie);

/* For idem_call's xBestIndex alone: the table of that name in main is ours. */
void idemConnSawCarrier(IdemConn *pConn);

/* True if statement iStmt is prepared and free: then it belongs to the schema that was verified
** when it was prepared, or it will say that the schema has changed. Before any other is prepared
** the schema must be verified. */
int idemConnPrepared(IdemConn *pConn, int iStmt);

/*
** Prepares zSql, or finds it prepared under number iStmt. Give it back with idemConnDone(). NULL if
** the call has failed.
*/
sqlite3_stmt *idemConnStmt(IdemCall *pCall, int iStmt, const char *zSql);

/*
** Steps it: 1 for a row; 0 at the end, or on failure, which is then in the call; -1 if the schema
** changed since it was prepared: nothing was done and the statement is gone: verify, begin again.
*/
int idemConnStep(IdemCall *pCall, sqlite3_stmt *pStmt);

/* Resets the statement and drops its bindings, so that no lock and no borrowed pointer outlives it.
*/
void idemConnDone(IdemConn *pConn, sqlite3_stmt *pStmt);

/* The same, unless a driver that sweeps up has finalised it (conn.c): for a statement that was left
** standing on a row between two calls of SQLite's. */
void idemConnRelease(IdemConn *pConn, sqlite3_stmt *pStmt);

#endif
