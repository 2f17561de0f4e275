-- idem's store, schema version 1. Created by SELECT idem_init(), or by running this file.
--
-- Plain STRICT tables: readable by any SQLite 3.37 or later without the extension. Times are integer
-- milliseconds since 1970-01-01 UTC. Rows of idem_store, idem_inbox and idem_audit are written by
-- idem alone; idem_policy is yours to edit.
--
-- idem compares every object below with this text, byte for byte, before it trusts a database file:
-- a file in which a view or a trigger poses as one of these tables is refused.

-- One row. policy_version changes with every change of idem_policy, so that policies can be kept in
-- memory and a write can demand the policy it was decided by. It is random: a counter that is rolled
-- back and counts again could stand for two policies.
CREATE TABLE idem_meta(
  id             INTEGER PRIMARY KEY CHECK (id = 1),
  schema_version INTEGER NOT NULL,
  policy_version INTEGER NOT NULL
) STRICT;

-- How each operation behaves. The row '*' serves every operation without a row of its own. A change
-- is effective at the next call in every connection. Deadlines are fixed when they are granted: a
-- change of lease_ms, retention_ms or tombstone_ms does not move those of records that exist.
CREATE TABLE idem_policy(
  operation          TEXT NOT NULL PRIMARY KEY
                     CHECK (length(operation) BETWEEN 1 AND 255),
  lease_ms           INTEGER NOT NULL DEFAULT 60000          -- trust in a claim without news; <= 30 days
                     CHECK (lease_ms BETWEEN 1 AND 2592000000),
  retention_ms       INTEGER NOT NULL DEFAULT 86400000       -- replay, from completion; <= 10 years
                     CHECK (retention_ms BETWEEN 1 AND 315360000000),
  tombstone_ms       INTEGER NOT NULL DEFAULT 2592000000     -- refusal after that; <= 100 years
                     CHECK (tombstone_ms BETWEEN 1 AND 3153600000000),
  wait_ms            INTEGER NOT NULL DEFAULT 0              -- a claim waits for a running one; <= 60 s
                     CHECK (wait_ms BETWEEN 0 AND 60000),
  on_stale           TEXT NOT NULL DEFAULT 'unknown'         -- what a lease that ran out means
                     CHECK (on_stale IN ('unknown', 'retry')),
  max_attempts       INTEGER NOT NULL DEFAULT 0              -- 0 = unlimited
                     CHECK (max_attempts BETWEEN 0 AND 1000000),
  max_response_bytes INTEGER NOT NULL DEFAULT 1048576        -- a larger answer is completed, not kept
                     CHECK (max_response_bytes BETWEEN 0 AND 1000000000),
  allow_content_key  INTEGER NOT NULL DEFAULT 0              -- 1: key may equal fingerprint or scope
                     CHECK (allow_content_key IN (0, 1)),
  audit              TEXT NOT NULL DEFAULT 'exceptions'
                     CHECK (audit IN ('off', 'exceptions', 'all')),
  description        TEXT
) STRICT, WITHOUT ROWID;

-- One row per idempotency key. The layout was measured (bench/layout.c): one WITHOUT ROWID table costs
-- 1.3 to 7 times as much per claim + complete, separate tables for keys and answers 1.2 to 2.5 times;
-- an index on created_at would add a fifth, which is why there is none.
CREATE TABLE idem_store(
  id               INTEGER PRIMARY KEY,
  scope            TEXT NOT NULL,              -- who owns the key: a tenant, never a credential
  key              TEXT NOT NULL,              -- the client's name for one logical operation
  operation        TEXT NOT NULL,              -- what the request does; '' = not given
  fingerprint      ANY NOT NULL,               -- what the request asks for; never changes
  state            TEXT NOT NULL,              -- processing, completed, released, unknown, tombstone
  attempt          INTEGER NOT NULL,           -- 1, 2, 3 ...: counted at claim, so crashes count
  granted          INTEGER NOT NULL DEFAULT 0, -- attempts used when an operator last granted a retry
  token            TEXT,                       -- of the latest attempt; NULL once resolved
  spent            TEXT,                       -- earlier tokens, one a line: never good again
  due_at           INTEGER,                    -- processing: lease end; completed: end of retention;
                                               -- tombstone: its end; released, unknown: NULL
  tombstone_ms     INTEGER,                    -- fixed at completion
  created_at       INTEGER NOT NULL,
  updated_at       INTEGER NOT NULL,
  completed_at     INTEGER,
  code             INTEGER,                    -- the answer's code, an HTTP status by custom
  headers          TEXT,
  response         ANY,                        -- TEXT, BLOB or NULL, returned byte for byte
  response_omitted INTEGER NOT NULL DEFAULT 0, -- 1: too large; response is its SHA-256
  recovery_point   TEXT,                       -- the last named step that was done
  checkpoint       ANY,                        -- its data
  reason           TEXT,                       -- of the last release, suspend or resolve
  audit_event      TEXT,                       -- the last event that went into idem_audit
  UNIQUE (scope, key)
) STRICT;

-- Serves the purge, the search for stale leases, and every listing by state.
CREATE INDEX idem_store_due ON idem_store(state, due_at);

-- Events of at-least-once senders that were handled: idem_seen(source, event_id, fingerprint).
CREATE TABLE idem_inbox(
  source      TEXT NOT NULL,
  event_id    TEXT NOT NULL,
  fingerprint ANY,              -- of the first delivery, if it was given
  seen_at     INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL,
  PRIMARY KEY (source, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX idem_inbox_expires ON idem_inbox(expires_at);

-- What happened that may have to be explained later. Append-only, and a chain: each row carries the
-- digest of its predecessor, so a changed, removed, reordered or inserted row shows
-- (SELECT idem_audit_verify()). A chain cannot show that its end was cut off: keep the last id and
-- digest elsewhere if that matters.
CREATE TABLE idem_audit(
  id        INTEGER PRIMARY KEY,   -- 1, 2, 3 ... without gaps
  at        INTEGER NOT NULL,
  event     TEXT NOT NULL,
  scope     TEXT NOT NULL,
  key       TEXT NOT NULL,
  operation TEXT NOT NULL,
  attempt   INTEGER NOT NULL,
  detail    TEXT,                  -- the reason given, or the outcome of a refused claim
  prev      TEXT NOT NULL,         -- digest of the row before; 'idem-audit' in the first
  digest    TEXT NOT NULL          -- idem_fingerprint_raw of all the above, see idem_audit_chain
) STRICT;

CREATE TRIGGER idem_audit_no_update BEFORE UPDATE ON idem_audit
BEGIN
  SELECT RAISE(ABORT, 'idem_audit is append-only: rows are never changed');
END;

CREATE TRIGGER idem_audit_no_delete BEFORE DELETE ON idem_audit
BEGIN
  SELECT RAISE(ABORT, 'idem_audit is append-only: rows are never deleted');
END;

-- OR REPLACE deletes without firing the trigger above: the next id is the only one that may come.
CREATE TRIGGER idem_audit_next_id BEFORE INSERT ON idem_audit
WHEN new.id IS NOT (SELECT coalesce(max(id), 0) + 1 FROM idem_audit)
BEGIN
  SELECT RAISE(ABORT, 'idem_audit is append-only: rows are added at its end by idem');
END;

-- The one way into the audit: fills in id, prev and digest.
CREATE VIEW idem_audit_entry AS
SELECT at, event, scope, key, operation, attempt, detail FROM idem_audit;

CREATE TRIGGER idem_audit_chain INSTEAD OF INSERT ON idem_audit_entry
BEGIN
  INSERT INTO idem_audit(id, at, event, scope, key, operation, attempt, detail, prev, digest)
  SELECT last.id + 1, new.at, new.event, new.scope, new.key, new.operation, new.attempt, new.detail,
         last.digest,
         idem_fingerprint_raw(
           last.digest || ',' || (last.id + 1) || ',' || new.at || ',' || quote(new.event) || ',' ||
           quote(new.scope) || ',' || quote(new.key) || ',' || quote(new.operation) || ',' ||
           new.attempt || ',' || quote(new.detail))
  FROM (SELECT id, digest FROM idem_audit
        UNION ALL SELECT 0, 'idem-audit'
        ORDER BY id DESC LIMIT 1) AS last;
END;

-- An audited change and its audit row are one statement. A statement that does not set audit_event
-- does not even compile this trigger: the hot path pays nothing for it.
CREATE TRIGGER idem_store_audit AFTER UPDATE OF audit_event ON idem_store
BEGIN
  INSERT INTO idem_audit_entry(at, event, scope, key, operation, attempt, detail)
  VALUES (new.updated_at, new.audit_event, new.scope, new.key, new.operation, new.attempt,
          CASE WHEN new.audit_event IN ('release', 'suspend', 'resolve-completed', 'resolve-retry')
               THEN new.reason END);
  DELETE FROM idem_store WHERE id = new.id AND new.audit_event = 'erase';
END;

-- An audited claim of a new key. Not an AFTER INSERT trigger on idem_store: its mere presence makes
-- every claim dearer (bench/layout.c: up to half as much again), audited or not.
CREATE VIEW idem_claim_audited AS
SELECT scope, key, operation, fingerprint, token, due_at, created_at, audit_event FROM idem_store;

CREATE TRIGGER idem_claim_audited_insert INSTEAD OF INSERT ON idem_claim_audited
BEGIN
  INSERT INTO idem_store(scope, key, operation, fingerprint, token, due_at, created_at, updated_at,
                         state, attempt, audit_event)
  VALUES (new.scope, new.key, new.operation, new.fingerprint, new.token, new.due_at, new.created_at,
          new.created_at, 'processing', 1, new.audit_event)
  ON CONFLICT DO NOTHING;
  INSERT INTO idem_audit_entry(at, event, scope, key, operation, attempt)
  SELECT created_at, audit_event, scope, key, operation, attempt FROM idem_store
  WHERE changes() = 1 AND scope = new.scope AND key = new.key;
END;

-- One batch of the purge as one statement: at most so many tombstones and events go, and at most so
-- many expired answers become tombstones. Each takes its rows from an index, oldest first.
CREATE VIEW idem_purge_batch AS
SELECT 0 AS at, 0 AS tombstones, 0 AS answers, 0 AS events WHERE 0;

CREATE TRIGGER idem_purge_batch_run INSTEAD OF INSERT ON idem_purge_batch
BEGIN
  DELETE FROM idem_store WHERE id IN (
    SELECT id FROM idem_store INDEXED BY idem_store_due
    WHERE state = 'tombstone' AND due_at <= new.at ORDER BY due_at LIMIT new.tombstones);
  UPDATE idem_store
  SET state = 'tombstone', updated_at = new.at,
      due_at = max(due_at, 0) + CASE WHEN tombstone_ms BETWEEN 1 AND 6307200000000
                                THEN tombstone_ms ELSE 6307200000000 END, -- one bad row stops nobody
      token = NULL, spent = NULL, headers = NULL, response = NULL, response_omitted = 0,
      recovery_point = NULL, checkpoint = NULL, reason = NULL
  WHERE id IN (
    SELECT id FROM idem_store INDEXED BY idem_store_due
    WHERE state = 'completed' AND due_at <= new.at ORDER BY due_at LIMIT new.answers);
  DELETE FROM idem_inbox WHERE (source, event_id) IN (
    SELECT source, event_id FROM idem_inbox INDEXED BY idem_inbox_expires
    WHERE expires_at <= new.at ORDER BY expires_at LIMIT new.events);
END;

CREATE TRIGGER idem_policy_inserted AFTER INSERT ON idem_policy
BEGIN
  UPDATE idem_meta SET policy_version = random();
END;

CREATE TRIGGER idem_policy_updated AFTER UPDATE ON idem_policy
BEGIN
  UPDATE idem_meta SET policy_version = random();
END;

CREATE TRIGGER idem_policy_deleted AFTER DELETE ON idem_policy
BEGIN
  UPDATE idem_meta SET policy_version = random();
END;

-- The default policy must exist.
CREATE TRIGGER idem_policy_keep_default BEFORE DELETE ON idem_policy
WHEN old.operation = '*'
BEGIN
  SELECT RAISE(ABORT, 'idem_policy: the row ''*'' is the default policy, change it instead');
END;

CREATE TRIGGER idem_policy_keep_name BEFORE UPDATE OF operation ON idem_policy
WHEN old.operation = '*' AND new.operation <> '*'
BEGIN
  SELECT RAISE(ABORT, 'idem_policy: the row ''*'' is the default policy, add another row instead');
END;

-- What an operator watches: one row. Uses the machine's clock, so that any reader can run it.
CREATE VIEW idem_health AS
WITH clock(now) AS (SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
SELECT
  now,
  (SELECT count(*) FROM idem_store WHERE state = 'processing' AND due_at > now)  AS processing,
  (SELECT count(*) FROM idem_store WHERE state = 'processing' AND due_at <= now) AS stale,
  (SELECT count(*) FROM idem_store WHERE state = 'unknown')                      AS unknown,
  (SELECT count(*) FROM idem_store WHERE state = 'released')                     AS released,
  (SELECT count(*) FROM idem_store WHERE state = 'completed' AND due_at > now)   AS completed,
  (SELECT count(*) FROM idem_store WHERE state = 'completed' AND due_at <= now)
    + (SELECT count(*) FROM idem_store WHERE state = 'tombstone' AND due_at > now) AS expired,
  (SELECT count(*) FROM idem_store WHERE state = 'completed' AND due_at <= now)
    + (SELECT count(*) FROM idem_store WHERE state = 'tombstone' AND due_at <= now)
    + (SELECT count(*) FROM idem_inbox WHERE expires_at <= now)                  AS purgeable,
  now - (SELECT min(created_at) FROM idem_store WHERE state = 'processing')      AS oldest_processing_ms,
  now - (SELECT min(updated_at) FROM idem_store WHERE state = 'unknown')         AS oldest_unknown_ms,
  (SELECT count(*) FROM idem_inbox)                                              AS inbox,
  (SELECT coalesce(max(id), 0) FROM idem_audit)                                  AS audit_rows
FROM clock;

-- What a client may rely on, per operation: as columns, and as a JSON document to publish.
CREATE VIEW idem_contract AS
SELECT
  operation, description,
  'Idempotency-Key'                                       AS header,
  '1 to 255 characters, no control characters'            AS key_rule,
  retention_ms, tombstone_ms, lease_ms, wait_ms,
  409 AS in_progress_status, 422 AS mismatch_status, 409 AS unknown_status, 410 AS expired_status,
  on_stale, max_attempts,
  json_object(
    'operation', operation,
    'description', description,
    'header', 'Idempotency-Key',
    'key', json_object('min_length', 1, 'max_length', 255,
                       'rule', 'one key per logical operation, kept across retries'),
    'replay', json_object('for_seconds', retention_ms / 1000.0, 'counted_from', 'completion'),
    'in_progress', json_object('status', 409, 'retry_after', json('true'),
                               'waits_up_to_seconds', wait_ms / 1000.0),
    'mismatch', json_object('status', 422),
    'unknown', json_object('status', 409,
                           'after_seconds_without_news', CASE on_stale WHEN 'unknown'
                                                         THEN lease_ms / 1000.0 END),
    'after_retention', json_object('status', 410, 'for_seconds', tombstone_ms / 1000.0),
    'max_attempts', nullif(max_attempts, 0)
  ) AS document
FROM idem_policy;

INSERT INTO main.idem_meta(id, schema_version, policy_version) VALUES (1, 1, random());

INSERT INTO main.idem_policy(operation, description)
VALUES ('*', 'every operation without a row of its own');

INSERT INTO main.idem_policy(operation, retention_ms, description)
VALUES ('inbox', 2592000000, 'idem_seen(): how long an event id is remembered');
