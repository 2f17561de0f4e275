/*
** enumerate.c: every combination of what the verdict depends on, one per line, with the verdict:
**
**     claim record=released held=yes ... -> claimed none retry claim 4 60000 0
**
** The words are explained in verdict_oracle.py, which predicts the right-hand side. `enumerate`
** prints all; `enumerate small` prints what the other public functions of verdict.h say.
**
** Compiled with -DSQLITE_CORE: no SQLite is needed, since nothing is called.
*/
#include "errors.h"
#include "verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOW       ((int64_t)1700000000000)
#define LEASE     60000
#define RETENTION 86400000
#define TOMBSTONE 9000

static IdemValue text(const char *z) {
  IdemValue v = {SQLITE_TEXT, (int)strlen(z), z};
  return v;
}

static IdemValue blob(const char *z) {
  IdemValue v = {SQLITE_BLOB, (int)strlen(z), z};
  return v;
}

static const IdemValue null = {SQLITE_NULL, 0, 0};

/* A text of which not one byte too many can be read: behind it is a page that nobody may touch. */
static IdemValue guarded(const char *z) {
  size_t n = strlen(z), nPage = (size_t)sysconf(_SC_PAGESIZE);
  char *a = mmap(0, 2 * nPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (a == MAP_FAILED || n > nPage || mprotect(a + nPage, nPage, PROT_NONE)) exit(2);
  memcpy(a + nPage - n, z, n);
  IdemValue v = {SQLITE_TEXT, (int)n, a + nPage - n};
  return v;
}

/* ---- the words, and how each changes the arguments ------------------------------------------- */

typedef struct Args {
  int bRec;
  IdemRecord rec;
  IdemRequest req;
  IdemPolicy pol;
} Args;

static int is(const char *z, const char *zWord) {
  return strcmp(z, zWord) == 0;
}

static const char *const azRecord[] = {
    "none", "processing:far", "processing:+1", "processing:0", "processing:-1", "completed:+1",
    "completed:0", "completed:-1", "completed:tomb+1", "completed:tomb0", "completed:tomb-1",
    "released", "unknown", "tombstone:far", "tombstone:+1", "tombstone:0", "tombstone:-1", 0};

static void setRecord(Args *a, const char *z) {
  static const struct {
    const char *z;
    int eState;
    int64_t left; /* due - now */
  } aRecord[] = {
      {"processing:far", IDEM_ST_PROCESSING, 600000},
      {"processing:+1", IDEM_ST_PROCESSING, 1},
      {"processing:0", IDEM_ST_PROCESSING, 0},
      {"processing:-1", IDEM_ST_PROCESSING, -1},
      {"completed:+1", IDEM_ST_COMPLETED, 1},
      {"completed:0", IDEM_ST_COMPLETED, 0},
      {"completed:-1", IDEM_ST_COMPLETED, -1},
      {"completed:tomb+1", IDEM_ST_COMPLETED, 1 - TOMBSTONE},
      {"completed:tomb0", IDEM_ST_COMPLETED, -TOMBSTONE},
      {"completed:tomb-1", IDEM_ST_COMPLETED, -1 - TOMBSTONE},
      {"tombstone:far", IDEM_ST_TOMBSTONE, TOMBSTONE + 1},
      {"tombstone:+1", IDEM_ST_TOMBSTONE, 1},
      {"tombstone:0", IDEM_ST_TOMBSTONE, 0},
      {"tombstone:-1", IDEM_ST_TOMBSTONE, -1},
  };
  a->bRec = !is(z, "none");
  if (is(z, "released")) a->rec.eState = IDEM_ST_RELEASED;
  if (is(z, "unknown")) a->rec.eState = IDEM_ST_UNKNOWN;
  for (size_t i = 0; i < sizeof(aRecord) / sizeof(aRecord[0]); i++) {
    if (!is(z, aRecord[i].z)) continue;
    a->rec.eState = aRecord[i].eState;
    a->rec.bDue = 1;
    a->rec.due = NOW + aRecord[i].left;
  }
  if (a->rec.eState == IDEM_ST_COMPLETED || a->rec.eState == IDEM_ST_TOMBSTONE) {
    a->rec.tombstone_ms = TOMBSTONE;
    a->rec.completed_at = NOW - 5000;
  }
}

static const char *const azHeld[] = {"yes", "no", 0};
static void setHeld(Args *a, const char *z) {
  a->rec.token = is(z, "yes") ? text("current-token-0000") : null;
}

static const char *const azAttempts[] = {"1of0", "1of1",   "1of2",   "3of0",   "3of4", "3of3",
                                         "3of2", "3-2of2", "3-2of1", "3-3of1", 0};
static const char *const azAttemptsCore[] = {"1of0", "3of4", "3of3", "3-2of2", "3-2of1", 0};
static void setAttempts(Args *a, const char *z) {
  a->rec.attempt = z[0] - '0';
  a->rec.granted = z[1] == '-' ? z[2] - '0' : 0;
  a->pol.max_attempts = z[strlen(z) - 1] - '0';
  static IdemValue spent;
  if (!spent.p) spent = guarded("spent-token-number-1\nspent-token-number-2\n");
  if (a->rec.attempt > 1) a->rec.spent = spent;
}

static const char *const azLogged[] = {"no", "yes", 0};
static void setLogged(Args *a, const char *z) {
  a->rec.bExhaustedLogged = is(z, "yes");
}

static const char *const azFp[] = {"same",    "other",         "longer",       "shorter",
                                   "blob",    "blob/blob",     "blob/text",    "form",
                                   "raw",     "hmac",          "blob/form",    "foreign",
                                   "foreign/other", "foreign/form", "form/foreign", "nocolon",
                                   "letter",  "letter/other", 0};
static const char *const azFpCore[] = {"same", "other", "form", "blob", 0};
static void setFp(Args *a, const char *z) {
  IdemValue was = text("idem1:aa"), is_ = text("idem1:aa");
  if (is(z, "other")) is_ = text("idem1:ab");
  if (is(z, "longer")) is_ = text("idem1:aaa");
  if (is(z, "shorter")) is_ = text("idem1:a");
  if (is(z, "blob")) is_ = blob("idem1:aa");
  if (is(z, "blob/blob")) was = is_ = blob("idem1:aa");
  if (is(z, "blob/text")) was = blob("idem1:aa");
  if (is(z, "form")) was = text("idem0:aa");
  if (is(z, "raw")) is_ = text("idemr1:aa");
  if (is(z, "hmac")) is_ = text("idemh1:aa");
  if (is(z, "blob/form")) was = blob("idem0:aa");
  if (is(z, "foreign")) was = is_ = text("sha256=aa");
  if (is(z, "foreign/other")) was = text("sha256=aa"), is_ = text("sha256=ab");
  if (is(z, "foreign/form")) was = text("sha256=aa");
  if (is(z, "form/foreign")) is_ = text("sha256=aa");
  if (is(z, "nocolon")) is_ = text("idem1aa");
  if (is(z, "letter")) was = is_ = text("f");
  if (is(z, "letter/other")) was = text("f"), is_ = text("g");
  a->rec.fingerprint = was;
  a->req.fingerprint = is_;
}

static const char *const azOp[] = {"same", "other", "longer", "omitted", "added", "neither", 0};
static const char *const azOpCore[] = {"same", "other", 0};
static void setOp(Args *a, const char *z) {
  a->rec.operation = text(is(z, "added") || is(z, "neither") ? "" : "pay");
  a->req.operation = text(is(z, "other")    ? "sue"
                          : is(z, "longer") ? "pays"
                          : is(z, "omitted") || is(z, "neither") ? "" : "pay");
}

static const char *const azKey[] = {"plain", "letter", "fingerprint", "scope", "all", 0};
static const char *const azKeyCore[] = {"plain", "fingerprint", "scope", 0};
static void setKey(Args *a, const char *z) { /* after setFp() */
  IdemValue fp = a->req.fingerprint;
  a->req.scope = text("tenant");
  a->req.key = text("order-123");
  if (is(z, "letter")) a->req.scope = text("s"), a->req.key = text("k");
  if (is(z, "scope")) a->req.key = a->req.scope;
  if (is(z, "fingerprint") || is(z, "all")) {
    a->req.key = fp;
    a->req.key.eType = SQLITE_TEXT; /* a key always is: a BLOB fingerprint counts by its bytes */
  }
  if (is(z, "all")) a->req.scope = a->req.key;
}

static const char *const azAllow[] = {"no", "yes", 0};
static void setAllow(Args *a, const char *z) {
  a->pol.bContentKey = is(z, "yes");
}

static const char *const azToken[] = {"absent", "current", "other", "spent1", "spent2",
                                      "spent-prefix", "spent-suffix", "spent-length",
                                      "current-prefix", "current-longer", 0};
static const char *const azTokenCore[] = {"absent", "current", "other", "spent1", 0};
static const char *const azTokenGiven[] = {"current", "other", "spent1", "spent2", "spent-prefix",
                                           "current-prefix", "current-longer", 0};
static void setToken(Args *a, const char *z) {
  a->req.token = null;
  if (is(z, "current")) a->req.token = text("current-token-0000");
  if (is(z, "other")) a->req.token = text("another-token-0000");
  if (is(z, "spent1")) a->req.token = text("spent-token-number-1");
  if (is(z, "spent2")) a->req.token = text("spent-token-number-2");
  if (is(z, "spent-prefix")) a->req.token = text("spent-token-number");
  if (is(z, "spent-suffix")) a->req.token = text("ent-token-number-1");
  if (is(z, "spent-length")) a->req.token = text("spent-token-number-3");
  if (is(z, "current-prefix")) a->req.token = text("current-token-000");
  if (is(z, "current-longer")) a->req.token = text("current-token-00000");
}

static const char *const azStale[] = {"unknown", "retry", 0};
static void setStale(Args *a, const char *z) {
  a->pol.eStale = is(z, "retry") ? IDEM_STALE_RETRY : IDEM_STALE_UNKNOWN;
}

static const char *const azAudit[] = {"off", "exceptions", "all", 0};
static void setAudit(Args *a, const char *z) {
  a->pol.eAudit = is(z, "off")          ? IDEM_AUDIT_OFF
                  : is(z, "exceptions") ? IDEM_AUDIT_EXCEPTIONS
                                        : IDEM_AUDIT_ALL;
}

static const char *const azAnswer[] = {
    "same",   "same-null", "same-empty", "same-blob", "same-omitted", "response",
    "longer", "type",      "null/empty", "empty/null", "code",        "code/none",
    "none/code", "code0/none", "headers", "headers/none", "none/headers", "omitted", 0};
static void setAnswer(Args *a, const char *z) {
  IdemRecord *r = &a->rec;
  IdemRequest *q = &a->req;
  r->bCode = q->bCode = 1;
  r->code = q->code = 201;
  r->headers = q->headers = text("{}");
  r->response = q->response = text("done");
  if (is(z, "same-null")) {
    r->bCode = q->bCode = 0;
    r->code = q->code = 0;
    r->headers = q->headers = r->response = q->response = null;
  }
  if (is(z, "same-empty")) r->response = q->response = text("");
  if (is(z, "same-blob")) r->response = q->response = blob("\x01\x02");
  if (is(z, "same-omitted") || is(z, "omitted")) {
    r->bOmitted = 1;
    r->response = q->response = blob("0123456789abcdef0123456789abcdef");
  }
  if (is(z, "omitted")) q->response = blob("0123456789abcdef0123456789abcdeg");
  if (is(z, "response")) q->response = text("dong");
  if (is(z, "longer")) q->response = text("done.");
  if (is(z, "type")) q->response = blob("done");
  if (is(z, "null/empty")) r->response = null, q->response = text("");
  if (is(z, "empty/null")) r->response = text(""), q->response = null;
  if (is(z, "code")) q->code = 202;
  if (is(z, "code/none")) q->bCode = 0, q->code = 0;
  if (is(z, "none/code")) r->bCode = 0, r->code = 0;
  if (is(z, "code0/none")) r->code = q->code = 0, q->bCode = 0;
  if (is(z, "headers")) q->headers = text("[]");
  if (is(z, "headers/none")) q->headers = null;
  if (is(z, "none/headers")) r->headers = null;
}

/* ---- combinations ---------------------------------------------------------------------------- */

typedef struct Dim {
  const char *zName;
  void (*xSet)(Args *, const char *);
  const char *const *azWord;
} Dim;

/* In the order in which they are set: the key may be the fingerprint. */
#define RECORD {"record", setRecord, azRecord}, {"held", setHeld, azHeld}
#define TAIL   {"stale", setStale, azStale}, {"audit", setAudit, azAudit}
static const Dim aClaim[] = {RECORD,
                             {"attempts", setAttempts, azAttemptsCore},
                             {"logged", setLogged, azLogged},
                             {"fp", setFp, azFpCore},
                             {"op", setOp, azOpCore},
                             {"key", setKey, azKeyCore},
                             {"allow", setAllow, azAllow},
                             {"token", setToken, azTokenCore},
                             TAIL,
                             {0, 0, 0}};
static const Dim aClaimFp[] = {{"record", setRecord, azRecord},
                               {"attempts", setAttempts, azAttemptsCore},
                               {"fp", setFp, azFp},
                               {"op", setOp, azOp},
                               {"key", setKey, azKey},
                               {"allow", setAllow, azAllow},
                               {"audit", setAudit, azAudit},
                               {0, 0, 0}};
static const Dim aClaimToken[] = {RECORD,
                                  {"attempts", setAttempts, azAttempts},
                                  {"logged", setLogged, azLogged},
                                  {"token", setToken, azToken},
                                  TAIL,
                                  {0, 0, 0}};
static const Dim aWorker[] = {RECORD,
                              {"attempts", setAttempts, azAttemptsCore},
                              {"logged", setLogged, azLogged},
                              {"token", setToken, azTokenGiven},
                              TAIL,
                              {0, 0, 0}};
static const Dim aComplete[] = {RECORD,
                                {"attempts", setAttempts, azAttemptsCore},
                                {"token", setToken, azTokenGiven},
                                {"answer", setAnswer, azAnswer},
                                TAIL,
                                {0, 0, 0}};
static const Dim aOperator[] = {RECORD,
                                {"attempts", setAttempts, azAttempts},
                                {"logged", setLogged, azLogged},
                                TAIL,
                                {0, 0, 0}};
static const Dim aResolve[] = {RECORD,
                               {"attempts", setAttempts, azAttemptsCore},
                               {"logged", setLogged, azLogged},
                               {"answer", setAnswer, azAnswer},
                               TAIL,
                               {0, 0, 0}};

static const struct {
  const char *zName;
  int eVerb;
  const Dim *aDim;
} aGroup[] = {
    {"claim", IDEM_CLAIM, aClaim},
    {"claim", IDEM_CLAIM, aClaimFp},
    {"claim", IDEM_CLAIM, aClaimToken},
    {"complete", IDEM_COMPLETE, aComplete},
    {"release", IDEM_RELEASE, aWorker},
    {"suspend", IDEM_SUSPEND, aWorker},
    {"renew", IDEM_RENEW, aWorker},
    {"checkpoint", IDEM_CHECKPOINT, aWorker},
    {"resolve-completed", IDEM_RESOLVE_COMPLETED, aResolve},
    {"resolve-retry", IDEM_RESOLVE_RETRY, aOperator},
    {"erase", IDEM_ERASE, aOperator},
};

/* ---- verdicts in words ----------------------------------------------------------------------- */

static const char *const azOutcome[IDEM_OUT_COUNT] = {
    "none", "claimed", "replay", "in_progress", "mismatch", "unknown", "expired", "exhausted"};
static const char *const azWrite[IDEM_WR_COUNT] = {
    "none",  "insert",     "restart",           "retry",         "complete", "release", "suspend",
    "renew", "checkpoint", "resolve-completed", "resolve-retry", "erase",    "mark"};
static const char *const azEvent[IDEM_EV_COUNT] = {
    "none",    "claim",             "take-over",     "complete",  "release", "suspend",
    "resolve-completed", "resolve-retry", "exhausted", "erase",   "replay",  "refused"};

#define E(name) [IDEM_E_##name] = #name
static const char *const azError[IDEM_E_COUNT] = {
    [IDEM_E_NONE] = "none", E(CONTENT_KEY), E(SCOPE_KEY), E(PREFIX),    E(TOKEN_USED), E(NO_RECORD),
    E(EXPIRED),             E(LOST),        E(RELEASED),  E(ANSWERED),  E(COMPLETED),  E(SUSPENDED),
    E(LIVE),                E(RESOLVED),    E(CLAIMABLE), E(ERASE)};

static const char *word(const char *const *az, int n, int i) {
  return i >= 0 && i < n && az[i] ? az[i] : "?";
}

/* Everything that no dimension sets has a value that would show if it were used by mistake. */
static void start(Args *a, int eVerb) {
  memset(a, 0, sizeof(*a));
  a->req.eVerb = eVerb;
  a->pol.lease_ms = LEASE;
  a->pol.retention_ms = RETENTION;
  a->pol.tombstone_ms = TOMBSTONE + 777;
  a->pol.wait_ms = 13;
  a->pol.max_response_bytes = 1;
  a->rec.id = 7;
  a->rec.created_at = NOW - 17;
  a->rec.token = a->rec.spent = a->rec.headers = a->rec.response = a->rec.point = null;
  a->rec.checkpoint = a->rec.reason = null;
  a->req.headers = a->req.response = a->req.point = a->req.checkpoint = a->req.reason = null;
  setHeld(a, "yes");
  setFp(a, "same");
  setOp(a, "same");
  setKey(a, "plain");
  setToken(a, "absent");
  setAudit(a, "exceptions");
}

static void combine(const char *zVerb, int eVerb, const Dim *aDim) {
  int n = 0, aPos[16] = {0};
  while (aDim[n].zName) n++;
  for (;;) {
    Args a;
    IdemVerdict v;
    start(&a, eVerb);
    fputs(zVerb, stdout);
    for (int i = 0; i < n; i++) {
      const char *z = aDim[i].azWord[aPos[i]];
      aDim[i].xSet(&a, z);
      fputc(' ', stdout), fputs(aDim[i].zName, stdout), fputc('=', stdout), fputs(z, stdout);
    }
    memset(&v, 0x55, sizeof(v)); /* nothing may be left unset */
    idemVerdict(a.bRec ? &a.rec : 0, &a.req, &a.pol, NOW, &v);
    printf(" -> %s %s %s %s %lld %lld %lld\n", word(azOutcome, IDEM_OUT_COUNT, v.eOutcome),
           word(azError, IDEM_E_COUNT, v.eError), word(azWrite, IDEM_WR_COUNT, v.eWrite),
           word(azEvent, IDEM_EV_COUNT, v.eEvent), (long long)v.attempt,
           v.due ? (long long)(v.due - NOW) : 0, (long long)v.retry_after_ms);
    int i = n - 1;
    while (i >= 0 && !aDim[i].azWord[++aPos[i]]) aPos[i--] = 0;
    if (i < 0) return;
  }
}

/* ---- the other functions of verdict.h -------------------------------------------------------- */

static const char *const azState[IDEM_ST_COUNT] = {"none",     "processing", "completed",
                                                   "released", "unknown",    "tombstone"};

static void small(void) {
  static const char *const azForm[] = {
      "", "i", "idem", "idem:", "idem1", "idem1:", "idem1:x", "idem12:x", "idemr1:x", "idemh1:x",
      "idemxyz9:", "Idem1:x", "xidem1:x", "idem-1:x", "idem 1:x", ":idem1", "ide1:x", "idemr:x",
      "idema1:", "idemz1:", "idem0:", "idem9:", "idem123", "idem1x:", "idem`1:", "idem{1:",
      "idem/:", "idem;:", "idemabc", 0};
  Args a;
  for (int i = 1; azRecord[i]; i++) {
    for (int j = 0; azStale[j]; j++) {
      start(&a, IDEM_CLAIM);
      setRecord(&a, azRecord[i]);
      setStale(&a, azStale[j]);
      printf("visible %s %s -> %s\n", azRecord[i], azStale[j],
             word(azState, IDEM_ST_COUNT, idemVisibleState(&a.rec, a.pol.eStale, NOW)));
    }
    if (a.rec.tombstone_ms) {
      printf("ends %s -> %lld %lld\n", azRecord[i], (long long)(idemExpiresAt(&a.rec) - NOW),
             (long long)(idemTombstoneUntil(&a.rec) - NOW));
    }
  }
  for (int i = 0; azForm[i]; i++) {
    IdemValue t = guarded(azForm[i]), b = t;
    b.eType = SQLITE_BLOB;
    printf("form %s| -> %d %d\n", azForm[i], idemFormLength(&t), idemFormLength(&b));
  }
  const IdemValue aVal[] = {null, text(""), blob(""), text("a"), blob("a"), text("b"), text("aa"),
                            {SQLITE_TEXT, 0, 0}};
  const int n = (int)(sizeof(aVal) / sizeof(aVal[0]));
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < n; j++) printf("same %d %d -> %d\n", i, j, idemSame(&aVal[i], &aVal[j]));
  }
}

int main(int argc, char **argv) {
  if (argc > 1 && is(argv[1], "small")) {
    small();
    return 0;
  }
  for (size_t i = 0; i < sizeof(aGroup) / sizeof(aGroup[0]); i++) {
    combine(aGroup[i].zName, aGroup[i].eVerb, aGroup[i].aDim);
  }
  return 0;
}
