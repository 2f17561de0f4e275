/*
** peer.h: what idem is compared with, all behind one face.
**
** Each kind does the same three things with the same key, fingerprint and 400-byte answer, and ends
** the program if the outcome is not the one expected:
**
**     xOne     claim, business row and completion in one transaction; NULL where there is none
**     xTwo     the claim committed first; business row and completion after it
**     xReplay  the stored answer of a key that is done
*/
#ifndef PEER_H
#define PEER_H

typedef struct PeerKind {
  const char *zName;
  void *(*xOpen)(const char *zTarget, int bDurable);
  void (*xOne)(void *p, int iKey);
  void (*xTwo)(void *p, int iKey);
  void (*xReplay)(void *p, int iKey);
  void (*xClose)(void *p);
} PeerKind;

extern const PeerKind aPeerSqlite[], aPeerPostgres[], aPeerRedis[]; /* ended by a NULL name */

/* The same for all. */
#define PEER_SCOPE     "acct_1"
#define PEER_OPERATION "POST /v1/payments"
#define PEER_PRINT     "idem1:e8602798346d5df40959a7817eee6f4376e351150f87dfd8287a4cbc868e69cc"
#define PEER_ANSWER    400
const char *peerAnswer(void);             /* its text */
void peerKey(int iKey, char zKey[40]);    /* like a UUIDv4 */
void peerToken(int iKey, char zToken[40]);
void peerDie(const char *zWhere, const char *zWhat);

#endif
