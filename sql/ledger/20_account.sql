-- idem ledger · 20 · chart of accounts, fiscal years
--
--   * Unique: (company, account code); (company, fiscal-year label), years do not overlap.
--   * `role` says what an account is for, so that documents can be compared with their postings
--     without guessing from names or codes. Accounts without a document behind them have none.
--   * Receivable and payable accounts demand a party on every line: they are the open-item ledger.
--   * Type, role, currency and grouping are frozen once a line uses the account, and it cannot be
--     deleted then; close it with closed_on. Group accounts carry no lines.
--   * A fiscal year gives the yearly number series their period. Closed is final.

-- Tables -----------------------------------------------------------------------------------------

CREATE TABLE account (
  id          INTEGER PRIMARY KEY CHECK (id > 0),
  company_id  INTEGER NOT NULL REFERENCES company (id),
  code        TEXT    NOT NULL CHECK (code <> '' AND code = trim(code)),
  name        TEXT    NOT NULL CHECK (trim(name) <> ''),
  type        TEXT    NOT NULL CHECK (type IN ('asset', 'liability', 'equity', 'income', 'expense')),
  role        TEXT    CHECK (role IN ('receivable', 'payable', 'money', 'clearing', 'output_vat',
                                      'input_vat', 'accumulated_depreciation')),
  currency    TEXT    REFERENCES currency (code),      -- NULL: any
  is_group    INTEGER NOT NULL DEFAULT 0 CHECK (is_group IN (0, 1)),
  opened_on   TEXT    CHECK (opened_on IS date(opened_on, '+0 days')),
  closed_on   TEXT    CHECK (closed_on IS date(closed_on, '+0 days')),
  UNIQUE (company_id, code),
  UNIQUE (company_id, id)
) STRICT;

CREATE TABLE fiscal_year (
  company_id  INTEGER NOT NULL REFERENCES company (id),
  label       TEXT    NOT NULL CHECK (label <> '' AND label = trim(label)),
  starts_on   TEXT    NOT NULL CHECK (starts_on IS date(starts_on, '+0 days')),
  ends_on     TEXT    NOT NULL CHECK (ends_on IS date(ends_on, '+0 days')),
  status      TEXT    NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'closed')),
  PRIMARY KEY (company_id, label),
  CHECK (starts_on <= ends_on)
) STRICT, WITHOUT ROWID;

-- Guards -----------------------------------------------------------------------------------------

CREATE TRIGGER account_insert BEFORE INSERT ON account
BEGIN
  SELECT RAISE(ABORT, 'ACCOUNT_EXISTS: this company has an account with this code or id; use UPDATE')
   WHERE EXISTS (SELECT 1 FROM account WHERE id = NEW.id)
      OR EXISTS (SELECT 1 FROM account WHERE company_id = NEW.company_id AND code = NEW.code);
END;

CREATE TRIGGER account_update BEFORE UPDATE ON account
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: id and company of an account never change')
   WHERE (NEW.id, NEW.company_id) IS NOT (OLD.id, OLD.company_id);
  SELECT RAISE(ABORT, 'ACCOUNT_EXISTS: this company has an account with this code')
   WHERE EXISTS (SELECT 1 FROM account
                  WHERE company_id = NEW.company_id AND code = NEW.code AND id <> OLD.id);
  SELECT RAISE(ABORT, 'IMMUTABLE: type, role, currency and grouping of a used account are frozen; open another account')
   WHERE (NEW.type, NEW.role, NEW.currency, NEW.is_group)
           IS NOT (OLD.type, OLD.role, OLD.currency, OLD.is_group)
     AND EXISTS (SELECT 1 FROM journal_line WHERE account_id = OLD.id);
END;

CREATE TRIGGER account_delete BEFORE DELETE ON account
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a used account is never deleted; set closed_on')
   WHERE EXISTS (SELECT 1 FROM journal_line WHERE account_id = OLD.id);
END;

CREATE TRIGGER fiscal_year_insert BEFORE INSERT ON fiscal_year
BEGIN
  SELECT RAISE(ABORT, 'FISCAL_YEAR_OVERLAP: a fiscal year of this company has this label or shares days with it')
   WHERE EXISTS (SELECT 1 FROM fiscal_year
                  WHERE company_id = NEW.company_id
                    AND (label = NEW.label OR (starts_on <= NEW.ends_on AND ends_on >= NEW.starts_on)));
END;

CREATE TRIGGER fiscal_year_update BEFORE UPDATE ON fiscal_year
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a fiscal year only moves from open to closed')
   WHERE (NEW.company_id, NEW.label, NEW.starts_on, NEW.ends_on)
           IS NOT (OLD.company_id, OLD.label, OLD.starts_on, OLD.ends_on)
      OR OLD.status = 'closed';
END;

CREATE TRIGGER fiscal_year_delete BEFORE DELETE ON fiscal_year
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a fiscal year is never deleted');
END;

-- Views ------------------------------------------------------------------------------------------

CREATE VIEW integrity_account AS
SELECT 'FISCAL_YEARS_OVERLAP' AS rule, a.company_id, 'fiscal_year' AS subject, NULL AS subject_id
  FROM fiscal_year a JOIN fiscal_year b
    ON b.company_id = a.company_id AND b.label > a.label
   AND b.starts_on <= a.ends_on AND b.ends_on >= a.starts_on
UNION ALL
SELECT 'LINE_ON_UNUSABLE_ACCOUNT', l.company_id, 'journal_entry', l.entry_id
  FROM journal_line l LEFT JOIN account a ON a.id = l.account_id
 WHERE a.id IS NULL OR a.company_id <> l.company_id OR a.is_group = 1
    OR (a.currency IS NOT NULL AND a.currency <> l.currency)
    OR (a.role IN ('receivable', 'payable') AND l.party_id IS NULL);
