/*
** triggers_off.c: a connection whose triggers are switched off.
**
**     triggers_off EXTENSION DIRECTORY
**
** The audit, the erasure and the purge are triggers of the store. What needs them must fail with a
** text that says so, and change nothing; what does not need them works.
*/
#include "check.h"

#include <unistd.h>

#define TK "'token-0123456789'"

static void setTriggers(sqlite3 *db, int bOn) {
  int bIs = -1;
  CHECK(sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, bOn, &bIs) == SQLITE_OK, "db_config");
  CHECK(bIs == bOn, "triggers are %d", bIs);
}

/* Everything that is stored, as one text. */
static char *contents(sqlite3 *db) {
  static const char zSql[] =
      "SELECT (SELECT group_concat(id||key||state||attempt||updated_at||ifnull(token,'')||"
      "ifnull(response,'')||ifnull(audit_event,'')) FROM main.idem_store)||'/'||"
      "(SELECT count(*) FROM main.idem_audit)||'/'||(SELECT count(*) FROM main.idem_inbox)";
  sqlite3_stmt *pStmt = 0;
  CHECK(sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0) == SQLITE_OK, "%s", sqlite3_errmsg(db));
  CHECK(sqlite3_step(pStmt) == SQLITE_ROW, "%s", sqlite3_errmsg(db));
  char *z = must(sqlite3_mprintf("%s", sqlite3_column_text(pStmt, 0)));
  sqlite3_finalize(pStmt);
  return z;
}

/* Needs a trigger, and says so. */
static const char *const azRefused[] = {
    "SELECT idem_claim('t','new','fp','audited')",
    "SELECT outcome FROM idem_claim('t','new','fp','audited')",
    "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','new','fp','audited')",
    "INSERT INTO idem_records(scope,key,fingerprint,operation,token)"
    " VALUES('t','new','fp','audited'," TK ")",
    "SELECT idem_claim('t','watched-done','fp','audited')", /* a replay leaves a row */
    "SELECT idem_complete('t','watched'," TK ",'x')",
    "SELECT idem_release('t','watched'," TK ")",
    "SELECT idem_suspend('t','held'," TK ")",
    "SELECT idem_resolve('t','dark','retry')",
    "SELECT idem_resolve('t','dark','completed','x')",
    "DELETE FROM idem_records WHERE scope='t' AND key='done'",
    "DELETE FROM idem_records WHERE scope='t' AND key='watched-done'",
    "SELECT idem_purge()",
    "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_purge()",
};

/* Needs none. */
static const char *const azWorks[] = {
    "SELECT idem_claim('t','plain','fp'," "''," TK ")",
    "SELECT outcome FROM idem_claim('t','done','fp')",
    "SELECT idem_complete('t','plain'," TK ",'x')",
    "SELECT idem_renew('t','held'," TK ")",
    "SELECT key FROM idem_records",
    "SELECT idem_seen('s','e')",
};

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  char *zPath = must(sqlite3_mprintf("%s/triggers_off.db", argv[2]));
  unlink(zPath);
  sqlite3 *db = openWith(zPath, argv[1]);
  mustRun(db, "PRAGMA synchronous=OFF; SELECT idem_init();"
              "UPDATE idem_policy SET audit='exceptions' WHERE operation='*';"
              "INSERT INTO idem_policy(operation, audit) VALUES('audited','all');"
              "SELECT idem_claim('t','held','fp',''," TK ");"
              "SELECT idem_claim('t','done','fp',''," TK ");"
              "SELECT idem_complete('t','done'," TK ",'card 4111');"
              "SELECT idem_claim('t','dark','fp',''," TK ");"
              "SELECT idem_suspend('t','dark'," TK ");"
              "SELECT idem_claim('t','watched','fp','audited'," TK ");"
              "SELECT idem_claim('t','watched-done','fp','audited'," TK ");"
              "SELECT idem_complete('t','watched-done'," TK ",'card 4111');"
              "SELECT idem_clock(1000); SELECT idem_seen('s','old'); SELECT idem_clock(NULL);");
  setTriggers(db, 0);
  char *zBefore = contents(db);
  for (size_t i = 0; i < sizeof(azRefused) / sizeof(azRefused[0]); i++) {
    char *zErr = 0;
    zDoing = azRefused[i];
    int rc = run(db, azRefused[i], &zErr);
    CHECK(rc == SQLITE_ERROR, "result %d (%s)", rc, zErr ? zErr : "");
    CHECK(zErr && strstr(zErr, "triggers are switched off"), "text: %s", zErr ? zErr : "none");
    sqlite3_free(zErr);
    char *zAfter = contents(db);
    CHECK(strcmp(zBefore, zAfter) == 0, "was %s\nis  %s", zBefore, zAfter);
    sqlite3_free(zAfter);
  }
  sqlite3_free(zBefore);
  for (size_t i = 0; i < sizeof(azWorks) / sizeof(azWorks[0]); i++) {
    zDoing = azWorks[i];
    mustRun(db, azWorks[i]);
  }
  setTriggers(db, 1);
  for (size_t i = 0; i < sizeof(azRefused) / sizeof(azRefused[0]); i++) {
    zDoing = azRefused[i];
    run(db, azRefused[i], 0);
  }
  zDoing = "triggers on again";
  CHECK(number(db, "SELECT count(*) FROM main.idem_store"
                   " WHERE key IN ('done','watched-done')") == 0,
        "nothing was erased");
  CHECK(number(db, "SELECT count(*) FROM main.idem_inbox") == 1, "nothing was purged");
  CHECK(number(db, "SELECT count(*) FROM main.idem_audit WHERE event='erase'") == 2, "no audit");
  CHECK(number(db, "SELECT idem_audit_verify() IS NULL") == 1, "the chain");
  CHECK(sqlite3_close(db) == SQLITE_OK, "close");
  unlink(zPath);
  sqlite3_free(zPath);
  return checkEnd("triggers_off");
}
