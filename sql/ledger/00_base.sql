-- idem ledger · 00 · conventions, currencies, companies, overrides
--
-- The ledger makes duplicates impossible that no idempotency key can catch: two people with two
-- keys and one order must still get one invoice. Keys expire, the natural keys below do not.
--
-- What holds in every file
--   * Plain SQL for SQLite 3.37 or later. No trigger, CHECK, index or generated column calls an
--     extension function, so the books can be opened and written without the extension.
--   * All tables are STRICT. `id` is internal and positive, and never the legal number.
--   * Money is INTEGER minor units (cents) in columns ending in `_minor`, beside a currency. The
--     sign of a document comes from its kind; journal lines are signed, debit > 0.
--   * Rates are an integer numerator and denominator, tax rates basis points (2100 = 21 %).
--   * Dates are TEXT `YYYY-MM-DD` in the company's time zone and come from the caller, never from
--     the clock: date('now') is UTC and puts half past midnight on 1 January in Vilnius into the
--     old year. `d IS date(d, '+0 days')` is the check; without the modifier 2026-02-30 passes.
--   * Time stamps (`..._at`) are UTC and informational; no rule depends on them.
--   * External identifiers (order, payout, event ...) are compared byte for byte. So that no
--     invisible character makes a second identity they hold no control characters, no blanks but
--     plain ones inside, nothing that Unicode calls default ignorable, and are never ''. An absent
--     identifier is NULL, and has no key.
--   * company_id is in every table and every key. References to master data are composite
--     (company_id, x), references between documents are compared by trigger.
--   * Foreign keys are the second lock: everything that forbids a duplicate is a trigger or a unique
--     index and holds with foreign_keys off. Only "no half-posted entry can be committed" needs
--     `PRAGMA foreign_keys = ON` on the writing connection.
--   * Every unique key of a final row has a mirrored RAISE: INSERT OR REPLACE deletes the other row
--     without firing its DELETE trigger, so the test must come before.
--   * Errors are raised as 'CODE: what to do'. The code is all text before the first colon and is
--     stable; the advice may change. sql/README.md lists all codes.
--   * Each file has the same order: specification, tables, keys, guards, views. Its last view,
--     integrity_..., proves its rules again from the stored rows; it is empty on a healthy book.

-- Tables -----------------------------------------------------------------------------------------

-- ISO 4217 code and number of decimals (JPY 0, EUR 2, KWD 3).
CREATE TABLE currency (
  code      TEXT PRIMARY KEY CHECK (code GLOB '[A-Z][A-Z][A-Z]'),
  exponent  INTEGER NOT NULL CHECK (exponent BETWEEN 0 AND 4)
) STRICT, WITHOUT ROWID;

CREATE TABLE company (
  id                INTEGER PRIMARY KEY CHECK (id > 0),
  name              TEXT    NOT NULL CHECK (name <> ''),
  country           TEXT    NOT NULL CHECK (country GLOB '[A-Z][A-Z]'),
  vat_id            TEXT    CHECK (vat_id <> ''),
  base_currency     TEXT    NOT NULL REFERENCES currency (code),
  time_zone         TEXT    NOT NULL DEFAULT 'UTC',
  -- No entry may be dated on or before this day.
  locked_through    TEXT    CHECK (locked_through IS date(locked_through, '+0 days')),
  -- A switch, because law differs: Lithuania knows annulled invoices (i.SAF type AN).
  allows_annulment  INTEGER NOT NULL DEFAULT 0 CHECK (allows_annulment IN (0, 1))
) STRICT;

-- Every decision to pass a rule knowingly, for the auditor. Append-only. 'unlocked' is written by the
-- schema when an 'unlock' is used, with where the lock went; so each serves once.
CREATE TABLE override_log (
  id          INTEGER PRIMARY KEY CHECK (id > 0),
  company_id  INTEGER NOT NULL REFERENCES company (id),
  kind        TEXT    NOT NULL CHECK (kind IN ('unlock', 'unlocked', 'duplicate_bill', 'series_floor')),
  subject_id  INTEGER,                          -- the bill or series; NULL for a lock
  detail      TEXT    NOT NULL,                 -- of a lock: the locked_through that is moved back
  reason      TEXT    NOT NULL CHECK (trim(reason) <> ''),
  actor       TEXT    NOT NULL DEFAULT '',
  at          TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT;

-- The day that aged and open-item reports look from, since views take no parameters.
-- NULL means today (UTC).
CREATE TABLE report_as_of (
  id     INTEGER PRIMARY KEY CHECK (id = 1),
  as_of  TEXT CHECK (as_of IS date(as_of, '+0 days'))
) STRICT;

INSERT INTO report_as_of (id, as_of) VALUES (1, NULL);

-- Keys -------------------------------------------------------------------------------------------

CREATE INDEX override_log_subject ON override_log (company_id, kind, subject_id);

-- Guards -----------------------------------------------------------------------------------------

CREATE TRIGGER currency_insert BEFORE INSERT ON currency
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: this currency exists; its exponent gives every stored amount its meaning')
   WHERE EXISTS (SELECT 1 FROM currency WHERE code = NEW.code);
END;

CREATE TRIGGER currency_update BEFORE UPDATE ON currency
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a currency is never changed; its exponent gives every stored amount its meaning');
END;

CREATE TRIGGER currency_delete BEFORE DELETE ON currency
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a currency is never deleted');
END;

CREATE TRIGGER company_insert BEFORE INSERT ON company
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: this company exists; use UPDATE')
   WHERE EXISTS (SELECT 1 FROM company WHERE id = NEW.id);
END;

CREATE TRIGGER company_update BEFORE UPDATE ON company
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: id and base currency of a company never change')
   WHERE (NEW.id, NEW.base_currency) IS NOT (OLD.id, OLD.base_currency);
  -- Moving the lock back is an auditor's question: each move needs a logged reason of its own, naming
  -- the old date.
  SELECT RAISE(ABORT, 'PERIOD_LOCKED: to unlock, first log an override of kind unlock whose detail is the present locked_through, YYYY-MM-DD, then repeat this; each serves once')
   WHERE OLD.locked_through IS NOT NULL
     AND (NEW.locked_through IS NULL OR NEW.locked_through < OLD.locked_through)
     AND (SELECT count(*) FILTER (WHERE kind = 'unlock') <= count(*) FILTER (WHERE kind = 'unlocked')
            FROM override_log
           WHERE company_id = OLD.id AND kind IN ('unlock', 'unlocked') AND detail = OLD.locked_through);
END;

CREATE TRIGGER company_unlocked AFTER UPDATE ON company
WHEN OLD.locked_through IS NOT NULL
 AND (NEW.locked_through IS NULL OR NEW.locked_through < OLD.locked_through)
BEGIN
  INSERT INTO override_log (company_id, kind, detail, reason)
  VALUES (OLD.id, 'unlocked', OLD.locked_through, 'moved back to ' || coalesce(NEW.locked_through, 'no lock'));
END;

CREATE TRIGGER company_delete BEFORE DELETE ON company
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a company is never deleted');
END;

CREATE TRIGGER override_log_insert BEFORE INSERT ON override_log
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: the override log is append-only')
   WHERE EXISTS (SELECT 1 FROM override_log WHERE id = NEW.id);
END;

CREATE TRIGGER override_log_update BEFORE UPDATE ON override_log
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: the override log is append-only');
END;

CREATE TRIGGER override_log_delete BEFORE DELETE ON override_log
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: the override log is append-only');
END;

CREATE TRIGGER report_as_of_delete BEFORE DELETE ON report_as_of
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: report_as_of has exactly one row; use UPDATE');
END;

-- Views ------------------------------------------------------------------------------------------

CREATE VIEW report_day AS
SELECT coalesce(as_of, date('now')) AS as_of FROM report_as_of WHERE id = 1;
