/*
** answer.c: what a claim's answer says: outcomes by name, and the columns of an answer.
**
** Only what the asker may know: a mismatch tells nothing about the record, the token goes to its
** winner alone, and the stored answer to a replay alone.
*/
#include "answer.h"
#include "json.h"
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

/* The names of the columns as they begin a member of a JSON object, and their lengths. */
#define NAME(z)                                                                                    \
  { "\"" z, sizeof(z) }
static const struct {
  const char *z;
  size_t n;
} aColumn[IDEM_COL_COUNT] = {
    NAME("outcome"),        NAME("message"),     NAME("http_status"),    NAME("token"),
    NAME("attempt"),        NAME("lease_until"), NAME("retry_after_ms"), NAME("replayed"),
    NAME("code"),           NAME("headers"),     NAME("response"),       NAME("response_omitted"),
    NAME("recovery_point"), NAME("checkpoint"),  NAME("created_at"),     NAME("completed_at"),
};

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
  pCell->bConst = 0;
}

void idemCellText(IdemCell *pCell, const char *z) {
  IdemValue v = {z ? SQLITE_TEXT : SQLITE_NULL, z ? (int)strlen(z) : 0, z};
  idemCellValue(pCell, &v);
  pCell->bConst = 1;
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
  case SQLITE_TEXT:
    sqlite3_result_text(pCtx, p, pCell->bConst ? -1 : pCell->v.n,
                        pCell->bConst ? SQLITE_STATIC : SQLITE_TRANSIENT);
    break;
  case SQLITE_BLOB: sqlite3_result_blob(pCtx, p, pCell->v.n, SQLITE_TRANSIENT); break;
  default: sqlite3_result_null(pCtx);
  }
}

/* One column of the answer on its way into JSON. */
typedef struct Member {
  IdemCell cell; /* its value; SQLITE_NULL columns are left out */
  int bBase64;   /* a blob, or a text that is not UTF-8: that cannot stand in JSON */
} Member;

/* Looks at a column. Returns how many bytes it takes at most, with its name. */
static size_t measureMember(const IdemAnswer *pAnswer, int iCol, Member *p) {
  size_t n = aColumn[iCol].n + sizeof(",_base64\":\"\"");
  int64_t nControl = 0;
  idemAnswerCell(pAnswer, iCol, &p->cell);
  if (p->cell.eType == SQLITE_INTEGER) return n + 20;
  p->bBase64 =
      p->cell.eType == SQLITE_BLOB ||
      (p->cell.eType == SQLITE_TEXT && idemUtf8Measure(p->cell.v.p, p->cell.v.n, &nControl) < 0);
  if (p->bBase64) return n + ((size_t)p->cell.v.n + 2) / 3 * 4;
  /* A control character becomes six, a quotation mark two. */
  return n + 2 * (size_t)p->cell.v.n + 4 * (size_t)nControl;
}

static char *put(char *z, const char *zText, size_t n) {
  memcpy(z, zText, n);
  return z + n;
}

/* What a JSON string holds: whole blocks up to what must be escaped. There is room for a block,
** since each byte may become two. */
static char *putText(char *z, const uint8_t *a, size_t n) {
  const uint8_t *aEnd = a + n;
  uint8_t *pOut = (uint8_t *)z;
  while (a < aEnd) {
#ifdef IDEM_BLOCK
    if (aEnd - a >= IDEM_BLOCK) {
      int m = idemCopyBlock(pOut, a);
      size_t nPlain = m ? idemFirstBit(m) : IDEM_BLOCK;
      a += nPlain;
      pOut += nPlain;
      if (!m) continue;
    }
#endif
    if (*a < 0x20 || *a == '"' || *a == '\\') {
      pOut = idemWriteEscape(pOut, *a++);
    } else {
      *pOut++ = *a++;
    }
  }
  return (char *)pOut;
}

/* The standard base64 of n bytes (RFC 4648, with padding). */
static char *putBase64(char *z, const unsigned char *a, size_t n) {
  static const char z64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < n; i += 3) {
    unsigned b1 = i + 1 < n ? a[i + 1] : 0u, b2 = i + 2 < n ? a[i + 2] : 0u;
    unsigned v = (unsigned)a[i] << 16 | b1 << 8 | b2;
    *z++ = z64[v >> 18];
    *z++ = z64[v >> 12 & 63];
    *z++ = i + 1 < n ? z64[v >> 6 & 63] : '=';
    *z++ = i + 2 < n ? z64[v & 63] : '=';
  }
  return z;
}

static char *putInt(char *z, int64_t i) {
  char a[24], *zEnd = a + sizeof(a), *zAt = zEnd;
  uint64_t u = i < 0 ? 0u - (uint64_t)i : (uint64_t)i;
  do {
    *--zAt = (char)('0' + u % 10);
  } while ((u /= 10) != 0);
  if (i < 0) *--zAt = '-';
  return put(z, zAt, (size_t)(zEnd - zAt));
}

static char *putMember(char *z, int iCol, const Member *p) {
  const unsigned char *a = p->cell.v.p;
  size_t n = (size_t)p->cell.v.n;
  z = put(z, aColumn[iCol].z, aColumn[iCol].n);
  if (p->cell.eType == SQLITE_INTEGER) return putInt(put(z, "\":", 2), p->cell.i);
  z = p->bBase64 ? putBase64(put(z, "_base64\":\"", 10), a, n) : putText(put(z, "\":\"", 3), a, n);
  *z++ = '"';
  return z;
}

char *idemAnswerJson(const IdemAnswer *pAnswer) {
  Member aMember[IDEM_COL_COUNT];
  size_t nMax = sizeof("{}");
  char *zJson, *z;
  for (int i = 0; i < IDEM_COL_COUNT; i++) nMax += measureMember(pAnswer, i, &aMember[i]);
  z = zJson = sqlite3_malloc64(nMax);
  if (!z) return 0;
  for (int i = 0; i < IDEM_COL_COUNT; i++) {
    if (aMember[i].cell.eType == SQLITE_NULL) continue;
    *z = z == zJson ? '{' : ',';
    z = putMember(z + 1, i, &aMember[i]);
  }
  *z++ = '}'; /* there is an outcome: the object is not empty */
  *z = 0;
  assert((size_t)(z - zJson) < nMax);
  return zJson;
}
