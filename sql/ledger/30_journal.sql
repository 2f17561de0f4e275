-- idem ledger · 30 · journal: double entry
--
--   * Unique: (company, source kind, source id, purpose). A document posts once per purpose, even if
--     the posting code runs twice. At most one reversal per entry.
--   * An entry is written in one transaction: entry, lines, seal. The seal tests it (two lines or
--     more, sum of base amounts zero, day open, accounts usable) and closes it. SQLite has no
--     deferred CHECK, so the id is also a deferred foreign key to journal_seal: with
--     foreign_keys on, COMMIT fails while an entry is unsealed, and the transaction stays open to be
--     mended or rolled back. With foreign_keys off an unsealed entry can be committed; it is then in
--     no report but integrity_report.
--   * Issuing, registering or posting a document seals its entry, and the entry of a document can be
--     sealed in no other way. So there is neither a posted entry without its final document nor a
--     final document without its entry. Only 'manual' entries are sealed by the caller.
--   * Drafts live elsewhere. Every sealed row is final. A correction is a reversal, equal in all
--     lines with opposite sign, plus a new entry. A document's entry is only reversed by the
--     document's own way out (credit note, annulment, void, reversal). A payout that failed is not
--     reversed line by line: only its net amount comes back (80).
--   * Foreign amounts need not balance per currency, base amounts must.

-- Tables -----------------------------------------------------------------------------------------

CREATE TABLE journal_entry (
  -- Also a foreign key to its own seal: deferred, so that COMMIT fails while the seal is missing.
  id           INTEGER PRIMARY KEY CHECK (id > 0)
                 REFERENCES journal_seal (entry_id) DEFERRABLE INITIALLY DEFERRED,
  company_id   INTEGER NOT NULL REFERENCES company (id),
  entry_date   TEXT    NOT NULL CHECK (entry_date IS date(entry_date, '+0 days')),
  journal      TEXT    NOT NULL DEFAULT 'general' CHECK (journal <> ''),
  -- For 'manual' the source id is the caller's own voucher number.
  source_kind  TEXT    NOT NULL CHECK (source_kind IN ('sales_document', 'received_bill', 'payment',
                         'depreciation_run', 'settlement_batch', 'manual')),
  source_id    INTEGER NOT NULL,
  purpose      TEXT    NOT NULL
    CONSTRAINT "purpose: not empty, no blanks around it, no control or invisible characters"
    CHECK (purpose <> '' AND purpose = trim(purpose) AND instr(purpose, char(0)) = 0
           AND (purpose NOT GLOB '*[^ -~]*'
                OR purpose NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*')),
  memo         TEXT    NOT NULL DEFAULT '',
  reverses_id  INTEGER REFERENCES journal_entry (id) CHECK (reverses_id <> id),
  created_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT;

-- Signed: debit > 0, credit < 0. amount is in the line's currency, base_amount in the company's.
CREATE TABLE journal_line (
  entry_id           INTEGER NOT NULL REFERENCES journal_entry (id),
  line_no            INTEGER NOT NULL CHECK (line_no > 0),
  company_id         INTEGER NOT NULL,
  account_id         INTEGER NOT NULL,
  currency           TEXT    NOT NULL REFERENCES currency (code),
  amount_minor       INTEGER NOT NULL CHECK (amount_minor BETWEEN -999999999999999 AND 999999999999999),
  base_amount_minor  INTEGER NOT NULL CHECK (base_amount_minor BETWEEN -999999999999999 AND 999999999999999),
  party_id           INTEGER,
  tax_code           TEXT,                     -- on VAT accounts: whose tax this is; NULL settles tax
  PRIMARY KEY (entry_id, line_no),
  CHECK (amount_minor <> 0 OR base_amount_minor <> 0),
  CHECK (NOT (amount_minor > 0 AND base_amount_minor < 0)),
  CHECK (NOT (amount_minor < 0 AND base_amount_minor > 0)),
  FOREIGN KEY (company_id, account_id) REFERENCES account (company_id, id),
  FOREIGN KEY (company_id, party_id) REFERENCES party (company_id, id),
  FOREIGN KEY (company_id, tax_code) REFERENCES tax_code (company_id, code)
) STRICT, WITHOUT ROWID;

CREATE TABLE journal_seal (
  entry_id   INTEGER PRIMARY KEY REFERENCES journal_entry (id),
  sealed_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT;

-- Keys -------------------------------------------------------------------------------------------

CREATE UNIQUE INDEX journal_entry_source ON journal_entry (company_id, source_kind, source_id, purpose);
CREATE UNIQUE INDEX journal_entry_reverses ON journal_entry (reverses_id) WHERE reverses_id IS NOT NULL;

-- Guards -----------------------------------------------------------------------------------------

CREATE TRIGGER journal_entry_insert BEFORE INSERT ON journal_entry
BEGIN
  SELECT RAISE(ABORT, 'ENTRY_ALREADY_POSTED: this source has an entry for this purpose; do not post it again')
   WHERE EXISTS (SELECT 1 FROM journal_entry
                  WHERE company_id = NEW.company_id AND source_kind = NEW.source_kind
                    AND source_id = NEW.source_id AND purpose = NEW.purpose);
  SELECT RAISE(ABORT, 'ENTRY_ALREADY_REVERSED: an entry is reversed at most once')
   WHERE NEW.reverses_id IS NOT NULL
     AND EXISTS (SELECT 1 FROM journal_entry WHERE reverses_id = NEW.reverses_id);
  SELECT RAISE(ABORT, 'IMMUTABLE: this entry exists; leave out the id')
   WHERE EXISTS (SELECT 1 FROM journal_entry WHERE id = NEW.id);
END;

CREATE TRIGGER journal_entry_update BEFORE UPDATE ON journal_entry
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: an entry is never changed; reverse it and post another');
END;

-- Before the seal an entry may be taken back: that is how a program mends its own transaction.
CREATE TRIGGER journal_entry_delete BEFORE DELETE ON journal_entry
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a sealed entry is never deleted; reverse it')
   WHERE EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = OLD.id);
  DELETE FROM journal_line WHERE entry_id = OLD.id;
END;

CREATE TRIGGER journal_line_insert BEFORE INSERT ON journal_line
BEGIN
  SELECT RAISE(ABORT, 'ENTRY_SEALED: nothing can be added to a sealed entry; reverse it and post another')
   WHERE EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = NEW.entry_id);
  SELECT RAISE(ABORT, 'WRONG_COMPANY: the entry of this line is missing or belongs to another company')
   WHERE (SELECT company_id FROM journal_entry WHERE id = NEW.entry_id) IS NOT NEW.company_id;
END;

CREATE TRIGGER journal_line_update BEFORE UPDATE ON journal_line
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a line is never changed; before the seal delete and insert it, after the seal reverse the entry');
END;

CREATE TRIGGER journal_line_delete BEFORE DELETE ON journal_line
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a line of a sealed entry is never deleted; reverse the entry')
   WHERE EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = OLD.entry_id);
END;

-- The decisive moment. CASE names the first rule that is broken.
CREATE TRIGGER journal_seal_insert BEFORE INSERT ON journal_seal
BEGIN
  SELECT RAISE(ABORT, 'ENTRY_SEALED: this entry is sealed already')
   WHERE EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = NEW.entry_id);
  SELECT RAISE(ABORT, 'ENTRY_MISSING: there is no such entry')
   WHERE NOT EXISTS (SELECT 1 FROM journal_entry WHERE id = NEW.entry_id);
  SELECT CASE
           WHEN count(*) < 2
             THEN RAISE(ABORT, 'ENTRY_TOO_SMALL: an entry has at least two lines')
           WHEN sum(l.base_amount_minor) <> 0
             THEN RAISE(ABORT, 'ENTRY_UNBALANCED: the base amounts of an entry add up to zero')
           WHEN max(a.id IS NULL OR a.company_id <> e.company_id OR a.is_group = 1
                    OR e.entry_date < a.opened_on OR e.entry_date > a.closed_on
                    OR (a.currency IS NOT NULL AND a.currency <> l.currency)
                    OR (a.role IN ('receivable', 'payable') AND l.party_id IS NULL))
             THEN RAISE(ABORT, 'ACCOUNT_NOT_USABLE: an account is of another company, a group, closed, not yet open, in another currency, or needs a party')
           WHEN max(l.currency = c.base_currency AND l.amount_minor <> l.base_amount_minor)
             THEN RAISE(ABORT, 'ENTRY_UNBALANCED: in the base currency amount and base amount are the same')
           WHEN max((l.party_id IS NOT NULL AND p.company_id IS NOT l.company_id)
                    OR (l.tax_code IS NOT NULL AND t.code IS NULL))
             THEN RAISE(ABORT, 'WRONG_COMPANY: a party or tax code of this entry belongs to another company')
         END
    FROM journal_line l
    JOIN journal_entry e ON e.id = l.entry_id
    LEFT JOIN company c ON c.id = l.company_id
    LEFT JOIN account a ON a.id = l.account_id
    LEFT JOIN party p ON p.id = l.party_id
    LEFT JOIN tax_code t ON t.company_id = l.company_id AND t.code = l.tax_code
   WHERE l.entry_id = NEW.entry_id;
  SELECT RAISE(ABORT, 'PERIOD_LOCKED: the entry date is in no open fiscal year, or on or before company.locked_through; insert the fiscal year, or take a later date')
    FROM journal_entry e
    LEFT JOIN company c ON c.id = e.company_id
    LEFT JOIN fiscal_year y ON y.company_id = e.company_id
          AND y.starts_on <= e.entry_date AND y.ends_on >= e.entry_date
   WHERE e.id = NEW.entry_id AND (y.status IS NOT 'open' OR e.entry_date <= c.locked_through);
END;

-- An entry is sealed by its source. What stands beside a document (annulment, void, reversal) seals
-- the opposite entry.
CREATE TRIGGER journal_seal_source BEFORE INSERT ON journal_seal
BEGIN
  SELECT RAISE(ABORT, 'SOURCE_NOT_POSTED: issue, register or post the document, or annul, void or reverse it; that seals its entry')
    FROM journal_entry e
   WHERE e.id = NEW.entry_id
     AND NOT CASE e.source_kind
           WHEN 'manual' THEN 1
           WHEN 'sales_document' THEN
             EXISTS (SELECT 1 FROM sales_document WHERE id = e.source_id AND status = 'issued' AND entry_id = e.id)
             OR EXISTS (SELECT 1 FROM annulment WHERE invoice_id = e.source_id AND entry_id = e.id)
           WHEN 'received_bill' THEN
             EXISTS (SELECT 1 FROM received_bill WHERE id = e.source_id AND status = 'registered' AND entry_id = e.id)
             OR EXISTS (SELECT 1 FROM bill_void WHERE bill_id = e.source_id AND entry_id = e.id)
           WHEN 'payment' THEN
             EXISTS (SELECT 1 FROM payment WHERE id = e.source_id AND status = 'posted' AND entry_id = e.id)
           WHEN 'depreciation_run' THEN
             EXISTS (SELECT 1 FROM depreciation_run WHERE id = e.source_id AND status = 'posted' AND entry_id = e.id)
           WHEN 'settlement_batch' THEN
             EXISTS (SELECT 1 FROM settlement_batch WHERE id = e.source_id AND status = 'posted' AND entry_id = e.id)
             OR EXISTS (SELECT 1 FROM settlement_reversal WHERE batch_id = e.source_id AND entry_id = e.id)
           ELSE 0
         END;
END;

CREATE TRIGGER journal_seal_reversal BEFORE INSERT ON journal_seal
WHEN (SELECT reverses_id FROM journal_entry WHERE id = NEW.entry_id) IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: a reversal names a sealed entry of the same company and kind of source, not later than itself, that is no reversal')
    FROM journal_entry r
   WHERE r.id = NEW.entry_id
     AND NOT EXISTS (SELECT 1 FROM journal_entry o JOIN journal_seal s ON s.entry_id = o.id
                      WHERE o.id = r.reverses_id AND o.company_id = r.company_id
                        AND o.source_kind = r.source_kind AND o.entry_date <= r.entry_date
                        AND o.reverses_id IS NULL);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: a reversal repeats every line with the opposite sign')
   WHERE EXISTS (SELECT 1 FROM journal_line l
                  WHERE l.entry_id IN (NEW.entry_id,
                          (SELECT reverses_id FROM journal_entry WHERE id = NEW.entry_id))
                  GROUP BY account_id, party_id, tax_code, currency
                  HAVING sum(amount_minor) <> 0 OR sum(base_amount_minor) <> 0);
END;

CREATE TRIGGER journal_seal_update BEFORE UPDATE ON journal_seal
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a seal is never changed');
END;

CREATE TRIGGER journal_seal_delete BEFORE DELETE ON journal_seal
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a seal is never broken; reverse the entry');
END;

-- Views ------------------------------------------------------------------------------------------

-- Only sealed entries count, and each of those adds up to zero, so every report below does.
CREATE VIEW general_ledger AS
SELECT e.company_id, a.code AS account, a.name AS account_name, e.entry_date, e.id AS entry_id,
       l.line_no, e.journal, e.source_kind, e.source_id, e.purpose, e.memo, l.party_id, l.tax_code,
       l.currency, l.amount_minor, l.base_amount_minor,
       max(l.base_amount_minor, 0) AS debit_minor, max(-l.base_amount_minor, 0) AS credit_minor
  FROM journal_line l
  JOIN journal_entry e ON e.id = l.entry_id
  JOIN journal_seal s ON s.entry_id = e.id
  JOIN account a ON a.id = l.account_id;

CREATE VIEW trial_balance AS
SELECT company_id, account, account_name, substr(entry_date, 1, 7) AS month,
       sum(debit_minor) AS debit_minor, sum(credit_minor) AS credit_minor,
       sum(base_amount_minor) AS net_minor
  FROM general_ledger
 GROUP BY company_id, account, month;

-- Foreign amounts that do not balance within their entry: exchange differences, worth a look.
CREATE VIEW foreign_imbalance AS
SELECT l.company_id, l.entry_id, l.currency, sum(l.amount_minor) AS amount_minor
  FROM journal_line l JOIN journal_seal s ON s.entry_id = l.entry_id
 GROUP BY l.company_id, l.entry_id, l.currency HAVING sum(l.amount_minor) <> 0;

CREATE VIEW unbalanced_or_unsealed_entry AS
SELECT e.company_id, e.id AS entry_id,
       s.entry_id IS NOT NULL AS sealed,
       (SELECT count(*) FROM journal_line WHERE entry_id = e.id) AS line_count,
       (SELECT coalesce(sum(base_amount_minor), 0) FROM journal_line WHERE entry_id = e.id) AS sum_minor
  FROM journal_entry e LEFT JOIN journal_seal s ON s.entry_id = e.id
 WHERE sealed = 0 OR line_count < 2 OR sum_minor <> 0;

CREATE VIEW integrity_journal AS
SELECT CASE WHEN sealed = 0 THEN 'ENTRY_UNSEALED'
            WHEN sum_minor <> 0 THEN 'ENTRY_UNBALANCED'
            ELSE 'ENTRY_TOO_SMALL' END AS rule,
       company_id, 'journal_entry' AS subject, entry_id AS subject_id
  FROM unbalanced_or_unsealed_entry
UNION ALL
SELECT 'ENTRY_TWICE', company_id, source_kind, source_id
  FROM journal_entry GROUP BY company_id, source_kind, source_id, purpose HAVING count(*) > 1
UNION ALL
SELECT 'ENTRY_REVERSED_TWICE', company_id, 'journal_entry', reverses_id
  FROM journal_entry WHERE reverses_id IS NOT NULL GROUP BY reverses_id HAVING count(*) > 1
UNION ALL
SELECT 'REVERSAL_MISMATCH', r.company_id, 'journal_entry', r.id
  FROM journal_entry r LEFT JOIN journal_entry o ON o.id = r.reverses_id
 WHERE r.reverses_id IS NOT NULL
   AND (o.id IS NULL OR o.company_id <> r.company_id OR o.source_kind <> r.source_kind
        OR o.reverses_id IS NOT NULL OR o.entry_date > r.entry_date
        OR EXISTS (SELECT 1 FROM journal_line l WHERE l.entry_id IN (r.id, o.id)
                    GROUP BY account_id, party_id, tax_code, currency
                    HAVING sum(amount_minor) <> 0 OR sum(base_amount_minor) <> 0))
UNION ALL
SELECT 'LINE_OF_OTHER_COMPANY', l.company_id, 'journal_entry', l.entry_id
  FROM journal_line l LEFT JOIN journal_entry e ON e.id = l.entry_id
  LEFT JOIN party p ON p.id = l.party_id
 WHERE e.company_id IS NOT l.company_id OR (l.party_id IS NOT NULL AND p.company_id IS NOT l.company_id)
UNION ALL
SELECT 'BASE_AMOUNT_DIFFERS', l.company_id, 'journal_entry', l.entry_id
  FROM journal_line l JOIN company c ON c.id = l.company_id
 WHERE l.currency = c.base_currency AND l.amount_minor <> l.base_amount_minor
UNION ALL
SELECT 'SEAL_WITHOUT_ENTRY', NULL, 'journal_entry', s.entry_id
  FROM journal_seal s LEFT JOIN journal_entry e ON e.id = s.entry_id WHERE e.id IS NULL
UNION ALL
SELECT 'ENTRY_IN_NO_FISCAL_YEAR', e.company_id, 'journal_entry', e.id
  FROM journal_entry e
 WHERE NOT EXISTS (SELECT 1 FROM fiscal_year y
                    WHERE y.company_id = e.company_id
                      AND y.starts_on <= e.entry_date AND y.ends_on >= e.entry_date);
