-- idem ledger · 85 · webhook inbox
--
--   * Unique: (provider, account, event id). Senders deliver at least once, for days, in any order.
--   * The same event with the same body is no error: any kind of INSERT leaves no second row and
--     returns none, so `INSERT ... RETURNING id` yields a row exactly when the event is new.
--   * The same id with another body is refused (EVENT_ID_REUSED_WITH_OTHER_BODY); keep the stranger in
--     webhook_conflict for inspection.
--   * Status only moves forward: received, processing, then processed, failed or ignored; failed may be
--     tried again. Finishing an event twice raises EVENT_ALREADY_PROCESSED, and takes the second
--     effect back with it.
--   * One change may arrive as two events with different ids, so the effect needs its own natural key
--     (payment, payout, refund id). The inbox alone is not enough.
--   * What arrived is immutable. A finished event may lose its body (privacy); its id and hash stay
--     for good, because a sender can redeliver by hand after weeks.
--   * This is the inbox with accounting detail; a program without the ledger uses idem_seen().

-- Tables -----------------------------------------------------------------------------------------

CREATE TABLE webhook_event (
  id               INTEGER PRIMARY KEY CHECK (id > 0),
  company_id       INTEGER NOT NULL REFERENCES company (id),
  provider         TEXT    NOT NULL
    CONSTRAINT "provider: not empty, no blanks around it, no control or invisible characters"
    CHECK (provider <> '' AND provider = trim(provider) AND instr(provider, char(0)) = 0
           AND provider NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*'),
  account          TEXT    NOT NULL
    CONSTRAINT "account: not empty, no blanks around it, no control or invisible characters"
    CHECK (account <> '' AND account = trim(account) AND instr(account, char(0)) = 0
           AND account NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*'),
  event_id         TEXT    NOT NULL
    CONSTRAINT "event_id: not empty, no blanks around it, no control or invisible characters"
    CHECK (event_id <> '' AND event_id = trim(event_id) AND instr(event_id, char(0)) = 0
           AND event_id NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*'),
  event_type       TEXT    NOT NULL DEFAULT '',
  object_id        TEXT,
  occurred_at      TEXT,
  received_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
  body             BLOB,
  body_sha256      TEXT    NOT NULL CHECK (length(body_sha256) = 64 AND body_sha256 NOT GLOB '*[^0-9a-f]*'),
  signature_ok     INTEGER NOT NULL CHECK (signature_ok = 1),       -- a forged event is never stored
  status           TEXT    NOT NULL DEFAULT 'received'
                     CHECK (status IN ('received', 'processing', 'processed', 'failed', 'ignored')),
  attempts         INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  next_attempt_at  TEXT,
  processed_at     TEXT,
  last_error       TEXT,
  effect_kind      TEXT,
  effect_id        INTEGER,
  CHECK ((status IN ('processed', 'ignored')) = (processed_at IS NOT NULL)),
  CHECK (body IS NOT NULL OR status IN ('processed', 'ignored'))
) STRICT;

-- Events refused for their body, for inspection. Append-only, no key.
CREATE TABLE webhook_conflict (
  id           INTEGER PRIMARY KEY CHECK (id > 0),
  company_id   INTEGER NOT NULL REFERENCES company (id),
  provider     TEXT    NOT NULL,
  account      TEXT    NOT NULL,
  event_id     TEXT    NOT NULL,
  received_at  TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
  body         BLOB,
  body_sha256  TEXT    NOT NULL
) STRICT;

-- Keys -------------------------------------------------------------------------------------------

CREATE UNIQUE INDEX webhook_event_key ON webhook_event (provider, account, event_id);
CREATE INDEX webhook_event_open ON webhook_event (status, received_at) WHERE status NOT IN ('processed', 'ignored');

-- Guards -----------------------------------------------------------------------------------------

CREATE TRIGGER webhook_event_insert BEFORE INSERT ON webhook_event
BEGIN
  SELECT RAISE(ABORT, 'EVENT_ID_REUSED_WITH_OTHER_BODY: keep it in webhook_conflict, alert, answer 400')
    FROM webhook_event
   WHERE provider = NEW.provider AND account = NEW.account AND event_id = NEW.event_id
     AND ((company_id, body_sha256) IS NOT (NEW.company_id, NEW.body_sha256)
          OR (body IS NOT NULL AND body IS NOT NEW.body));
  SELECT RAISE(IGNORE)
   WHERE EXISTS (SELECT 1 FROM webhook_event
                  WHERE provider = NEW.provider AND account = NEW.account AND event_id = NEW.event_id);
  SELECT RAISE(ABORT, 'IMMUTABLE: this row exists; leave out the id')
   WHERE EXISTS (SELECT 1 FROM webhook_event WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'MUST_START_AS_DRAFT: an event starts as received')
   WHERE NEW.status IS NOT 'received' OR NEW.processed_at IS NOT NULL OR NEW.effect_id IS NOT NULL;
END;

CREATE TRIGGER webhook_event_update BEFORE UPDATE ON webhook_event
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: what arrived is never changed; only the body of a finished event may be removed')
   WHERE (NEW.id, NEW.company_id, NEW.provider, NEW.account, NEW.event_id, NEW.event_type, NEW.object_id,
          NEW.occurred_at, NEW.received_at, NEW.body_sha256, NEW.signature_ok)
           IS NOT
         (OLD.id, OLD.company_id, OLD.provider, OLD.account, OLD.event_id, OLD.event_type, OLD.object_id,
          OLD.occurred_at, OLD.received_at, OLD.body_sha256, OLD.signature_ok)
      OR (NEW.body IS NOT OLD.body
          AND NOT (NEW.body IS NULL AND OLD.status IN ('processed', 'ignored')))
      OR NEW.attempts < OLD.attempts;
  SELECT RAISE(ABORT, 'IMMUTABLE: an event never goes back to received')
   WHERE NEW.status = 'received' AND OLD.status <> 'received';
END;

-- By the columns a statement names, not by their values: to finish an event a second time with the same
-- values is a second effect, to remove a body that is gone is nothing.
CREATE TRIGGER webhook_event_finished
BEFORE UPDATE OF status, attempts, next_attempt_at, processed_at, last_error, effect_kind, effect_id ON webhook_event
WHEN OLD.status IN ('processed', 'ignored')
BEGIN
  SELECT RAISE(ABORT, 'EVENT_ALREADY_PROCESSED: this event is finished; answer 200 and do nothing');
END;

CREATE TRIGGER webhook_event_delete BEFORE DELETE ON webhook_event
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: an event id is kept for good, or its redelivery would act again; remove the body instead');
END;

CREATE TRIGGER webhook_conflict_insert BEFORE INSERT ON webhook_conflict
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: this row exists; leave out the id')
   WHERE EXISTS (SELECT 1 FROM webhook_conflict WHERE id = NEW.id);
END;

CREATE TRIGGER webhook_conflict_update BEFORE UPDATE ON webhook_conflict
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: evidence is never changed');
END;

-- Views ------------------------------------------------------------------------------------------

-- Received more than ten minutes ago and not finished, or failed.
CREATE VIEW webhook_stuck AS
SELECT company_id, id AS webhook_id, provider, account, event_id, event_type, status, attempts, received_at, last_error
  FROM webhook_event
 WHERE status = 'failed'
    OR (status IN ('received', 'processing')
        AND julianday(received_at) < julianday('now', '-10 minutes'));

CREATE VIEW integrity_webhook AS
SELECT 'EVENT_TWICE' AS rule, company_id, 'webhook_event' AS subject, max(id) AS subject_id
  FROM webhook_event GROUP BY provider, account, event_id HAVING count(*) > 1
UNION ALL
SELECT 'EVENT_STATUS_WRONG', company_id, 'webhook_event', id
  FROM webhook_event
 WHERE (status IN ('processed', 'ignored')) <> (processed_at IS NOT NULL)
    OR (body IS NULL AND status NOT IN ('processed', 'ignored'));
