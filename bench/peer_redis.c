/*
** peer_redis.c: Redis by hiredis: SET NX GET to claim or to fetch the answer, a script to complete.
**
** The target is "PORT" on the loopback. How durable it is says the server: appendfsync always or
** everysec. There is no transaction with rows kept elsewhere, so xOne is missing; the business row
** is a hash in the same server, written by the completing script: one trip, as kind as can be.
*/
#include "peer.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* KEYS: the key, the business row. ARGV: what the claim wrote, the answer's record. */
static const char zScript[] =
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
    "redis.call('HSET', KEYS[2], 'account', 'acct_1', 'amount', '1200') "
    "redis.call('SET', KEYS[1], ARGV[2], 'PX', 86400000) return 1";

typedef struct Redis {
  redisContext *p;
  char zSha[41]; /* of the script */
} Redis;

static redisReply *must(Redis *p, redisReply *pReply) {
  if (!pReply) peerDie("redis", p->p->errstr);
  if (pReply->type == REDIS_REPLY_ERROR) peerDie("redis", pReply->str);
  return pReply;
}

static void *open(const char *zTarget, int bDurable) {
  struct timeval timeout = {5, 0};
  Redis *p = calloc(1, sizeof(*p));
  if (!p) peerDie("redis", "out of memory");
  p->p = redisConnectWithTimeout("127.0.0.1", atoi(zTarget), timeout);
  if (!p->p || p->p->err) peerDie("redis", p->p ? p->p->errstr : "out of memory");
  redisReply *pReply = must(p, redisCommand(p->p, "CONFIG GET appendfsync"));
  if (strcmp(pReply->element[1]->str, bDurable ? "always" : "everysec") != 0) {
    peerDie("redis", "not the durability asked for");
  }
  freeReplyObject(pReply);
  pReply = must(p, redisCommand(p->p, "SCRIPT LOAD %s", zScript));
  memcpy(p->zSha, pReply->str, 40);
  freeReplyObject(pReply);
  return p;
}

static void close(void *pArg) {
  Redis *p = pArg;
  redisFree(p->p);
  free(p);
}

/* The claim's value: state, token, fingerprint, operation. */
static redisReply *claim(Redis *p, int iKey, char zClaim[200]) {
  char zKey[40], zToken[40];
  peerKey(iKey, zKey);
  peerToken(iKey, zToken);
  snprintf(zClaim, 200, "p|%s|" PEER_PRINT "|" PEER_OPERATION, zToken);
  return must(p, redisCommand(p->p, "SET idem:" PEER_SCOPE ":%s %s NX GET PX 60000", zKey, zClaim));
}

static void two(void *pArg, int iKey) {
  Redis *p = pArg;
  char zKey[40], zClaim[200], zDone[PEER_ANSWER + 200];
  redisReply *pReply = claim(p, iKey, zClaim);
  if (pReply->type != REDIS_REPLY_NIL) peerDie("redis", "not claimed");
  freeReplyObject(pReply);
  peerKey(iKey, zKey);
  snprintf(zDone, sizeof(zDone), "c|201|" PEER_PRINT "|" PEER_OPERATION "|%s", peerAnswer());
  pReply = must(p, redisCommand(p->p, "EVALSHA %s 2 idem:" PEER_SCOPE ":%s business:%s %s %s",
                                p->zSha, zKey, zKey, zClaim, zDone));
  if (pReply->integer != 1) peerDie("redis", "not completed");
  freeReplyObject(pReply);
}

static void replay(void *pArg, int iKey) {
  static const char zHead[] = "c|201|" PEER_PRINT "|" PEER_OPERATION "|";
  Redis *p = pArg;
  char zClaim[200];
  redisReply *pReply = claim(p, iKey, zClaim);
  if (pReply->type != REDIS_REPLY_STRING || strncmp(pReply->str, zHead, sizeof(zHead) - 1) != 0 ||
      pReply->len != sizeof(zHead) - 1 + PEER_ANSWER) {
    peerDie("redis", "no replay");
  }
  freeReplyObject(pReply);
}

const PeerKind aPeerRedis[] = {
    {"redis", open, 0, two, replay, close},
    {0},
};
