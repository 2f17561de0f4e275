/*
** answer.h: what a claim's answer says, column by column, for every face that shows it.
*/
#ifndef IDEM_ANSWER_H
#define IDEM_ANSWER_H

#include "operations.h"

/* The columns of an answer, in order; their names are in idemAnswerColumn[]. */
enum {
  IDEM_COL_OUTCOME = 0,
  IDEM_COL_MESSAGE,
  IDEM_COL_HTTP_STATUS,
  IDEM_COL_TOKEN,
  IDEM_COL_ATTEMPT,
  IDEM_COL_LEASE_UNTIL,
  IDEM_COL_RETRY_AFTER_MS,
  IDEM_COL_REPLAYED,
  IDEM_COL_CODE,
  IDEM_COL_HEADERS,
  IDEM_COL_RESPONSE,
  IDEM_COL_RESPONSE_OMITTED,
  IDEM_COL_RECOVERY_POINT,
  IDEM_COL_CHECKPOINT,
  IDEM_COL_CREATED_AT,
  IDEM_COL_COMPLETED_AT,
  IDEM_COL_COUNT
};
#define IDEM_ANSWER_COLUMNS                                                                        \
  "outcome, message, http_status, token, attempt, lease_until, retry_after_ms, replayed, code, "   \
  "headers, response, response_omitted, recovery_point, checkpoint, created_at, completed_at"

/* One value of an answer. */
typedef struct IdemCell {
  int eType;   /* SQLITE_INTEGER, or that of v */
  int64_t i;   /* if eType is SQLITE_INTEGER */
  IdemValue v; /* otherwise: TEXT, BLOB or NULL */
  int bConst;  /* a TEXT of the library's own: SQLite need not copy it */
} IdemCell;

/* The value of one column, borrowed from the answer. */
void idemAnswerCell(const IdemAnswer *pAnswer, int iCol, IdemCell *pCell);

/* Gives it to SQLite. */
void idemCellResult(sqlite3_context *pCtx, const IdemCell *pCell);

/* Makes a cell. A text is a constant of the library's. */
void idemCellInt(IdemCell *pCell, int64_t i);
void idemCellText(IdemCell *pCell, const char *z);
void idemCellValue(IdemCell *pCell, const IdemValue *pVal);

/* The whole answer as a JSON object, terminated; NULL columns are left out. From sqlite3_malloc;
** NULL if memory ran out. */
char *idemAnswerJson(const IdemAnswer *pAnswer);

#endif
