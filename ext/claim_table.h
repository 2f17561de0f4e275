/*
** claim_table.h: SELECT ... FROM idem_claim(scope, key, fingerprint, operation, token).
*/
#ifndef IDEM_CLAIM_TABLE_H
#define IDEM_CLAIM_TABLE_H

#include "conn.h"

extern const sqlite3_module idemClaimModule;

/*
** Creates temp.idem_claim if it is not there. Where that cannot be done now (query_only, a lock, an
** authorizer, below a statement that writes), nothing is lost: the next call tries again. PRAGMA
** temp_store drops every temp table without a word to anybody: with bLook that is noticed.
*/
void idemClaimTableEnsure(IdemConn *pConn, int bLook);

#endif
