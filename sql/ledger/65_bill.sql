-- idem ledger · 65 · received bills (supplier invoices, their credit and debit notes)
--
--   * Unique: (company, supplier root, kind, normal form of the number, reset year, override number),
--     held in bill_claim from registration until the bill is voided.
--   * NORMAL FORM. The tax office's own (Lithuania, VMI, i.SAF cross-check KD-8736): upper case;
--     blanks, dots, dashes, slashes and other special characters dropped; full-width characters
--     folded; zeros and repeated letters kept, since 003411 may well not be 3411. Such softer
--     likenesses are listed in possible_duplicate_bill and never block. What the form cannot read
--     (symbols it does not know, combining accents) is refused at registration instead of becoming
--     another number. Case is folded for ASCII only: whoever needs more folds before inserting.
--   * The form has false hits: 1-12 and 11-2 are both 112. Then the second bill is registered with
--     dup_seq = 1 and a dup_reason: a visible, logged override instead of a check switched off. One
--     false hit costs an override, one miss a second payment. While an override lives, every further
--     bill under the number needs a reason too, also one that was voided and is entered again.
--   * The year counts only for suppliers that restart yearly (party.number_reset), and it is the year
--     of the document: a posting year would let December's bill in again in January.
--   * The kind is part of the key, for a credit note may repeat the number of its invoice. Currency,
--     amount and date are not: every further field finds fewer duplicates.
--   * No number on the paper: doc_no_absent = 1 and no key. A payment reference is no document
--     number; some repeat on purpose.
--   * Draft, then registered, then final. A wrong bill is voided by a row beside it (bill_void), which
--     frees its number for correct entry: not after a payment or credit note, not in a filed VAT
--     period; then only a supplier credit note helps. It is dated neither before the registration nor
--     before payments and credit notes were undone.
--   * An own register number is optional, from a 'bill' series, gapless like all. A self-billed
--     document takes its doc_no from such a series, one per supplier.
--   * Tax is recorded as printed: its code need not be valid on the day of the bill.
--   * Base amounts, which the VAT register reports, follow from the document's as in 60.
--   * The posting mirrors the document: the supplier's payable is the gross amount, VAT accounts carry
--     each code's tax; reverse charge owes and deducts it, non-deductible tax is cost.

-- Tables -----------------------------------------------------------------------------------------

CREATE TABLE received_bill (
  id                 INTEGER PRIMARY KEY CHECK (id > 0),
  company_id         INTEGER NOT NULL REFERENCES company (id),
  kind               TEXT    NOT NULL DEFAULT 'invoice' CHECK (kind IN ('invoice', 'credit_note', 'debit_note')),
  status             TEXT    NOT NULL DEFAULT 'draft' CHECK (status IN ('draft', 'registered')),

  supplier_id        INTEGER NOT NULL,
  supplier_name      TEXT    NOT NULL,          -- as printed, frozen for the register
  supplier_vat_id    TEXT,
  supplier_country   TEXT    CHECK (supplier_country GLOB '[A-Z][A-Z]'),

  doc_no             TEXT    CHECK (doc_no <> '' AND instr(doc_no, char(0)) = 0 AND length(doc_no) <= 100),
  doc_no_absent      INTEGER NOT NULL DEFAULT 0 CHECK (doc_no_absent IN (0, 1)),
  dup_seq            INTEGER NOT NULL DEFAULT 0 CHECK (dup_seq BETWEEN 0 AND 999),
  dup_reason         TEXT    CHECK (trim(dup_reason) <> ''),
  dup_actor          TEXT    NOT NULL DEFAULT '',

  document_date      TEXT    CHECK (document_date IS date(document_date, '+0 days')),
  received_date      TEXT    CHECK (received_date IS date(received_date, '+0 days')),
  registration_date  TEXT    CHECK (registration_date IS date(registration_date, '+0 days')),
  tax_point_date     TEXT    CHECK (tax_point_date IS date(tax_point_date, '+0 days')),
  due_date           TEXT    CHECK (due_date IS date(due_date, '+0 days')),
  vat_period         TEXT,

  currency           TEXT    NOT NULL REFERENCES currency (code),
  net_minor          INTEGER NOT NULL CHECK (net_minor BETWEEN 0 AND 999999999999999),
  tax_minor          INTEGER NOT NULL CHECK (tax_minor BETWEEN 0 AND 999999999999999),
  gross_minor        INTEGER NOT NULL CHECK (gross_minor = net_minor + tax_minor),
  base_net_minor     INTEGER NOT NULL CHECK (base_net_minor BETWEEN 0 AND 999999999999999),
  base_tax_minor     INTEGER NOT NULL CHECK (base_tax_minor BETWEEN 0 AND 999999999999999),
  base_gross_minor   INTEGER NOT NULL CHECK (base_gross_minor = base_net_minor + base_tax_minor),
  rate_num           INTEGER NOT NULL DEFAULT 1 CHECK (rate_num BETWEEN 1 AND 999999999999),
  rate_den           INTEGER NOT NULL DEFAULT 1 CHECK (rate_den BETWEEN 1 AND 999999999999),

  credits_id         INTEGER REFERENCES received_bill (id),   -- the bill a credit note corrects, if known
  payment_reference  TEXT,
  source_sha256      TEXT    CHECK (length(source_sha256) = 64),
  entry_id           INTEGER REFERENCES journal_entry (id),

  -- The optional own register number.
  series_id          INTEGER,
  period             TEXT,
  number             INTEGER CHECK (number > 0),
  full_number        TEXT    CHECK (full_number <> ''),

  idem_key           TEXT,
  created_at         TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),

  -- The normal form. One generated column holds at most 29 nested calls (parser stack), hence a
  -- chain: each step drops or folds one class of characters, the last is stored.
  -- ASCII blanks, punctuation, dots, dashes, slashes
  doc_no_1    TEXT AS (
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(replace(replace(replace(replace(doc_no
     , char(32), ''), char(9), ''), char(10), ''), char(13), '')
     , '!', ''), '"', ''), '#', ''), '$', '')
     , '%', ''), '&', ''), '''', ''), '(', '')
     , ')', ''), '*', ''), '+', ''), ',', '')
     , '-', ''), '.', ''), '/', ''), ':', '')
     , ';', ''), '<', ''), '=', ''), '>', '')
     , '?', ''), '@', '')) VIRTUAL,
  -- The rest of ASCII; no-break blank, soft hyphen, section and degree signs, guillemets, middle dot, ordinal sign
  doc_no_2    TEXT AS (
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(replace(replace(replace(replace(replace(doc_no_1
     , '[', ''), '\', ''), ']', ''), '^', '')
     , '_', ''), '`', ''), '{', ''), '|', '')
     , '}', ''), '~', ''), char(160), ''), char(173), '')
     , char(167), ''), char(171), ''), char(176), ''), char(183), '')
     , char(186), ''), char(187), '')) VIRTUAL,
  -- Unicode blanks, zero-width characters, direction marks
  doc_no_3    TEXT AS (
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(doc_no_2
     , char(5760), ''), char(8192), ''), char(8193), ''), char(8194), '')
     , char(8195), ''), char(8196), ''), char(8197), ''), char(8198), '')
     , char(8199), ''), char(8200), ''), char(8201), ''), char(8202), '')
     , char(8203), ''), char(8204), ''), char(8205), ''), char(8206), '')
     , char(8207), ''), char(8239), ''), char(8287), ''), char(8288), '')
     , char(12288), ''), char(65279), '')) VIRTUAL,
  -- Unicode dashes, minus and slashes, quotation marks, bullet, ellipsis, primes, numero sign
  doc_no_4    TEXT AS (
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(doc_no_3
     , char(8208), ''), char(8209), ''), char(8210), ''), char(8211), '')
     , char(8212), ''), char(8213), ''), char(8722), ''), char(65112), '')
     , char(65123), ''), char(8260), ''), char(8725), ''), char(8216), '')
     , char(8217), ''), char(8218), ''), char(8220), ''), char(8221), '')
     , char(8222), ''), char(8226), ''), char(8230), ''), char(8242), '')
     , char(8243), ''), char(8470), '')) VIRTUAL,
  -- Full-width punctuation, and full-width digits to plain ones
  doc_no_5    TEXT AS (
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(replace(doc_no_4
     , char(65283), ''), char(65288), ''), char(65289), ''), char(65290), '')
     , char(65291), ''), char(65292), ''), char(65293), ''), char(65294), '')
     , char(65295), ''), char(65306), ''), char(65307), ''), char(65340), '')
     , char(65343), ''), char(65296), '0'), char(65297), '1'), char(65298), '2')
     , char(65299), '3'), char(65300), '4'), char(65301), '5'), char(65302), '6')
     , char(65303), '7'), char(65304), '8'), char(65305), '9')) VIRTUAL,
  -- Full-width capitals
  doc_no_6    TEXT AS (
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(replace(replace(replace(replace(doc_no_5
     , char(65313), 'A'), char(65314), 'B'), char(65315), 'C'), char(65316), 'D')
     , char(65317), 'E'), char(65318), 'F'), char(65319), 'G'), char(65320), 'H')
     , char(65321), 'I'), char(65322), 'J'), char(65323), 'K'), char(65324), 'L')
     , char(65325), 'M'), char(65326), 'N'), char(65327), 'O'), char(65328), 'P')
     , char(65329), 'Q'), char(65330), 'R'), char(65331), 'S'), char(65332), 'T')
     , char(65333), 'U'), char(65334), 'V'), char(65335), 'W'), char(65336), 'X')
     , char(65337), 'Y'), char(65338), 'Z')) VIRTUAL,
  -- Full-width small letters; last of all upper case (ASCII only, as everywhere in SQLite)
  doc_no_norm TEXT AS (
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(replace(replace(replace(replace(replace(
    replace(replace(replace(replace(replace(replace(replace(replace(upper(doc_no_6)
     , char(65345), 'A'), char(65346), 'B'), char(65347), 'C'), char(65348), 'D')
     , char(65349), 'E'), char(65350), 'F'), char(65351), 'G'), char(65352), 'H')
     , char(65353), 'I'), char(65354), 'J'), char(65355), 'K'), char(65356), 'L')
     , char(65357), 'M'), char(65358), 'N'), char(65359), 'O'), char(65360), 'P')
     , char(65361), 'Q'), char(65362), 'R'), char(65363), 'S'), char(65364), 'T')
     , char(65365), 'U'), char(65366), 'V'), char(65367), 'W'), char(65368), 'X')
     , char(65369), 'Y'), char(65370), 'Z')) STORED,
  CHECK ((doc_no IS NULL) = (doc_no_absent = 1)),
  CHECK (dup_seq = 0 OR (dup_reason IS NOT NULL AND doc_no_absent = 0)),
  CHECK (status = 'draft' OR (document_date IS NOT NULL AND registration_date IS NOT NULL)),
  CHECK (status = 'registered' OR number IS NULL),
  CHECK ((number IS NULL) = (full_number IS NULL)),
  CHECK (number IS NULL OR (series_id IS NOT NULL AND period IS NOT NULL)),
  CHECK (kind = 'credit_note' OR credits_id IS NULL),
  FOREIGN KEY (company_id, supplier_id) REFERENCES party (company_id, id),
  FOREIGN KEY (company_id, series_id) REFERENCES series (company_id, id),
  FOREIGN KEY (company_id, vat_period) REFERENCES vat_period (company_id, period)
) STRICT;

CREATE TABLE bill_line (
  bill_id      INTEGER NOT NULL REFERENCES received_bill (id),
  line_no      INTEGER NOT NULL CHECK (line_no > 0),
  company_id   INTEGER NOT NULL,
  description  TEXT    NOT NULL,
  net_minor    INTEGER NOT NULL CHECK (net_minor BETWEEN -999999999999999 AND 999999999999999),
  tax_code     TEXT    NOT NULL,
  PRIMARY KEY (bill_id, line_no),
  FOREIGN KEY (company_id, tax_code) REFERENCES tax_code (company_id, code)
) STRICT, WITHOUT ROWID;

CREATE TABLE bill_tax (
  bill_id             INTEGER NOT NULL REFERENCES received_bill (id),
  tax_code            TEXT    NOT NULL,
  company_id          INTEGER NOT NULL,
  taxable_minor       INTEGER NOT NULL CHECK (taxable_minor BETWEEN 0 AND 999999999999999),
  tax_minor           INTEGER NOT NULL CHECK (tax_minor BETWEEN 0 AND 999999999999999),
  base_taxable_minor  INTEGER NOT NULL CHECK (base_taxable_minor BETWEEN 0 AND 999999999999999),
  base_tax_minor      INTEGER NOT NULL CHECK (base_tax_minor BETWEEN 0 AND 999999999999999),
  PRIMARY KEY (bill_id, tax_code),
  FOREIGN KEY (company_id, tax_code) REFERENCES tax_code (company_id, code)
) STRICT, WITHOUT ROWID;

CREATE TABLE bill_claim (
  company_id     INTEGER NOT NULL,
  supplier_root  INTEGER NOT NULL REFERENCES party (id),
  kind           TEXT    NOT NULL,
  doc_no_norm    TEXT    NOT NULL,
  reset_year     INTEGER NOT NULL,              -- 0: the supplier never restarts
  dup_seq        INTEGER NOT NULL,
  bill_id        INTEGER NOT NULL UNIQUE REFERENCES received_bill (id),
  PRIMARY KEY (company_id, supplier_root, kind, doc_no_norm, reset_year, dup_seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE bill_void (
  bill_id     INTEGER PRIMARY KEY REFERENCES received_bill (id),
  company_id  INTEGER NOT NULL REFERENCES company (id),
  voided_on   TEXT    NOT NULL CHECK (voided_on IS date(voided_on, '+0 days')),
  reason      TEXT    NOT NULL CHECK (trim(reason) <> ''),
  entry_id    INTEGER REFERENCES journal_entry (id),     -- the reversal; NULL for a document of zero
  created_at  TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT;

-- Keys -------------------------------------------------------------------------------------------

CREATE UNIQUE INDEX received_bill_number ON received_bill (series_id, period, number)
  WHERE number IS NOT NULL;
CREATE UNIQUE INDEX received_bill_full_number ON received_bill (company_id, full_number)
  WHERE full_number IS NOT NULL;
CREATE INDEX received_bill_credits ON received_bill (credits_id) WHERE credits_id IS NOT NULL;
CREATE INDEX received_bill_supplier ON received_bill (supplier_id, document_date);

-- Guards: the document ---------------------------------------------------------------------------

CREATE TRIGGER received_bill_insert BEFORE INSERT ON received_bill
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: this bill exists; a row is never replaced')
   WHERE EXISTS (SELECT 1 FROM received_bill WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'MUST_START_AS_DRAFT: insert a draft, then register it with UPDATE')
   WHERE NEW.status IS NOT 'draft' OR NEW.number IS NOT NULL OR NEW.full_number IS NOT NULL;
END;

CREATE TRIGGER received_bill_update BEFORE UPDATE ON received_bill
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a registered bill is never changed; void it')
   WHERE OLD.status IS NOT 'draft';
  SELECT RAISE(ABORT, 'IMMUTABLE: id and company of a bill never change')
   WHERE (NEW.id, NEW.company_id) IS NOT (OLD.id, OLD.company_id);
  SELECT RAISE(ABORT, 'NUMBER_NOT_NEXT: a draft has no number; it gets one when it is registered')
   WHERE NEW.status IS 'draft' AND (NEW.number IS NOT NULL OR NEW.full_number IS NOT NULL);
  SELECT RAISE(ABORT, 'IMMUTABLE: a draft can only be registered')
   WHERE NEW.status NOT IN ('draft', 'registered');
END;

CREATE TRIGGER received_bill_delete BEFORE DELETE ON received_bill
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a registered bill is never deleted; void it')
   WHERE OLD.status IS NOT 'draft';
  SELECT RAISE(ABORT, 'IMMUTABLE: an entry is written for this draft; delete the entry first')
   WHERE EXISTS (SELECT 1 FROM journal_entry
                  WHERE company_id = OLD.company_id AND source_kind = 'received_bill' AND source_id = OLD.id);
  DELETE FROM bill_line WHERE bill_id = OLD.id;
  DELETE FROM bill_tax WHERE bill_id = OLD.id;
END;

CREATE TRIGGER received_bill_register BEFORE UPDATE ON received_bill
WHEN OLD.status = 'draft' AND NEW.status IS NOT 'draft'
BEGIN
  SELECT RAISE(ABORT, 'WRONG_COMPANY: the supplier belongs to another company')
   WHERE (SELECT company_id FROM party WHERE id = NEW.supplier_id) IS NOT NEW.company_id;
  SELECT RAISE(ABORT, 'DOCUMENT_NUMBER_UNREADABLE: give the number as printed, or say doc_no_absent = 1')
   WHERE (NEW.doc_no IS NULL) <> (NEW.doc_no_absent = 1);
  SELECT RAISE(ABORT, 'OVERRIDE_WITHOUT_REASON: registering a second bill under a number needs a dup_reason')
   WHERE NEW.dup_seq <> 0 AND (trim(coalesce(NEW.dup_reason, '')) = '' OR NEW.doc_no IS NULL);
  SELECT RAISE(ABORT, 'PERIOD_LOCKED: document or registration date is missing, or the latter is in no open fiscal year, or on or before company.locked_through; insert the fiscal year, or take a later date')
   WHERE NEW.document_date IS NULL OR NEW.registration_date IS NULL
      OR NEW.registration_date <= (SELECT locked_through FROM company WHERE id = NEW.company_id)
      OR NOT EXISTS (SELECT 1 FROM fiscal_year
                      WHERE company_id = NEW.company_id AND status = 'open'
                        AND starts_on <= NEW.registration_date AND ends_on >= NEW.registration_date);
  SELECT RAISE(ABORT, 'WRONG_VAT_PERIOD: take the first open VAT period that ends on or after the registration date')
   WHERE NEW.vat_period IS NOT (SELECT period FROM vat_period
                                 WHERE company_id = NEW.company_id AND status = 'open'
                                   AND ends_on >= NEW.registration_date
                                 ORDER BY ends_on LIMIT 1);
  SELECT RAISE(ABORT, 'WRONG_VAT_PERIOD: take the first open VAT period that ends on or after the registration date; there is none: insert it into vat_period')
   WHERE NEW.vat_period IS NULL
     AND EXISTS (SELECT 1 FROM vat_period WHERE company_id = NEW.company_id);

  SELECT RAISE(ABORT, 'LINES_MISSING: a bill has at least one line')
   WHERE NOT EXISTS (SELECT 1 FROM bill_line WHERE bill_id = NEW.id);
  SELECT RAISE(ABORT, 'TOTALS_MISMATCH: net, tax and gross must be the sums of lines and tax rows, per tax code; reverse-charge tax is no part of the gross amount')
   WHERE (SELECT (coalesce(sum(x.taxable_minor), 0),
                  coalesce(sum(x.tax_minor) FILTER (WHERE t.kind IS NOT 'reverse_charge'), 0),
                  coalesce(sum(x.base_taxable_minor), 0),
                  coalesce(sum(x.base_tax_minor) FILTER (WHERE t.kind IS NOT 'reverse_charge'), 0))
                 IS NOT (NEW.net_minor, NEW.tax_minor, NEW.base_net_minor, NEW.base_tax_minor)
            FROM bill_tax x LEFT JOIN tax_code t ON t.company_id = x.company_id AND t.code = x.tax_code
           WHERE x.bill_id = NEW.id)
      OR NEW.gross_minor IS NOT NEW.net_minor + NEW.tax_minor
      OR NEW.base_gross_minor IS NOT NEW.base_net_minor + NEW.base_tax_minor
      OR EXISTS (SELECT 1 FROM (SELECT tax_code, taxable_minor AS amount FROM bill_tax WHERE bill_id = NEW.id
                                UNION ALL
                                SELECT tax_code, -net_minor FROM bill_line WHERE bill_id = NEW.id)
                  GROUP BY tax_code HAVING sum(amount) <> 0)
      OR EXISTS (SELECT 1 FROM bill_line WHERE bill_id = NEW.id AND company_id <> NEW.company_id)
      OR EXISTS (SELECT 1 FROM bill_tax WHERE bill_id = NEW.id AND company_id <> NEW.company_id);
  SELECT RAISE(ABORT, 'TAX_CODE_MISMATCH: a tax code is missing or bears no tax')
    FROM bill_tax x
    LEFT JOIN tax_code t ON t.company_id = x.company_id AND t.code = x.tax_code
   WHERE x.bill_id = NEW.id
     AND (t.code IS NULL OR (x.tax_minor <> 0 AND t.rate_bp = 0));
  -- The register reports base amounts. Each may be off by its own rounding, not by more.
  SELECT RAISE(ABORT, 'RATE_MISMATCH: base amounts of each tax row must be its amounts times the rate, to one minor unit; in the base currency they are the same and the rate is 1')
    FROM bill_tax x JOIN company c ON c.id = NEW.company_id
   WHERE x.bill_id = NEW.id
     AND CASE WHEN NEW.currency = c.base_currency
              THEN (NEW.rate_num, x.base_taxable_minor, x.base_tax_minor)
                     IS NOT (NEW.rate_den, x.taxable_minor, x.tax_minor)
              ELSE max(abs(x.base_taxable_minor - 1.0 * x.taxable_minor * NEW.rate_num / NEW.rate_den),
                       abs(x.base_tax_minor - 1.0 * x.tax_minor * NEW.rate_num / NEW.rate_den)) > 1
         END;

  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: entry_id must be the unreversed entry of this bill, purpose register')
   WHERE NOT EXISTS (SELECT 1 FROM journal_entry
                      WHERE id = NEW.entry_id AND company_id = NEW.company_id
                        AND source_kind = 'received_bill' AND source_id = NEW.id AND purpose = 'register'
                        AND reverses_id IS NULL)
     AND (NEW.entry_id IS NOT NULL OR NEW.gross_minor <> 0 OR NEW.base_gross_minor <> 0);
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: the payable to the supplier must be the gross amount, in the currency of the bill')
   WHERE (SELECT (coalesce(sum(l.base_amount_minor), 0),
                  coalesce(sum(l.amount_minor) FILTER (WHERE l.currency = NEW.currency), 0),
                  count(*) FILTER (WHERE l.party_id IS NOT NEW.supplier_id OR l.currency IS NOT NEW.currency))
                 IS NOT (CASE NEW.kind WHEN 'credit_note' THEN NEW.base_gross_minor ELSE -NEW.base_gross_minor END,
                         CASE NEW.kind WHEN 'credit_note' THEN NEW.gross_minor ELSE -NEW.gross_minor END, 0)
            FROM journal_line l JOIN account a ON a.id = l.account_id
           WHERE l.entry_id = NEW.entry_id AND a.role = 'payable');
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: each tax code must be posted to input VAT with its deductible tax, reverse charge to output VAT too')
   WHERE EXISTS (SELECT 1
                   FROM (SELECT d.role, d.code,
                                CASE NEW.kind WHEN 'credit_note' THEN d.amount ELSE -d.amount END AS amount
                           FROM bill_vat_due d WHERE d.bill_id = NEW.id
                         UNION ALL
                         SELECT a.role, l.tax_code, l.base_amount_minor
                           FROM journal_line l JOIN account a ON a.id = l.account_id
                          WHERE l.entry_id = NEW.entry_id AND a.role IN ('output_vat', 'input_vat'))
                  GROUP BY role, code HAVING sum(amount) <> 0);
END;

CREATE TRIGGER received_bill_own_number BEFORE UPDATE ON received_bill
WHEN OLD.status = 'draft' AND NEW.status IS NOT 'draft'
 AND (NEW.series_id IS NOT NULL OR NEW.number IS NOT NULL OR NEW.full_number IS NOT NULL)
BEGIN
  SELECT RAISE(ABORT, 'SERIES_MISMATCH: the series is missing, inactive, of another company or not for bills')
   WHERE NOT EXISTS (SELECT 1 FROM series
                      WHERE id = NEW.series_id AND company_id = NEW.company_id
                        AND doc_kind = 'bill' AND active = 1);
  SELECT RAISE(ABORT, 'WRONG_PERIOD: the number period is the fiscal year of the registration date, or empty if the series never restarts')
   WHERE NEW.period IS NOT (SELECT CASE s.reset
                                     WHEN 'never' THEN ''
                                     ELSE (SELECT y.label FROM fiscal_year y
                                            WHERE y.company_id = NEW.company_id
                                              AND y.starts_on <= NEW.registration_date
                                              AND y.ends_on >= NEW.registration_date)
                                   END
                              FROM series s WHERE s.id = NEW.series_id);
  SELECT RAISE(ABORT, 'NUMBER_NOT_NEXT: take number and full number from next_number in the registering statement')
   WHERE (NEW.number, NEW.full_number) IS NOT
         (SELECT number, full_number FROM next_number
           WHERE series_id = NEW.series_id AND period = NEW.period);
  SELECT RAISE(ABORT, 'FULL_NUMBER_TAKEN: another series of this company has printed this number; its template must differ')
   WHERE EXISTS (SELECT 1 FROM received_bill
                  WHERE company_id = NEW.company_id AND full_number = NEW.full_number);
  SELECT RAISE(ABORT, 'DATE_BEFORE_PREVIOUS: this series demands dates in the order of numbers')
   WHERE (SELECT strict_dates FROM series WHERE id = NEW.series_id) = 1
     AND NEW.registration_date < (SELECT registration_date FROM received_bill
                                   WHERE series_id = NEW.series_id AND period = NEW.period AND number IS NOT NULL
                                   ORDER BY number DESC LIMIT 1);
END;

CREATE TRIGGER received_bill_credit BEFORE UPDATE ON received_bill
WHEN OLD.status = 'draft' AND NEW.status IS NOT 'draft' AND NEW.credits_id IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'CREDITED_NOT_ISSUED: a supplier credit note corrects a registered bill that is not voided')
   WHERE NOT EXISTS (SELECT 1 FROM received_bill
                      WHERE id = NEW.credits_id AND status = 'registered' AND kind <> 'credit_note')
      OR EXISTS (SELECT 1 FROM bill_void WHERE bill_id = NEW.credits_id);
  SELECT RAISE(ABORT, 'CREDIT_MISMATCH: a supplier credit note has the company, supplier and currency of its bill')
    FROM received_bill b
    JOIN party own ON own.id = NEW.supplier_id
    JOIN party its ON its.id = b.supplier_id
   WHERE b.id = NEW.credits_id
     AND (NEW.kind IS NOT 'credit_note'
          OR (NEW.company_id, NEW.currency) IS NOT (b.company_id, b.currency)
          OR coalesce(own.merged_into, own.id) <> coalesce(its.merged_into, its.id));
  SELECT RAISE(ABORT, 'CREDIT_EXCEEDS_INVOICE: what is credited, this note included, must stay within the bill')
   WHERE NEW.gross_minor + (SELECT coalesce(sum(n.gross_minor), 0) FROM received_bill n
                             WHERE n.credits_id = NEW.credits_id AND n.status = 'registered'
                               AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = n.id))
         > (SELECT gross_minor FROM received_bill WHERE id = NEW.credits_id);
END;

-- The claim is judged after the update: a generated column is not reliable in a BEFORE UPDATE trigger
-- that does not read its sources. bill_claim_insert raises DUPLICATE_SUPPLIER_DOCUMENT.
CREATE TRIGGER received_bill_registered AFTER UPDATE ON received_bill
WHEN OLD.status = 'draft' AND NEW.status = 'registered'
BEGIN
  SELECT RAISE(ABORT, 'DOCUMENT_NUMBER_UNREADABLE: nothing is left of this number without special characters, or it holds symbols or combining accents; type letters and digits')
    FROM received_bill
   WHERE id = NEW.id AND doc_no IS NOT NULL
     AND (doc_no_norm IS NULL OR doc_no_norm = ''
          OR doc_no_norm GLOB '*[' || char(1,45,47, 58,45,64, 91,45,96, 123,45,169, 171,45,180, 182,45,191, 215, 247,
                                           688,45,879, 1564, 4447,45,4448, 5760, 6068,45,6069, 6155,45,6159, 8192,45,11263,
                                           11776,45,11903, 12288,45,12351, 12644,
                                           57344,45,63743, 65024,45,65135, 65279,45,65295, 65306,45,65312,
                                           65339,45,65344, 65371,45,65381, 65440, 65504,45,65535, 113824,45,113827, 119155,45,119162,
                                           119808,45,120831, 126976,45,131071, 917504,45,1114111) || ']*');
  INSERT INTO bill_claim (company_id, supplier_root, kind, doc_no_norm, reset_year, dup_seq, bill_id)
  SELECT company_id, supplier_root, kind, doc_no_norm, reset_year, dup_seq, bill_id
    FROM bill_identity WHERE bill_id = NEW.id;
  SELECT RAISE(ABORT, 'DUPLICATE_SUPPLIER_DOCUMENT: the document number could not be claimed')
   WHERE NEW.doc_no IS NOT NULL
     AND NOT EXISTS (SELECT 1 FROM bill_claim WHERE bill_id = NEW.id);
  INSERT INTO override_log (company_id, kind, subject_id, detail, reason, actor)
  SELECT NEW.company_id, 'duplicate_bill', NEW.id, NEW.doc_no || ' #' || NEW.dup_seq, NEW.dup_reason, NEW.dup_actor
   WHERE NEW.dup_seq > 0;

  INSERT INTO journal_seal (entry_id) SELECT NEW.entry_id WHERE NEW.entry_id IS NOT NULL;
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: the entry could not be sealed')
   WHERE NEW.entry_id IS NOT NULL
     AND NOT EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = NEW.entry_id);
END;

-- Guards: lines and tax rows -----------------------------------------------------------------------

CREATE TRIGGER bill_line_insert BEFORE INSERT ON bill_line
BEGIN
  SELECT CASE
           WHEN d.id IS NULL
             THEN RAISE(ABORT, 'DOCUMENT_MISSING: there is no such draft in this company; insert the draft first')
           WHEN d.status IS NOT 'draft'
             THEN RAISE(ABORT, 'IMMUTABLE: lines are only added to a draft')
         END
    FROM (SELECT 1) LEFT JOIN received_bill d ON d.id = NEW.bill_id AND d.company_id = NEW.company_id;
  SELECT RAISE(ABORT, 'TAX_CODE_MISMATCH: this company has no such tax code; take another, or insert it into tax_code')
   WHERE NOT EXISTS (SELECT 1 FROM tax_code WHERE company_id = NEW.company_id AND code = NEW.tax_code);
END;

CREATE TRIGGER bill_line_update BEFORE UPDATE ON bill_line
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: lines only change while their bill is a draft, and stay with it')
   WHERE (NEW.bill_id, NEW.company_id) IS NOT (OLD.bill_id, OLD.company_id)
      OR (SELECT status FROM received_bill WHERE id = OLD.bill_id) IS NOT 'draft';
END;

CREATE TRIGGER bill_line_delete BEFORE DELETE ON bill_line
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: lines of a registered bill are never deleted')
   WHERE (SELECT status FROM received_bill WHERE id = OLD.bill_id) IS 'registered';
END;

CREATE TRIGGER bill_tax_insert BEFORE INSERT ON bill_tax
BEGIN
  SELECT CASE
           WHEN d.id IS NULL
             THEN RAISE(ABORT, 'DOCUMENT_MISSING: there is no such draft in this company; insert the draft first')
           WHEN d.status IS NOT 'draft'
             THEN RAISE(ABORT, 'IMMUTABLE: tax rows are only added to a draft')
         END
    FROM (SELECT 1) LEFT JOIN received_bill d ON d.id = NEW.bill_id AND d.company_id = NEW.company_id;
END;

CREATE TRIGGER bill_tax_update BEFORE UPDATE ON bill_tax
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: tax rows only change while their bill is a draft, and stay with it')
   WHERE (NEW.bill_id, NEW.company_id) IS NOT (OLD.bill_id, OLD.company_id)
      OR (SELECT status FROM received_bill WHERE id = OLD.bill_id) IS NOT 'draft';
END;

CREATE TRIGGER bill_tax_delete BEFORE DELETE ON bill_tax
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: tax rows of a registered bill are never deleted')
   WHERE (SELECT status FROM received_bill WHERE id = OLD.bill_id) IS 'registered';
END;

-- Guards: claims are written by triggers; whoever else writes one must be right --------------------

-- dup_seq >= and not =: once a number has an override, the void of an earlier bill must not let the
-- overriding paper in again without a reason.
CREATE TRIGGER bill_claim_insert BEFORE INSERT ON bill_claim
BEGIN
  SELECT RAISE(ABORT, 'DUPLICATE_SUPPLIER_DOCUMENT: this supplier has a bill with this number; void that one, or register with the next dup_seq and a reason')
   WHERE EXISTS (SELECT 1 FROM bill_claim
                  WHERE company_id = NEW.company_id AND supplier_root = NEW.supplier_root
                    AND kind = NEW.kind AND doc_no_norm = NEW.doc_no_norm
                    AND reset_year = NEW.reset_year AND dup_seq >= NEW.dup_seq)
      OR EXISTS (SELECT 1 FROM bill_claim WHERE bill_id = NEW.bill_id);
  SELECT RAISE(ABORT, 'OVERRIDE_NOT_NEEDED: there is no bill before this one to override; leave dup_seq 0, or take the next free')
   WHERE NEW.dup_seq > 0
     AND NOT EXISTS (SELECT 1 FROM bill_claim
                      WHERE company_id = NEW.company_id AND supplier_root = NEW.supplier_root
                        AND kind = NEW.kind AND doc_no_norm = NEW.doc_no_norm
                        AND reset_year = NEW.reset_year AND dup_seq = NEW.dup_seq - 1);
  SELECT RAISE(ABORT, 'CLAIM_MISMATCH: a claim repeats the identity of its registered bill')
   WHERE NOT EXISTS (SELECT 1 FROM bill_identity i
                       JOIN received_bill b ON b.id = i.bill_id AND b.status = 'registered'
                      WHERE i.bill_id = NEW.bill_id AND i.company_id = NEW.company_id
                        AND i.supplier_root = NEW.supplier_root AND i.kind = NEW.kind
                        AND i.doc_no_norm = NEW.doc_no_norm AND i.reset_year = NEW.reset_year
                        AND i.dup_seq = NEW.dup_seq)
      OR EXISTS (SELECT 1 FROM bill_void WHERE bill_id = NEW.bill_id);
END;

-- Claims only follow their supplier into a merge or another numbering habit.
CREATE TRIGGER bill_claim_update BEFORE UPDATE ON bill_claim
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a claim only follows its supplier')
   WHERE (NEW.bill_id, NEW.company_id, NEW.kind, NEW.doc_no_norm, NEW.dup_seq)
           IS NOT (OLD.bill_id, OLD.company_id, OLD.kind, OLD.doc_no_norm, OLD.dup_seq)
      OR (NEW.supplier_root, NEW.reset_year) IS NOT
         (SELECT supplier_root, reset_year FROM bill_identity WHERE bill_id = OLD.bill_id);
  SELECT RAISE(ABORT, 'DUPLICATE_SUPPLIER_DOCUMENT: two bills would share one number')
   WHERE EXISTS (SELECT 1 FROM bill_claim
                  WHERE company_id = NEW.company_id AND supplier_root = NEW.supplier_root
                    AND kind = NEW.kind AND doc_no_norm = NEW.doc_no_norm
                    AND reset_year = NEW.reset_year AND dup_seq = NEW.dup_seq
                    AND bill_id <> OLD.bill_id);
END;

CREATE TRIGGER bill_claim_delete BEFORE DELETE ON bill_claim
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a claim is only given up by voiding its bill')
   WHERE NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = OLD.bill_id);
END;

-- A merge, or another numbering habit, moves all claims of a supplier in the same statement.
CREATE TRIGGER party_bills BEFORE UPDATE ON party
WHEN NEW.merged_into IS NOT OLD.merged_into OR NEW.number_reset <> OLD.number_reset
BEGIN
  SELECT RAISE(ABORT, 'MERGE_WOULD_DUPLICATE: two bills would share one number; void one, change the party, then register it again with the next dup_seq and a reason; where a filed VAT period, a payment or a credit note forbids the void, the party stays as it is')
   WHERE EXISTS (SELECT 1
                   FROM bill_claim c JOIN received_bill b ON b.id = c.bill_id
                  WHERE c.company_id = OLD.company_id
                    AND c.supplier_root IN (OLD.id, coalesce(NEW.merged_into, OLD.id))
                  GROUP BY c.kind, c.doc_no_norm, c.dup_seq,
                           CASE (SELECT coalesce((SELECT number_reset FROM party WHERE id = NEW.merged_into),
                                                 NEW.number_reset))
                             WHEN 'year' THEN substr(b.document_date, 1, 4) ELSE '' END
                  HAVING count(*) > 1);
END;

-- First the parties, then the claims: SQLite promises no order between two triggers, hence one.
CREATE TRIGGER party_follow AFTER UPDATE ON party
WHEN NEW.merged_into IS NOT OLD.merged_into OR NEW.number_reset <> OLD.number_reset
BEGIN
  UPDATE party SET merged_into = NEW.merged_into WHERE merged_into = NEW.id AND NEW.merged_into IS NOT NULL;
  SELECT RAISE(ABORT, 'MERGE_INVALID: a merge is one level deep')
   WHERE NEW.merged_into IS NOT NULL AND EXISTS (SELECT 1 FROM party WHERE merged_into = NEW.id);
  UPDATE bill_claim
     SET (supplier_root, reset_year) =
         (SELECT supplier_root, reset_year FROM bill_identity i WHERE i.bill_id = bill_claim.bill_id)
   WHERE company_id = NEW.company_id AND supplier_root = NEW.id;
  SELECT RAISE(ABORT, 'MERGE_WOULD_DUPLICATE: a claim could not follow its supplier')
   WHERE EXISTS (SELECT 1 FROM bill_claim c JOIN bill_identity i ON i.bill_id = c.bill_id
                  WHERE c.company_id = NEW.company_id AND c.supplier_root = NEW.id
                    AND (c.supplier_root, c.reset_year) IS NOT (i.supplier_root, i.reset_year));
END;

-- Guards: voiding ----------------------------------------------------------------------------------

CREATE TRIGGER bill_void_insert BEFORE INSERT ON bill_void
BEGIN
  SELECT RAISE(ABORT, 'ALREADY_VOIDED: this bill is voided')
   WHERE EXISTS (SELECT 1 FROM bill_void WHERE bill_id = NEW.bill_id);
  SELECT RAISE(ABORT, 'VOID_NOT_ALLOWED: only a registered bill without payments or credit notes, in an open VAT period; otherwise register a supplier credit note')
   WHERE NOT EXISTS (SELECT 1 FROM received_bill b
                      WHERE b.id = NEW.bill_id AND b.company_id = NEW.company_id AND b.status = 'registered'
                        AND NOT EXISTS (SELECT 1 FROM vat_period p
                                         WHERE p.company_id = b.company_id AND p.period = b.vat_period
                                           AND p.status = 'filed'))
      OR EXISTS (SELECT 1 FROM received_bill n
                  WHERE n.credits_id = NEW.bill_id AND n.status = 'registered'
                    AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = n.id))
      OR EXISTS (SELECT 1 FROM live_allocation WHERE bill_id = NEW.bill_id);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: a bill is voided neither before its registration nor before the day its last allocation or credit note was undone; take a later date')
   WHERE NEW.voided_on < (SELECT registration_date FROM received_bill WHERE id = NEW.bill_id)
      OR NEW.voided_on < (SELECT max(allocated_on) FROM allocation WHERE bill_id = NEW.bill_id)
      OR NEW.voided_on < (SELECT max(v.voided_on) FROM received_bill n JOIN bill_void v ON v.bill_id = n.id
                           WHERE n.credits_id = NEW.bill_id);
  -- With an entry its seal says so too; a document of zero has none.
  SELECT RAISE(ABORT, 'PERIOD_LOCKED: the date of the void is in no open fiscal year, or on or before company.locked_through; insert the fiscal year, or take a later date')
   WHERE NEW.voided_on <= (SELECT locked_through FROM company WHERE id = NEW.company_id)
      OR NOT EXISTS (SELECT 1 FROM fiscal_year
                      WHERE company_id = NEW.company_id AND status = 'open'
                        AND starts_on <= NEW.voided_on AND ends_on >= NEW.voided_on);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: entry_id must be the reversal of the entry of the bill, purpose void, dated as voided')
    FROM received_bill b
   WHERE b.id = NEW.bill_id
     AND (b.entry_id IS NOT NULL OR NEW.entry_id IS NOT NULL)
     AND NOT EXISTS (SELECT 1 FROM journal_entry
                      WHERE id = NEW.entry_id AND company_id = b.company_id
                        AND source_kind = 'received_bill' AND source_id = b.id AND purpose = 'void'
                        AND reverses_id = b.entry_id AND entry_date = NEW.voided_on);
END;

CREATE TRIGGER bill_void_inserted AFTER INSERT ON bill_void
BEGIN
  DELETE FROM bill_claim WHERE bill_id = NEW.bill_id;
  INSERT INTO journal_seal (entry_id) SELECT NEW.entry_id WHERE NEW.entry_id IS NOT NULL;
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: the void could not be posted')
   WHERE NEW.entry_id IS NOT NULL
     AND NOT EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = NEW.entry_id);
END;

CREATE TRIGGER bill_void_update BEFORE UPDATE ON bill_void
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: voided is final; register the bill again');
END;

CREATE TRIGGER bill_void_delete BEFORE DELETE ON bill_void
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: voided is final; register the bill again');
END;

-- Views ------------------------------------------------------------------------------------------

-- What makes a bill the same bill. Written once; claims, guards and proofs all read it here.
CREATE VIEW bill_identity AS
SELECT b.id AS bill_id, b.company_id, r.id AS supplier_root, b.kind, b.doc_no_norm,
       CASE r.number_reset WHEN 'year' THEN CAST(substr(b.document_date, 1, 4) AS INTEGER) ELSE 0 END AS reset_year,
       b.dup_seq
  FROM received_bill b
  JOIN party s ON s.id = b.supplier_id
  JOIN party r ON r.id = coalesce(s.merged_into, s.id)
 WHERE b.doc_no IS NOT NULL;

-- The VAT each bill must show in the ledger (debit positive, credit notes opposite).
CREATE VIEW bill_vat_due AS
SELECT x.bill_id, 'input_vat' AS role, x.tax_code AS code, x.base_tax_minor AS amount
  FROM bill_tax x JOIN tax_code t ON t.company_id = x.company_id AND t.code = x.tax_code
 WHERE t.kind <> 'non_deductible'
UNION ALL
SELECT x.bill_id, 'output_vat', x.tax_code, -x.base_tax_minor
  FROM bill_tax x JOIN tax_code t ON t.company_id = x.company_id AND t.code = x.tax_code
 WHERE t.kind = 'reverse_charge';

-- Status with voids, which are rows of their own.
CREATE VIEW bill_status AS
SELECT b.company_id, b.id AS bill_id, b.supplier_id, b.kind, b.doc_no,
       CASE WHEN v.bill_id IS NOT NULL THEN 'voided' ELSE b.status END AS status,
       v.voided_on, v.reason AS void_reason
  FROM received_bill b LEFT JOIN bill_void v ON v.bill_id = b.id;

-- The soft form, for the review list only: the hard form without filler words (NR, NO, N, INV), with
-- O read as 0 and I as 1, and without zeros at the start of each run of digits.
CREATE VIEW bill_soft_number AS
WITH RECURSIVE walk (bill_id, rest, soft, digits) AS (
  SELECT id,
         replace(replace(
           CASE WHEN doc_no_norm GLOB 'N[0-9]*' THEN substr(doc_no_norm, 2)
                ELSE replace(replace(replace(replace(doc_no_norm, 'INVOICE', ''), 'INV', ''), 'NR', ''), 'NO', '')
           END, 'O', '0'), 'I', '1'),
         '', 0
    FROM received_bill WHERE doc_no_norm IS NOT NULL
  UNION ALL
  SELECT bill_id, substr(rest, 2),
         CASE WHEN rest GLOB '0*' AND digits = 0 THEN soft ELSE soft || substr(rest, 1, 1) END,
         CASE WHEN rest GLOB '0*' THEN digits ELSE rest GLOB '[1-9]*' END
    FROM walk WHERE rest <> ''
)
SELECT bill_id, soft FROM walk WHERE rest = '' AND soft <> '';

-- Review list, never a block. Drafts and overrides are in it, voided bills are not.
CREATE VIEW possible_duplicate_bill AS
WITH bill AS (
  SELECT b.id, b.company_id, b.kind, b.currency, b.gross_minor, b.document_date, b.source_sha256,
         b.doc_no_norm, b.credits_id, p.country, p.vat_key, r.id AS root
    FROM received_bill b
    JOIN party p ON p.id = b.supplier_id
    JOIN party r ON r.id = coalesce(p.merged_into, p.id)
   WHERE NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = b.id)
),
soft AS MATERIALIZED (
  SELECT b.id, b.company_id, b.root, b.kind, n.soft FROM bill b JOIN bill_soft_number n ON n.bill_id = b.id
)
SELECT a.company_id, a.id AS first_id, b.id AS second_id, 'similar number' AS why
  FROM soft a JOIN soft b ON b.company_id = a.company_id AND b.root = a.root AND b.kind = a.kind
   AND b.soft = a.soft AND b.id > a.id
UNION ALL
SELECT a.company_id, a.id, b.id, 'same amount within five days'
  FROM bill a JOIN bill b ON b.company_id = a.company_id AND b.root = a.root AND b.kind = a.kind
   AND b.currency = a.currency AND b.gross_minor = a.gross_minor AND b.id > a.id
   AND b.document_date BETWEEN date(a.document_date, '-5 days') AND date(a.document_date, '+5 days')
UNION ALL
SELECT a.company_id, a.id, b.id, 'same file'
  FROM bill a JOIN bill b ON b.company_id = a.company_id AND b.source_sha256 = a.source_sha256 AND b.id > a.id
UNION ALL
SELECT a.company_id, a.id, b.id, 'same number and amount, other sign'
  FROM bill a JOIN bill b ON b.company_id = a.company_id AND b.root = a.root
   AND b.kind = 'credit_note' AND a.kind <> 'credit_note' AND b.credits_id IS NULL
   AND b.doc_no_norm = a.doc_no_norm AND b.currency = a.currency AND b.gross_minor = a.gross_minor
UNION ALL
SELECT a.company_id, a.id, b.id, 'same supplier and number in another company'
  FROM bill a JOIN bill b ON b.company_id <> a.company_id AND b.country = a.country AND b.vat_key = a.vat_key
   AND b.kind = a.kind AND b.doc_no_norm = a.doc_no_norm AND b.id > a.id;

-- One row per bill and tax code: a direct source for i.SAF. Base currency, credit notes negative.
-- DS is a debit note, KS a credit note.
CREATE VIEW vat_register_purchases AS
SELECT b.company_id, b.vat_period, b.id AS bill_id, coalesce(b.doc_no, 'ND') AS invoice_no,
       CASE b.kind WHEN 'credit_note' THEN 'KS' WHEN 'debit_note' THEN 'DS' ELSE 'SF' END AS invoice_type,
       b.document_date AS invoice_date,
       CASE WHEN b.tax_point_date <> b.document_date THEN b.tax_point_date END AS vat_point_date,
       b.registration_date,
       coalesce(b.supplier_vat_id, 'ND') AS party_vat_id,
       coalesce(b.supplier_country, 'ND') AS party_country,
       coalesce(nullif(b.supplier_name, ''), 'ND') AS party_name,
       x.tax_code, t.isaf_code, t.rate_bp,
       CASE b.kind WHEN 'credit_note' THEN -x.base_taxable_minor ELSE x.base_taxable_minor END AS taxable_minor,
       CASE b.kind WHEN 'credit_note' THEN -x.base_tax_minor ELSE x.base_tax_minor END AS tax_minor,
       r.doc_no AS reference_no, r.document_date AS reference_date
  FROM received_bill b
  JOIN bill_tax x ON x.bill_id = b.id
  JOIN tax_code t ON t.company_id = x.company_id AND t.code = x.tax_code
  LEFT JOIN received_bill r ON r.id = b.credits_id
 WHERE b.status = 'registered'
   AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = b.id);

CREATE VIEW integrity_bill AS
SELECT 'BILL_TWICE' AS rule, i.company_id, 'received_bill' AS subject, max(i.bill_id) AS subject_id
  FROM bill_identity i JOIN received_bill b ON b.id = i.bill_id AND b.status = 'registered'
 WHERE NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = b.id)
 GROUP BY i.company_id, i.supplier_root, i.kind, i.doc_no_norm, i.reset_year, i.dup_seq HAVING count(*) > 1
UNION ALL
SELECT 'BILL_CLAIM_WRONG', b.company_id, 'received_bill', b.id
  FROM received_bill b
  LEFT JOIN bill_void v ON v.bill_id = b.id
  LEFT JOIN bill_identity i ON i.bill_id = b.id
  LEFT JOIN bill_claim c ON c.bill_id = b.id
 WHERE CASE WHEN b.status = 'registered' AND v.bill_id IS NULL AND b.doc_no IS NOT NULL
            THEN (c.company_id, c.supplier_root, c.kind, c.doc_no_norm, c.reset_year, c.dup_seq)
                 IS NOT (i.company_id, i.supplier_root, i.kind, i.doc_no_norm, i.reset_year, i.dup_seq)
            ELSE c.bill_id IS NOT NULL END
UNION ALL
SELECT 'BILL_CLAIM_WRONG', c.company_id, 'received_bill', c.bill_id
  FROM bill_claim c LEFT JOIN received_bill b ON b.id = c.bill_id WHERE b.id IS NULL
UNION ALL
SELECT 'BILL_OVERRIDE_NOT_LOGGED', b.company_id, 'received_bill', b.id
  FROM received_bill b
 WHERE b.status = 'registered' AND b.dup_seq > 0
   AND (b.dup_reason IS NULL
        OR NOT EXISTS (SELECT 1 FROM override_log
                        WHERE company_id = b.company_id AND kind = 'duplicate_bill' AND subject_id = b.id))
UNION ALL
SELECT 'BILL_STATUS_WRONG', company_id, 'received_bill', id
  FROM received_bill
 WHERE status NOT IN ('draft', 'registered')
    OR (doc_no IS NULL) <> (doc_no_absent = 1)
    OR (status <> 'draft' AND (document_date IS NULL OR registration_date IS NULL))
    OR (status = 'draft' AND number IS NOT NULL)
UNION ALL
SELECT 'BILL_TOTALS_MISMATCH', b.company_id, 'received_bill', b.id
  FROM received_bill b
 WHERE b.status = 'registered'
   AND (b.gross_minor <> b.net_minor + b.tax_minor OR b.base_gross_minor <> b.base_net_minor + b.base_tax_minor
        OR (SELECT (coalesce(sum(x.taxable_minor), 0),
                    coalesce(sum(x.tax_minor) FILTER (WHERE t.kind IS NOT 'reverse_charge'), 0),
                    coalesce(sum(x.base_taxable_minor), 0),
                    coalesce(sum(x.base_tax_minor) FILTER (WHERE t.kind IS NOT 'reverse_charge'), 0))
                   IS NOT (b.net_minor, b.tax_minor, b.base_net_minor, b.base_tax_minor)
              FROM bill_tax x LEFT JOIN tax_code t ON t.company_id = x.company_id AND t.code = x.tax_code
             WHERE x.bill_id = b.id)
        OR (SELECT coalesce(sum(net_minor), 0) FROM bill_line WHERE bill_id = b.id) <> b.net_minor
        OR EXISTS (SELECT 1 FROM (SELECT tax_code, taxable_minor AS amount FROM bill_tax WHERE bill_id = b.id
                                  UNION ALL
                                  SELECT tax_code, -net_minor FROM bill_line WHERE bill_id = b.id)
                    GROUP BY tax_code HAVING sum(amount) <> 0))
UNION ALL
SELECT 'RATE_MISMATCH', b.company_id, 'received_bill', b.id
  FROM received_bill b
  JOIN company c ON c.id = b.company_id
  JOIN bill_tax x ON x.bill_id = b.id
 WHERE b.status = 'registered'
   AND CASE WHEN b.currency = c.base_currency
            THEN (b.rate_num, x.base_taxable_minor, x.base_tax_minor) IS NOT (b.rate_den, x.taxable_minor, x.tax_minor)
            ELSE max(abs(x.base_taxable_minor - 1.0 * x.taxable_minor * b.rate_num / b.rate_den),
                     abs(x.base_tax_minor - 1.0 * x.tax_minor * b.rate_num / b.rate_den)) > 1 END
UNION ALL
SELECT 'BILL_ENTRY_MISMATCH', b.company_id, 'received_bill', b.id
  FROM received_bill b
 WHERE b.status = 'registered'
   AND ((b.entry_id IS NULL AND b.gross_minor + b.base_gross_minor <> 0)
        OR (b.entry_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
                             WHERE e.id = b.entry_id AND e.company_id = b.company_id
                               AND e.source_kind = 'received_bill' AND e.source_id = b.id
                               AND e.purpose = 'register'))
        OR (SELECT (coalesce(sum(l.base_amount_minor), 0),
                    count(*) FILTER (WHERE l.party_id IS NOT b.supplier_id OR l.currency IS NOT b.currency))
                   IS NOT (CASE b.kind WHEN 'credit_note' THEN b.base_gross_minor ELSE -b.base_gross_minor END, 0)
              FROM journal_line l JOIN account a ON a.id = l.account_id
             WHERE l.entry_id = b.entry_id AND a.role = 'payable')
        OR EXISTS (SELECT 1
                     FROM (SELECT d.role, d.code,
                                  CASE b.kind WHEN 'credit_note' THEN d.amount ELSE -d.amount END AS amount
                             FROM bill_vat_due d WHERE d.bill_id = b.id
                           UNION ALL
                           SELECT a.role, l.tax_code, l.base_amount_minor
                             FROM journal_line l JOIN account a ON a.id = l.account_id
                            WHERE l.entry_id = b.entry_id AND a.role IN ('output_vat', 'input_vat'))
                    GROUP BY role, code HAVING sum(amount) <> 0))
UNION ALL
SELECT 'ENTRY_WITHOUT_DOCUMENT', e.company_id, 'journal_entry', e.id
  FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
 WHERE e.source_kind = 'received_bill'
   AND NOT EXISTS (SELECT 1 FROM received_bill
                    WHERE id = e.source_id AND status = 'registered' AND entry_id = e.id)
   AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = e.source_id AND entry_id = e.id)
UNION ALL
SELECT 'BILL_CREDIT_EXCEEDS_BILL', b.company_id, 'received_bill', b.id
  FROM received_bill b
  JOIN received_bill n ON n.credits_id = b.id AND n.status = 'registered'
   AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = n.id)
 GROUP BY b.id HAVING sum(n.gross_minor) > b.gross_minor
UNION ALL
SELECT 'BILL_CREDIT_MISMATCH', n.company_id, 'received_bill', n.id
  FROM received_bill n
  LEFT JOIN received_bill b ON b.id = n.credits_id
  LEFT JOIN party own ON own.id = n.supplier_id
  LEFT JOIN party its ON its.id = b.supplier_id
 WHERE n.status = 'registered' AND n.credits_id IS NOT NULL
   AND (n.kind <> 'credit_note' OR b.id IS NULL OR b.status <> 'registered' OR b.kind = 'credit_note'
        OR (n.company_id, n.currency, coalesce(own.merged_into, own.id))
             IS NOT (b.company_id, b.currency, coalesce(its.merged_into, its.id))
        OR (EXISTS (SELECT 1 FROM bill_void WHERE bill_id = b.id)
            AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = n.id)))
UNION ALL
SELECT 'PARTNER_OF_OTHER_COMPANY', b.company_id, 'received_bill', b.id
  FROM received_bill b LEFT JOIN party p ON p.id = b.supplier_id
 WHERE p.company_id IS NOT b.company_id
UNION ALL
SELECT 'TAX_CODE_WRONG', x.company_id, 'received_bill', x.bill_id
  FROM bill_tax x
  JOIN received_bill b ON b.id = x.bill_id AND b.status = 'registered'
  LEFT JOIN tax_code t ON t.company_id = x.company_id AND t.code = x.tax_code
 WHERE t.code IS NULL OR (x.tax_minor <> 0 AND t.rate_bp = 0)
UNION ALL
SELECT 'BILL_VOID_NOT_ALLOWED', v.company_id, 'received_bill', v.bill_id
  FROM bill_void v LEFT JOIN received_bill b ON b.id = v.bill_id
 WHERE b.status IS NOT 'registered' OR b.company_id <> v.company_id
    OR EXISTS (SELECT 1 FROM live_allocation WHERE bill_id = v.bill_id)
    OR v.voided_on < b.registration_date
    OR v.voided_on < (SELECT max(allocated_on) FROM allocation WHERE bill_id = v.bill_id)
    OR v.voided_on < (SELECT max(w.voided_on) FROM received_bill n JOIN bill_void w ON w.bill_id = n.id
                       WHERE n.credits_id = v.bill_id)
    OR (b.entry_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
                         WHERE e.id = v.entry_id AND e.reverses_id = b.entry_id))
UNION ALL
SELECT 'BILL_VAT_PERIOD_WRONG', b.company_id, 'received_bill', b.id
  FROM received_bill b
  LEFT JOIN vat_period p ON p.company_id = b.company_id AND p.period = b.vat_period
 WHERE b.status = 'registered'
   AND CASE WHEN b.vat_period IS NULL
            THEN EXISTS (SELECT 1 FROM vat_period
                          WHERE company_id = b.company_id AND starts_on <= b.registration_date
                            AND ends_on >= b.registration_date)
            ELSE p.period IS NULL OR p.ends_on < b.registration_date END
UNION ALL
SELECT 'BILL_CHILD_OF_OTHER_COMPANY', x.company_id, 'received_bill', x.bill_id
  FROM (SELECT bill_id, company_id FROM bill_line UNION ALL SELECT bill_id, company_id FROM bill_tax) x
  LEFT JOIN received_bill b ON b.id = x.bill_id
 WHERE b.company_id IS NOT x.company_id;
