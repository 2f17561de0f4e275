/*
** layout.c - which physical layout suits the record store?
**
** Candidates, all with an index on (state, due_at):
**   a  one WITHOUT ROWID table, PRIMARY KEY (scope, key), everything in it
**   b  one rowid table, id INTEGER PRIMARY KEY, UNIQUE (scope, key), everything in it
**   c  a narrow WITHOUT ROWID key table and a rowid table of answers (code, headers, response)
**
** Work, on a file in WAL mode with synchronous=NORMAL and the default automatic checkpoints:
**   pair    claim (INSERT, processing) and complete (UPDATE, completed, due_at moved), 1000 pairs
**           in one transaction or one transaction for each; checkpoints and syncs are in the time
**   replay  SELECT of all columns by scope and key, of a random completed record
**   purge   1000 expired records, found by the index, lose their answer and become tombstones
** The table is grown by the same claims and completions, so its pages are as full as in service.
** The layouts take turns round by round; the figures are medians. Each round adds its 1000 records
** to the table, so "10^4" grows to about 2.4 x 10^4 while it is measured. The system's page cache
** holds all the files: a miss of SQLite's cache costs a copy, not a disk read.
**
** Build:  cc -std=c11 -O2 -Wall -Wextra bench/layout.c -lsqlite3 -o layout
** Run:    ./layout [quick | full] [DIR]
**         DIR (default $TMPDIR or /tmp) receives a directory, removed at the end. quick takes under
**         a minute (10^4 and 10^5 records); the default about ten minutes and 15 GB; full adds
**         10^6 UUIDv7 records of 4 KiB.
**
** Result: (b). SQLite 3.40.1, gcc 12 -O2, 2 virtual CPUs of an AMD EPYC, 23 GiB, ext4, Linux 6.18,
** 30 November 2026, assembled from several runs. Differences under 10 % are noise (see "b once
** more"), those of pairs in single transactions under 20 %.
**   - (a) and (c) carry the 45 bytes of scope and key in every entry of rec_due and touch a random
**     leaf where (b) appends. A row of (a) above 1 KB overflows, and each comparison on the way
**     down then reads a whole row: hence its replay and pair at 4 KiB.
**   - Records expire in the order of their ids: the purge of (b) rewrites few pages, those of (a)
**     and (c) about one leaf for each record.
**   - With state codes in the order completed < processing, both entries that a record has in
**     rec_due one after the other are on one page. With processing first it is a WAL page more.
**   - A trigger AFTER INSERT costs even when WHEN is false; AFTER UPDATE OF another column and
**     ON CONFLICT DO NOTHING take the same steps as without and cost nothing.
**   - A cache of 256 MiB helps the replay of short records only, and makes some commits of single
**     pairs take milliseconds (the time is spent in SQLite's page cache, not in input or output).
**
** Microseconds, in brackets the ratio to (b); bytes of file per record:
**
** size, records, cache    | pair,1000/txn| pair, 1/txn  | replay       | purge        | bytes
**  200 B 10^4 v4   2 MiB a |  56.9 (6.97) |   114 (1.49) |  10.4 (0.96) |  52.5 (14.1) | 671
**                        b |   8.2 (1.00) |  76.6 (1.00) |  10.9 (1.00) |   3.7 (1.00) | 604
**                        c |  20.5 (2.51) |   104 (1.36) |  11.8 (1.09) |  42.8 (11.5) | 618
**  200 B 10^4 v7   2 MiB a |  52.1 (6.48) |   120 (1.43) |  10.4 (0.96) |  40.4 (11.2) | 673
**                        b |   8.1 (1.00) |  83.8 (1.00) |  10.9 (1.00) |   3.6 (1.00) | 604
**                        c |  20.4 (2.54) |   111 (1.32) |  12.0 (1.10) |  39.9 (11.0) | 620
**  200 B 10^6 v4   2 MiB a |   121 (1.66) |   150 (1.28) |  18.5 (1.01) |  68.0 (16.8) | 671
**                        b |  72.4 (1.00) |   118 (1.00) |  18.3 (1.00) |   4.0 (1.00) | 604
**                        c |  99.4 (1.37) |   152 (1.29) |  20.9 (1.14) |  79.7 (19.7) | 618
**  200 B 10^6 v4 256 MiB a |  98.9 (1.70) |   497 (2.16) |  14.7 (0.98) |  54.5 (8.31) | 671
**                        b |  58.1 (1.00) |   230 (1.00) |  15.1 (1.00) |   6.6 (1.00) | 604
**                        c |  80.9 (1.39) |   457 (1.99) |  17.4 (1.15) |  61.4 (9.36) | 618
**  200 B 10^6 v7   2 MiB a |  98.0 (1.63) |   165 (1.28) |  22.5 (0.99) |  50.3 (7.76) | 649
**                        b |  60.0 (1.00) |   129 (1.00) |  22.7 (1.00) |   6.5 (1.00) | 605
**                        c |  82.9 (1.38) |   163 (1.27) |  26.0 (1.14) |  59.3 (9.14) | 609
**  200 B 10^6 v7 256 MiB a |  95.3 (1.42) |   290 (2.20) |  21.2 (1.01) |  33.7 (3.08) | 649
**                        b |  67.1 (1.00) |   132 (1.00) |  20.9 (1.00) |  11.0 (1.00) | 605
**                        c |  88.8 (1.32) |   182 (1.38) |  24.7 (1.18) |  60.4 (5.51) | 609
** 4096 B 10^4 v4   2 MiB a |   143 (2.42) |   207 (1.49) |  43.2 (2.77) |  90.9 (2.56) | 4776
**                        b |  59.0 (1.00) |   139 (1.00) |  15.6 (1.00) |  35.5 (1.00) | 4700
**                        c |  83.0 (1.41) |   170 (1.22) |  16.9 (1.08) |  71.1 (2.00) | 4934
** 4096 B 10^4 v7   2 MiB a |   137 (2.48) |   221 (1.60) |  38.2 (2.51) |  82.3 (2.25) | 4775
**                        b |  55.2 (1.00) |   138 (1.00) |  15.2 (1.00) |  36.5 (1.00) | 4700
**                        c |  81.7 (1.48) |   166 (1.21) |  16.5 (1.08) |  68.9 (1.89) | 4935
** 4096 B 10^6 v4   2 MiB a |   561 (4.75) |   566 (3.47) |   248 (9.44) |   324 (6.87) | 4775
**                        b |   118 (1.00) |   163 (1.00) |  26.2 (1.00) |  47.1 (1.00) | 4700
**                        c |   152 (1.29) |   190 (1.17) |  24.8 (0.95) |   119 (2.52) | 4934
** 4096 B 10^6 v4 256 MiB a |   415 (3.81) |   460 (2.74) |   177 (3.22) |   160 (4.26) | 4775
**                        b |   109 (1.00) |   168 (1.00) |  55.1 (1.00) |  37.7 (1.00) | 4700
**                        c |   140 (1.28) |   213 (1.27) |  38.9 (0.71) |  81.5 (2.17) | 4934
** 4096 B 10^6 v7   2 MiB a |   293 (3.30) |   332 (1.99) |   278 (8.27) |   109 (2.74) | 4740
**                        b |  88.8 (1.00) |   167 (1.00) |  33.6 (1.00) |  39.9 (1.00) | 4701
**                        c |   149 (1.68) |   197 (1.18) |  30.3 (0.90) |  84.5 (2.12) | 4925
** 4096 B 10^6 v7 256 MiB a |   185 (1.93) |   324 (1.63) |   282 (4.14) |   108 (2.25) | 4740
**                        b |  95.6 (1.00) |   199 (1.00) |  68.0 (1.00) |  47.9 (1.00) | 4701
**                        c |   124 (1.29) |   263 (1.32) |  42.4 (0.62) |  81.3 (1.70) | 4925
**
** 10^4 records, 200 B, v4, 2 MiB     | statements  | 1000/txn    | 1/txn       | steps  | WAL pages
** b                                 |  8.6 (1.00)| 17.0 (1.00)|  102 (1.00) | 45+54  | 0.4/3.9
** b once more (noise)               |  8.5 (0.99)| 16.5 (0.97)| 99.4 (0.97) | 45+54  | 0.4/3.9
** b + index on created_at           |  9.4 (1.09)| 19.1 (1.13)|  121 (1.19) | 50+54  | 0.5/5.0
** b, state INTEGER, order of texts  |  9.2 (1.07)| 17.4 (1.03)| 99.9 (0.98) | 45+54  | 0.4/3.9
** b, state INTEGER, processing first|  8.4 (0.98)| 18.2 (1.07)|  116 (1.14) | 45+54  | 0.4/4.9
** b + AFTER INSERT, WHEN is false   |  9.2 (1.07)| 20.1 (1.18)|  102 (1.00) | 50+54  | 0.4/3.9
** b + AFTER UPDATE OF other column  |  8.4 (0.98)| 17.8 (1.05)|  100 (0.98) | 45+54  | 0.4/3.9
** b, claim ON CONFLICT DO NOTHING   |  8.9 (1.03)| 16.5 (0.97)|  102 (1.00) | 45+54  | 0.4/3.9
** c                                 | 20.5 (2.38)| 57.1 (3.36)|  138 (1.35) | 51+76  | 1.4/4.5
** c, INSTEAD OF UPDATE on a view    | 30.8 (3.58)| 68.1 (4.00)|  132 (1.29) | 51+139 | 1.4/4.5
** c, INSTEAD OF INSERT on a view    | 23.8 (2.77)| 60.4 (3.55)|  132 (1.29) | 51+90  | 1.4/4.5
**
** 10^6 records, 200 B, v4, 2 MiB     | statements  | 1000/txn    | 1/txn       | steps  | WAL pages
** b                                 | 21.1 (1.00)| 70.0 (1.00)| 99.2 (1.00) | 45+54  | 1.5/3.9
** b once more (noise)               | 21.3 (1.01)| 65.0 (0.93)|  102 (1.02) | 45+54  | 1.5/3.9
** b + index on created_at           | 23.6 (1.12)| 71.0 (1.01)|  123 (1.24) | 50+54  | 1.5/5.0
** b, state INTEGER, order of texts  | 21.8 (1.03)| 70.9 (1.01)|  111 (1.12) | 45+54  | 1.5/3.9
** b, state INTEGER, processing first| 25.0 (1.19)| 78.5 (1.12)|  118 (1.19) | 45+54  | 1.5/4.9
** b + AFTER INSERT, WHEN is false   | 31.3 (1.48)| 76.8 (1.10)|  107 (1.08) | 50+54  | 1.5/3.9
** b + AFTER UPDATE OF other column  | 20.6 (0.98)| 65.0 (0.93)|  103 (1.04) | 45+54  | 1.5/3.9
** b, claim ON CONFLICT DO NOTHING   | 20.4 (0.97)| 74.5 (1.06)|  117 (1.18) | 45+54  | 1.5/3.9
** c                                 | 30.9 (1.47)| 91.8 (1.31)|  133 (1.34) | 51+76  | 2.1/4.5
** c, INSTEAD OF UPDATE on a view    | 35.0 (1.66)| 98.8 (1.41)|  136 (1.37) | 51+139 | 2.1/4.5
** c, INSTEAD OF INSERT on a view    | 30.2 (1.43)| 94.6 (1.35)|  133 (1.34) | 51+90  | 2.1/4.5
**
** bytes/record, claims in flight | response |    0 |   64 | 1000
** a: WITHOUT ROWID, one row      |    200 B |  670 |  670 |  674
** b: rowid, one row              |    200 B |  603 |  620 |  621
** c: WITHOUT ROWID key + answer  |    200 B |  619 |  619 |  621
** a: WITHOUT ROWID, one row      |   4096 B | 4775 | 4775 | 4777
** b: rowid, one row              |   4096 B | 4699 | 4706 | 4707
** c: WITHOUT ROWID key + answer  |   4096 B | 4935 | 4935 | 4937
*/
#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#define PAIRS 1000
#define PURGE 1000
#define REPLAYS 5000
#define SCOPES 1000
#define MAX_ROUNDS 32
#define MAX_DBS 12
#define MAX_RESPONSE 4096
#define EPOCH_MS INT64_C(1760000000000)
#define DAY_MS INT64_C(86400000)
#define LEASE_MS INT64_C(30000)

/* Parameters have the same number in every statement:
** 1 scope, 2 key, 3 operation, 4 fingerprint, 5 token, 6 due_at, 7 now,
** 8 code, 9 headers, 10 response, 11 limit. */
#define KEY_COLUMNS                                                      \
  "scope TEXT NOT NULL, key TEXT NOT NULL, operation TEXT NOT NULL,"     \
  "fingerprint TEXT NOT NULL, state NOT NULL, attempt INTEGER NOT NULL," \
  "token TEXT, due_at INTEGER, created_at INTEGER NOT NULL,"             \
  "updated_at INTEGER NOT NULL, audit_event TEXT"
#define ANSWER_COLUMNS "code INTEGER, headers TEXT, response BLOB"
#define DUE_INDEX "CREATE INDEX rec_due ON rec(state, due_at);"
#define INSERT_RECORD(state)                                                       \
  "INSERT INTO rec(scope,key,operation,fingerprint,state,attempt,token,due_at,"    \
  "created_at,updated_at) VALUES(?1,?2,?3,?4," state ",1,?5,?6,?7,?7)"
#define COMPLETE_WIDE(processing, completed)                                       \
  "UPDATE rec SET state=" completed ",due_at=?6,updated_at=?7,code=?8,headers=?9," \
  "response=?10 WHERE scope=?1 AND key=?2 AND token=?5 AND state=" processing
#define SELECT_KEY "SELECT scope,key,operation,fingerprint,state,attempt,token,due_at," \
  "created_at,updated_at,audit_event,code,headers,response FROM rec "
#define WHERE_KEY "WHERE scope=?1 AND key=?2"
#define EXPIRED(columns, completed)                                     \
  "(SELECT " columns " FROM rec WHERE state=" completed " AND due_at<=?7" \
  " ORDER BY due_at LIMIT ?11)"
#define BURY(tombstone) \
  "UPDATE rec SET state=" tombstone ",due_at=?6,updated_at=?7,headers=NULL,response=NULL "

typedef struct {
  const char *name;
  const char *ddl;
  const char *claim;
  const char *done[2];
  const char *replay;
  const char *purge[2];
} Layout;

static const Layout wide_key = {
  "a: WITHOUT ROWID, one row",
  "CREATE TABLE rec(" KEY_COLUMNS "," ANSWER_COLUMNS
  ", PRIMARY KEY(scope,key)) WITHOUT ROWID;" DUE_INDEX,
  INSERT_RECORD("'processing'"),
  {COMPLETE_WIDE("'processing'", "'completed'"), NULL},
  SELECT_KEY WHERE_KEY,
  {BURY("'tombstone'") "WHERE (scope,key) IN " EXPIRED("scope,key", "'completed'"), NULL},
};

#define WIDE_ROWID_DDL                                                       \
  "CREATE TABLE rec(id INTEGER PRIMARY KEY," KEY_COLUMNS "," ANSWER_COLUMNS \
  ", UNIQUE(scope,key));" DUE_INDEX

static const Layout wide_rowid = {
  "b: rowid, one row",
  WIDE_ROWID_DDL,
  INSERT_RECORD("'processing'"),
  {COMPLETE_WIDE("'processing'", "'completed'"), NULL},
  SELECT_KEY WHERE_KEY,
  {BURY("'tombstone'") "WHERE id IN " EXPIRED("id", "'completed'"), NULL},
};

/* Codes in the order of the texts: completed, processing, tombstone. */
static const Layout integer_state = {
  "b, state INTEGER",
  WIDE_ROWID_DDL,
  INSERT_RECORD("2"),
  {COMPLETE_WIDE("2", "1"), NULL},
  SELECT_KEY WHERE_KEY,
  {BURY("3") "WHERE id IN " EXPIRED("id", "1"), NULL},
};

/* Codes in the order of a record's life, which parts its two entries in rec_due. */
static const Layout life_order_state = {
  "b, state INTEGER, processing first",
  WIDE_ROWID_DDL,
  INSERT_RECORD("0"),
  {COMPLETE_WIDE("0", "1"), NULL},
  SELECT_KEY WHERE_KEY,
  {BURY("2") "WHERE id IN " EXPIRED("id", "1"), NULL},
};

static const Layout claim_conflict = {
  "b, ON CONFLICT DO NOTHING",
  WIDE_ROWID_DDL,
  INSERT_RECORD("'processing'") " ON CONFLICT DO NOTHING",
  {COMPLETE_WIDE("'processing'", "'completed'"), NULL},
  SELECT_KEY WHERE_KEY,
  {BURY("'tombstone'") "WHERE id IN " EXPIRED("id", "'completed'"), NULL},
};

#define SPLIT_DDL                                                         \
  "CREATE TABLE rec(" KEY_COLUMNS ", answer_id INTEGER"                   \
  ", PRIMARY KEY(scope,key)) WITHOUT ROWID;"                              \
  "CREATE TABLE answer(id INTEGER PRIMARY KEY," ANSWER_COLUMNS ");" DUE_INDEX
#define SPLIT_REPLAY SELECT_KEY "LEFT JOIN answer ON answer.id=rec.answer_id " WHERE_KEY
#define SPLIT_PURGE                                                                \
  {"DELETE FROM answer WHERE id IN " EXPIRED("answer_id", "'completed'"),          \
   "UPDATE rec SET state='tombstone',due_at=?6,updated_at=?7,answer_id=NULL "      \
   "WHERE (scope,key) IN " EXPIRED("scope,key", "'completed'")}

static const Layout split = {
  "c: WITHOUT ROWID key + answer",
  SPLIT_DDL,
  INSERT_RECORD("'processing'"),
  {"INSERT INTO answer(code,headers,response) VALUES(?8,?9,?10)",
   "UPDATE rec SET state='completed',due_at=?6,updated_at=?7,answer_id=last_insert_rowid() "
   "WHERE scope=?1 AND key=?2 AND token=?5 AND state='processing'"},
  SPLIT_REPLAY,
  SPLIT_PURGE,
};

static const Layout split_trigger = {
  "c, INSTEAD OF UPDATE on a view",
  SPLIT_DDL,
  INSERT_RECORD("'processing'"),
  {"UPDATE pending SET state='completed',due_at=?6,updated_at=?7,code=?8,headers=?9,"
   "response=?10 WHERE scope=?1 AND key=?2 AND token=?5 AND state='processing'", NULL},
  SPLIT_REPLAY,
  SPLIT_PURGE,
};

static const Layout split_insert = {
  "c, INSTEAD OF INSERT on a view",
  SPLIT_DDL,
  INSERT_RECORD("'processing'"),
  {"INSERT INTO pending(scope,key,token,due_at,updated_at,code,headers,response) "
   "VALUES(?1,?2,?5,?6,?7,?8,?9,?10)", NULL},
  SPLIT_REPLAY,
  SPLIT_PURGE,
};

#define PENDING_VIEW                                                                 \
  "CREATE VIEW pending AS SELECT scope,key,token,state,due_at,updated_at,NULL code," \
  "NULL headers,NULL response FROM rec;"                                             \
  "CREATE TRIGGER pending_done INSTEAD OF UPDATE ON pending BEGIN "                  \
  "INSERT INTO answer(code,headers,response) VALUES(new.code,new.headers,new.response);" \
  "UPDATE rec SET state=new.state,due_at=new.due_at,updated_at=new.updated_at,"      \
  "answer_id=last_insert_rowid() WHERE scope=old.scope AND key=old.key; END;"        \
  "CREATE TRIGGER pending_new INSTEAD OF INSERT ON pending BEGIN "                   \
  "INSERT INTO answer(code,headers,response) VALUES(new.code,new.headers,new.response);" \
  "UPDATE rec SET state='completed',due_at=new.due_at,updated_at=new.updated_at,"    \
  "answer_id=last_insert_rowid() WHERE scope=new.scope AND key=new.key "             \
  "AND token=new.token AND state='processing'; END;"
#define AUDIT_TABLE "CREATE TABLE audit(event TEXT);"

enum { BATCH, STMT, SINGLE, BATCH_PAGES, SINGLE_PAGES, REPLAY, BURIAL, METRICS };

typedef struct {
  int64_t records;
  int response;
  bool v7;
  int rounds;
} Case;

typedef struct {
  char scope[16];
  char key[40];
  char token[40];
  char fingerprint[80];
  int64_t now;
} Row;

typedef struct {
  const char *name;
  const Layout *layout;
  Case run;
  int lag; /* claims in flight when a completion arrives */
  char path[512], wal[520], shm[520];
  sqlite3 *db;
  sqlite3_stmt *begin, *commit, *claim, *done[2], *replay, *purge[2];
  int64_t next; /* index of the next record to claim */
  int64_t buried;
  double file_bytes;
  int64_t claims;
  double steps[2]; /* virtual machine steps per claim, per completion */
  int count[METRICS];
  double sample[METRICS][MAX_ROUNDS];
} Store;

static char work_dir[400];
static Store stores[MAX_DBS];
static char response_pool[2 * MAX_RESPONSE];
static uint64_t pick_state = 7;

static void fail(sqlite3 *db, const char *what) {
  fprintf(stderr, "layout: %s: %s\n", what, db ? sqlite3_errmsg(db) : "system error");
  exit(1);
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static uint64_t mix(uint64_t x) {
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static void hex16(char *out, uint64_t v) {
  for (int i = 15; i >= 0; i--, v >>= 4) out[i] = "0123456789abcdef"[v & 15];
}

/* Record i is a pure function of i, so that a later round can name it again. */
static void make_row(Row *r, int64_t i, bool v7) {
  uint64_t n = (uint64_t)i;
  uint64_t high = mix(n * 4 + 1), low = mix(n * 4 + 2);
  r->now = EPOCH_MS + i;
  if (v7) high = ((uint64_t)r->now << 16) | (high & 0x0fff) | 0x7000;
  else high = (high & ~UINT64_C(0xf000)) | 0x4000;
  low = (low >> 2) | (UINT64_C(1) << 63);
  char hex[33];
  hex16(hex, high);
  hex16(hex + 16, low);
  snprintf(r->key, sizeof r->key, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
           hex + 20);
  snprintf(r->scope, sizeof r->scope, "acct-%04u", (unsigned)(mix(n * 4 + 3) % SCOPES));
  hex16(r->token, mix(n ^ high));
  hex16(r->token + 16, mix(n ^ low));
  r->token[32] = 0;
  memcpy(r->fingerprint, "idem1:", 6);
  for (int k = 0; k < 4; k++) {
    hex16(r->fingerprint + 6 + 16 * k, mix(high + (uint64_t)k));
  }
  r->fingerprint[70] = 0;
}

static void exec(sqlite3 *db, const char *sql) {
  if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) fail(db, sql);
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql) {
  sqlite3_stmt *s = NULL;
  if (sql && sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL) != SQLITE_OK) {
    fail(db, sql);
  }
  return s;
}

static void text(sqlite3_stmt *s, int i, const char *value) {
  sqlite3_bind_text(s, i, value, -1, SQLITE_STATIC);
}

static void bind(const Store *st, sqlite3_stmt *s, const Row *r, int64_t due) {
  static const char headers[] = "content-type: application/json\r\nx-request-id: 0123456789ab\r\n";
  int n = sqlite3_bind_parameter_count(s);
  text(s, 1, r->scope);
  text(s, 2, r->key);
  if (n < 3) return;
  text(s, 3, "POST /v1/payments");
  text(s, 4, r->fingerprint);
  text(s, 5, r->token);
  sqlite3_bind_int64(s, 6, due);
  sqlite3_bind_int64(s, 7, r->now);
  if (n < 10) return;
  sqlite3_bind_int(s, 8, 201);
  sqlite3_bind_text(s, 9, headers, 60, SQLITE_STATIC);
  sqlite3_bind_blob(s, 10, response_pool + r->now % MAX_RESPONSE, st->run.response, SQLITE_STATIC);
  if (n > 10) sqlite3_bind_int(s, 11, PURGE);
}

static void step(const Store *st, sqlite3_stmt *s) {
  if (sqlite3_step(s) != SQLITE_DONE) fail(st->db, sqlite3_sql(s));
  sqlite3_reset(s);
}

static void claim(Store *st, int64_t i) {
  Row r;
  st->claims++;
  make_row(&r, i, st->run.v7);
  bind(st, st->claim, &r, r.now + LEASE_MS);
  step(st, st->claim);
}

static void complete(const Store *st, int64_t i) {
  Row r;
  make_row(&r, i, st->run.v7);
  for (int k = 0; k < 2 && st->done[k]; k++) {
    bind(st, st->done[k], &r, r.now + DAY_MS);
    step(st, st->done[k]);
  }
}

/* Claims and completes `count` records; returns the time at which the last statement ended. */
static double pairs(Store *st, int64_t count, bool each) {
  int64_t first = st->next;
  if (!each) step(st, st->begin);
  for (int64_t t = 0; t < count + st->lag; t++) {
    if (each) step(st, st->begin);
    if (t < count) claim(st, first + t);
    if (t >= st->lag) complete(st, first + t - st->lag);
    if (each) step(st, st->commit);
  }
  double end = now_us();
  if (!each) step(st, st->commit);
  st->next += count;
  return end;
}

static void open_store(Store *st, const char *pragmas) {
  if (sqlite3_open(st->path, &st->db) != SQLITE_OK) fail(st->db, st->path);
  exec(st->db, pragmas);
}

static void prepare_all(Store *st) {
  const Layout *l = st->layout;
  st->begin = prepare(st->db, "BEGIN IMMEDIATE");
  st->commit = prepare(st->db, "COMMIT");
  st->claim = prepare(st->db, l->claim);
  st->replay = prepare(st->db, l->replay);
  for (int k = 0; k < 2; k++) {
    st->done[k] = prepare(st->db, l->done[k]);
    st->purge[k] = prepare(st->db, l->purge[k]);
  }
}

static void close_store(Store *st) {
  if (!st->db) return;
  sqlite3_stmt *s;
  while ((s = sqlite3_next_stmt(st->db, NULL)) != NULL) sqlite3_finalize(s);
  sqlite3_close(st->db);
  st->db = NULL;
}

static void unlink_store(const Store *st) {
  if (!st->path[0]) return;
  unlink(st->path);
  unlink(st->wal);
  unlink(st->shm);
}

static void remove_store(Store *st) {
  close_store(st);
  unlink_store(st);
  memset(st, 0, sizeof *st);
}

static void clean_up(void) {
  for (int i = 0; i < MAX_DBS; i++) remove_store(&stores[i]);
  if (work_dir[0]) rmdir(work_dir);
}

static void on_signal(int sig) {
  for (int i = 0; i < MAX_DBS; i++) unlink_store(&stores[i]);
  rmdir(work_dir);
  _exit(128 + sig);
}

/* Pushes the filled file out to the disk, so that no round pays for it. */
static void settle(Store *st) {
  struct stat info;
  int fd = open(st->path, O_RDWR);
  if (fd < 0 || fsync(fd) != 0 || fstat(fd, &info) != 0) fail(NULL, st->path);
  close(fd);
  st->file_bytes = (double)info.st_size;
}

static void init_store(Store *st, const char *name, const Layout *layout, Case run, int lag) {
  memset(st, 0, sizeof *st);
  st->name = name;
  st->layout = layout;
  st->run = run;
  st->lag = lag;
  snprintf(st->path, sizeof st->path, "%s/store%d.db", work_dir, (int)(st - stores));
  snprintf(st->wal, sizeof st->wal, "%s-wal", st->path);
  snprintf(st->shm, sizeof st->shm, "%s-shm", st->path);
}

/* The table is grown by the very statements under test, so its pages are as full (or as
** empty) as they would be in service; only durability is off. */
static void fill(Store *st, const char *view) {
  double start = now_us();
  open_store(st, "PRAGMA page_size=4096; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
                 "PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=-1048576;");
  exec(st->db, st->layout->ddl);
  if (view) exec(st->db, view);
  exec(st->db, AUDIT_TABLE);
  prepare_all(st);
  pairs(st, st->run.records, false);
  close_store(st);
  double filled = now_us();
  settle(st);
  fprintf(stderr, "fill %-34s %8" PRId64 " x %4d %s: %5.1f s, sync %5.1f s\n", st->name,
          st->run.records, st->run.response, st->run.v7 ? "v7" : "v4", (filled - start) / 1e6,
          (now_us() - filled) / 1e6);
}

/* An identical file, changed by `ddl` if there is one. Written page by page, as SQLite writes:
** a copy in large blocks is cached by the system in larger units and then served slower. */
static void clone(Store *st, const Store *from, const char *ddl) {
  char buffer[4096];
  int in = open(from->path, O_RDONLY), out = open(st->path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (in < 0 || out < 0) fail(NULL, st->path);
  ssize_t n;
  while ((n = read(in, buffer, sizeof buffer)) > 0) {
    if (write(out, buffer, (size_t)n) != n) fail(NULL, st->path);
  }
  close(in);
  close(out);
  open_store(st, "PRAGMA synchronous=OFF;");
  if (ddl) exec(st->db, ddl);
  close_store(st);
  st->next = from->next;
  settle(st);
}

static void replay(Store *st, int count) {
  int64_t sum = 0;
  for (int n = 0; n < count; n++) {
    Row r;
    int64_t live = st->next - st->buried;
    int64_t i = st->buried + (int64_t)(mix(pick_state++) % (uint64_t)live);
    make_row(&r, i, st->run.v7);
    bind(st, st->replay, &r, 0);
    if (sqlite3_step(st->replay) != SQLITE_ROW) fail(st->db, "replay found no row");
    int columns = sqlite3_column_count(st->replay);
    for (int k = 0; k < columns; k++) {
      if (sqlite3_column_blob(st->replay, k)) sum += sqlite3_column_bytes(st->replay, k);
    }
    sqlite3_reset(st->replay);
  }
  if (sum < (int64_t)count * st->run.response) fail(st->db, "replay read too little");
}

static void serve(Store *st, int cache_kib) {
  char pragmas[200];
  snprintf(pragmas, sizeof pragmas,
           "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-%d;", cache_kib);
  open_store(st, pragmas);
  prepare_all(st);
  memset(st->count, 0, sizeof st->count);
  st->claims = 0;
  replay(st, cache_kib > 2000 ? 100000 : 2000);
  pairs(st, 100, false);
}

static void record(Store *st, int metric, double value) {
  st->sample[metric][st->count[metric]++] = value;
}

static int pages_written(const Store *st) {
  int now = 0, high = 0;
  sqlite3_db_status(st->db, SQLITE_DBSTATUS_CACHE_WRITE, &now, &high, 1);
  return now;
}

static void round_of_pairs(Store *st, bool each) {
  pages_written(st);
  double start = now_us();
  double end = pairs(st, PAIRS, each);
  record(st, each ? SINGLE : BATCH, (now_us() - start) / PAIRS);
  if (!each) record(st, STMT, (end - start) / PAIRS);
  record(st, each ? SINGLE_PAGES : BATCH_PAGES, (double)pages_written(st) / PAIRS);
}

static void round_of_replays(Store *st) {
  double start = now_us();
  replay(st, REPLAYS);
  record(st, REPLAY, (now_us() - start) / REPLAYS);
}

static void round_of_purge(Store *st) {
  Row r;
  make_row(&r, st->next, st->run.v7);
  r.now += 9 * DAY_MS;
  double start = now_us();
  step(st, st->begin);
  for (int k = 0; k < 2 && st->purge[k]; k++) {
    bind(st, st->purge[k], &r, r.now + 30 * DAY_MS);
    step(st, st->purge[k]);
    if (sqlite3_changes(st->db) != PURGE) fail(st->db, "purge missed its rows");
  }
  step(st, st->commit);
  record(st, BURIAL, (now_us() - start) / PURGE);
  st->buried += PURGE;
}

static void count_steps(Store *st) {
  st->steps[0] = st->steps[1] = 0;
  sqlite3_stmt *claims[2] = {st->claim, NULL};
  for (int which = 0; which < 2; which++) {
    sqlite3_stmt **list = which ? st->done : claims;
    for (int k = 0; k < 2 && list[k]; k++) {
      int total = sqlite3_stmt_status(list[k], SQLITE_STMTSTATUS_VM_STEP, 0);
      st->steps[which] += (double)total / (double)st->claims;
    }
  }
}

/* The stores take turns, so that a slow spell of the machine falls on all of them. */
static void measure(int n, int cache_kib, bool purge) {
  int rounds = stores[0].run.rounds;
  for (int i = 0; i < n; i++) serve(&stores[i], cache_kib);
  for (int k = 0; k < rounds; k++) {
    for (int i = 0; i < n; i++) round_of_pairs(&stores[(i + k) % n], false);
  }
  for (int k = 0; k < rounds; k++) {
    for (int i = 0; i < n; i++) round_of_pairs(&stores[(i + k) % n], true);
  }
  for (int k = 0; k < rounds; k++) {
    for (int i = 0; i < n; i++) round_of_replays(&stores[(i + k) % n]);
  }
  for (int k = 0; purge && k < rounds && k < 5; k++) {
    for (int i = 0; i < n; i++) round_of_purge(&stores[(i + k) % n]);
  }
  for (int i = 0; i < n; i++) {
    count_steps(&stores[i]);
    close_store(&stores[i]);
  }
}

static int compare(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

static double median(const Store *st, int metric) {
  double v[MAX_ROUNDS];
  int n = st->count[metric];
  if (n == 0) return 0;
  memcpy(v, st->sample[metric], sizeof *v * (size_t)n);
  qsort(v, (size_t)n, sizeof *v, compare);
  return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

static void cell(const Store *st, const Store *base, int metric) {
  double x = median(st, metric), y = median(base, metric);
  if (y > 0) printf(" %6.1f (%4.2f) |", x, x / y);
  else printf("             - |");
}

static void print_row(const Store *st, const Store *base) {
  double size = st->file_bytes / (double)st->run.records;
  printf("| %-32s |", st->name);
  cell(st, base, BATCH);
  cell(st, base, SINGLE);
  cell(st, base, REPLAY);
  cell(st, base, BURIAL);
  printf(" %4.1f / %4.1f |", median(st, BATCH_PAGES), median(st, SINGLE_PAGES));
  printf(" %5.0f (%4.2f) |\n", size, st->file_bytes / base->file_bytes);
}

static void print_head(const Case *c, int cache_kib) {
  printf("\n%" PRId64 " records, response %d bytes, UUIDv%d, cache %d KiB\n\n", c->records,
         c->response, c->v7 ? 7 : 4, cache_kib);
  printf("| layout                           | pair, 1000/txn| pair, 1/txn   | replay        "
         "| purge         | WAL pages   | bytes/record |\n"
         "|----------------------------------|--------------:|--------------:|--------------:"
         "|--------------:|------------:|-------------:|\n");
}

static void compare_layouts(Case run) {
  const Layout *candidates[] = {&wide_key, &wide_rowid, &split};
  for (int i = 0; i < 3; i++) {
    init_store(&stores[i], candidates[i]->name, candidates[i], run, 0);
    fill(&stores[i], NULL);
  }
  for (int cache_kib = 2000;; cache_kib = 262144) {
    measure(3, cache_kib, true);
    print_head(&run, cache_kib);
    for (int i = 0; i < 3; i++) print_row(&stores[i], &stores[1]);
    fflush(stdout);
    if (cache_kib > 2000 || run.records < 100000) break;
  }
  for (int i = 0; i < 3; i++) remove_store(&stores[i]);
}

static void print_extra(const Store *st, const Store *base) {
  printf("| %-34s |", st->name);
  cell(st, base, STMT);
  cell(st, base, BATCH);
  cell(st, base, SINGLE);
  printf(" %5.0f %5.0f |", st->steps[0], st->steps[1]);
  printf(" %4.1f / %4.1f |", median(st, BATCH_PAGES), median(st, SINGLE_PAGES));
  printf(" %5.0f (%4.2f) |\n", st->file_bytes / (double)st->run.records,
         st->file_bytes / base->file_bytes);
}

/* What else (b) could carry, each against a plain (b); the second plain copy shows the noise. */
static void compare_extras(Case run) {
  static const struct {
    const char *name;
    const Layout *layout;
    int base;
    const char *ddl;
  } extra[] = {
    {"b", &wide_rowid, -1, NULL},
    {"b once more (noise)", &wide_rowid, 0, NULL},
    {"b + index on created_at", &wide_rowid, 0, "CREATE INDEX rec_made ON rec(created_at);"},
    {"b, state INTEGER, order of texts", &integer_state, -1, NULL},
    {"b, state INTEGER, processing first", &life_order_state, -1, NULL},
    {"b + AFTER INSERT, WHEN is false", &wide_rowid, 0,
     "CREATE TRIGGER made AFTER INSERT ON rec WHEN new.audit_event IS NOT NULL "
     "BEGIN INSERT INTO audit VALUES(new.audit_event); END;"},
    {"b + AFTER UPDATE OF other column", &wide_rowid, 0,
     "CREATE TRIGGER moved AFTER UPDATE OF audit_event ON rec "
     "BEGIN INSERT INTO audit VALUES(new.audit_event); END;"},
    {"b, claim ON CONFLICT DO NOTHING", &claim_conflict, 0, NULL},
    {"c", &split, -1, NULL},
    {"c, INSTEAD OF UPDATE on a view", &split_trigger, 8, PENDING_VIEW},
    {"c, INSTEAD OF INSERT on a view", &split_insert, 8, PENDING_VIEW},
  };
  int n = (int)(sizeof extra / sizeof extra[0]);
  for (int i = 0; i < n; i++) {
    init_store(&stores[i], extra[i].name, extra[i].layout, run, 0);
    if (extra[i].base < 0) fill(&stores[i], NULL);
    else clone(&stores[i], &stores[extra[i].base], extra[i].ddl);
  }
  measure(n, 2000, false);
  printf("\nextras: %" PRId64 " records, response %d bytes, UUIDv%d, cache 2000 KiB\n\n",
         run.records, run.response, run.v7 ? 7 : 4);
  printf("| variant                            | statements    | pair, 1000/txn| pair, 1/txn   "
         "| VM steps    | WAL pages   | bytes/record |\n"
         "|------------------------------------|--------------:|--------------:|--------------:"
         "|------------:|------------:|-------------:|\n");
  for (int i = 0; i < n; i++) print_extra(&stores[i], &stores[0]);
  fflush(stdout);
  for (int i = 0; i < n; i++) remove_store(&stores[i]);
}

/* A claim leaves a short row that the completion lengthens; with claims in flight the short
** rows are packed together first and their pages split later. */
static void compare_lags(int64_t records) {
  const Layout *candidates[] = {&wide_key, &wide_rowid, &split};
  printf("\nbytes/record with claims in flight, %" PRId64 " records, UUIDv4\n\n", records);
  printf("| layout                           | response |     0 |    64 |  1000 |\n"
         "|----------------------------------|---------:|------:|------:|------:|\n");
  for (int wide = 0; wide < 2; wide++) {
    Case run = {records, wide ? 4096 : 200, false, 0};
    for (int i = 0; i < 3; i++) {
      printf("| %-32s | %8d |", candidates[i]->name, run.response);
      for (int lag = 0; lag <= 1000; lag = lag == 0 ? 64 : lag == 64 ? 1000 : 1001) {
        init_store(&stores[0], candidates[i]->name, candidates[i], run, lag);
        fill(&stores[0], NULL);
        printf(" %5.0f |", stores[0].file_bytes / (double)records);
        remove_store(&stores[0]);
      }
      printf("\n");
    }
  }
  fflush(stdout);
}

static void make_work_dir(const char *parent) {
  const char *tmp = getenv("TMPDIR");
  if (!parent) parent = tmp && *tmp ? tmp : "/tmp";
  int n = snprintf(work_dir, sizeof work_dir, "%s/idem-layout-XXXXXX", parent);
  if (n < 0 || n >= (int)sizeof work_dir || !mkdtemp(work_dir)) {
    work_dir[0] = 0;
    fail(NULL, parent);
  }
  atexit(clean_up);
  signal(SIGINT, on_signal);
  signal(SIGTERM, on_signal);
}

int main(int argc, char **argv) {
  int arg = 1;
  bool quick = argc > arg && strcmp(argv[arg], "quick") == 0;
  bool full = argc > arg && strcmp(argv[arg], "full") == 0;
  if (quick || full) arg++;
  if (argc > arg + 1) {
    fprintf(stderr, "usage: layout [quick | full] [DIR]\n");
    return 2;
  }
  make_work_dir(argc > arg ? argv[arg] : NULL);
  for (size_t i = 0; i < sizeof response_pool; i++) {
    response_pool[i] = (char)(' ' + mix(i) % 95);
  }
  int rounds = quick ? 3 : 7;
  int64_t large = quick ? 100000 : 1000000;
  double start = now_us();
  printf("SQLite %s; microseconds per pair, per replay, per purged row; (ratio to b)\n",
         sqlite3_libversion());
  for (int wide = 0; wide < 2; wide++) {
    for (int v7 = 0; v7 < 2; v7++) {
      compare_layouts((Case){10000, wide ? 4096 : 200, v7 == 1, rounds});
    }
  }
  compare_extras((Case){10000, 200, false, quick ? 3 : 21});
  for (int v7 = 0; v7 < (quick ? 1 : 2); v7++) {
    compare_layouts((Case){large, 200, v7 == 1, rounds});
  }
  if (!quick) compare_extras((Case){large, 200, false, 7});
  compare_lags(quick ? 10000 : 30000);
  if (!quick) compare_layouts((Case){large, 4096, false, 5});
  if (full) compare_layouts((Case){large, 4096, true, 5});
  printf("\n%.0f s in all\n", (now_us() - start) / 1e6);
  return 0;
}
