/*
** paths.h: signed paths, parsed once and followed down a document step by step.
**
** A set of paths is followed as a set of bits: bit i says that the steps taken so far are the first
** steps of path i. A step costs one look at each path still alive, whatever the depth.
*/
#ifndef IDEM_PATHS_H
#define IDEM_PATHS_H

#include <stddef.h>
#include <stdint.h>

#include "json.h"

#define IDEM_PATHS_MAX    64 /* paths in one call: as many as a word has bits */
#define IDEM_SEGMENTS_MAX 64 /* steps in one path */

typedef struct IdemPaths IdemPaths;

/* What the paths say of one node, and what its children need to know. */
typedef struct IdemScope {
  uint64_t mLive; /* paths that lead to this node or below it */
  int bDropped;   /* the node is left out */
  int bWhole;     /* the node is selected: by a path, an ancestor, or because none selects */
} IdemScope;

/* A fault in a path, told apart from its neighbours. */
typedef struct IdemPathFault {
  int eKind;        /* IDEM_FAULT_PATH or IDEM_FAULT_NOMEM */
  int iPath;        /* which path, from 0 */
  size_t iByte;     /* where, the sign being byte 0 */
  const char *zWhy; /* static text that quotes nothing */
} IdemPathFault;

/* Parses n paths (1 to IDEM_PATHS_MAX). SQLITE_OK, SQLITE_NOMEM or SQLITE_ERROR with *pFault. */
int idemPathsNew(IdemPaths **pp, int n, const char *const *az, const size_t *an,
                 IdemPathFault *pFault);

/* Frees a set; NULL is fine. The type suits sqlite3_set_auxdata. */
void idemPathsFree(void *p);

/* Whether the set was parsed from exactly these texts. */
int idemPathsSame(const IdemPaths *p, int n, const char *const *az, const size_t *an);

/* The scope of the document itself. */
IdemScope idemPathsRoot(const IdemPaths *p, uint64_t *pmFound);

/* The scope of a child of a container that stands nDepth steps below the root: with aName, the
** member of that name, n bytes in canonical spelling without its quotes; without, the element at
** index n. Paths that select the child are added to *pmFound. */
IdemScope idemPathsChild(const IdemPaths *p, const IdemScope *pParent, int nDepth,
                         const uint8_t *aName, size_t n, uint64_t *pmFound);

/* Whether paths select but none of them was found: then the document says nothing. */
int idemPathsMissed(const IdemPaths *p, uint64_t mFound);

#endif
