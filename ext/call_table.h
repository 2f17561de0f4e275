/*
** call_table.h: idem_call, the write-shaped carrier.
*/
#ifndef IDEM_CALL_TABLE_H
#define IDEM_CALL_TABLE_H

#include "conn.h"

extern const sqlite3_module idemCallModule;

/* What the virtual tables share: their object, and how it is disconnected. */
typedef struct IdemVtab {
  sqlite3_vtab base; /* first: SQLite's part */
  IdemConn *pConn;   /* the connection, one reference */
  int bClaimTable;   /* it is a temp.idem_claim */
} IdemVtab;

/* Declares zDeclare and makes the object; counts it as a guard of the cached statements. */
int idemVtabConnect(sqlite3 *db, void *pAux, const char *zDeclare, int bClaimTable,
                    sqlite3_vtab **ppVtab);
int idemVtabDisconnect(sqlite3_vtab *pVtab);

/* Ends the call and hands its failure to the virtual table. The result code for SQLite: of lost
** claims the plain SQLITE_CONSTRAINT, which INSERT OR IGNORE understands. */
int idemVtabResult(IdemCall *pCall, sqlite3_vtab *pVtab);

#endif
