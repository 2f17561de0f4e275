/*
** idem.h: the public C interface.
**
** A program that loads idem.so needs no header: everything is SQL. This one is for programs that
** link idem statically (compiled with -DSQLITE_CORE) and register it themselves:
**
**     sqlite3_auto_extension((void (*)(void))sqlite3_idem_init);   // every later connection
**     sqlite3_idem_init(db, 0, 0);                                 // or this one alone
*/
#ifndef IDEM_H
#define IDEM_H

#include <sqlite3.h>

#define IDEM_VERSION        "0.1.0"
#define IDEM_SCHEMA_VERSION 1 /* of the tables in sql/store.sql */

#ifdef __cplusplus
extern "C" {
#endif

struct sqlite3_api_routines;

/*
** Registers idem's functions and virtual tables on db. Writes nothing to the database; safe to call
** twice on one connection. On failure returns an SQLite result code and, if pzErr is not NULL, sets
** *pzErr to a text to be freed with sqlite3_free().
*/
int sqlite3_idem_init(sqlite3 *db, char **pzErr, const struct sqlite3_api_routines *pApi);

#ifdef __cplusplus
}
#endif
#endif
