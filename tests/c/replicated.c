/*
** replicated.c: on dqlite a write where it would not be replicated is refused before it happens.
**
**     replicated EXTENSION DIRECTORY
**
** dqlite is known by the name of its VFS. Here SQLite's own VFS bears such a name, so that the rule
** can be tried without a cluster: each shape below on both VFSs. What a refused statement wrote
** would be seen in the file's change counter.
*/
#include "check.h"

/* A statement, in the state that zBefore makes, and whether dqlite replicates what it writes. */
static const struct Shape {
  const char *zBefore, *zSql;
  int bWrites; /* it wants to write at all */
  int bAllowed;
} aShape[] = {
    {"", "SELECT idem_claim('t','new','fp')", 1, 0},
    {"", "SELECT * FROM idem_claim('t','new','fp')", 1, 0},
    {"", "SELECT idem_claim('t','done','fp')", 0, 1},
    {"", "SELECT * FROM idem_claim('t','done','fp')", 0, 1},
    {"", "SELECT idem_claim('t','live','fp')", 0, 1},
    {"", "SELECT idem_claim('t','waits','fp','patient')", 0, 1},
    {"", "SELECT idem_complete('t','live','token-live-00000000','x')", 1, 0},
    {"", "SELECT idem_release('t','live','token-live-00000000')", 1, 0},
    {"", "SELECT idem_suspend('t','live','token-live-00000000')", 1, 0},
    {"", "SELECT idem_renew('t','live','token-live-00000000')", 1, 0},
    {"", "SELECT idem_checkpoint('t','live','token-live-00000000','p')", 1, 0},
    {"", "SELECT idem_resolve('t','dark','retry')", 1, 0},
    {"", "SELECT idem_seen('s','e1')", 1, 0},
    {"", "SELECT idem_purge()", 1, 0},
    {"", "SELECT idem_claim('t','done','fp','audited')", 0, 1},
    {"", "SELECT 1 WHERE idem_claim('t','new','fp') IS NULL", 1, 0},
    {"", "SELECT idem_claim('t',name,'fp') FROM work", 1, 0},
    {"", "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','new','fp')", 1, 0},
    {"", "INSERT INTO work VALUES('x',2) RETURNING idem_claim('t','new','fp')", 1, 0},
    {"", "INSERT INTO idem_records(scope,key,fingerprint,token)"
         " VALUES('t','new','fp','token-new-000000000') RETURNING key", 1, 0},
    {"", "INSERT INTO idem_records(scope,key,fingerprint,token)"
         " VALUES('t','new','fp','token-new-000000000')", 1, 1},
    {"", "UPDATE idem_records SET state='completed' WHERE scope='t' AND key='live'"
         " AND token='token-live-00000000'", 1, 1},
    {"", "DELETE FROM idem_records WHERE scope='t' AND key='done'", 1, 1},
    {"", "INSERT INTO work SELECT idem_claim('t','new','fp'),2", 1, 1},
    {"", "UPDATE work SET name=idem_claim('t','new','fp')", 1, 1},
    {"", "REPLACE INTO work VALUES(idem_claim('t','new','fp'),2)", 1, 1},
    {"", "INSERT INTO idem_call(result) SELECT idem_claim('t','new','fp')", 1, 1},
    {"CREATE TEMP TABLE carrier(a)", "INSERT INTO temp.carrier SELECT idem_claim('t','new','fp')",
     1, 1},
    {"CREATE TEMP TRIGGER note AFTER INSERT ON work"
     " BEGIN SELECT idem_claim('t',new.name,'fp'); END",
     "INSERT INTO work VALUES('fresh',2)", 1, 1},
    {"BEGIN", "SELECT idem_claim('t','new','fp')", 1, 0},
    {"BEGIN", "SELECT * FROM idem_claim('t','new','fp')", 1, 0},
    {"BEGIN", "SELECT idem_claim('t','done','fp')", 0, 1},
    {"BEGIN; SELECT * FROM work", "SELECT idem_claim('t','new','fp')", 1, 0},
    {"BEGIN", "INSERT INTO work SELECT idem_claim('t','new','fp'),2", 1, 1},
    {"BEGIN IMMEDIATE", "SELECT idem_claim('t','new','fp')", 1, 1},
    {"BEGIN IMMEDIATE", "SELECT * FROM idem_claim('t','new','fp')", 1, 1},
    {"BEGIN IMMEDIATE", "SELECT idem_complete('t','live','token-live-00000000','x')", 1, 1},
    {"BEGIN IMMEDIATE", "SELECT idem_seen('s','e1')", 1, 1},
    {"BEGIN IMMEDIATE", "SELECT idem_purge()", 1, 1},
    {"BEGIN; INSERT INTO work VALUES('y',3)", "SELECT idem_claim('t','new','fp')", 1, 1},
};

static const char zFixture[] =
    "BEGIN IMMEDIATE; SELECT idem_init();"
    "CREATE TABLE work(name TEXT PRIMARY KEY, n); INSERT INTO work VALUES('new',1);"
    "INSERT INTO idem_policy(operation, audit) VALUES('audited', 'all');"
    "INSERT INTO idem_policy(operation, wait_ms) VALUES('patient', 300);"
    "SELECT idem_clock(1000000);"
    "SELECT idem_claim('t','waits','fp','patient');"
    "SELECT idem_claim('t','dark','fp','','token-dark-00000000');"
    "SELECT idem_suspend('t','dark','token-dark-00000000');"
    "SELECT idem_claim('t','done','fp','audited','token-done-00000000');"
    "SELECT idem_complete('t','done','token-done-00000000','x');"
    "SELECT idem_seen('s','old');"
    "SELECT idem_claim('t','live','fp','','token-live-00000000');" /* the connection remembers it */
    "COMMIT";

static sqlite3 *openOn(const char *zPath, const char *zVfs, const char *zExt) {
  sqlite3 *db = 0;
  int rc = sqlite3_open_v2(zPath, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, zVfs);
  CHECK(rc == SQLITE_OK, "open: %d", rc);
  sqlite3_enable_load_extension(db, 1);
  CHECK(sqlite3_load_extension(db, zExt, 0, 0) == SQLITE_OK, "load: %s", sqlite3_errmsg(db));
  mustRun(db, "SELECT idem_clock(1000000)");
  return db;
}

static void tryShape(const struct Shape *p, const char *zPath, const char *zVfs, const char *zExt) {
  int bDqlite = strncmp(zVfs, "dqlite", 6) == 0;
  char *zErr = 0;
  remove(zPath);
  sqlite3 *db = openOn(zPath, zVfs, zExt), *other = 0;
  mustRun(db, zFixture);
  if (p->bWrites && strstr(p->zSql, "purge")) mustRun(db, "SELECT idem_clock(100000000000)");
  CHECK(sqlite3_open(zPath, &other) == SQLITE_OK, "open");
  sqlite3_int64 iVersion = number(other, "PRAGMA data_version");
  mustRun(db, p->zBefore);
  int rc = run(db, p->zSql, &zErr);
  if (bDqlite && !p->bAllowed) {
    CHECK(rc == SQLITE_READONLY, "%s: %d %s", p->zSql, rc, zErr ? zErr : "");
    CHECK(zErr && strstr(zErr, "BEGIN IMMEDIATE"), "the text: %s", zErr ? zErr : "");
  } else {
    CHECK(rc == SQLITE_OK, "%s: %d %s", p->zSql, rc, zErr ? zErr : "");
  }
  sqlite3_free(zErr);
  if (!sqlite3_get_autocommit(db)) mustRun(db, "COMMIT");
  int bWritten = number(other, "PRAGMA data_version") != iVersion;
  int bWanted = (bDqlite ? p->bAllowed : 1) && (p->bWrites || strstr(p->zBefore, "INSERT"));
  /* On an ordinary VFS an audited replay writes its note. */
  if (strstr(p->zSql, "audited")) bWanted = !bDqlite;
  CHECK(bWritten == bWanted, "%s; %s on %s: written %d", p->zBefore, p->zSql, zVfs, bWritten);
  CHECK(sqlite3_close(db) == SQLITE_OK && sqlite3_close(other) == SQLITE_OK, "close");
}

/* idem_init() itself: refused in the same places. */
static void tryInit(const char *zPath, const char *zVfs, const char *zExt) {
  static const char *const azAllowed[] = {
      "BEGIN IMMEDIATE; SELECT idem_init(); COMMIT",
      "INSERT INTO idem_call(result) SELECT idem_init()",
  };
  for (int i = 0; i < 2; i++) {
    remove(zPath);
    sqlite3 *db = openOn(zPath, zVfs, zExt);
    CHECK(run(db, "SELECT idem_init()", 0) == SQLITE_READONLY, "init in a SELECT");
    CHECK(number(db, "SELECT count(*) FROM sqlite_schema") == 0, "nothing was created");
    mustRun(db, azAllowed[i]);
    mustRun(db, "SELECT idem_init()"); /* is there: nothing to write */
    mustRun(db, "INSERT INTO idem_call(result) SELECT idem_claim('t','new','fp')");
    CHECK(sqlite3_close(db) == SQLITE_OK, "close");
  }
}

int main(int argc, char **argv) {
  char zPath[600];
  sqlite3_vfs vfs;
  if (argc != 3) return 2;
  snprintf(zPath, sizeof(zPath), "%s/replicated.db", argv[2]);
  vfs = *sqlite3_vfs_find(0);
  const char *azVfs[] = {vfs.zName, "dqlite-1"};
  vfs.zName = azVfs[1];
  sqlite3_vfs_register(&vfs, 0);
  for (size_t i = 0; i < sizeof(aShape) / sizeof(aShape[0]); i++) {
    for (int j = 0; j < 2; j++) {
      zDoing = aShape[i].zSql;
      tryShape(&aShape[i], zPath, azVfs[j], argv[1]);
    }
  }
  zDoing = "idem_init";
  tryInit(zPath, azVfs[1], argv[1]);
  return checkEnd("replicated");
}
