/*
** peer_postgres.c: PostgreSQL by libpq, prepared statements, two usual patterns.
**
** The target is a connection string. Durable is synchronous_commit = on, relaxed is off. The table
** has the columns and indexes of idem's store.
**
**     postgres-conflict   INSERT ... ON CONFLICT DO NOTHING; UPDATE that demands the token
**     postgres-pipeline   the same, with all statements that need not wait sent together
**     postgres-points     recovery points: each phase a serializable transaction that looks first
*/
#include "peer.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each program makes the tables if it is the first. */
static const char zSchema[] =
    "SELECT pg_advisory_lock(1);"
    "CREATE TABLE IF NOT EXISTS idem(id bigserial PRIMARY KEY, scope text NOT NULL,"
    " key text NOT NULL, operation text NOT NULL, fingerprint text NOT NULL, state text NOT NULL,"
    " attempt int NOT NULL, token text, due_at timestamptz, created_at timestamptz NOT NULL,"
    " updated_at timestamptz NOT NULL, completed_at timestamptz, code int, headers text,"
    " response text, recovery_point text, UNIQUE(scope, key));"
    "CREATE INDEX IF NOT EXISTS idem_due ON idem(state, due_at);"
    "CREATE TABLE IF NOT EXISTS business(id bigserial PRIMARY KEY, account text, amount int);"
    "SELECT pg_advisory_unlock(1)";

enum { CLAIM, BUSINESS, COMPLETE, REPLAY, BEGIN, COMMIT, SERIALIZABLE, STATEMENTS };

static const struct {
  const char *zName, *zSql;
  int nArg; /* of scope, key, token, operation, fingerprint; or as runWith() is told */
} aStatement[STATEMENTS] = {
    [CLAIM] = {"claim",
               "INSERT INTO idem(scope, key, token, operation, fingerprint, state, attempt, due_at,"
               " created_at, updated_at, recovery_point) VALUES($1, $2, $3, $4, $5, 'processing',"
               " 1, now() + interval '60 s', now(), now(), 'started') ON CONFLICT DO NOTHING"
               " RETURNING id",
               5},
    [BUSINESS] = {"business", "INSERT INTO business(account, amount) VALUES($1, 1200)", 1},
    [COMPLETE] = {"complete",
                  "UPDATE idem SET state = 'completed', recovery_point = 'finished', code = 201,"
                  " response = $4, due_at = now() + interval '24 h', completed_at = now(),"
                  " updated_at = now() WHERE scope = $1 AND key = $2 AND token = $3"
                  " AND state = 'processing'",
                  4},
    [REPLAY] = {"replay",
                "SELECT state, code, headers, response, created_at, completed_at, operation,"
                " fingerprint, due_at > now() FROM idem WHERE scope = $1 AND key = $2",
                2},
    [BEGIN] = {"b", "BEGIN", 0},
    [COMMIT] = {"c", "COMMIT", 0},
    [SERIALIZABLE] = {"s", "BEGIN ISOLATION LEVEL SERIALIZABLE", 0},
};

static void check(PGconn *p, PGresult *pResult, int nRow, int nChange) {
  ExecStatusType e = PQresultStatus(pResult);
  if (e != PGRES_COMMAND_OK && e != PGRES_TUPLES_OK) peerDie("postgres", PQerrorMessage(p));
  if (nRow >= 0 && PQntuples(pResult) != nRow) peerDie("postgres", "not the rows expected");
  if (nChange >= 0 && atoi(PQcmdTuples(pResult)) != nChange) peerDie("postgres", "no change");
}

static void *open(const char *zTarget, int bDurable) {
  PGconn *p = PQconnectdb(zTarget);
  if (PQstatus(p) != CONNECTION_OK) peerDie(zTarget, PQerrorMessage(p));
  PQsetNoticeProcessor(p, (PQnoticeProcessor)0, 0);
  PQclear(PQexec(p, "SET client_min_messages = warning"));
  PGresult *pResult = PQexec(p, zSchema);
  check(p, pResult, -1, -1);
  PQclear(pResult);
  PQclear(PQexec(p, bDurable ? "SET synchronous_commit = on" : "SET synchronous_commit = off"));
  for (int i = 0; i < STATEMENTS; i++) {
    pResult = PQprepare(p, aStatement[i].zName, aStatement[i].zSql, 0, 0);
    check(p, pResult, -1, -1);
    PQclear(pResult);
  }
  return p;
}

static void close(void *p) {
  PQfinish(p);
}

/* The arguments of a statement about a key. */
typedef struct Args {
  char zKey[40], zToken[40];
  const char *azArg[5];
} Args;

static void arguments(Args *p, int iStatement, int iKey) {
  peerKey(iKey, p->zKey);
  peerToken(iKey, p->zToken);
  p->azArg[0] = PEER_SCOPE;
  p->azArg[1] = p->zKey;
  p->azArg[2] = p->zToken;
  p->azArg[3] = iStatement == COMPLETE ? peerAnswer() : PEER_OPERATION;
  p->azArg[4] = PEER_PRINT;
}

/* One statement, one round trip. */
static PGresult *run(PGconn *p, int i, int iKey, int nRow, int nChange) {
  Args a;
  arguments(&a, i, iKey);
  PGresult *pResult =
      PQexecPrepared(p, aStatement[i].zName, aStatement[i].nArg, a.azArg, 0, 0, 0);
  check(p, pResult, nRow, nChange);
  return pResult;
}

static void go(PGconn *p, int i, int iKey, int nRow, int nChange) {
  PQclear(run(p, i, iKey, nRow, nChange));
}

static void one(void *p, int iKey) {
  go(p, BEGIN, iKey, -1, -1);
  go(p, CLAIM, iKey, 1, -1);
  go(p, BUSINESS, iKey, -1, 1);
  go(p, COMPLETE, iKey, -1, 1);
  go(p, COMMIT, iKey, -1, -1);
}

static void two(void *p, int iKey) {
  go(p, CLAIM, iKey, 1, -1);
  go(p, BEGIN, iKey, -1, -1);
  go(p, BUSINESS, iKey, -1, 1);
  go(p, COMPLETE, iKey, -1, 1);
  go(p, COMMIT, iKey, -1, -1);
}

static void replay(void *p, int iKey) {
  PGresult *pResult = run(p, REPLAY, iKey, 1, -1);
  if (strcmp(PQgetvalue(pResult, 0, 0), "completed") != 0 ||
      strcmp(PQgetvalue(pResult, 0, 6), PEER_OPERATION) != 0 ||
      strcmp(PQgetvalue(pResult, 0, 7), PEER_PRINT) != 0 ||
      PQgetvalue(pResult, 0, 8)[0] != 't' || PQgetlength(pResult, 0, 3) != PEER_ANSWER) {
    peerDie("postgres", "no replay");
  }
  PQclear(pResult);
}

/* --- pipelined ------------------------------------------------------------------------------- */

/* Statements sent together: one round trip. */
static void together(PGconn *p, const int *aiStatement, int n, int iKey) {
  PGresult *pResult;
  if (!PQenterPipelineMode(p)) peerDie("postgres", "no pipeline");
  for (int i = 0; i < n; i++) {
    Args a;
    int iStatement = aiStatement[i];
    arguments(&a, iStatement, iKey);
    if (!PQsendQueryPrepared(p, aStatement[iStatement].zName, aStatement[iStatement].nArg, a.azArg,
                             0, 0, 0)) {
      peerDie("postgres", PQerrorMessage(p));
    }
  }
  if (!PQpipelineSync(p)) peerDie("postgres", PQerrorMessage(p));
  for (int i = 0; i < n; i++) {
    int iStatement = aiStatement[i];
    pResult = PQgetResult(p);
    check(p, pResult, iStatement == CLAIM ? 1 : -1,
          iStatement == BUSINESS || iStatement == COMPLETE ? 1 : -1);
    PQclear(pResult);
    if (PQgetResult(p)) peerDie("postgres", "two results");
  }
  pResult = PQgetResult(p);
  if (PQresultStatus(pResult) != PGRES_PIPELINE_SYNC) peerDie("postgres", "no end");
  PQclear(pResult);
  if (!PQexitPipelineMode(p)) peerDie("postgres", PQerrorMessage(p));
}

/* The claim's outcome must be known before the rest, so two trips are the least. */
static void onePipelined(void *p, int iKey) {
  static const int aFirst[] = {BEGIN, CLAIM}, aRest[] = {BUSINESS, COMPLETE, COMMIT};
  together(p, aFirst, 2, iKey);
  together(p, aRest, 3, iKey);
}

static void twoPipelined(void *p, int iKey) {
  static const int aRest[] = {BEGIN, BUSINESS, COMPLETE, COMMIT};
  go(p, CLAIM, iKey, 1, -1);
  together(p, aRest, 4, iKey);
}

/* --- recovery points ------------------------------------------------------------------------- */

static void twoPoints(void *p, int iKey) {
  go(p, SERIALIZABLE, iKey, -1, -1);
  go(p, REPLAY, iKey, 0, -1);
  go(p, CLAIM, iKey, 1, -1);
  go(p, COMMIT, iKey, -1, -1);
  go(p, SERIALIZABLE, iKey, -1, -1);
  go(p, BUSINESS, iKey, -1, 1);
  go(p, COMPLETE, iKey, -1, 1);
  go(p, COMMIT, iKey, -1, -1);
}

static void replayPoints(void *p, int iKey) {
  go(p, SERIALIZABLE, iKey, -1, -1);
  replay(p, iKey);
  go(p, COMMIT, iKey, -1, -1);
}

const PeerKind aPeerPostgres[] = {
    {"postgres-conflict", open, one, two, replay, close},
    {"postgres-pipeline", open, onePipelined, twoPipelined, replay, close},
    {"postgres-points", open, 0, twoPoints, replayPoints, close},
    {0},
};
