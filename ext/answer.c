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
  int iStatus;       /* suggested HTTP status; 0 = none, or the stored code */
  int eError;        /* its sentence, and what INSERT INTO idem_records fails with */
} aOutcome[IDEM_OUT_COUNT] = {
    [IDEM_OUT_NONE] = {"", 0, IDEM_E_NONE},
    [IDEM_OUT_CLAIMED] = {"claimed", 0, IDEM_E_NONE},
    [IDEM_OUT_REPLAY] = {"replay", 0, IDEM_E_REPLAY},
    [IDEM_OUT_IN_PROGRESS] = {"in_progress", 409, IDEM_E_IN_PROGRESS},
    [IDEM_OUT_MISMATCH] = {"mismatch", 422, IDEM_E_MISMATCH},
    [IDEM_OUT_UNKNOWN] = {"unknown", 409, IDEM_E_UNKNOWN},
    [IDEM_OUT_EXPIRED] = {"expired", 410, IDEM_E_GONE},
    [IDEM_OUT_EXHAUSTED] = {"exhausted", 409, IDEM_E_EXHAUSTED},
};

static const char *const azColumn[IDEM_COL_COUNT] = {
    "outcome",        "message",    "http_status", "token",       "attempt",  "lease_until",
    "retry_after_ms", "replayed",   "code",        "headers",     "response", "response_omitted",
    "recovery_point", "checkpoint", "created_at",  "completed_at"};

const char *idemOutcomeName(int eOutcome) {
  assert(eOutcome >= 0 && eOutcome < IDEM_OUT_COUNT);
  return aOutcome[eOutcome].zName;
}

const char *idemOutcomeMessage(int eOutcome) {
  assert(eOutcome >= 0 && eOutcome < IDEM_OUT_COUNT);
  /* A replay needs no sentence: it has an answer. */
  return eOutcome == IDEM_OUT_REPLAY ? 0 : idemErrorText(aOutcome[eOutcome].eError);
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
  case IDEM_COL_MESSAGE: idemCellText(pCell, idemOutcomeMessage(eOutcome)); return;
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

/* Where JSON goes. What does not fit is counted all the same, to make room for a second try. */
typedef struct Out {
  char *z;     /* the buffer */
  size_t nMax; /* its size */
  size_t n;    /* bytes put so far */
} Out;

static void put(Out *p, const char *z, size_t n) {
  if (p->n + n <= p->nMax) memcpy(p->z + p->n, z, n);
  p->n += n;
}

/* A JSON string. The text is valid UTF-8. */
static void putString(Out *p, const char *z, size_t n) {
  size_t iFrom = 0;
  put(p, "\"", 1);
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)z[i];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    put(p, z + iFrom, i - iFrom);
    iFrom = i + 1;
    if (c >= 0x20) {
      char zEscape[2] = {'\\', (char)c};
      put(p, zEscape, 2);
    } else {
      char zEscape[6] = {'\\', 'u', '0', '0', c < 0x10 ? '0' : '1', "0123456789abcdef"[c & 15]};
      put(p, zEscape, 6);
    }
  }
  put(p, z + iFrom, n - iFrom);
  put(p, "\"", 1);
}

/* The standard base64 of n bytes (RFC 4648, with padding) as a JSON string. */
static void putBase64(Out *p, const unsigned char *a, size_t n) {
  static const char z64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  put(p, "\"", 1);
  for (size_t i = 0; i < n; i += 3) {
    unsigned b1 = i + 1 < n ? a[i + 1] : 0u, b2 = i + 2 < n ? a[i + 2] : 0u;
    unsigned v = (unsigned)a[i] << 16 | b1 << 8 | b2;
    char z[4] = {z64[v >> 18], z64[v >> 12 & 63], z64[v >> 6 & 63], z64[v & 63]};
    if (i + 1 >= n) z[2] = '=';
    if (i + 2 >= n) z[3] = '=';
    put(p, z, 4);
  }
  put(p, "\"", 1);
}

static void putInt(Out *p, int64_t i) {
  char z[24], *zEnd = z + sizeof(z), *zAt = zEnd;
  uint64_t u = i < 0 ? 0u - (uint64_t)i : (uint64_t)i;
  do {
    *--zAt = (char)('0' + u % 10);
  } while ((u /= 10) != 0);
  if (i < 0) *--zAt = '-';
  put(p, zAt, (size_t)(zEnd - zAt));
}

static void putAnswer(Out *p, const IdemAnswer *pAnswer) {
  const char *zSep = "{\"";
  for (int i = 0; i < IDEM_COL_COUNT; i++) {
    IdemCell cell;
    idemAnswerCell(pAnswer, i, &cell);
    if (cell.eType == SQLITE_NULL) continue;
    /* A text that is not UTF-8 cannot stand in JSON: its bytes go as a blob's do. */
    int bBlob = cell.eType == SQLITE_BLOB ||
                (cell.eType == SQLITE_TEXT && idemUtf8Chars(cell.v.p, cell.v.n) < 0);
    put(p, zSep, 2);
    put(p, azColumn[i], strlen(azColumn[i]));
    if (bBlob) put(p, "_base64", 7);
    put(p, "\":", 2);
    zSep = ",\"";
    if (cell.eType == SQLITE_INTEGER) {
      putInt(p, cell.i);
    } else if (bBlob) {
      putBase64(p, cell.v.p, (size_t)cell.v.n);
    } else {
      putString(p, cell.v.p, (size_t)cell.v.n);
    }
  }
  put(p, "}", 1);
}

char *idemAnswerJson(const IdemAnswer *pAnswer, size_t *pn) {
  char zShort[1024]; /* nearly every answer but a replay's fits */
  Out out = {zShort, sizeof(zShort), 0};
  putAnswer(&out, pAnswer);
  *pn = out.n;
  char *zJson = sqlite3_malloc64(out.n + 1);
  if (!zJson) return 0;
  if (out.n <= sizeof(zShort)) {
    memcpy(zJson, zShort, out.n);
  } else {
    Out whole = {zJson, out.n, 0};
    putAnswer(&whole, pAnswer);
    assert(whole.n == out.n);
  }
  zJson[*pn] = 0;
  return zJson;
}
