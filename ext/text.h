/*
** text.h: arguments as they come from SQL, checked and measured: see the limits in idem_int.h.
*/
#ifndef IDEM_TEXT_H
#define IDEM_TEXT_H

#include "errors.h"
#include "verdict.h"

/* Characters in n bytes of UTF-8, and control characters among them; -1 if they are not valid UTF-8
** (overlong forms, surrogates and values over U+10FFFF are not). */
int64_t idemUtf8Measure(const void *p, int n, int64_t *pnControl);

/* TEXT of nMin..nMax characters, valid UTF-8, no control characters. zWhat names it in messages. */
void idemArgText(IdemCall *pCall, sqlite3_value *pArg, const char *zWhat, int nMin, int nMax,
                 IdemValue *pOut);

/* TEXT without NUL, of at most nMax characters, or NULL. Line feeds are allowed. */
void idemArgNote(IdemCall *pCall, sqlite3_value *pArg, const char *zWhat, int nMax,
                 IdemValue *pOut);

/* TEXT, BLOB or NULL as it is, of at most nMax bytes (0 = whatever SQLite allows). */
void idemArgData(IdemCall *pCall, sqlite3_value *pArg, const char *zWhat, int nMax,
                 IdemValue *pOut);

/* TEXT or BLOB of 1..IDEM_FINGERPRINT_MAX bytes; NULL only if bNull. */
void idemArgFingerprint(IdemCall *pCall, sqlite3_value *pArg, int bNull, IdemValue *pOut);

/* A token: printable ASCII; NULL only if bNull. */
void idemArgToken(IdemCall *pCall, sqlite3_value *pArg, int bNull, IdemValue *pOut);

/* An integer within lo..hi; an integral REAL will do (JavaScript binds numbers so), and decimal
** digits as TEXT (Perl, Tcl). */
int64_t idemArgInt(IdemCall *pCall, sqlite3_value *pArg, const char *zWhat, int64_t lo, int64_t hi);

/* The pieces that many calls share. */
void idemArgScope(IdemCall *pCall, sqlite3_value *pArg, IdemValue *pOut);
void idemArgKey(IdemCall *pCall, sqlite3_value *pArg, IdemValue *pOut);
void idemArgOperation(IdemCall *pCall, sqlite3_value *pArg, IdemValue *pOut);

#endif
