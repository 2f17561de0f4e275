/*
** schema.h: the bundled SQL files, and the store's schema: made, and compared before it is trusted.
*/
#ifndef IDEM_SCHEMA_H
#define IDEM_SCHEMA_H

#include "conn.h"

typedef struct IdemSqlFile {
  const char *zName; /* 'store', 'ledger', 'recipes/...'; NULL ends the list */
  const char *zText; /* the whole file, terminated */
  int nText;         /* its bytes */
} IdemSqlFile;

extern const IdemSqlFile idemSqlFiles[]; /* generated from sql/ at build time */

/*
** Compares every object of main that bears one of the store's names, or that hangs on one of its
** tables, with sql/store.sql, once per change of the schema. Fails the call if there is no store, a
** newer one, or one with something foreign in it.
*/
void idemSchemaVerify(IdemCall *pCall);

/* Creates the store in main if there is none, all of it or nothing. The schema version; 0 = failed.
*/
int idemSchemaInit(IdemCall *pCall);

#endif
