/* idem in C, loaded at run time. ext/idem.h says how to link it statically instead. */
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* README: load */
static int open_shop(sqlite3 **db) {
  char *message = NULL;
  int rc = sqlite3_open("shop.db", db);
  sqlite3_busy_timeout(*db, 5000);
  sqlite3_db_config(*db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_load_extension(*db, "./idem", NULL, &message);
  sqlite3_db_config(*db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
  if (message) fprintf(stderr, "%s\n", message);
  sqlite3_free(message);
  return rc;
}
/* README: end */

/* Binds the values named by types (t text, i int, l 64-bit) and steps to the first row. Does
** nothing if *rc is an error already; leaves SQLITE_ROW or an error there. */
static sqlite3_stmt *query(sqlite3 *db, int *rc, const char *sql, const char *types, ...) {
  sqlite3_stmt *s = NULL;
  va_list values;
  if (*rc != SQLITE_OK) return NULL;
  *rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);
  va_start(values, types);
  for (int i = 1; *rc == SQLITE_OK && *types; i++, types++) {
    if (*types == 't') {
      *rc = sqlite3_bind_text(s, i, va_arg(values, const char *), -1, SQLITE_TRANSIENT);
    } else {
      *rc = sqlite3_bind_int64(s, i, *types == 'i' ? va_arg(values, int)
                                                   : va_arg(values, sqlite3_int64));
    }
  }
  va_end(values);
  if (*rc == SQLITE_OK) *rc = sqlite3_step(s);
  return s;
}

/* Runs the rest of the statement and finalises it: an open one would keep its locks. */
static void end(sqlite3_stmt *s, int *rc) {
  while (*rc == SQLITE_ROW) *rc = sqlite3_step(s);
  if (*rc == SQLITE_DONE) *rc = SQLITE_OK;
  sqlite3_finalize(s);
}

static const char *text(sqlite3_stmt *s, int column) {
  const char *t = (const char *)sqlite3_column_text(s, column);
  return t ? t : "";
}

/* README: order */
typedef struct Reply {
  int status;
  char answer[200];
} Reply;

static int place_order(sqlite3 *db, const char *key, const char *body, int pieces, Reply *reply) {
  int rc = SQLITE_OK, claimed = 0;
  char token[129] = "";
  end(query(db, &rc, "BEGIN IMMEDIATE", ""), &rc);
  if (rc != SQLITE_OK) return rc;
  sqlite3_stmt *s = query(db, &rc,
      "SELECT outcome, token, http_status, coalesce(response, message)"
      " FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')", "tt", key, body);
  if (rc == SQLITE_ROW) {
    claimed = strcmp(text(s, 0), "claimed") == 0;
    snprintf(token, sizeof token, "%s", text(s, 1));
    reply->status = sqlite3_column_int(s, 2);
    snprintf(reply->answer, sizeof reply->answer, "%s", text(s, 3));
  }
  end(s, &rc);
  if (claimed) {
    end(query(db, &rc, "INSERT INTO orders(pieces) VALUES (?)", "i", pieces), &rc);
    reply->status = 201;
    snprintf(reply->answer, sizeof reply->answer, "{\"order\":%lld}",
             (long long)sqlite3_last_insert_rowid(db));
    end(query(db, &rc, "UPDATE stock SET pieces = pieces - ?", "i", pieces), &rc);
    end(query(db, &rc, "SELECT idem_complete('shop', ?, ?, ?, ?)", "ttti", key, token,
              reply->answer, reply->status), &rc);
  }
  end(query(db, &rc, "COMMIT", ""), &rc);
  if (!sqlite3_get_autocommit(db)) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
  return rc;
}
/* README: end */

static void must(int rc, sqlite3 *db) {
  if (rc == SQLITE_OK) return;
  fprintf(stderr, "%d: %s\n", rc, sqlite3_errmsg(db));
  exit(1);
}

static void order(sqlite3 *db, const char *name, const char *key, const char *body, int pieces) {
  Reply reply;
  must(place_order(db, key, body, pieces, &reply), db);
  printf("%-11s %d %s\n", name, reply.status, reply.answer);
}

static void refusal(sqlite3 *db, const char *name, const char *words, int rc) {
  const char *message = sqlite3_errmsg(db);
  int found = rc != SQLITE_OK && strstr(message, words);
  printf("%-11s %s\n", name, rc == SQLITE_OK ? "no error" : found ? words : message);
}

/* Prints the first columns of the only row, by a format with one %s for each. */
static void print(sqlite3 *db, const char *format, const char *sql) {
  int rc = SQLITE_OK;
  sqlite3_stmt *s = query(db, &rc, sql, "");
  if (rc == SQLITE_ROW) printf(format, text(s, 0), text(s, 1));
  end(s, &rc);
  must(rc, db);
}

static void replay(sqlite3 *db, const char *name, const char *key) {
  int rc = SQLITE_OK;
  sqlite3_stmt *s = query(
      db, &rc, "SELECT outcome, code, response FROM idem_claim('shop', ?, 'fp')", "t", key);
  if (rc == SQLITE_ROW && strcmp(text(s, 0), "replay") == 0) {
    printf("%-11s %d ", name, sqlite3_column_int(s, 1));
    int type = sqlite3_column_type(s, 2);
    if (type == SQLITE_NULL) printf("null\n");
    if (type == SQLITE_TEXT) printf("text '%s'\n", text(s, 2));
    if (type == SQLITE_BLOB) {
      const unsigned char *bytes = sqlite3_column_blob(s, 2);
      printf("blob ");
      for (int i = 0; i < sqlite3_column_bytes(s, 2); i++) printf("%02x", bytes[i]);
      printf("\n");
    }
  }
  end(s, &rc);
  must(rc, db);
}

/* Claims, completes with this answer, and prints the replay. */
static void keep(sqlite3 *db, const char *key, const void *answer, int bytes, int is_text,
                 int code) {
  int rc = SQLITE_OK;
  char token[129] = "";
  sqlite3_stmt *s = query(db, &rc, "SELECT token FROM idem_claim('shop', ?, 'fp')", "t", key);
  if (rc == SQLITE_ROW) snprintf(token, sizeof token, "%s", text(s, 0));
  end(s, &rc);
  must(rc, db);
  must(sqlite3_prepare_v2(db, "SELECT idem_complete('shop', ?, ?, ?, ?)", -1, &s, NULL), db);
  sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
  sqlite3_bind_text(s, 2, token, -1, SQLITE_STATIC);
  if (is_text) {
    sqlite3_bind_text(s, 3, answer, bytes, SQLITE_STATIC);
  } else {
    sqlite3_bind_blob(s, 3, answer, bytes, SQLITE_STATIC); /* NULL binds NULL */
  }
  sqlite3_bind_int(s, 4, code);
  rc = sqlite3_step(s);
  end(s, &rc);
  must(rc, db);
  replay(db, key, key);
}

static void in_progress(sqlite3 *db) {
  int rc = SQLITE_OK;
  end(query(db, &rc, "SELECT idem_clock(?)", "l", (sqlite3_int64)4102444800000), &rc); /* 2100 */
  must(rc, db);
  print(db, "claimed     until %s\n", "SELECT lease_until FROM idem_claim('shop', 'job', 'fp')");
  print(db, "in progress %s, retry after %s ms\n",
        "SELECT http_status, retry_after_ms FROM idem_claim('shop', 'job', 'fp')");
  end(query(db, &rc, "SELECT idem_clock(NULL)", ""), &rc);
  must(rc, db);
  end(query(db, &rc, "SELECT idem_complete('shop', 'job', 'not-its-token-at-all', 'x')", ""), &rc);
  refusal(db, "wrong token", "claim lost", rc);
}

int main(void) {
  sqlite3 *db;
  Reply reply;
  must(open_shop(&db), db);
  print(db, "# %s\n", "SELECT idem_version()");
  must(sqlite3_exec(db, "PRAGMA journal_mode = WAL; SELECT idem_init()", NULL, NULL, NULL), db);

  print(db, "fingerprint %s\n", "SELECT idem_fingerprint('{\"pieces\":3}')");
  order(db, "first", "k-1", "{\"pieces\":3}", 3);
  order(db, "retry", "k-1", "{ \"pieces\": 3.0 }", 3);
  order(db, "other body", "k-1", "{\"pieces\":4}", 4);
  int rc = place_order(db, "k-2", "{\"pieces\":8}", 8, &reply);
  printf("sold out    %s\n", rc == SQLITE_CONSTRAINT ? "CHECK constraint failed" : "no error");
  print(db, "rolled back %s order, %s pieces left\n",
        "SELECT (SELECT count(*) FROM orders), pieces FROM stock");
  order(db, "fewer", "k-2", "{\"pieces\":5}", 5);
  in_progress(db);

  keep(db, "blob", "\x00\xff\x7f\x80", 4, 0, 200);
  keep(db, "null", NULL, 0, 0, 204);
  keep(db, "empty", "", 0, 1, 200);
  keep(db, "text", "שלום", -1, 1, 200);

  must(sqlite3_close(db), db); /* SQLITE_BUSY if a statement were left open */
  printf("closed      %s\n", access("shop.db-wal", F_OK) == 0 ? "a -wal" : "no -wal");
  must(open_shop(&db), db);
  order(db, "reopened", "k-1", "{\"pieces\":3}", 3);
  replay(db, "kept", "blob");
  must(sqlite3_close(db), db);
  return 0;
}
