/*
** crash.c: what is left of a store when the power fails.
**
**     crash EXTENSION DIR MASTER JOURNAL SYNCHRONOUS STRIDE[:FIRST] [MISTAKE]
**
** A story of steps, each one commit. That of keys: every operation of idem, local effects,
** two-commit cycles, take-overs, a purge, checkpoints, VACUUM. That of the ledger, if MASTER is not
** "keys" but a file of SQL with the ledger's schema and master data: invoices, by the recipe. It
** runs on the disk of disk.h with a journal mode (WAL, DELETE) and a level of synchronous (EXTRA,
** FULL, NORMAL), on each of two devices. A first run writes down the state after each step: S0, S1,
** S2 ... (every row of every table; the clock stands still and tokens are chosen). A second run is
** cut before every STRIDE-th write, truncation, sync, creation and deletion (from FIRST on, or 0),
** in each way of diskCut().
**
** WHAT IS CHECKED after each cut, while steps 1 to i have been acknowledged and i + 1 is running:
**   - the file opens, integrity_check and foreign_key_check are content, the audit chain is whole;
**   - its state is one of S0 ... Si+1, byte for byte: no half of a step, no step without the one
**     before; and which ones may be lost depends on what was asked for:
**         the process was killed       none that was acknowledged
**         WAL, FULL; DELETE, EXTRA     none that was acknowledged
**         DELETE, FULL or NORMAL       the last one: SQLite deletes the journal without syncing the
**                                      directory, so it may come back
**         WAL, NORMAL                  any number of the last ones
**   - said once more in SQL: effect and completion exist together; attempts are counted by tokens;
**     books balance and numbers have no gap;
**   - no token completes anything but the live attempt it was given for, also one whose claim the
**     cut has undone;
**   - the lost steps and the interrupted one, asked for again, lead to Si+1, however far they had
**     come; every 16th time the whole rest of the story does, too.
**
** DELETE with NORMAL is cut in order only, not torn: there the journal's header and its pages share
** one sync, which is safe on disks that do not reorder (SQLite says so of this mode).
**
** MISTAKE makes the program wrong, to see that it notices: "lying" (syncs do nothing), "off"
** (synchronous=OFF, judged as if it were not), "apart" (effect and completion in two commits).
*/
#include <stdarg.h>
#include <stdint.h>

#include "disk.h"

static const char *zExt, *zMaster, *zJournal, *zSync, *zMistake = "";
static char zFirst[1000], zLive[1000], zAfter[1000]; /* databases */
static char zDoing[300]; /* for messages */
static long nCheck, nFailed;

static int check(int bOk, const char *zFmt, ...) {
  va_list ap;
  nCheck++;
  if (bOk) return 1;
  if (++nFailed > 200) return 0;
  printf("FAILED [%s] ", zDoing);
  va_start(ap, zFmt);
  vprintf(zFmt, ap);
  va_end(ap);
  putchar('\n');
  return 0;
}

static void die(const char *zFmt, ...) {
  va_list ap;
  printf("STOPPED [%s] ", zDoing);
  va_start(ap, zFmt);
  vprintf(zFmt, ap);
  va_end(ap);
  putchar('\n');
  exit(2);
}

/* --- the story ------------------------------------------------------------------------------ */

enum {
  CLAIM,   /* claim zKey with zToken, committed by itself */
  HANDLE,  /* one transaction: claim (again, if one did before), zSql, complete */
  SQL,     /* zSql as it stands, one commit */
  REFUSED, /* zSql must fail, and change nothing */
  INVOICE, /* the recipe ledger-invoice for order zSql */
  REOPEN   /* both connections close and open */
};

/* A token of 16 characters. */
#define T(x) "token-of-try-" x
#define EFFECT "INSERT INTO business(key,body) VALUES(:key,'effect of '||:key)"
#define BIG "INSERT INTO business(key,body) VALUES(:key,printf('%.*c',150000,'x'))"

struct Step {
  int eKind, iConn; /* and which connection */
  const char *zKey, *zToken, *zOp, *zSql;
  int iHour; /* the clock: hours since the start */
};

static const struct Step aKeys[] = {
    {SQL, 0, "", "", "", "SELECT idem_init()", 0},
    {SQL, 0, "", "", "",
     "BEGIN IMMEDIATE; INSERT INTO idem_policy(operation,on_stale,lease_ms) VALUES"
     "('retry','retry',60000); INSERT INTO idem_policy(operation,audit) VALUES('audited','all');"
     "INSERT INTO idem_policy(operation,retention_ms,tombstone_ms) VALUES('brief',1000,7200000);"
     "COMMIT", 0},
    {HANDLE, 0, "local", T("101"), "op", EFFECT, 0},
    {HANDLE, 1, "audited", T("102"), "audited", EFFECT, 0},
    {CLAIM, 0, "steps", T("103"), "op", 0, 0},
    {SQL, 0, "", "", "",
     "BEGIN IMMEDIATE; INSERT INTO step(key) VALUES('steps');"
     "SELECT idem_checkpoint('t','steps','" T("103") "','half','data'); COMMIT", 0},
    {SQL, 0, "", "", "", "SELECT idem_renew('t','steps','" T("103") "')", 0},
    {HANDLE, 0, "steps", T("103"), "op", EFFECT, 0},
    {CLAIM, 0, "taken", T("104"), "retry", 0, 0},
    {CLAIM, 1, "taken", T("204"), "retry", 0, 1},
    {REFUSED, 0, "", "", "",
     "BEGIN IMMEDIATE; INSERT INTO business(key,body) VALUES('taken','late');"
     "SELECT idem_complete('t','taken','" T("104") "','late'); COMMIT", 1},
    {HANDLE, 1, "taken", T("204"), "retry", EFFECT, 1},
    {CLAIM, 0, "released", T("105"), "op", 0, 1},
    {SQL, 0, "", "", "", "SELECT idem_release('t','released','" T("105") "','why')", 1},
    {REFUSED, 1, "", "", "", "SELECT idem_claim('t','released','fp','op','" T("105") "')", 1},
    {HANDLE, 1, "released", T("205"), "op", EFFECT, 1},
    {CLAIM, 0, "unknown", T("106"), "op", 0, 1},
    {SQL, 0, "", "", "", "SELECT idem_suspend('t','unknown','" T("106") "','who knows')", 1},
    {SQL, 1, "", "", "",
     "BEGIN IMMEDIATE; INSERT INTO business(key,body) VALUES('unknown','effect of unknown');"
     "SELECT idem_resolve('t','unknown','completed','effect of unknown',201); COMMIT", 1},
    {CLAIM, 0, "granted", T("107"), "audited", 0, 1},
    {SQL, 0, "", "", "", "SELECT idem_suspend('t','granted','" T("107") "')", 1},
    {SQL, 1, "", "", "", "SELECT idem_resolve('t','granted','retry','it did not')", 1},
    {HANDLE, 0, "granted", T("207"), "audited", EFFECT, 1},
    {SQL, 1, "", "", "",
     "BEGIN IMMEDIATE; INSERT INTO business(key,body) SELECT 'event:e1','seen'"
     " WHERE idem_seen('s','e1','fp'); COMMIT", 1},
    {SQL, 0, "", "", "",
     "INSERT OR IGNORE INTO idem_records(scope,key,fingerprint,operation,token)"
     " VALUES('t','by rows','fp','op','" T("108") "')", 1},
    {SQL, 0, "", "", "",
     "BEGIN IMMEDIATE;"
     "INSERT OR IGNORE INTO business(key,body) VALUES('by rows','effect of by rows');"
     "UPDATE idem_records SET state='completed',response='effect of by rows',code=201"
     " WHERE scope='t' AND key='by rows' AND token='" T("108") "'; COMMIT", 1},
    {HANDLE, 1, "brief", T("109"), "brief", EFFECT, 1},
    {HANDLE, 0, "big", T("110"), "op", BIG, 1},
    {SQL, 1, "", "", "", "SELECT idem_purge()", 2},
    {SQL, 0, "", "", "", "PRAGMA wal_checkpoint(TRUNCATE)", 2},
    {SQL, 0, "", "", "", "SELECT idem_purge()", 6},
    {REOPEN, 0, "", "", "", 0, 6},
    {CLAIM, 1, "last", T("113"), "retry", 0, 6},
    {HANDLE, 1, "last", T("113"), "retry", EFFECT, 6},
    {SQL, 0, "", "", "", "VACUUM", 6},
    {SQL, 0, "", "", "",
     "BEGIN IMMEDIATE; DELETE FROM idem_records WHERE scope='t' AND key='local';"
     "DELETE FROM business WHERE key='local'; COMMIT", 6},
    {HANDLE, 0, "after all", T("114"), "op", EFFECT, 6},
};

static const struct Step aLedger[] = {
    {SQL, 0, "", "", "", "SELECT idem_init()", 0},
    {HANDLE, 0, "local", T("101"), "op", EFFECT, 0},
    {INVOICE, 0, "invoice-1", T("102"), "", "order-1", 0},
    {INVOICE, 1, "invoice-2", T("103"), "", "order-2", 0},
    {SQL, 0, "", "", "", "PRAGMA wal_checkpoint(TRUNCATE)", 0},
    {CLAIM, 0, "last", T("104"), "op", 0, 0},
    {INVOICE, 0, "invoice-3", T("105"), "", "order-3", 0},
    {HANDLE, 0, "last", T("104"), "op", EFFECT, 0},
};

static const struct Step *aStep; /* the story that is told */
static int nStep;
#define STEPS_MAX ((int)(sizeof(aKeys) / sizeof(aKeys[0])))

/* Parameters of a statement by name. */
typedef struct Params {
  const char *azName[24], *azValue[24];
  int n;
} Params;

static void give(Params *p, const char *zName, const char *zValue) {
  p->azName[p->n] = zName;
  p->azValue[p->n++] = zValue;
}

/* Runs SQL; the last row's columns, joined by '|', go to zRow. */
static int run(sqlite3 *db, const char *zSql, const Params *pParams, char *zRow, int nRow) {
  int rc = SQLITE_OK;
  while (rc == SQLITE_OK && zSql[strspn(zSql, " \n;")]) {
    sqlite3_stmt *p = 0;
    rc = sqlite3_prepare_v2(db, zSql, -1, &p, &zSql);
    for (int i = 1; p && i <= sqlite3_bind_parameter_count(p); i++) {
      const char *zName = sqlite3_bind_parameter_name(p, i) + 1;
      for (int k = 0; k < pParams->n; k++) {
        if (strcmp(zName, pParams->azName[k]) == 0) {
          sqlite3_bind_text(p, i, pParams->azValue[k], -1, SQLITE_TRANSIENT);
        }
      }
    }
    while (p && (rc = sqlite3_step(p)) == SQLITE_ROW) {
      for (int i = 0, n = 0; zRow && i < sqlite3_column_count(p) && n < nRow; i++) {
        const char *z = (const char *)sqlite3_column_text(p, i);
        n += snprintf(zRow + n, (size_t)(nRow - n), "%s%s", i ? "|" : "", z ? z : "NULL");
      }
    }
    if (rc == SQLITE_DONE) rc = SQLITE_OK;
    int rcEnd = sqlite3_finalize(p);
    if (rc == SQLITE_OK) rc = rcEnd;
  }
  return rc;
}

static void mustRun(sqlite3 *db, const char *zSql) {
  int rc = run(db, zSql, &(Params){0}, 0, 0);
  if (rc != SQLITE_OK) die("%.200s: %d %s", zSql, rc, sqlite3_errmsg(db));
}

/* --- two connections on one file ------------------------------------------------------------ */

typedef struct World {
  const char *zPath;
  sqlite3 *aDb[2];
} World;

static sqlite3 *open_(World *w, int i) {
  char z[200], *zErr = 0;
  if (w->aDb[i]) return w->aDb[i];
  int rc = sqlite3_open(w->zPath, &w->aDb[i]);
  if (rc != SQLITE_OK) die("open: %d", rc);
  sqlite3_enable_load_extension(w->aDb[i], 1);
  if (sqlite3_load_extension(w->aDb[i], zExt, 0, &zErr) != SQLITE_OK) die("load: %s", zErr);
  snprintf(z, sizeof(z),
           "PRAGMA synchronous=%s; PRAGMA foreign_keys=ON; PRAGMA recursive_triggers=ON;"
           "PRAGMA wal_autocheckpoint=40; PRAGMA cache_size=12; PRAGMA temp_store=MEMORY",
           strcmp(zMistake, "off") == 0 ? "OFF" : zSync);
  run(w->aDb[i], z, &(Params){0}, 0, 0); /* it fails on a file that is broken: that shows later */
  return w->aDb[i];
}

static void close_(World *w) {
  for (int i = 0; i < 2; i++) {
    int rc = sqlite3_close(w->aDb[i]);
    if (!check(rc == SQLITE_OK, "close: %d", rc)) sqlite3_close_v2(w->aDb[i]);
    w->aDb[i] = 0;
  }
}

/* --- steps ---------------------------------------------------------------------------------- */

static int claim(sqlite3 *db, const Params *pParams, char *zOutcome, int n) {
  return run(db,
             "INSERT INTO idem_call DEFAULT VALUES"
             " RETURNING idem_claim('t',:key,'fp',:operation,:token) ->> 'outcome'",
             pParams, zOutcome, n);
}

/* A request's handler, as an application writes it. It may be asked again at any time. */
static int handle(sqlite3 *db, const struct Step *pStep) {
  char *zBody = need(calloc(1, 200000)); /* not static: a cut may happen below */
  char zOutcome[40] = "";
  Params params = {0};
  give(&params, "key", pStep->zKey);
  give(&params, "token", pStep->zToken);
  give(&params, "operation", pStep->zOp);
  int rc = run(db, "BEGIN IMMEDIATE", &params, 0, 0);
  if (rc == SQLITE_OK) rc = claim(db, &params, zOutcome, sizeof(zOutcome));
  if (rc == SQLITE_OK && strcmp(zOutcome, "claimed") == 0) {
    rc = run(db, pStep->zSql, &params, 0, 0);
    if (rc == SQLITE_OK && strcmp(zMistake, "apart") == 0) {
      rc = run(db, "COMMIT; BEGIN IMMEDIATE", &params, 0, 0);
    }
    if (rc == SQLITE_OK) {
      rc = run(db, "SELECT body FROM business WHERE key=:key", &params, zBody, 200000);
    }
    give(&params, "response", zBody);
    if (rc == SQLITE_OK) {
      rc = run(db, "SELECT idem_complete('t',:key,:token,:response,201)", &params, 0, 0);
    }
  } else if (rc == SQLITE_OK) {
    check(strcmp(zOutcome, "replay") == 0, "the handler is told '%s'", zOutcome);
  }
  if (rc == SQLITE_OK) rc = run(db, "COMMIT", &params, 0, 0);
  free(zBody);
  return rc;
}

/* The SQL of one step of the recipe. The caller frees it. */
static char *recipe(sqlite3 *db, const char *zStep) {
  static char zAll[40000];
  char zHead[60];
  if (!zAll[0]) {
    run(db, "SELECT idem_schema('recipes/ledger-invoice')", &(Params){0}, zAll, sizeof(zAll));
  }
  snprintf(zHead, sizeof(zHead), "-- step: %s\n", zStep);
  const char *z = strstr(zAll, zHead);
  if (!z) die("the recipe has no step %s", zStep);
  z += strlen(zHead);
  const char *zEnd = strstr(z, "-- step: ");
  char *zOut = need(strndup(z, zEnd ? (size_t)(zEnd - z) : strlen(z)));
  for (char *zC = zOut; (zC = strstr(zC, "-- ")) != 0;) memset(zC, ' ', strcspn(zC, "\n"));
  return zOut;
}

static int runRecipe(sqlite3 *db, const char *zStep, const Params *p, char *zRow, int nRow) {
  char *zSql = recipe(db, zStep);
  int rc = run(db, zSql, p, zRow, nRow);
  free(zSql);
  return rc;
}

static int invoice(sqlite3 *db, const struct Step *pStep) {
  static const char *const azStep[] = {"work",     "draft", "lines",  "entry",
                                       "postings", "issue", "answer"};
  char zClaim[2000] = "", zDocument[40] = "", zEntry[40] = "", zResponse[400] = "";
  Params p = {{"company", "key", "body", "customer", "channel", "order_ref", "currency",
               "issue_date", "due_date", "lines", "series", "receivable", "revenue", "vat", "token",
               "document", "entry", "response"},
              {"1", pStep->zKey, "{\"amount\":1}", "1", "web", pStep->zSql, "EUR", "2026-06-15",
               "2026-07-15",
               "[{\"description\":\"thing\",\"quantity_milli\":2000,\"unit_price_minor\":500,"
               "\"net_minor\":1000,\"tax_code\":\"V21\"},{\"description\":\"other\","
               "\"quantity_milli\":1000,\"unit_price_minor\":300,\"net_minor\":300,"
               "\"tax_code\":\"V9\"}]",
               "1", "1", "7", "5", pStep->zToken, zDocument, zEntry, zResponse},
              18};
  int rc = runRecipe(db, "begin", &p, 0, 0);
  if (rc == SQLITE_OK) { /* the recipe's claim, with a token of one's own */
    rc = run(db,
             "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('company:' || :company,"
             " :key, idem_fingerprint(:body), 'POST /v1/invoices', :token) ->> 'outcome'",
             &p, zClaim, sizeof(zClaim));
  }
  if (rc == SQLITE_OK && strcmp(zClaim, "claimed") == 0) {
    for (int i = 0; i < 7 && rc == SQLITE_OK; i++) {
      char zRow[400] = "";
      rc = runRecipe(db, azStep[i], &p, zRow, sizeof(zRow));
      if (i == 1) memcpy(zDocument, zRow, sizeof(zDocument) - 1);
      if (i == 3) memcpy(zEntry, zRow, sizeof(zEntry) - 1);
      if (i == 5) memcpy(zResponse, zRow, sizeof(zResponse));
    }
  } else if (rc == SQLITE_OK) {
    check(strcmp(zClaim, "replay") == 0, "the invoice is told '%s'", zClaim);
  }
  if (rc == SQLITE_OK) rc = runRecipe(db, "commit", &p, 0, 0);
  return rc;
}

/* One step, whether it was done before or not. */
static int perform(World *w, const struct Step *pStep) {
  sqlite3 *db = open_(w, pStep->iConn);
  char z[100], zOutcome[40] = "";
  int rc = SQLITE_OK;
  snprintf(z, sizeof(z), "SELECT idem_clock(%d)", 1000000 + 3600000 * pStep->iHour);
  rc = run(db, z, &(Params){0}, 0, 0);
  if (rc != SQLITE_OK) return rc;
  switch (pStep->eKind) {
  case CLAIM: {
    Params p = {{"key", "operation", "token"}, {pStep->zKey, pStep->zOp, pStep->zToken}, 3};
    rc = claim(db, &p, zOutcome, sizeof(zOutcome));
    check(rc || strcmp(zOutcome, "claimed") == 0, "the claim is told '%s'", zOutcome);
    break;
  }
  case HANDLE: rc = handle(db, pStep); break;
  case INVOICE: rc = invoice(db, pStep); break;
  case REOPEN: close_(w); break;
  default: rc = run(db, pStep->zSql, &(Params){0}, 0, 0); break;
  }
  if (rc != SQLITE_OK) snprintf(z, sizeof(z), "%s", sqlite3_errmsg(db));
  if (pStep->eKind == REFUSED) {
    check((rc & 0xff) == SQLITE_CONSTRAINT, "a token is accepted twice: %d", rc);
    rc = SQLITE_OK;
  } else if (rc != SQLITE_OK) {
    printf("[%s] %s %s: %d %s\n", zDoing, pStep->zKey, pStep->zSql ? pStep->zSql : "", rc, z);
  }
  if (pStep->eKind != REOPEN && !sqlite3_get_autocommit(db)) {
    run(db, "ROLLBACK", &(Params){0}, 0, 0);
  }
  return rc;
}

/* --- states --------------------------------------------------------------------------------- */

typedef uint64_t State; /* a digest of every row of every table */
static State aState[STEPS_MAX + 1];

static State mix(State s, const void *a, size_t n) {
  for (const unsigned char *p = a; n > 0; n--) s = (s ^ *p++) * 0x100000001b3u;
  return s;
}

/* 0 if it cannot be read. */
static State stateOf(sqlite3 *db) {
  State s = 0xcbf29ce484222325u;
  sqlite3_stmt *pTables = 0, *p;
  int rc = sqlite3_prepare_v2(db,
                              "SELECT name FROM main.sqlite_schema WHERE type='table'"
                              " AND name NOT LIKE 'sqlite_%' ORDER BY name", -1, &pTables, 0);
  while (rc == SQLITE_OK && (rc = sqlite3_step(pTables)) == SQLITE_ROW) {
    const char *zName = (const char *)sqlite3_column_text(pTables, 0);
    int bMeta = strcmp(zName, "idem_meta") == 0; /* its policy_version is random */
    char *z = sqlite3_mprintf("SELECT %s FROM main.%Q", bMeta ? "schema_version" : "*", zName);
    s = mix(s, zName, strlen(zName));
    rc = sqlite3_prepare_v2(db, z, -1, &p, 0);
    sqlite3_free(z);
    while (rc == SQLITE_OK && (rc = sqlite3_step(p)) == SQLITE_ROW) {
      rc = SQLITE_OK;
      for (int i = 0; i < sqlite3_column_count(p); i++) {
        int e = sqlite3_column_type(p, i);
        const void *a = e == SQLITE_BLOB ? sqlite3_column_blob(p, i) : sqlite3_column_text(p, i);
        int n = sqlite3_column_bytes(p, i);
        s = mix(mix(mix(s, &e, sizeof(e)), &n, sizeof(n)), a, (size_t)n);
      }
    }
    if (rc == SQLITE_DONE) rc = SQLITE_OK;
    sqlite3_finalize(p);
  }
  sqlite3_finalize(pTables);
  return rc == SQLITE_DONE ? s : 0;
}

static int nAcked; /* steps that were acknowledged */

/* The least step that may be what is left. */
static int oldestAllowed(int eCut) {
  int i = nAcked, bWal = strcmp(zJournal, "WAL") == 0;
  if (eCut == CUT_STOP || strcmp(zSync, "EXTRA") == 0) return i;
  if (bWal) return strcmp(zSync, "FULL") == 0 ? i : 0;
  while (i > 0 && aState[i] == aState[nAcked]) i--; /* the last that wrote */
  return i;
}

/* --- checks --------------------------------------------------------------------------------- */

/* Each query must give nothing. */
static const struct {
  const char *zWhat, *zSql;
  int bLedger;
} aRule[] = {
    {"a completion without its effect",
     "SELECT s.key FROM idem_store s LEFT JOIN business b USING(key)"
     " WHERE s.scope='t' AND s.state='completed' AND b.body IS NOT s.response", 0},
    {"an effect without its completion",
     "SELECT key FROM business b WHERE key NOT LIKE 'event:%' AND key<>'brief' AND NOT EXISTS"
     " (SELECT 1 FROM idem_store s WHERE s.scope='t' AND s.key=b.key AND s.state='completed')", 0},
    {"a recovery point without its step, or a step without",
     "SELECT 1 WHERE EXISTS(SELECT 1 FROM step) <>"
     " EXISTS(SELECT 1 FROM idem_store WHERE key='steps' AND recovery_point='half')", 0},
    {"an event without its effect, or an effect without",
     "SELECT 1 WHERE (SELECT count(*) FROM idem_inbox) <>"
     " (SELECT count(*) FROM business WHERE key LIKE 'event:%')", 0},
    {"an attempt without its token",
     "SELECT key,attempt FROM idem_store WHERE state<>'tombstone' AND attempt <>"
     " length(coalesce(spent,'')) - length(replace(coalesce(spent,''),char(10),''))"
     " + (token IS NOT NULL)", 0},
    {"an invoice without its completion, or a completion without",
     "SELECT 1 WHERE (SELECT count(*) FROM sales_document) <>"
     " (SELECT count(*) FROM idem_store WHERE scope='company:1' AND state='completed')", 1},
    {"an entry that does not balance",
     "SELECT entry_id FROM journal_line GROUP BY entry_id HAVING sum(base_amount_minor)<>0", 1},
    {"a gap in the numbers",
     "SELECT 1 FROM (SELECT max(number) AS m, count(*) AS n FROM sales_document)"
     " WHERE coalesce(m,0)<>n", 1},
    {"a broken reference", "PRAGMA foreign_key_check", 0},
    {"a broken audit", "SELECT idem_audit_verify() AS i WHERE i IS NOT NULL", 0},
};

static void checkRules(sqlite3 *db) {
  for (size_t i = 0; i < sizeof(aRule) / sizeof(aRule[0]); i++) {
    char zRow[200] = "";
    if (aRule[i].bLedger && aStep != aLedger) continue;
    int rc = run(db, aRule[i].zSql, &(Params){0}, zRow, sizeof(zRow));
    check(rc == SQLITE_OK && !zRow[0], "%s: %d %s %s", aRule[i].zWhat, rc, zRow,
          rc ? sqlite3_errmsg(db) : "");
  }
}

/* Every token of the story tries to complete its key with another answer. */
static void checkTokens(sqlite3 *db) {
  mustRun(db, "BEGIN IMMEDIATE");
  for (int i = 0; i < nStep; i++) {
    char zCount[40] = "0";
    Params p = {{"key", "token"}, {aStep[i].zKey, aStep[i].zToken}, 2};
    if (aStep[i].eKind != CLAIM && aStep[i].eKind != HANDLE) continue;
    run(db, "SELECT count(*) FROM idem_store WHERE scope='t' AND key=:key AND token=:token"
            " AND state IN ('processing','unknown')", &p, zCount, sizeof(zCount));
    mustRun(db, "SAVEPOINT thief");
    int rc = run(db, "SELECT idem_complete('t',:key,:token,'stolen')", &p, 0, 0);
    check(zCount[0] == '1' ? rc == SQLITE_OK : (rc & 0xff) == SQLITE_CONSTRAINT,
          "%s completes '%s': %d, and it is%s live", aStep[i].zToken, aStep[i].zKey, rc,
          zCount[0] == '1' ? "" : " not");
    mustRun(db, "ROLLBACK TO thief; RELEASE thief");
  }
  mustRun(db, "ROLLBACK");
}

static long aCut[CUT_COUNT]; /* cuts that were looked at */
static long nAhead, nLost, nWhole; /* step i + 1 was there; steps lost; stories told to the end */

/* Which of the states was found; -1 if none that may be. */
static int findState(State s, int eCut) {
  int iLow = oldestAllowed(eCut);
  for (int i = nAcked + 1 < nStep ? nAcked + 1 : nStep; i >= iLow; i--) {
    if (aState[i] == s) return i;
  }
  for (int i = 0; i <= nStep; i++) {
    if (aState[i] == s) {
      check(0, "acknowledged steps are lost: it is as after step %d, not %d to %d", i, iLow,
            nAcked + 1);
      return -1;
    }
  }
  return check(0, "half a step is there, or nothing that can be read") - 1;
}

/* The power has come back. */
static void lookAt(int eCut) {
  World w = {zAfter, {0, 0}};
  sqlite3 *db = open_(&w, 0);
  char zRow[200] = "";
  aCut[eCut]++;
  int rc = run(db, "PRAGMA integrity_check", &(Params){0}, zRow, sizeof(zRow));
  check(rc == SQLITE_OK && strcmp(zRow, "ok") == 0, "integrity: %d %s", rc, zRow);
  int i = rc == SQLITE_OK ? findState(stateOf(db), eCut) : -1;
  if (i >= 0) {
    int iLast = nAcked < nStep ? nAcked + 1 : nStep, bWhole = aCut[eCut] % 16 == 0;
    if (i > nAcked) nAhead++;
    if (i < nAcked) nLost++;
    if (i > 0) { /* there is a store */
      checkRules(db);
      checkTokens(db);
    }
    for (int k = i < iLast ? i : iLast - 1; k < (bWhole ? nStep : iLast); k++) {
      /* A replay that is audited adds a row. */
      if (k < 0 || (k < i && strcmp(aStep[k].zOp, "audited") == 0)) continue;
      /* What is there already may be asked for again, but then it need not be granted. */
      rc = perform(&w, &aStep[k]);
      if (k >= i) check(rc == SQLITE_OK, "step %d does not go through now: %d", k + 1, rc);
      if (k + 1 == iLast || k + 1 == nStep) {
        check(stateOf(open_(&w, 0)) == aState[k + 1], "asked again, step %d differs", k + 1);
      }
    }
    if (bWhole) nWhole++;
  }
  close_(&w);
}

static long nBoundary, nStride, iFirst;

static void atBoundary(void) {
  if (nBoundary++ % nStride != iFirst) return;
  for (int eCut = 0; eCut < CUT_COUNT; eCut++) {
    int bInOrder = strcmp(zJournal, "DELETE") == 0 && strcmp(zSync, "NORMAL") == 0;
    static const char *const azCut[] = {"stopped", "lost", "torn", "in order"};
    if (eCut == CUT_TEAR && bInOrder) continue;
    iRandom = 88172645463325252u + (unsigned long long)(disk.iSeq * CUT_COUNT + eCut) * 7919u;
    snprintf(zDoing, sizeof(zDoing), "%s %s device %d, operation %ld, step %d, %s", zJournal, zSync,
             disk.eDevice, disk.iSeq, nAcked + 1, azCut[eCut]);
    diskCut(eCut, zAfter);
    lookAt(eCut);
  }
  snprintf(zDoing, sizeof(zDoing), "%s %s device %d, step %d", zJournal, zSync, disk.eDevice,
           nAcked + 1);
}

/* --- the program ---------------------------------------------------------------------------- */

/* The database that every telling begins with. */
static void makeFirst(void) {
  World w = {zFirst, {0, 0}};
  char z[100], *zErr = 0;
  removeFiles(zFirst);
  sqlite3 *db = open_(&w, 0);
  snprintf(z, sizeof(z), "PRAGMA journal_mode=%s", zJournal);
  mustRun(db, z);
  mustRun(db, "CREATE TABLE business(key TEXT PRIMARY KEY, body TEXT) STRICT;"
              "CREATE TABLE step(key TEXT PRIMARY KEY) STRICT");
  if (aStep == aLedger) {
    FILE *pIn = need(fopen(zMaster, "rb"));
    char *zSql = need(calloc(1, 1 << 20));
    if (fread(zSql, 1, (1 << 20) - 1, pIn) == 0) die("%s is empty", zMaster);
    fclose(pIn);
    if (sqlite3_exec(db, zSql, 0, 0, &zErr) != SQLITE_OK) die("%s", zErr);
    free(zSql);
  }
  close_(&w);
}

static void copyFile(const char *zFrom, const char *zTo) {
  char a[65536];
  size_t n;
  FILE *pIn = need(fopen(zFrom, "rb")), *pOut = need(fopen(zTo, "wb"));
  while ((n = fread(a, 1, sizeof(a), pIn)) > 0) {
    if (fwrite(a, 1, n, pOut) != n) exit(2);
  }
  fclose(pIn);
  fclose(pOut);
}

/* Tells the story once: cuts it, or writes its states down. The number of its boundaries. */
static long tell(int eDevice, int bCut) {
  World w = {zLive, {0, 0}};
  removeFiles(zLive);
  copyFile(zFirst, zLive);
  diskWatch(zLive, eDevice);
  disk.bLying = strcmp(zMistake, "lying") == 0;
  disk.xBoundary = bCut ? atBoundary : 0;
  nBoundary = nAcked = 0;
  for (int i = 0; i <= nStep; i++) {
    snprintf(zDoing, sizeof(zDoing), "%s %s device %d, step %d", zJournal, zSync, eDevice, i);
    if (i > 0 && perform(&w, &aStep[i - 1]) != SQLITE_OK) die("the story breaks off");
    nAcked = i;
    State s = stateOf(open_(&w, 0));
    if (bCut) check(s == aState[i], "another story");
    if (!bCut) aState[i] = s;
    if (s == 0) die("unreadable");
  }
  close_(&w);
  nBoundary = iFirst; /* once more, at the end */
  if (bCut) atBoundary();
  long n = disk.iSeq;
  check(n > 100, "only %ld boundaries: the wrong file is watched", n);
  diskForget();
  return n;
}

int main(int argc, char **argv) {
  long nAll = 0;
  if (argc < 7) die("crash EXTENSION DIR MASTER JOURNAL SYNCHRONOUS STRIDE[:FIRST] [MISTAKE]");
  zExt = argv[1];
  char *zDir = need(realpath(argv[2], 0)); /* SQLite makes names absolute */
  snprintf(zFirst, sizeof(zFirst), "%s/first.db", zDir);
  snprintf(zLive, sizeof(zLive), "%s/live.db", zDir);
  snprintf(zAfter, sizeof(zAfter), "%s/after.db", zDir);
  free(zDir);
  zMaster = argv[3];
  int bKeys = strcmp(zMaster, "keys") == 0;
  aStep = bKeys ? aKeys : aLedger;
  nStep = (int)(bKeys ? sizeof(aKeys) / sizeof(aKeys[0]) : sizeof(aLedger) / sizeof(aLedger[0]));
  zJournal = argv[4];
  zSync = argv[5];
  nStride = atol(argv[6]);
  if (strchr(argv[6], ':')) iFirst = atol(strchr(argv[6], ':') + 1) % nStride;
  if (argc > 7) zMistake = argv[7];
  diskRegister();
  makeFirst();
  tell(DEVICE_512, 0);
  for (int eDevice = DEVICE_512; eDevice <= DEVICE_4096; eDevice++) {
    nAll += tell(eDevice, 1);
  }
  removeFiles(zFirst);
  removeFiles(zLive);
  removeFiles(zAfter);
  printf("%s %s: %d steps, %ld boundaries, %ld cuts (%ld stopped, %ld lost, %ld torn, %ld in"
         " order), %ld steps there unacknowledged, %ld times steps lost, %ld stories to the end,"
         " %ld checks, %ld failed\n",
         zJournal, zSync, nStep, nAll, aCut[0] + aCut[1] + aCut[2] + aCut[3], aCut[0], aCut[1],
         aCut[2], aCut[3], nAhead, nLost, nWhole, nCheck, nFailed);
  return nFailed ? 1 : 0;
}
