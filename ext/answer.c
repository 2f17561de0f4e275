/*
** answer.c: what a claim's answer says: outcomes by name, and the columns of an answer.
**
** Only what the asker may know: a mismatch tells nothing about the record, the token goes to its
** winner alone, and the stored answer to a replay alone.
*/
#include "answer.h"
#include "text.h"

static const struct {
  const char *zName; /* as callers compare it */
  const char *zText; /* a sentence for the client, or NULL */
  int iStatus;       /* suggested HTTP status; 0 = none, or the stored code */
  int eError;        /* what INSERT INTO idem_records fails with */
} aOutcome[IDEM_OUT_COUNT] = {
    [IDEM_OUT_NONE] = {"", 0, 0, 0},
    [IDEM_OUT_CLAIMED] = {"claimed", 0, 0, 0},
    [IDEM_OUT_REPLAY] = {"replay", 0, 0, IDEM_E_REPLAY},
    [IDEM_OUT_IN_PROGRESS] = {"in_progress",
                              "A request with this Idempotency-Key is still being processed, retry "
                              "shortly.", 409, IDEM_E_IN_PROGRESS},
    [IDEM_OUT_MISMATCH] = {"mismatch",
                           "Idempotency-Key was already used with a different request payload.",
                           422, IDEM_E_MISMATCH},
    [IDEM_OUT_UNKNOWN] = {"unknown",
                          "The outcome of the request with this Idempotency-Key is unknown, it must "
                          "be resolved first.", 409, IDEM_E_UNKNOWN},
    [IDEM_OUT_EXPIRED] = {"expired",
                          "The request with this Idempotency-Key was completed before, its answer "
                          "is no longer stored.", 410, IDEM_E_GONE},
    [IDEM_OUT_EXHAUSTED] = {"exhausted",
                            "All attempts with this Idempotency-Key are used up, it must be "
                            "resolved first.", 409, IDEM_E_EXHAUSTED},
};

static const char *const azColumn[IDEM_COL_COUNT] = {
    "outcome",        "message",    "http_status",    "token",    "attempt",  "lease_until",
    "retry_after_ms", "replayed",   "code",           "headers",  "response", "response_omitted",
    "recovery_point", "checkpoint", "created_at",     "completed_at"};

const char *idemOutcomeName(int eOutcome) {
  assert(eOutcome >= 0 && eOutcome < IDEM_OUT_COUNT);
  return aOutcome[eOutcome].zName;
}

const char *idemOutcomeMessage(int eOutcome) {
  assert(eOutcome >= 0 && eOutcome < IDEM_OUT_COUNT);
  return aOutcome[eOutcome].zText;
}

int idemOutcomeStatus(int eOutcome) {
  assert(eOutcome >= 0 && eOutcome < IDEM_OUT_COUNT);
  return aOutcome[eOutcome].iStatus;
}

int idemOutcomeError(int eOutcome) {
  assert(eOutcome >= 0 && eOutcome < IDEM_OUT_COUNT);
  return aOutcome[eOutcome].eError;
}

void idemCellInt(IdemCell *pCell, int64_t i) {
  pCell->eType = SQLITE_INTEGER;
  pCell->i = i;
}

void idemCellValue(IdemCell *pCell, const IdemValue *pVal) {
  pCell->eType = pVal->eType;
  pCell->v = *pVal;
}

void idemCellText(IdemCell *pCell, const char *z) {
  IdemValue v = {z ? SQLITE_TEXT : SQLITE_NULL, z ? (int)strlen(z) : 0, z};
  idemCellValue(pCell, &v);
}

/* Columns that a claim's winner sees. */
static void claimedCell(const IdemAnswer *p, int iCol, IdemCell *pCell) {
  const IdemRecord *pRec = &p->loaded.record;
  int bLater = p->verdict.eWrite != IDEM_WR_INSERT && p->verdict.eWrite != IDEM_WR_RESTART;
  switch (iCol) {
  case IDEM_COL_TOKEN: idemCellValue(pCell, &p->token); break;
  case IDEM_COL_ATTEMPT: idemCellInt(pCell, p->verdict.attempt); break;
  case IDEM_COL_LEASE_UNTIL: idemCellInt(pCell, p->verdict.due); break;
  case IDEM_COL_CREATED_AT: idemCellInt(pCell, bLater ? pRec->created_at : p->now); break;
  case IDEM_COL_RECOVERY_POINT:
    if (bLater) idemCellValue(pCell, &pRec->point);
    break;
  case IDEM_COL_CHECKPOINT:
    if (bLater) idemCellValue(pCell, &pRec->checkpoint);
    break;
  default: break;
  }
}

/* Columns that a replay hands back. */
static void replayCell(const IdemAnswer *p, int iCol, IdemCell *pCell) {
  const IdemRecord *pRec = &p->loaded.record;
  switch (iCol) {
  case IDEM_COL_CODE:
  case IDEM_COL_HTTP_STATUS:
    if (pRec->bCode) idemCellInt(pCell, pRec->code);
    break;
  case IDEM_COL_ATTEMPT: idemCellInt(pCell, pRec->attempt); break;
  case IDEM_COL_HEADERS: idemCellValue(pCell, &pRec->headers); break;
  case IDEM_COL_RESPONSE:
    if (!pRec->bOmitted) idemCellValue(pCell, &pRec->response);
    break;
  case IDEM_COL_RESPONSE_OMITTED: idemCellInt(pCell, pRec->bOmitted); break;
  case IDEM_COL_CREATED_AT: idemCellInt(pCell, pRec->created_at); break;
  case IDEM_COL_COMPLETED_AT: idemCellInt(pCell, pRec->completed_at); break;
  default: break;
  }
}

/* Columns that a refusal may show: how long, how often, how far; never for a mismatch. */
static void refusedCell(const IdemAnswer *p, int iCol, IdemCell *pCell) {
  const IdemRecord *pRec = &p->loaded.record;
  int eOutcome = p->verdict.eOutcome;
  if (eOutcome == IDEM_OUT_MISMATCH) return;
  switch (iCol) {
  case IDEM_COL_ATTEMPT: idemCellInt(pCell, pRec->attempt); break;
  case IDEM_COL_CREATED_AT: idemCellInt(pCell, pRec->created_at); break;
  case IDEM_COL_LEASE_UNTIL:
    if (eOutcome == IDEM_OUT_IN_PROGRESS) idemCellInt(pCell, pRec->due);
    break;
  case IDEM_COL_RETRY_AFTER_MS:
    if (eOutcome == IDEM_OUT_IN_PROGRESS) idemCellInt(pCell, p->verdict.retry_after_ms);
    break;
  case IDEM_COL_RECOVERY_POINT:
    if (eOutcome == IDEM_OUT_UNKNOWN) idemCellValue(pCell, &pRec->point);
    break;
  case IDEM_COL_COMPLETED_AT:
    if (eOutcome == IDEM_OUT_EXPIRED) idemCellInt(pCell, pRec->completed_at);
    break;
  default: break;
  }
}

void idemAnswerCell(const IdemAnswer *pAnswer, int iCol, IdemCell *pCell) {
  int eOutcome = pAnswer->verdict.eOutcome;
  assert(iCol >= 0 && iCol < IDEM_COL_COUNT);
  memset(pCell, 0, sizeof(*pCell));
  pCell->eType = pCell->v.eType = SQLITE_NULL;
  switch (iCol) {
  case IDEM_COL_OUTCOME: idemCellText(pCell, aOutcome[eOutcome].zName); return;
  case IDEM_COL_MESSAGE: idemCellText(pCell, aOutcome[eOutcome].zText); return;
  case IDEM_COL_REPLAYED: idemCellInt(pCell, eOutcome == IDEM_OUT_REPLAY); return;
  case IDEM_COL_HTTP_STATUS:
    if (aOutcome[eOutcome].iStatus) {
      idemCellInt(pCell, aOutcome[eOutcome].iStatus);
      return;
    }
    break;
  default: break;
  }
  if (eOutcome == IDEM_OUT_CLAIMED) {
    claimedCell(pAnswer, iCol, pCell);
  } else if (eOutcome == IDEM_OUT_REPLAY) {
    replayCell(pAnswer, iCol, pCell);
  } else {
    refusedCell(pAnswer, iCol, pCell);
  }
}

void idemCellResult(sqlite3_context *pCtx, const IdemCell *pCell) {
  const char *p = pCell->v.p ? pCell->v.p : "";
  switch (pCell->eType) {
  case SQLITE_INTEGER: sqlite3_result_int64(pCtx, pCell->i); break;
  case SQLITE_TEXT: sqlite3_result_text(pCtx, p, pCell->v.n, SQLITE_TRANSIENT); break;
  case SQLITE_BLOB: sqlite3_result_blob(pCtx, p, pCell->v.n, SQLITE_TRANSIENT); break;
  default: sqlite3_result_null(pCtx);
  }
}

/* Appends a JSON string. The text is valid UTF-8. */
static void appendString(sqlite3_str *pOut, const char *z, int n) {
  int iFrom = 0;
  sqlite3_str_appendchar(pOut, 1, '"');
  for (int i = 0; i < n; i++) {
    unsigned char c = (unsigned char)z[i];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    sqlite3_str_append(pOut, z + iFrom, i - iFrom);
    iFrom = i + 1;
    if (c >= 0x20) {
      sqlite3_str_appendf(pOut, "\\%c", c);
    } else {
      sqlite3_str_appendf(pOut, "\\u%04x", c);
    }
  }
  sqlite3_str_append(pOut, z + iFrom, n - iFrom);
  sqlite3_str_appendchar(pOut, 1, '"');
}

/* Appends the standard base64 of n bytes (RFC 4648, with padding) as a JSON string. */
static void appendBase64(sqlite3_str *pOut, const unsigned char *a, int n) {
  static const char z64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  sqlite3_str_appendchar(pOut, 1, '"');
  for (int i = 0; i < n; i += 3) {
    unsigned b1 = i + 1 < n ? a[i + 1] : 0u, b2 = i + 2 < n ? a[i + 2] : 0u;
    unsigned v = (unsigned)a[i] << 16 | b1 << 8 | b2;
    char z[4] = {z64[v >> 18], z64[v >> 12 & 63], z64[v >> 6 & 63], z64[v & 63]};
    if (i + 1 >= n) z[2] = '=';
    if (i + 2 >= n) z[3] = '=';
    sqlite3_str_append(pOut, z, 4);
  }
  sqlite3_str_appendchar(pOut, 1, '"');
}

char *idemAnswerJson(const IdemAnswer *pAnswer, sqlite3 *db) {
  sqlite3_str *pOut = sqlite3_str_new(db);
  char cSep = '{';
  for (int i = 0; i < IDEM_COL_COUNT; i++) {
    IdemCell cell;
    idemAnswerCell(pAnswer, i, &cell);
    if (cell.eType == SQLITE_NULL) continue;
    /* A text that is not UTF-8 cannot stand in JSON: its bytes go as a blob's do. */
    int bBlob = cell.eType == SQLITE_BLOB ||
                (cell.eType == SQLITE_TEXT && idemUtf8Chars(cell.v.p, cell.v.n) < 0);
    sqlite3_str_appendf(pOut, "%c\"%s%s\":", cSep, azColumn[i], bBlob ? "_base64" : "");
    cSep = ',';
    if (cell.eType == SQLITE_INTEGER) {
      sqlite3_str_appendf(pOut, "%lld", (sqlite3_int64)cell.i);
    } else if (bBlob) {
      appendBase64(pOut, cell.v.p, cell.v.n);
    } else {
      appendString(pOut, cell.v.p, cell.v.n);
    }
  }
  sqlite3_str_appendchar(pOut, 1, '}');
  return sqlite3_str_finish(pOut);
}
