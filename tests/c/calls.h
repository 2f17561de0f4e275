/*
** calls.h: every call of the API, on a store that has a record in each state, with the result code
** it must give. Shared by the programs that check what a call leaves behind.
*/
#ifndef IDEM_CALLS_H
#define IDEM_CALLS_H

#include "check.h"

/* The store they run on. Tokens are the caller's own, so that calls can name them. */
static const char zFixture[] =
    "SELECT idem_init();"
    "CREATE TABLE business(id INTEGER PRIMARY KEY, body TEXT, answer);"
    "INSERT INTO business(body) VALUES('one'),('two'),('three');"
    "INSERT INTO idem_policy(operation, audit) VALUES('audited', 'all');"
    "INSERT INTO idem_policy(operation, on_stale, max_attempts) VALUES('again', 'retry', 2);"
    "SELECT idem_claim('t','live','fp','','token-live-00000000');"
    "SELECT idem_claim('t','done','fp','','token-done-00000000');"
    "SELECT idem_complete('t','done','token-done-00000000','{\"ok\":1}',201,'A: b');"
    "SELECT idem_claim('t','free','fp','','token-free-00000000');"
    "SELECT idem_release('t','free','token-free-00000000');"
    "SELECT idem_claim('t','dark','fp','','token-dark-00000000');"
    "SELECT idem_suspend('t','dark','token-dark-00000000');"
    "SELECT idem_claim('t','watched','fp','audited','token-watched-00000');"
    "SELECT idem_claim('t','watched-done','fp','audited','token-watched-done-0');"
    "SELECT idem_complete('t','watched-done','token-watched-done-0','x');"
    "SELECT idem_clock(1000);"
    "SELECT idem_claim('t','stale','fp','','token-stale-0000000');"
    "SELECT idem_claim('t','again','fp','again','token-again-0000000');"
    "SELECT idem_claim('t','old','fp','','token-old-000000000');"
    "SELECT idem_complete('t','old','token-old-000000000','x');"
    "SELECT idem_seen('s','old');"
    "SELECT idem_clock(NULL);"
    "SELECT idem_seen('s','e0','fp');";

typedef struct Call {
  const char *zSql;
  int rc; /* primary result code */
} Call;

static const Call aCall[] = {
    {"SELECT idem_init()", SQLITE_OK},
    {"SELECT idem_claim('t','new','fp')", SQLITE_OK},
    {"SELECT idem_claim('t','new','fp','audited')", SQLITE_OK},
    {"SELECT idem_claim('t','done','fp')", SQLITE_OK},
    {"SELECT idem_claim('t','watched-done','fp','audited')", SQLITE_OK},
    {"SELECT idem_claim('t','live','fp')", SQLITE_OK},
    {"SELECT idem_claim('t','live','fp','','token-live-00000000')", SQLITE_OK},
    {"SELECT idem_claim('t','live','other')", SQLITE_OK},
    {"SELECT idem_claim('t','free','fp')", SQLITE_OK},
    {"SELECT idem_claim('t','free','fp','','token-free-00000000')", SQLITE_CONSTRAINT},
    {"SELECT idem_claim('t','dark','fp')", SQLITE_OK},
    {"SELECT idem_claim('t','stale','fp')", SQLITE_OK},
    {"SELECT idem_claim('t','again','fp','again')", SQLITE_OK},
    {"SELECT idem_claim('t','old','fp')", SQLITE_OK},
    {"SELECT idem_claim('t',NULL,'fp')", SQLITE_ERROR},
    {"SELECT idem_claim('t',idem_claim('t','inner','fp'),'fp')", SQLITE_OK},
    {"SELECT * FROM idem_claim('t','new','fp')", SQLITE_OK},
    {"SELECT * FROM idem_claim('t','new','fp','audited',NULL)", SQLITE_OK},
    {"SELECT * FROM idem_claim('t','done','fp')", SQLITE_OK},
    {"SELECT * FROM idem_claim('t','live','fp')", SQLITE_OK},
    {"SELECT * FROM idem_claim('t','again','fp','again')", SQLITE_OK},
    {"SELECT * FROM idem_claim('t','free','fp','','token-free-00000000')", SQLITE_CONSTRAINT},
    {"SELECT * FROM idem_claim('t',NULL,'fp')", SQLITE_ERROR},
    {"SELECT * FROM idem_claim", SQLITE_ERROR},
    {"SELECT outcome FROM idem_claim('t','new','fp') LIMIT 1", SQLITE_OK},
    {"INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','new','fp')", SQLITE_OK},
    {"INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','done','fp')", SQLITE_OK},
    {"INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','','fp')", SQLITE_ERROR},
    {"INSERT INTO idem_call(result) VALUES(1)", SQLITE_OK},
    {"SELECT * FROM idem_call", SQLITE_OK},
    {"SELECT idem_complete('t','live','token-live-00000000','x',200,'h')", SQLITE_OK},
    {"SELECT idem_complete('t','watched','token-watched-00000','x')", SQLITE_OK},
    {"SELECT idem_complete('t','live','token-wrong-0000000','x')", SQLITE_CONSTRAINT},
    {"SELECT idem_complete('t','done','token-done-00000000','{\"ok\":1}',201,'A: b')", SQLITE_OK},
    {"SELECT idem_complete('t','done','token-done-00000000','other')", SQLITE_CONSTRAINT},
    {"SELECT idem_complete('t','nobody','token-done-00000000','x')", SQLITE_CONSTRAINT},
    {"INSERT INTO idem_call DEFAULT VALUES RETURNING"
     " idem_complete('t','live','token-live-00000000','x')", SQLITE_OK},
    {"SELECT idem_release('t','live','token-live-00000000','why')", SQLITE_OK},
    {"SELECT idem_release('t','live','token-wrong-0000000')", SQLITE_CONSTRAINT},
    {"SELECT idem_suspend('t','live','token-live-00000000','why')", SQLITE_OK},
    {"SELECT idem_suspend('t','dark','token-dark-00000000')", SQLITE_OK},
    {"SELECT idem_renew('t','live','token-live-00000000')", SQLITE_OK},
    {"SELECT idem_renew('t','dark','token-dark-00000000')", SQLITE_CONSTRAINT},
    {"SELECT idem_checkpoint('t','live','token-live-00000000','p',x'00ff')", SQLITE_OK},
    {"SELECT idem_resolve('t','dark','completed','x',200)", SQLITE_OK},
    {"SELECT idem_resolve('t','dark','retry','why')", SQLITE_OK},
    {"SELECT idem_resolve('t','stale','retry')", SQLITE_OK},
    {"SELECT idem_resolve('t','live','retry')", SQLITE_CONSTRAINT},
    {"SELECT idem_resolve('t','dark','maybe')", SQLITE_ERROR},
    {"SELECT idem_seen('s','e1')", SQLITE_OK},
    {"SELECT idem_seen('s','old')", SQLITE_OK},
    {"SELECT idem_seen('s','e0','fp')", SQLITE_OK},
    {"SELECT idem_seen('s','e0','other')", SQLITE_CONSTRAINT},
    {"SELECT idem_purge()", SQLITE_OK},
    {"SELECT idem_purge(1)", SQLITE_OK},
    {"SELECT idem_purge(0)", SQLITE_ERROR},
    {"SELECT idem_audit_verify()", SQLITE_OK},
    {"SELECT idem_clock(5000)", SQLITE_OK},
    {"SELECT idem_clock()", SQLITE_OK},
    {"SELECT idem_clock('x')", SQLITE_ERROR},
    {"SELECT idem_fingerprint('{\"b\":1,\"a\":[2]}','-$.b')", SQLITE_OK},
    {"SELECT idem_fingerprint('{')", SQLITE_ERROR},
    {"SELECT idem_fingerprint_raw(x'00')", SQLITE_OK},
    {"SELECT idem_hmac_fingerprint('0123456789abcdef','{}')", SQLITE_OK},
    {"SELECT idem_canonical('{}')", SQLITE_OK},
    {"SELECT idem_header_key('\"abc\"')", SQLITE_OK},
    {"SELECT idem_key()", SQLITE_OK},
    {"SELECT idem_derive_key('k','step')", SQLITE_OK},
    {"SELECT idem_schema('store')", SQLITE_OK},
    {"SELECT idem_schema('nothing')", SQLITE_ERROR},
    {"SELECT idem_version()", SQLITE_OK},
    {"SELECT * FROM idem_records", SQLITE_OK},
    {"SELECT * FROM idem_records LIMIT 1", SQLITE_OK},
    {"SELECT * FROM idem_records WHERE scope='t' AND key='done'", SQLITE_OK},
    {"SELECT count(*) FROM idem_records a JOIN idem_records b USING(scope, key)", SQLITE_OK},
    {"INSERT INTO idem_records(scope,key,fingerprint,token)"
     " VALUES('t','new','fp','token-new-00000000')", SQLITE_OK},
    {"INSERT INTO idem_records(scope,key,fingerprint,token)"
     " VALUES('t','done','fp','token-new-00000000')", SQLITE_CONSTRAINT},
    {"INSERT OR IGNORE INTO idem_records(scope,key,fingerprint,token)"
     " VALUES('t','done','fp','token-new-00000000')", SQLITE_OK},
    {"INSERT OR REPLACE INTO idem_records(scope,key,fingerprint,token)"
     " VALUES('t','new','fp','token-new-00000000')", SQLITE_ERROR},
    {"UPDATE idem_records SET state='completed', response='x', code=200"
     " WHERE scope='t' AND key='live' AND token='token-live-00000000'", SQLITE_OK},
    {"UPDATE idem_records SET state='released'"
     " WHERE scope='t' AND key='live' AND token='token-live-00000000'", SQLITE_OK},
    {"UPDATE idem_records SET state='unknown'"
     " WHERE scope='t' AND key='live' AND token='token-live-00000000'", SQLITE_OK},
    {"UPDATE idem_records SET recovery_point='p'"
     " WHERE scope='t' AND key='live' AND token='token-live-00000000'", SQLITE_OK},
    {"UPDATE idem_records SET state='completed'"
     " WHERE scope='t' AND key='live' AND token='token-wrong-0000000'", SQLITE_OK},
    {"UPDATE idem_records SET state='completed' WHERE scope='t' AND key='live'", SQLITE_ERROR},
    {"DELETE FROM idem_records WHERE scope='t' AND key='done'", SQLITE_OK},
    {"DELETE FROM idem_records WHERE scope='t' AND key='live'", SQLITE_CONSTRAINT},
    {"SELECT * FROM idem_health", SQLITE_OK},
    {"SELECT * FROM idem_contract", SQLITE_OK},
};
#define CALL_COUNT ((int)(sizeof(aCall) / sizeof(aCall[0])))

#endif
