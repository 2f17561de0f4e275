/*
** schema.c: creates the store, and refuses a database file that only pretends to have one.
**
**     SELECT idem_init();             -- 1
**     SELECT idem_schema('store');    -- the text of sql/store.sql
**
** A database file may come from anywhere. Before idem runs a statement on the store, every object
** that bears one of its names must be, byte for byte, the one that sql/store.sql creates; no
** trigger or index of somebody else's may mention its tables, no foreign key act on a deletion in
** them. So a view cannot stand in for a table, and a trigger cannot run where idem writes.
*/
#include "schema.h"

/* The objects of the store: names in main that nothing else may bear. */
#define STORE_TABLES "'idem_meta','idem_policy','idem_store','idem_inbox','idem_audit'"
#define STORE_VIEWS                                                                                \
  "'idem_audit_entry','idem_claim_audited','idem_purge_batch','idem_health','idem_contract'"

/* Names that the store leaves free, because they are tables of the library: an object of the file
** that bore one would be found first. */
#define VIRTUAL_TABLES "'idem_call','idem_records','idem_claim'"

/* Its indexes and triggers: a twin that the file lists first would keep SQLite from loading it. */
#define STORE_PARTS                                                                                \
  "'idem_store_due','idem_inbox_expires','idem_audit_no_update','idem_audit_no_delete',"           \
  "'idem_audit_next_id','idem_audit_chain','idem_store_audit','idem_claim_audited_insert',"        \
  "'idem_purge_batch_run','idem_policy_inserted','idem_policy_updated','idem_policy_deleted',"     \
  "'idem_policy_keep_default','idem_policy_keep_name'"

#define HAS_WORD(word) "lower(sql||' ') GLOB '*[^a-z0-9_]" word "[^a-z0-9_]*'"

/* clang-format off */
/* sqlite_schema says which table a trigger or index is on, and what is one, but the file may lie:
** so every text is searched but those of plain tables and views. SQLite's names are blind to case,
** and end where no letter, digit or _ follows: idem_store_id is no concern of ours.
** Before 3.40 it lets a trigger write idem_records, SQLITE_VTAB_DIRECTONLY or not.
** A plain table may refer to the store, but not so that a purge or an erasure would change its
** rows: that fires its triggers, which may do anything. */
static const char zObjects[] =
    "SELECT name, sql FROM main.sqlite_schema"
    " WHERE name COLLATE NOCASE IN (" STORE_TABLES "," STORE_VIEWS "," VIRTUAL_TABLES
    "," STORE_PARTS ")"
    " OR tbl_name COLLATE NOCASE IN (" STORE_TABLES "," STORE_VIEWS ")"
    " OR (substr(sql,1,12) NOT IN ('CREATE TABLE','CREATE VIEW ','CREATE VIRTU')"
    " AND instr(lower(sql),'idem_')"
    " AND (" HAS_WORD("idem_meta") " OR " HAS_WORD("idem_policy") " OR " HAS_WORD("idem_store")
    " OR " HAS_WORD("idem_inbox") " OR " HAS_WORD("idem_audit") " OR " HAS_WORD("idem_audit_entry")
    " OR " HAS_WORD("idem_purge_batch")
    " OR " HAS_WORD("idem_claim_audited") " OR " HAS_WORD("idem_records") "))"
    " OR (substr(sql,1,12)='CREATE TABLE'"
    " AND (" HAS_WORD("idem_store") " OR " HAS_WORD("idem_inbox") ")"
    " AND " HAS_WORD("references") " AND " HAS_WORD("delete")
    " AND (" HAS_WORD("cascade") " OR " HAS_WORD("set") "))";
/* clang-format on */

/* The statement of sql/store.sql that zSql is: its number, by the place where it begins; -1 if it
** is none. A statement goes from the start of a line to a ';'. */
static int statementNumber(const char *zSql) {
  const char *zStore = idemSqlFiles[0].zText, *z = zStore, *zAt;
  size_t n = strlen(zSql);
  int iNumber = 0;
  if (n == 0) return -1; /* it would be found behind the end as well */
  for (; (z = strstr(z, zSql)) != 0; z++) {
    if ((z == zStore || z[-1] == '\n') && z[n] == ';') break;
  }
  if (!z) return -1;
  for (zAt = zStore; (zAt = strstr(zAt, "\nCREATE ")) != 0 && zAt + 1 < z; zAt++) iNumber++;
  return iNumber;
}

/* How many objects sql/store.sql creates. */
static int countOurs(void) {
  int n = 0;
  for (const char *z = idemSqlFiles[0].zText; (z = strstr(z, "\nCREATE ")) != 0; z++) n++;
  return n;
}

/* Says which object of the store is missing: the first whose bit is not in mOurs. */
static void failMissing(IdemCall *pCall, uint64_t mOurs) {
  const char *z = strstr(idemSqlFiles[0].zText, "\nCREATE ");
  size_t n;
  for (; z && mOurs & 1; mOurs >>= 1) z = strstr(z + 1, "\nCREATE ");
  assert(z);
  z += sizeof("\nCREATE ") - 1;
  n = strcspn(z, " ") + 1; /* what it is, and its name */
  n += strcspn(z + n, " (\n");
  idemFail(pCall, IDEM_E_INCOMPLETE, (int)n, z);
}

/* The version in idem_meta, which must have been found to be the real table. 0 if the call failed.
*/
static int readVersion(IdemCall *pCall) {
  sqlite3_stmt *pStmt = 0;
  sqlite3_int64 iVersion = 0;
  int rc =
      sqlite3_prepare_v2(pCall->db, "SELECT schema_version FROM main.idem_meta", -1, &pStmt, 0);
  if (rc == SQLITE_OK) {
    if (sqlite3_step(pStmt) == SQLITE_ROW) iVersion = sqlite3_column_int64(pStmt, 0);
    rc = sqlite3_reset(pStmt);
  }
  idemFailDb(pCall, rc);
  sqlite3_finalize(pStmt);
  if (pCall->rc == SQLITE_OK && iVersion != IDEM_SCHEMA_VERSION) {
    if (iVersion > IDEM_SCHEMA_VERSION) {
      idemFail(pCall, IDEM_E_FUTURE, iVersion, IDEM_SCHEMA_VERSION);
    } else {
      idemFail(pCall, IDEM_E_FOREIGN, "idem_meta");
    }
  }
  return pCall->rc == SQLITE_OK ? (int)iVersion : 0;
}

/* What one look at sqlite_schema found. */
typedef struct Found {
  int nOurs;      /* objects as they must be, each counted once */
  uint64_t mOurs; /* which, by number */
  int bMeta;      /* idem_meta is one of them */
  char *zForeign; /* the name of one that is not, or NULL */
} Found;

static void look(IdemCall *pCall, Found *pFound) {
  sqlite3_stmt *pStmt = 0;
  int rc = sqlite3_prepare_v2(pCall->db, zObjects, -1, &pStmt, 0);
  memset(pFound, 0, sizeof(*pFound));
  while (rc == SQLITE_OK && sqlite3_step(pStmt) == SQLITE_ROW) {
    const char *zName = (const char *)sqlite3_column_text(pStmt, 0);
    const char *zSql = (const char *)sqlite3_column_text(pStmt, 1);
    if (sqlite3_column_type(pStmt, 1) == SQLITE_NULL) continue; /* the index of a UNIQUE */
    int iNumber = zSql ? statementNumber(zSql) : -1;
    if (iNumber >= 0 && iNumber < 64 && !(pFound->mOurs >> iNumber & 1)) {
      pFound->mOurs |= (uint64_t)1 << iNumber;
      pFound->nOurs++;
      if (zName && strcmp(zName, "idem_meta") == 0) pFound->bMeta = 1;
    } else if (!pFound->zForeign) {
      pFound->zForeign = sqlite3_mprintf("%s", zName ? zName : "(without a name)");
      if (!pFound->zForeign) rc = SQLITE_NOMEM;
    }
  }
  if (rc == SQLITE_OK) rc = sqlite3_reset(pStmt);
  idemFailDb(pCall, rc);
  sqlite3_finalize(pStmt);
}

/* A cookie that no schema has. */
#define NO_COOKIE INT64_MIN

/* The cookie of main's schema: it changes whenever the schema does. */
static int64_t readCookie(IdemCall *pCall) {
  sqlite3_stmt *pStmt = 0;
  int64_t iCookie = NO_COOKIE;
  int rc = sqlite3_prepare_v2(pCall->db, "PRAGMA main.schema_version", -1, &pStmt, 0);
  if (rc == SQLITE_OK) {
    if (sqlite3_step(pStmt) == SQLITE_ROW) iCookie = sqlite3_column_int64(pStmt, 0);
    rc = sqlite3_reset(pStmt);
  }
  idemFailDb(pCall, rc);
  sqlite3_finalize(pStmt);
  return iCookie;
}

void idemSchemaVerify(IdemCall *pCall) {
  Found found;
  int64_t iCookie;
  if (pCall->rc != SQLITE_OK) return;
  iCookie = readCookie(pCall);
  if (pCall->rc != SQLITE_OK) return;
  if (idemConnVerified(pCall->pConn) && idemConnCookie(pCall->pConn) == iCookie) return;
  /* A rollback takes a cookie back, and the next change gives it out again. */
  if (sqlite3_txn_state(pCall->db, "main") == SQLITE_TXN_WRITE) iCookie = NO_COOKIE;
  look(pCall, &found);
  if (pCall->rc == SQLITE_OK && found.nOurs == 0 && !found.zForeign) {
    idemFail(pCall, IDEM_E_NO_STORE);
  }
  /* A newer store has other tables: its version explains them, so it is asked first. */
  if (pCall->rc == SQLITE_OK && found.bMeta) readVersion(pCall);
  if (pCall->rc == SQLITE_OK && found.zForeign) idemFail(pCall, IDEM_E_FOREIGN, found.zForeign);
  if (pCall->rc == SQLITE_OK && found.nOurs != countOurs()) failMissing(pCall, found.mOurs);
  /* An authorizer may have hidden its name. */
  if (pCall->rc == SQLITE_OK && !found.bMeta) idemFail(pCall, IDEM_E_FOREIGN, "idem_meta");
  sqlite3_free(found.zForeign);
  idemConnSetVerified(pCall->pConn, pCall->rc == SQLITE_OK, iCookie);
}

/* True if there is a store; a call that failed for another reason than its absence stays failed. */
static int haveStore(IdemCall *pCall) {
  IdemCall probe;
  Found found;
  idemCallBegin(&probe, pCall->pConn, pCall->zFunc);
  look(&probe, &found);
  sqlite3_free(found.zForeign);
  if (probe.rc == SQLITE_OK && (found.nOurs > 0 || found.zForeign)) idemSchemaVerify(&probe);
  if (probe.rc != SQLITE_OK) idemFailText(pCall, probe.rc, probe.zErr);
  return probe.rc == SQLITE_OK && idemConnVerified(pCall->pConn);
}

/* A temp table or view that bears a name of the store would take the triggers and indexes that are
** meant for it, and nothing would fail. */
static void refuseTemp(IdemCall *pCall) {
  static const char zSql[] = "SELECT 'temp.'||name FROM temp.sqlite_schema"
                             " WHERE name COLLATE NOCASE IN (" STORE_TABLES "," STORE_VIEWS ")";
  sqlite3_stmt *pStmt = 0;
  int rc = sqlite3_prepare_v2(pCall->db, zSql, -1, &pStmt, 0);
  if (rc == SQLITE_OK && sqlite3_step(pStmt) == SQLITE_ROW) {
    const char *zName = (const char *)sqlite3_column_text(pStmt, 0);
    idemFail(pCall, IDEM_E_FOREIGN, zName ? zName : "(in temp)");
  }
  if (rc == SQLITE_OK) rc = sqlite3_reset(pStmt);
  idemFailDb(pCall, rc);
  sqlite3_finalize(pStmt);
}

/* Runs sql/store.sql, below a statement that undoes it if it fails. (A savepoint would want memory,
** and the authorizer's consent, to be rolled back; and below a write statement there is none.) */
static void createStore(IdemCall *pCall, void *pUnused) {
  (void)pUnused;
  idemFailDb(pCall, sqlite3_exec(pCall->db, idemSqlFiles[0].zText, 0, 0, 0));
}

int idemSchemaInit(IdemCall *pCall) {
  idemConnSetVerified(pCall->pConn, 0, NO_COOKIE);
  /* After a failure it is looked for as well, whatever failed: what a statement created and its
  ** rollback took back stands in SQLite's memory until a statement meets the old cookie. */
  for (int i = 0; i < 3 && !haveStore(pCall) && pCall->rc == SQLITE_OK; i++) {
    IdemCall unit;
    idemConnDemandWrite(pCall);
    refuseTemp(pCall);
    if (pCall->rc != SQLITE_OK) break;
    idemCallBegin(&unit, pCall->pConn, pCall->zFunc);
    idemConnRunWhole(&unit, createStore, 0);
    /* Another process may have been quicker: then the store is there at the second look. */
    if (unit.rc != SQLITE_OK && (i == 2 || (unit.rc & 0xff) != SQLITE_ERROR || !haveStore(pCall))) {
      idemFailText(pCall, unit.rc, unit.zErr);
    } else {
      idemForgive(&unit);
    }
  }
  return pCall->rc == SQLITE_OK ? IDEM_SCHEMA_VERSION : 0;
}
