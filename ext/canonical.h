/*
** canonical.h: from any JSON text to the one canonical text of the same value (form idem-fp/1).
** Knows nothing of SQL values, hashes or databases; needs only SQLite's allocator.
*/
#ifndef IDEM_CANONICAL_H
#define IDEM_CANONICAL_H

#include "json.h"
#include "paths.h"

/* Buffers outlive a call, since taking megabytes from the system and giving them back each time can
** cost more than the work itself. But a single large payload must not stay for ever: */
#define IDEM_KEEP_IDLE ((size_t)1 << 20) /* bytes that are always kept */
#define IDEM_KEEP_BUSY ((size_t)8 << 20) /* bytes kept while calls use a quarter of the text */

/* A canonicaliser: buffers that are used again by each call. Belongs to one thread at a time. */
typedef struct IdemCanon IdemCanon;

/* NULL if there is no memory. */
IdemCanon *idemCanonNew(void);

/* Frees it; NULL is fine. */
void idemCanonFree(IdemCanon *p);

/* Canonicalises a[0..n-1]. pPaths may be NULL. On SQLITE_OK the text is in (*pa)[0..*pn-1], not
** terminated, until the next call; the IDEM_SLACK bytes before it are the caller's to write on.
** Else SQLITE_ERROR, SQLITE_NOMEM or SQLITE_TOOBIG, *pFault says why, and *pa is NULL. */
int idemCanonRun(IdemCanon *p, const IdemPaths *pPaths, const void *a, size_t n, uint8_t **pa,
                 size_t *pn, IdemFault *pFault);

/* To be called when the text is no longer needed: gives large buffers back, see IDEM_KEEP_IDLE. */
void idemCanonTrim(IdemCanon *p);

#endif
