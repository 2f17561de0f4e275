/*
** claim_table.h: SELECT ... FROM idem_claim(scope, key, fingerprint, operation, token).
*/
#ifndef IDEM_CLAIM_TABLE_H
#define IDEM_CLAIM_TABLE_H

#include "conn.h"

extern const sqlite3_module idemClaimModule;

/* Creates temp.idem_claim if it is not there. Where that is not possible now (query_only, a lock,
** an authorizer), nothing is lost: the next call tries again. */
void idemClaimTableEnsure(IdemConn *pConn);

#endif
