-- idem ledger · 60 · sales invoices, advance invoices, credit notes
--
--   * Unique: (series, period, number); (company, full number), which also catches a yearly template
--     that does not tell the years apart; (company, channel, order, part) of the live order claims;
--     (credited invoice, refund reference).
--   * ORDER RULE. An order part is invoiced once until that invoice is credited in full or annulled.
--     The claim is taken when the invoice is issued, so any number of drafts may compete. Amount,
--     customer and currency are no part of it: another total does not make another order. Several
--     invoices for one order (part deliveries, instalments, advance and final) are legitimate but
--     declared: each names its own order_part. order_channel belongs to the key, since two shops both
--     have an order 1001. No order, no claim. Where order_total knows the order's total, the sum of
--     what is issued and not credited stays within it.
--   * A document is a draft, then issued. Issuing is one UPDATE. It takes the number, checks header
--     against lines, tax and posting, takes the claim and seals the entry, or does nothing at all.
--     From then on neither the row nor its children ever change. Payment state is derived.
--   * Credit notes point to the one invoice they correct (2006/112/EC art. 219), and never exceed it:
--     not in total and not per tax code, at the invoice's rate, nor in the base currency. No note on a
--     note, a draft or an annulled invoice.
--   * The VAT register reports base amounts. In the base currency they are the document's own, else
--     each is the document's times the rate, off by no more than its own rounding. Foreign credit notes
--     that were rounded up can leave document amounts without base: the whole rest of a tax code is then
--     credited in one note, with base 0.
--   * An issued document has no "void". Where the law knows annulment it is a row beside the invoice:
--     the number stays used, the VAT register reports AN. Not after a payment or a credit note, not
--     in a filed VAT period, and dated neither before its issue nor before payments were undone.
--   * The posting must mirror the document: the customer's receivable is the gross amount, the VAT
--     accounts carry each code's tax, the entry bears the issue date. A document of zero needs none.
--   * Legal fields are those of an i.SAF register row (number at most 70 characters).

-- Tables -----------------------------------------------------------------------------------------

CREATE TABLE sales_document (
  id                INTEGER PRIMARY KEY CHECK (id > 0),
  company_id        INTEGER NOT NULL REFERENCES company (id),
  kind              TEXT    NOT NULL CHECK (kind IN ('invoice', 'advance', 'credit_note')),
  status            TEXT    NOT NULL DEFAULT 'draft' CHECK (status IN ('draft', 'issued')),

  series_id         INTEGER,
  period            TEXT,
  number            INTEGER CHECK (number > 0),
  full_number       TEXT    CHECK (length(full_number) BETWEEN 1 AND 70),
  issue_date        TEXT    CHECK (issue_date IS date(issue_date, '+0 days')),
  supply_date       TEXT    CHECK (supply_date IS date(supply_date, '+0 days')),
  due_date          TEXT    CHECK (due_date IS date(due_date, '+0 days')),
  vat_period        TEXT,

  -- The customer as printed. Frozen with the document: the party may move house later.
  customer_id       INTEGER NOT NULL,
  customer_name     TEXT    NOT NULL,
  customer_vat_id   TEXT,
  customer_address  TEXT,
  customer_country  TEXT    CHECK (customer_country GLOB '[A-Z][A-Z]'),

  -- Printable ASCII passes at once; other text is searched for control characters, odd blanks and what
  -- Unicode calls default ignorable. The list is the same in all tables.
  order_channel     TEXT
    CONSTRAINT "order_channel: not empty, no blanks around it, no control or invisible characters"
    CHECK (order_channel <> '' AND order_channel = trim(order_channel) AND instr(order_channel, char(0)) = 0
           AND (order_channel NOT GLOB '*[^ -~]*'
                OR order_channel NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*')),
  order_ref         TEXT
    CONSTRAINT "order_ref: not empty, no blanks around it, no control or invisible characters"
    CHECK (order_ref <> '' AND order_ref = trim(order_ref) AND instr(order_ref, char(0)) = 0
           AND (order_ref NOT GLOB '*[^ -~]*'
                OR order_ref NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*')),
  order_part        TEXT    NOT NULL DEFAULT '1'
    CONSTRAINT "order_part: not empty, no blanks around it, no control or invisible characters"
    CHECK (order_part <> '' AND order_part = trim(order_part) AND instr(order_part, char(0)) = 0
           AND (order_part NOT GLOB '*[^ -~]*'
                OR order_part NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*')),

  currency          TEXT    NOT NULL REFERENCES currency (code),
  net_minor         INTEGER NOT NULL CHECK (net_minor BETWEEN 0 AND 999999999999999),
  tax_minor         INTEGER NOT NULL CHECK (tax_minor BETWEEN 0 AND 999999999999999),
  gross_minor       INTEGER NOT NULL CHECK (gross_minor = net_minor + tax_minor),
  base_net_minor    INTEGER NOT NULL CHECK (base_net_minor BETWEEN 0 AND 999999999999999),
  base_tax_minor    INTEGER NOT NULL CHECK (base_tax_minor BETWEEN 0 AND 999999999999999),
  base_gross_minor  INTEGER NOT NULL CHECK (base_gross_minor = base_net_minor + base_tax_minor),
  -- base minor units = document minor units * rate_num / rate_den
  rate_num          INTEGER NOT NULL DEFAULT 1 CHECK (rate_num BETWEEN 1 AND 999999999999),
  rate_den          INTEGER NOT NULL DEFAULT 1 CHECK (rate_den BETWEEN 1 AND 999999999999),

  credits_id        INTEGER REFERENCES sales_document (id),
  refund_ref        TEXT                        -- the payment provider's refund id
    CONSTRAINT "refund_ref: not empty, no blanks around it, no control or invisible characters"
    CHECK (refund_ref <> '' AND refund_ref = trim(refund_ref) AND instr(refund_ref, char(0)) = 0
           AND (refund_ref NOT GLOB '*[^ -~]*'
                OR refund_ref NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*')),
  reason            TEXT,
  entry_id          INTEGER REFERENCES journal_entry (id),

  -- Informational: which request made it.
  idem_key          TEXT,
  body_sha256       TEXT,
  created_at        TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
  issued_at         TEXT,

  CHECK ((status = 'issued') = (number IS NOT NULL)),
  CHECK ((number IS NULL) = (full_number IS NULL)),
  CHECK (number IS NULL OR (series_id IS NOT NULL AND period IS NOT NULL AND issue_date IS NOT NULL)),
  CHECK ((kind = 'credit_note') = (credits_id IS NOT NULL)),
  CHECK (kind = 'credit_note' OR refund_ref IS NULL),
  CHECK (kind <> 'credit_note' OR order_ref IS NULL),
  CHECK ((order_ref IS NULL) = (order_channel IS NULL)),
  FOREIGN KEY (company_id, series_id) REFERENCES series (company_id, id),
  FOREIGN KEY (company_id, customer_id) REFERENCES party (company_id, id),
  FOREIGN KEY (company_id, vat_period) REFERENCES vat_period (company_id, period)
) STRICT;

CREATE TABLE sales_line (
  document_id       INTEGER NOT NULL REFERENCES sales_document (id),
  line_no           INTEGER NOT NULL CHECK (line_no > 0),
  company_id        INTEGER NOT NULL,
  description       TEXT    NOT NULL,
  quantity_milli    INTEGER NOT NULL DEFAULT 1000,        -- thousandths
  unit_price_minor  INTEGER NOT NULL DEFAULT 0,
  net_minor         INTEGER NOT NULL CHECK (net_minor BETWEEN -999999999999999 AND 999999999999999),
  tax_code          TEXT    NOT NULL,
  PRIMARY KEY (document_id, line_no),
  FOREIGN KEY (company_id, tax_code) REFERENCES tax_code (company_id, code)
) STRICT, WITHOUT ROWID;

-- One row per tax code of a document: what the VAT register reports.
CREATE TABLE sales_tax (
  document_id        INTEGER NOT NULL REFERENCES sales_document (id),
  tax_code           TEXT    NOT NULL,
  company_id         INTEGER NOT NULL,
  taxable_minor      INTEGER NOT NULL CHECK (taxable_minor BETWEEN 0 AND 999999999999999),
  tax_minor          INTEGER NOT NULL CHECK (tax_minor BETWEEN 0 AND 999999999999999),
  base_taxable_minor INTEGER NOT NULL CHECK (base_taxable_minor BETWEEN 0 AND 999999999999999),
  base_tax_minor     INTEGER NOT NULL CHECK (base_tax_minor BETWEEN 0 AND 999999999999999),
  PRIMARY KEY (document_id, tax_code),
  FOREIGN KEY (company_id, tax_code) REFERENCES tax_code (company_id, code)
) STRICT, WITHOUT ROWID;

-- Who holds an order part. The invoice row never changes, so the release is written here: released_by
-- is 0 while the claim lives (NOT NULL, or the key would not bite), then the credit note that reached
-- the full gross, or the invoice itself when it was annulled.
CREATE TABLE order_claim (
  company_id   INTEGER NOT NULL,
  channel      TEXT    NOT NULL,
  order_ref    TEXT    NOT NULL,
  part         TEXT    NOT NULL,
  released_by  INTEGER NOT NULL DEFAULT 0,
  invoice_id   INTEGER NOT NULL UNIQUE REFERENCES sales_document (id),
  PRIMARY KEY (company_id, channel, order_ref, part, released_by)
) STRICT, WITHOUT ROWID;

-- Optional: what an order may be invoiced for, all parts together.
CREATE TABLE order_total (
  company_id   INTEGER NOT NULL REFERENCES company (id),
  channel      TEXT    NOT NULL
    CONSTRAINT "channel: not empty, no blanks around it, no control or invisible characters"
    CHECK (channel <> '' AND channel = trim(channel) AND instr(channel, char(0)) = 0
           AND (channel NOT GLOB '*[^ -~]*'
                OR channel NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*')),
  order_ref    TEXT    NOT NULL
    CONSTRAINT "order_ref: not empty, no blanks around it, no control or invisible characters"
    CHECK (order_ref <> '' AND order_ref = trim(order_ref) AND instr(order_ref, char(0)) = 0
           AND (order_ref NOT GLOB '*[^ -~]*'
                OR order_ref NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*')),
  currency     TEXT    NOT NULL REFERENCES currency (code),
  total_minor  INTEGER NOT NULL CHECK (total_minor BETWEEN 0 AND 999999999999999),
  PRIMARY KEY (company_id, channel, order_ref)
) STRICT, WITHOUT ROWID;

CREATE TABLE annulment (
  invoice_id   INTEGER PRIMARY KEY REFERENCES sales_document (id),
  company_id   INTEGER NOT NULL REFERENCES company (id),
  annulled_on  TEXT    NOT NULL CHECK (annulled_on IS date(annulled_on, '+0 days')),
  reason       TEXT    NOT NULL CHECK (trim(reason) <> ''),
  entry_id     INTEGER REFERENCES journal_entry (id),    -- the reversal; NULL for a document of zero
  created_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT;

-- Keys -------------------------------------------------------------------------------------------

CREATE UNIQUE INDEX sales_document_number ON sales_document (series_id, period, number)
  WHERE number IS NOT NULL;
CREATE UNIQUE INDEX sales_document_full_number ON sales_document (company_id, full_number)
  WHERE full_number IS NOT NULL;
CREATE UNIQUE INDEX sales_document_refund ON sales_document (credits_id, refund_ref)
  WHERE status = 'issued' AND refund_ref IS NOT NULL;
CREATE INDEX sales_document_credits ON sales_document (credits_id) WHERE credits_id IS NOT NULL;
CREATE INDEX sales_document_customer ON sales_document (customer_id, issue_date);

-- Guards: the document ---------------------------------------------------------------------------

CREATE TRIGGER sales_document_insert BEFORE INSERT ON sales_document
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: this document exists; a row is never replaced')
   WHERE EXISTS (SELECT 1 FROM sales_document WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'MUST_START_AS_DRAFT: insert a draft, then issue it with UPDATE')
   WHERE NEW.status IS NOT 'draft' OR NEW.number IS NOT NULL OR NEW.full_number IS NOT NULL;
END;

CREATE TRIGGER sales_document_update BEFORE UPDATE ON sales_document
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: an issued document is never changed; credit it')
   WHERE OLD.status IS NOT 'draft';
  SELECT RAISE(ABORT, 'IMMUTABLE: id and company of a document never change')
   WHERE (NEW.id, NEW.company_id) IS NOT (OLD.id, OLD.company_id);
  SELECT RAISE(ABORT, 'NUMBER_NOT_NEXT: a draft has no number; it gets one when it is issued')
   WHERE NEW.status IS 'draft' AND (NEW.number IS NOT NULL OR NEW.full_number IS NOT NULL);
  SELECT RAISE(ABORT, 'IMMUTABLE: a draft can only be issued')
   WHERE NEW.status NOT IN ('draft', 'issued');
END;

CREATE TRIGGER sales_document_delete BEFORE DELETE ON sales_document
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: an issued document is never deleted; credit it')
   WHERE OLD.status IS NOT 'draft';
  SELECT RAISE(ABORT, 'IMMUTABLE: an entry is written for this draft; delete the entry first')
   WHERE EXISTS (SELECT 1 FROM journal_entry
                  WHERE company_id = OLD.company_id AND source_kind = 'sales_document' AND source_id = OLD.id);
  DELETE FROM sales_line WHERE document_id = OLD.id;
  DELETE FROM sales_tax WHERE document_id = OLD.id;
END;

-- The decisive moment, in this order: is it a duplicate, may it be issued, is it right, is it posted.
-- One statement for each row or set of rows looked at; CASE names the first rule that is broken.
CREATE TRIGGER sales_document_issue BEFORE UPDATE ON sales_document
WHEN OLD.status = 'draft' AND NEW.status IS NOT 'draft'
BEGIN
  SELECT RAISE(ABORT, 'ORDER_ALREADY_INVOICED: credit the invoice that holds this order part in full, or name another part')
   WHERE EXISTS (SELECT 1 FROM order_claim
                  WHERE company_id = NEW.company_id AND channel = NEW.order_channel
                    AND order_ref = NEW.order_ref AND part = NEW.order_part AND released_by = 0);

  -- The header against company, customer, series, fiscal year and VAT period. Fiscal years do not
  -- overlap, so this is one row, also where something is missing.
  SELECT CASE
           WHEN p.company_id IS NOT NEW.company_id
             THEN RAISE(ABORT, 'WRONG_COMPANY: the customer belongs to another company')
           -- Before the series: without a fiscal year next_number has no row to take the series from.
           WHEN y.status IS NOT 'open' OR NEW.issue_date <= c.locked_through
             THEN RAISE(ABORT, 'PERIOD_LOCKED: the issue date is missing, in no open fiscal year, or on or before company.locked_through; insert the fiscal year, or take a later date')
           WHEN (s.company_id, s.doc_kind, s.active) IS NOT (NEW.company_id, NEW.kind, 1)
             THEN RAISE(ABORT, 'SERIES_MISMATCH: the series is missing, inactive, of another company or for another kind of document')
           WHEN NEW.period IS NOT CASE s.reset WHEN 'never' THEN '' ELSE y.label END
             THEN RAISE(ABORT, 'WRONG_PERIOD: the number period is the fiscal year of the issue date, or empty if the series never restarts')
           WHEN NEW.number IS NOT (SELECT number FROM next_number
                                    WHERE series_id = NEW.series_id AND period = NEW.period)
             OR NEW.full_number IS NOT replace(replace(s.template, '{period}', NEW.period), '{number}',
                                               printf('%0*d', s.digits, NEW.number))
             THEN RAISE(ABORT, 'NUMBER_NOT_NEXT: take number and full number from next_number in the issuing statement')
           WHEN EXISTS (SELECT 1 FROM sales_document
                         WHERE company_id = NEW.company_id AND full_number = NEW.full_number)
             THEN RAISE(ABORT, 'FULL_NUMBER_TAKEN: another series of this company has printed this number; its template must differ')
           WHEN s.strict_dates = 1
            AND NEW.issue_date < (SELECT issue_date FROM sales_document
                                   WHERE series_id = NEW.series_id AND period = NEW.period AND number IS NOT NULL
                                   ORDER BY number DESC LIMIT 1)
             THEN RAISE(ABORT, 'DATE_BEFORE_PREVIOUS: this series demands dates in the order of numbers')
           WHEN NEW.vat_period IS NOT (SELECT period FROM vat_period
                                        WHERE company_id = NEW.company_id AND status = 'open'
                                          AND ends_on >= coalesce(NEW.supply_date, NEW.issue_date)
                                        ORDER BY ends_on LIMIT 1)
             THEN RAISE(ABORT, 'WRONG_VAT_PERIOD: take the first open VAT period that ends on or after the tax point')
           WHEN NEW.vat_period IS NULL
            AND EXISTS (SELECT 1 FROM vat_period WHERE company_id = NEW.company_id)
             THEN RAISE(ABORT, 'WRONG_VAT_PERIOD: take the first open VAT period that ends on or after the tax point; there is none: insert it into vat_period')
         END
    FROM (SELECT 1)
    LEFT JOIN company c ON c.id = NEW.company_id
    LEFT JOIN party p ON p.id = NEW.customer_id
    LEFT JOIN series s ON s.id = NEW.series_id
    LEFT JOIN fiscal_year y ON y.company_id = NEW.company_id
          AND y.starts_on <= NEW.issue_date AND y.ends_on >= NEW.issue_date;

  -- There are lines, and each has its tax row.
  SELECT CASE
           WHEN count(*) = 0
             THEN RAISE(ABORT, 'LINES_MISSING: a document has at least one line')
           WHEN count(*) <> count(x.tax_code) OR max(l.company_id <> NEW.company_id)
             THEN RAISE(ABORT, 'TOTALS_MISMATCH: each line has a tax row for its code')
         END
    FROM sales_line l
    LEFT JOIN sales_tax x ON x.document_id = NEW.id AND x.tax_code = l.tax_code
   WHERE l.document_id = NEW.id;
  -- Each tax row has the net amount of its lines, and its tax is on output VAT.
  SELECT CASE
           WHEN (coalesce(sum(x.taxable_minor), 0), coalesce(sum(x.tax_minor), 0),
                 coalesce(sum(x.base_taxable_minor), 0), coalesce(sum(x.base_tax_minor), 0))
                  IS NOT (NEW.net_minor, NEW.tax_minor, NEW.base_net_minor, NEW.base_tax_minor)
             OR max(x.company_id <> NEW.company_id
                    OR x.taxable_minor IS NOT (SELECT sum(l.net_minor) FROM sales_line l
                                                WHERE l.document_id = NEW.id AND l.tax_code = x.tax_code))
             OR NEW.gross_minor IS NOT NEW.net_minor + NEW.tax_minor
             OR NEW.base_gross_minor IS NOT NEW.base_net_minor + NEW.base_tax_minor
             THEN RAISE(ABORT, 'TOTALS_MISMATCH: net, tax and gross must be the sums of lines and tax rows, per tax code')
           WHEN max(t.code IS NULL
                    OR (NEW.kind <> 'credit_note'
                        AND (coalesce(NEW.supply_date, NEW.issue_date) < t.valid_from
                             OR coalesce(NEW.supply_date, NEW.issue_date) > t.valid_to))
                    OR (x.tax_minor <> 0 AND (t.rate_bp = 0 OR t.kind = 'reverse_charge')))
             THEN RAISE(ABORT, 'TAX_CODE_MISMATCH: a tax code is missing, not valid at the tax point, or charges no tax')
           WHEN max((SELECT coalesce(sum(l.base_amount_minor), 0)
                       FROM journal_line l JOIN account a ON a.id = l.account_id
                      WHERE l.entry_id = NEW.entry_id AND l.tax_code = x.tax_code AND a.role = 'output_vat')
                    <> CASE NEW.kind WHEN 'credit_note' THEN x.base_tax_minor ELSE -x.base_tax_minor END)
             THEN RAISE(ABORT, 'ENTRY_MISMATCH: each tax code must be posted to output VAT with its tax')
         END
    FROM sales_tax x
    LEFT JOIN tax_code t ON t.company_id = x.company_id AND t.code = x.tax_code
   WHERE x.document_id = NEW.id;
  -- The register reports base amounts. Each may be off by its own rounding, not by more; a credit note
  -- may instead take all that is left of a tax code, so that the roundings of several notes end with it.
  SELECT RAISE(ABORT, 'RATE_MISMATCH: base amounts of each tax row must be its amounts times the rate, to one minor unit; in the base currency they are the same and the rate is 1')
    FROM sales_tax x
    JOIN company c ON c.id = NEW.company_id
    LEFT JOIN invoice_left l ON l.invoice_id = NEW.credits_id AND l.tax_code = x.tax_code
   WHERE x.document_id = NEW.id
     AND CASE WHEN NEW.currency = c.base_currency
              THEN (NEW.rate_num, x.base_taxable_minor, x.base_tax_minor)
                     IS NOT (NEW.rate_den, x.taxable_minor, x.tax_minor)
              WHEN (x.taxable_minor, x.tax_minor, x.base_taxable_minor, x.base_tax_minor)
                     IS (l.taxable_minor, l.tax_minor, l.base_taxable_minor, l.base_tax_minor)
              THEN 0
              ELSE max(abs(x.base_taxable_minor - 1.0 * x.taxable_minor * NEW.rate_num / NEW.rate_den),
                       abs(x.base_tax_minor - 1.0 * x.tax_minor * NEW.rate_num / NEW.rate_den)) > 1
         END;

  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: entry_id must be the unreversed entry of this document, purpose issue, dated as issued')
   WHERE NOT EXISTS (SELECT 1 FROM journal_entry
                      WHERE id = NEW.entry_id AND company_id = NEW.company_id
                        AND source_kind = 'sales_document' AND source_id = NEW.id AND purpose = 'issue'
                        AND entry_date = NEW.issue_date AND reverses_id IS NULL)
     AND (NEW.entry_id IS NOT NULL OR NEW.gross_minor <> 0 OR NEW.base_gross_minor <> 0);
  SELECT CASE
           WHEN (coalesce(sum(l.base_amount_minor) FILTER (WHERE a.role = 'receivable'), 0),
                 coalesce(sum(l.amount_minor) FILTER (WHERE a.role = 'receivable' AND l.currency = NEW.currency), 0))
                  IS NOT (CASE NEW.kind WHEN 'credit_note' THEN -NEW.base_gross_minor ELSE NEW.base_gross_minor END,
                          CASE NEW.kind WHEN 'credit_note' THEN -NEW.gross_minor ELSE NEW.gross_minor END)
             OR max(a.role = 'receivable' AND (l.party_id IS NOT NEW.customer_id OR l.currency IS NOT NEW.currency))
             THEN RAISE(ABORT, 'ENTRY_MISMATCH: the receivable of the customer must be the gross amount, in the currency of the document')
           WHEN max(a.role = 'input_vat'
                    OR (a.role = 'output_vat'
                        AND NOT EXISTS (SELECT 1 FROM sales_tax
                                         WHERE document_id = NEW.id AND tax_code = l.tax_code)))
             THEN RAISE(ABORT, 'ENTRY_MISMATCH: output VAT carries only tax codes of the document, input VAT nothing')
         END
    FROM journal_line l JOIN account a ON a.id = l.account_id
   WHERE l.entry_id = NEW.entry_id;
END;

CREATE TRIGGER sales_document_credit BEFORE UPDATE ON sales_document
WHEN OLD.status = 'draft' AND NEW.status IS NOT 'draft' AND NEW.credits_id IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'REFUND_ALREADY_CREDITED: a credit note of this invoice has this refund reference')
   WHERE NEW.refund_ref IS NOT NULL
     AND EXISTS (SELECT 1 FROM sales_document
                  WHERE credits_id = NEW.credits_id AND refund_ref = NEW.refund_ref AND status = 'issued');
  SELECT RAISE(ABORT, 'CREDITED_NOT_ISSUED: a credit note corrects an issued invoice that is not annulled')
   WHERE NOT EXISTS (SELECT 1 FROM sales_document
                      WHERE id = NEW.credits_id AND status = 'issued' AND kind IN ('invoice', 'advance'))
      OR EXISTS (SELECT 1 FROM annulment WHERE invoice_id = NEW.credits_id);
  SELECT RAISE(ABORT, 'CREDIT_MISMATCH: a credit note has the company, customer, currency and rate of its invoice, and no earlier date')
    FROM sales_document i
   WHERE i.id = NEW.credits_id
     AND (NEW.kind IS NOT 'credit_note'
          OR (NEW.company_id, NEW.customer_id, NEW.currency, NEW.rate_num, NEW.rate_den)
               IS NOT (i.company_id, i.customer_id, i.currency, i.rate_num, i.rate_den)
          OR NEW.issue_date < i.issue_date);
  SELECT RAISE(ABORT, 'CREDIT_EXCEEDS_INVOICE: what is credited, this note included, must stay within the invoice per tax code, in its currency and in the base currency')
    FROM sales_tax x
    LEFT JOIN invoice_left l ON l.invoice_id = NEW.credits_id AND l.tax_code = x.tax_code
   WHERE x.document_id = NEW.id
     AND (l.tax_code IS NULL
          OR x.taxable_minor > l.taxable_minor OR x.tax_minor > l.tax_minor
          OR x.base_taxable_minor > l.base_taxable_minor OR x.base_tax_minor > l.base_tax_minor);
END;

-- After the row is issued: take the claim, release that of a credited invoice, seal the entry. Each is
-- a trigger of its own, so that a document pays for what it does. An outer OR IGNORE or OR FAIL
-- replaces the conflict policy in here, so each write is proved afterwards.
CREATE TRIGGER sales_document_claim AFTER UPDATE ON sales_document
WHEN OLD.status = 'draft' AND NEW.status = 'issued' AND NEW.order_ref IS NOT NULL
BEGIN
  INSERT INTO order_claim (invoice_id, company_id, channel, order_ref, part)
  VALUES (NEW.id, NEW.company_id, NEW.order_channel, NEW.order_ref, NEW.order_part);
  SELECT RAISE(ABORT, 'ORDER_ALREADY_INVOICED: the order part could not be claimed')
   WHERE NOT EXISTS (SELECT 1 FROM order_claim WHERE invoice_id = NEW.id AND released_by = 0);
  SELECT RAISE(ABORT, 'ORDER_TOTAL_EXCEEDED: this invoice takes the order above its total, or is in another currency')
    FROM order_balance
   WHERE company_id = NEW.company_id AND channel = NEW.order_channel AND order_ref = NEW.order_ref
     AND (invoiced_minor - credited_minor > total_minor OR other_currency > 0);
END;

CREATE TRIGGER sales_document_release AFTER UPDATE ON sales_document
WHEN OLD.status = 'draft' AND NEW.status = 'issued' AND NEW.credits_id IS NOT NULL
BEGIN
  UPDATE order_claim SET released_by = NEW.id
   WHERE invoice_id = NEW.credits_id AND released_by = 0
     AND (SELECT credited_in_full FROM invoice_credit WHERE invoice_id = NEW.credits_id) = 1;
  SELECT RAISE(ABORT, 'CLAIM_MISMATCH: the claim of the credited invoice could not be released')
   WHERE EXISTS (SELECT 1 FROM order_claim WHERE invoice_id = NEW.credits_id AND released_by = 0)
     AND (SELECT credited_in_full FROM invoice_credit WHERE invoice_id = NEW.credits_id) = 1;
END;

CREATE TRIGGER sales_document_seal AFTER UPDATE ON sales_document
WHEN OLD.status = 'draft' AND NEW.status = 'issued' AND NEW.entry_id IS NOT NULL
BEGIN
  INSERT INTO journal_seal (entry_id) VALUES (NEW.entry_id);
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: the entry could not be sealed')
   WHERE NOT EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = NEW.entry_id);
END;

-- Guards: lines and tax rows are open while their document is a draft ------------------------------

CREATE TRIGGER sales_line_insert BEFORE INSERT ON sales_line
BEGIN
  SELECT CASE
           WHEN d.id IS NULL
             THEN RAISE(ABORT, 'DOCUMENT_MISSING: there is no such draft in this company; insert the draft first')
           WHEN d.status IS NOT 'draft'
             THEN RAISE(ABORT, 'IMMUTABLE: lines are only added to a draft')
         END
    FROM (SELECT 1) LEFT JOIN sales_document d ON d.id = NEW.document_id AND d.company_id = NEW.company_id;
  SELECT RAISE(ABORT, 'TAX_CODE_MISMATCH: this company has no such tax code; take another, or insert it into tax_code')
   WHERE NOT EXISTS (SELECT 1 FROM tax_code WHERE company_id = NEW.company_id AND code = NEW.tax_code);
END;

CREATE TRIGGER sales_line_update BEFORE UPDATE ON sales_line
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: lines only change while their document is a draft, and stay with it')
   WHERE (NEW.document_id, NEW.company_id) IS NOT (OLD.document_id, OLD.company_id)
      OR (SELECT status FROM sales_document WHERE id = OLD.document_id) IS NOT 'draft';
END;

CREATE TRIGGER sales_line_delete BEFORE DELETE ON sales_line
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: lines of an issued document are never deleted')
   WHERE (SELECT status FROM sales_document WHERE id = OLD.document_id) IS 'issued';
END;

CREATE TRIGGER sales_tax_insert BEFORE INSERT ON sales_tax
BEGIN
  SELECT CASE
           WHEN d.id IS NULL
             THEN RAISE(ABORT, 'DOCUMENT_MISSING: there is no such draft in this company; insert the draft first')
           WHEN d.status IS NOT 'draft'
             THEN RAISE(ABORT, 'IMMUTABLE: tax rows are only added to a draft')
         END
    FROM (SELECT 1) LEFT JOIN sales_document d ON d.id = NEW.document_id AND d.company_id = NEW.company_id;
END;

CREATE TRIGGER sales_tax_update BEFORE UPDATE ON sales_tax
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: tax rows only change while their document is a draft, and stay with it')
   WHERE (NEW.document_id, NEW.company_id) IS NOT (OLD.document_id, OLD.company_id)
      OR (SELECT status FROM sales_document WHERE id = OLD.document_id) IS NOT 'draft';
END;

CREATE TRIGGER sales_tax_delete BEFORE DELETE ON sales_tax
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: tax rows of an issued document are never deleted')
   WHERE (SELECT status FROM sales_document WHERE id = OLD.document_id) IS 'issued';
END;

-- Guards: order claims are written by the triggers above; whoever else writes one must be right ----

CREATE TRIGGER order_claim_insert BEFORE INSERT ON order_claim
BEGIN
  SELECT RAISE(ABORT, 'ORDER_ALREADY_INVOICED: another invoice holds this order part, or this invoice has its claim')
   WHERE EXISTS (SELECT 1 FROM order_claim WHERE invoice_id = NEW.invoice_id)
      OR EXISTS (SELECT 1 FROM order_claim
                  WHERE company_id = NEW.company_id AND channel = NEW.channel
                    AND order_ref = NEW.order_ref AND part = NEW.part AND released_by = 0);
  SELECT RAISE(ABORT, 'CLAIM_MISMATCH: a claim repeats the order of its issued invoice')
   WHERE NEW.released_by <> 0
      OR NOT EXISTS (SELECT 1 FROM sales_document
                      WHERE id = NEW.invoice_id AND status = 'issued' AND kind <> 'credit_note'
                        AND company_id = NEW.company_id AND order_channel = NEW.channel
                        AND order_ref = NEW.order_ref AND order_part = NEW.part);
END;

CREATE TRIGGER order_claim_update BEFORE UPDATE ON order_claim
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a claim is only released, once')
   WHERE (NEW.invoice_id, NEW.company_id, NEW.channel, NEW.order_ref, NEW.part)
           IS NOT (OLD.invoice_id, OLD.company_id, OLD.channel, OLD.order_ref, OLD.part)
      OR OLD.released_by <> 0 OR NEW.released_by = 0;
  SELECT RAISE(ABORT, 'CLAIM_MISMATCH: a claim is released by the credit note that completes the credit, or by annulment')
   WHERE NOT (NEW.released_by = OLD.invoice_id
              AND EXISTS (SELECT 1 FROM annulment WHERE invoice_id = OLD.invoice_id))
     AND NOT (EXISTS (SELECT 1 FROM sales_document
                       WHERE id = NEW.released_by AND credits_id = OLD.invoice_id AND status = 'issued')
              AND (SELECT credited_in_full FROM invoice_credit WHERE invoice_id = OLD.invoice_id) = 1);
END;

CREATE TRIGGER order_claim_delete BEFORE DELETE ON order_claim
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a claim is never deleted; credit the invoice in full');
END;

CREATE TRIGGER order_total_insert BEFORE INSERT ON order_total
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: the total of this order is known; use UPDATE')
   WHERE EXISTS (SELECT 1 FROM order_total
                  WHERE company_id = NEW.company_id AND channel = NEW.channel AND order_ref = NEW.order_ref);
END;

CREATE TRIGGER order_total_inserted AFTER INSERT ON order_total
BEGIN
  SELECT RAISE(ABORT, 'ORDER_TOTAL_EXCEEDED: more than this is invoiced already, or in another currency')
    FROM order_balance
   WHERE company_id = NEW.company_id AND channel = NEW.channel AND order_ref = NEW.order_ref
     AND (invoiced_minor - credited_minor > total_minor OR other_currency > 0);
END;

CREATE TRIGGER order_total_update BEFORE UPDATE ON order_total
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: only the total itself changes')
   WHERE (NEW.company_id, NEW.channel, NEW.order_ref, NEW.currency)
           IS NOT (OLD.company_id, OLD.channel, OLD.order_ref, OLD.currency);
END;

CREATE TRIGGER order_total_updated AFTER UPDATE ON order_total
BEGIN
  SELECT RAISE(ABORT, 'ORDER_TOTAL_EXCEEDED: more than this is invoiced already, or in another currency')
    FROM order_balance
   WHERE company_id = NEW.company_id AND channel = NEW.channel AND order_ref = NEW.order_ref
     AND invoiced_minor - credited_minor > total_minor;
END;

CREATE TRIGGER order_total_delete BEFORE DELETE ON order_total
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: an order that is invoiced keeps its total; raise it if it was wrong')
   WHERE EXISTS (SELECT 1 FROM order_claim
                  WHERE company_id = OLD.company_id AND channel = OLD.channel AND order_ref = OLD.order_ref);
END;

-- Guards: annulment --------------------------------------------------------------------------------

CREATE TRIGGER annulment_insert BEFORE INSERT ON annulment
BEGIN
  SELECT RAISE(ABORT, 'ALREADY_ANNULLED: this invoice is annulled')
   WHERE EXISTS (SELECT 1 FROM annulment WHERE invoice_id = NEW.invoice_id);
  SELECT RAISE(ABORT, 'ANNULMENT_NOT_ALLOWED: only an issued invoice of a company that may annul, without credit notes or payments, in an open VAT period; otherwise credit it')
   WHERE NOT EXISTS (SELECT 1 FROM sales_document i
                       JOIN company c ON c.id = i.company_id AND c.allows_annulment = 1
                      WHERE i.id = NEW.invoice_id AND i.company_id = NEW.company_id
                        AND i.status = 'issued' AND i.kind IN ('invoice', 'advance')
                        AND i.issue_date <= NEW.annulled_on
                        AND NOT EXISTS (SELECT 1 FROM vat_period p
                                         WHERE p.company_id = i.company_id AND p.period = i.vat_period
                                           AND p.status = 'filed'))
      OR EXISTS (SELECT 1 FROM sales_document WHERE credits_id = NEW.invoice_id AND status = 'issued')
      OR EXISTS (SELECT 1 FROM live_allocation WHERE invoice_id = NEW.invoice_id);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: an invoice is not annulled before the day its last allocation was undone; take a later date')
   WHERE NEW.annulled_on < (SELECT max(allocated_on) FROM allocation WHERE invoice_id = NEW.invoice_id);
  -- With an entry its seal says so too; a document of zero has none.
  SELECT RAISE(ABORT, 'PERIOD_LOCKED: the date of the annulment is in no open fiscal year, or on or before company.locked_through; insert the fiscal year, or take a later date')
   WHERE NEW.annulled_on <= (SELECT locked_through FROM company WHERE id = NEW.company_id)
      OR NOT EXISTS (SELECT 1 FROM fiscal_year
                      WHERE company_id = NEW.company_id AND status = 'open'
                        AND starts_on <= NEW.annulled_on AND ends_on >= NEW.annulled_on);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: entry_id must be the reversal of the invoice entry, purpose annul, dated as annulled')
    FROM sales_document i
   WHERE i.id = NEW.invoice_id
     AND (i.entry_id IS NOT NULL OR NEW.entry_id IS NOT NULL)
     AND NOT EXISTS (SELECT 1 FROM journal_entry
                      WHERE id = NEW.entry_id AND company_id = i.company_id
                        AND source_kind = 'sales_document' AND source_id = i.id AND purpose = 'annul'
                        AND reverses_id = i.entry_id AND entry_date = NEW.annulled_on);
END;

CREATE TRIGGER annulment_inserted AFTER INSERT ON annulment
BEGIN
  UPDATE order_claim SET released_by = NEW.invoice_id
   WHERE invoice_id = NEW.invoice_id AND released_by = 0;
  INSERT INTO journal_seal (entry_id) SELECT NEW.entry_id WHERE NEW.entry_id IS NOT NULL;
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: the annulment could not be posted')
   WHERE (NEW.entry_id IS NOT NULL
          AND NOT EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = NEW.entry_id))
      OR EXISTS (SELECT 1 FROM order_claim WHERE invoice_id = NEW.invoice_id AND released_by = 0);
END;

CREATE TRIGGER annulment_update BEFORE UPDATE ON annulment
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: an annulment is final; issue another invoice');
END;

CREATE TRIGGER annulment_delete BEFORE DELETE ON annulment
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: an annulment is final; issue another invoice');
END;

-- Views ------------------------------------------------------------------------------------------

-- What is credited of each issued invoice.
CREATE VIEW invoice_credit AS
SELECT i.company_id, i.id AS invoice_id, i.gross_minor,
       coalesce((SELECT sum(n.gross_minor) FROM sales_document n
                  WHERE n.credits_id = i.id AND n.status = 'issued'), 0) AS credited_minor,
       coalesce((SELECT sum(n.gross_minor) FROM sales_document n
                  WHERE n.credits_id = i.id AND n.status = 'issued'), 0) >= i.gross_minor
         AND EXISTS (SELECT 1 FROM sales_document n
                      WHERE n.credits_id = i.id AND n.status = 'issued') AS credited_in_full
  FROM sales_document i
 WHERE i.status = 'issued' AND i.kind <> 'credit_note';

-- What each tax code of an issued invoice has left to credit.
CREATE VIEW invoice_left AS
SELECT i.company_id, i.id AS invoice_id, x.tax_code,
       sum(iif(d.id = i.id, x.taxable_minor, -x.taxable_minor)) AS taxable_minor,
       sum(iif(d.id = i.id, x.tax_minor, -x.tax_minor)) AS tax_minor,
       sum(iif(d.id = i.id, x.base_taxable_minor, -x.base_taxable_minor)) AS base_taxable_minor,
       sum(iif(d.id = i.id, x.base_tax_minor, -x.base_tax_minor)) AS base_tax_minor
  FROM sales_document i
  JOIN sales_document d ON (d.id = i.id OR d.credits_id = i.id) AND d.status = 'issued'
  JOIN sales_tax x ON x.document_id = d.id
 WHERE i.kind <> 'credit_note'
 GROUP BY i.id, x.tax_code;

-- Orders with a known total: what is invoiced and credited of it. Annulled invoices do not count.
CREATE VIEW order_balance AS
SELECT t.company_id, t.channel, t.order_ref, t.currency, t.total_minor,
       (SELECT coalesce(sum(i.gross_minor), 0)
          FROM order_claim c JOIN sales_document i ON i.id = c.invoice_id
         WHERE c.company_id = t.company_id AND c.channel = t.channel AND c.order_ref = t.order_ref
           AND c.released_by <> c.invoice_id) AS invoiced_minor,
       (SELECT coalesce(sum(n.gross_minor), 0)
          FROM order_claim c JOIN sales_document n ON n.credits_id = c.invoice_id AND n.status = 'issued'
         WHERE c.company_id = t.company_id AND c.channel = t.channel AND c.order_ref = t.order_ref) AS credited_minor,
       (SELECT count(*)
          FROM order_claim c JOIN sales_document i ON i.id = c.invoice_id
         WHERE c.company_id = t.company_id AND c.channel = t.channel AND c.order_ref = t.order_ref
           AND c.released_by = 0 AND i.currency <> t.currency) AS other_currency
  FROM order_total t;

-- One row per order part that was ever invoiced: who holds it now, and what happened before.
CREATE VIEW order_invoice_status AS
SELECT c.company_id, c.channel, c.order_ref, c.part, i.id AS invoice_id, i.full_number, i.issue_date,
       i.currency, i.gross_minor, v.credited_minor,
       CASE WHEN c.released_by = 0 AND v.credited_minor = 0 THEN 'invoiced'
            WHEN c.released_by = 0 THEN 'partly credited'
            WHEN c.released_by = c.invoice_id THEN 'annulled'
            ELSE 'credited' END AS state,
       nullif(c.released_by, 0) AS released_by,
       (SELECT t.total_minor FROM order_total t
         WHERE t.company_id = c.company_id AND t.channel = c.channel AND t.order_ref = c.order_ref) AS order_total_minor
  FROM order_claim c
  JOIN sales_document i ON i.id = c.invoice_id
  JOIN invoice_credit v ON v.invoice_id = c.invoice_id;

-- Review list, never a block: same customer, amount and currency within a week, not both with orders.
-- Two equal invoices are normal business; content is never identity.
CREATE VIEW possible_duplicate_invoice AS
SELECT a.company_id, a.id AS first_id, b.id AS second_id, a.customer_id, a.currency, a.gross_minor,
       a.issue_date AS first_date, b.issue_date AS second_date
  FROM sales_document a
  JOIN sales_document b ON b.customer_id = a.customer_id AND b.company_id = a.company_id
   AND b.issue_date BETWEEN date(a.issue_date, '-7 days') AND date(a.issue_date, '+7 days')
   AND b.id > a.id
 WHERE b.kind = a.kind AND a.kind <> 'credit_note'
   AND b.currency = a.currency AND b.gross_minor = a.gross_minor
   AND (a.order_ref IS NULL OR b.order_ref IS NULL);

-- One row per document and tax code: a direct source for i.SAF. Amounts are in the base currency and
-- negative for credit notes. SF invoice, KS credit note, AN annulled (reported with zero amounts).
CREATE VIEW vat_register_sales AS
SELECT d.company_id, d.vat_period, d.id AS document_id, d.full_number AS invoice_no,
       CASE WHEN z.invoice_id IS NOT NULL THEN 'AN' WHEN d.kind = 'credit_note' THEN 'KS' ELSE 'SF' END AS invoice_type,
       d.issue_date AS invoice_date,
       CASE WHEN d.supply_date <> d.issue_date THEN d.supply_date END AS vat_point_date,
       coalesce(d.customer_vat_id, 'ND') AS party_vat_id,
       coalesce(d.customer_country, 'ND') AS party_country,
       coalesce(nullif(d.customer_name, ''), 'ND') AS party_name,
       x.tax_code, t.isaf_code, t.rate_bp,
       CASE WHEN z.invoice_id IS NOT NULL THEN 0 WHEN d.kind = 'credit_note' THEN -x.base_taxable_minor
            ELSE x.base_taxable_minor END AS taxable_minor,
       CASE WHEN z.invoice_id IS NOT NULL THEN 0 WHEN d.kind = 'credit_note' THEN -x.base_tax_minor
            ELSE x.base_tax_minor END AS tax_minor,
       r.full_number AS reference_no, r.issue_date AS reference_date
  FROM sales_document d
  JOIN sales_tax x ON x.document_id = d.id
  JOIN tax_code t ON t.company_id = x.company_id AND t.code = x.tax_code
  LEFT JOIN annulment z ON z.invoice_id = d.id
  LEFT JOIN sales_document r ON r.id = d.credits_id
 WHERE d.status = 'issued';

CREATE VIEW integrity_sales AS
SELECT 'ORDER_INVOICED_TWICE' AS rule, company_id, 'sales_document' AS subject, max(invoice_id) AS subject_id
  FROM order_claim WHERE released_by = 0
 GROUP BY company_id, channel, order_ref, part HAVING count(*) > 1
UNION ALL
SELECT 'ORDER_CLAIM_MISSING', d.company_id, 'sales_document', d.id
  FROM sales_document d
  LEFT JOIN order_claim c ON c.invoice_id = d.id AND c.company_id = d.company_id
        AND c.channel = d.order_channel AND c.order_ref = d.order_ref AND c.part = d.order_part
 WHERE d.status = 'issued' AND d.order_ref IS NOT NULL AND d.kind <> 'credit_note' AND c.invoice_id IS NULL
UNION ALL
SELECT 'ORDER_CLAIM_WITHOUT_INVOICE', c.company_id, 'sales_document', c.invoice_id
  FROM order_claim c
  LEFT JOIN sales_document d ON d.id = c.invoice_id AND d.status = 'issued' AND d.order_ref IS NOT NULL
 WHERE d.id IS NULL
UNION ALL
SELECT 'ORDER_CLAIM_RELEASE_WRONG', c.company_id, 'sales_document', c.invoice_id
  FROM order_claim c
  JOIN invoice_credit v ON v.invoice_id = c.invoice_id
  LEFT JOIN annulment z ON z.invoice_id = c.invoice_id
 WHERE (c.released_by <> 0) <> (v.credited_in_full OR z.invoice_id IS NOT NULL)
UNION ALL
SELECT 'ORDER_TOTAL_EXCEEDED', company_id, 'order_total', NULL
  FROM order_balance WHERE invoiced_minor - credited_minor > total_minor OR other_currency > 0
UNION ALL
SELECT 'REFUND_CREDITED_TWICE', company_id, 'sales_document', max(id)
  FROM sales_document WHERE status = 'issued' AND refund_ref IS NOT NULL
 GROUP BY credits_id, refund_ref HAVING count(*) > 1
UNION ALL
SELECT 'SALES_STATUS_WRONG', company_id, 'sales_document', id
  FROM sales_document
 WHERE status NOT IN ('draft', 'issued') OR (status <> 'issued' AND number IS NOT NULL)
    OR (status = 'issued') <> (number IS NOT NULL AND full_number IS NOT NULL AND issue_date IS NOT NULL
                               AND series_id IS NOT NULL AND period IS NOT NULL)
    OR (kind = 'credit_note') <> (credits_id IS NOT NULL)
UNION ALL
SELECT 'SALES_TOTALS_MISMATCH', d.company_id, 'sales_document', d.id
  FROM sales_document d
 WHERE d.status = 'issued'
   AND (d.gross_minor <> d.net_minor + d.tax_minor OR d.base_gross_minor <> d.base_net_minor + d.base_tax_minor
        OR (SELECT (coalesce(sum(taxable_minor), 0), coalesce(sum(tax_minor), 0),
                    coalesce(sum(base_taxable_minor), 0), coalesce(sum(base_tax_minor), 0))
                   IS NOT (d.net_minor, d.tax_minor, d.base_net_minor, d.base_tax_minor)
              FROM sales_tax WHERE document_id = d.id)
        OR (SELECT coalesce(sum(net_minor), 0) FROM sales_line WHERE document_id = d.id) <> d.net_minor
        OR EXISTS (SELECT 1 FROM (SELECT tax_code, taxable_minor AS amount FROM sales_tax WHERE document_id = d.id
                                  UNION ALL
                                  SELECT tax_code, -net_minor FROM sales_line WHERE document_id = d.id)
                    GROUP BY tax_code HAVING sum(amount) <> 0))
UNION ALL
-- A foreign credit note may have taken all that was left, which its rows do not tell;
-- CREDIT_EXCEEDS_INVOICE judges it with the other notes of its invoice.
SELECT 'RATE_MISMATCH', d.company_id, 'sales_document', d.id
  FROM sales_document d
  JOIN company c ON c.id = d.company_id
  JOIN sales_tax x ON x.document_id = d.id
 WHERE d.status = 'issued'
   AND CASE WHEN d.currency = c.base_currency
            THEN (d.rate_num, x.base_taxable_minor, x.base_tax_minor) IS NOT (d.rate_den, x.taxable_minor, x.tax_minor)
            ELSE d.kind <> 'credit_note'
             AND max(abs(x.base_taxable_minor - 1.0 * x.taxable_minor * d.rate_num / d.rate_den),
                     abs(x.base_tax_minor - 1.0 * x.tax_minor * d.rate_num / d.rate_den)) > 1 END
UNION ALL
SELECT 'SALES_ENTRY_MISMATCH', d.company_id, 'sales_document', d.id
  FROM sales_document d
 WHERE d.status = 'issued'
   AND ((d.entry_id IS NULL AND d.gross_minor + d.base_gross_minor <> 0)
        OR (d.entry_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
                             WHERE e.id = d.entry_id AND e.company_id = d.company_id
                               AND e.source_kind = 'sales_document' AND e.source_id = d.id
                               AND e.purpose = 'issue' AND e.entry_date = d.issue_date))
        OR (SELECT (coalesce(sum(l.base_amount_minor), 0),
                    count(*) FILTER (WHERE l.party_id IS NOT d.customer_id OR l.currency IS NOT d.currency))
                   IS NOT (CASE d.kind WHEN 'credit_note' THEN -d.base_gross_minor ELSE d.base_gross_minor END, 0)
              FROM journal_line l JOIN account a ON a.id = l.account_id
             WHERE l.entry_id = d.entry_id AND a.role = 'receivable')
        OR EXISTS (SELECT 1
                     FROM (SELECT tax_code AS code,
                                  CASE d.kind WHEN 'credit_note' THEN -base_tax_minor ELSE base_tax_minor END AS amount
                             FROM sales_tax WHERE document_id = d.id
                           UNION ALL
                           SELECT CASE a.role WHEN 'output_vat' THEN l.tax_code END, l.base_amount_minor
                             FROM journal_line l JOIN account a ON a.id = l.account_id
                            WHERE l.entry_id = d.entry_id AND a.role IN ('output_vat', 'input_vat'))
                    GROUP BY code HAVING sum(amount) <> 0))
UNION ALL
SELECT 'ENTRY_WITHOUT_DOCUMENT', e.company_id, 'journal_entry', e.id
  FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
 WHERE e.source_kind = 'sales_document'
   AND NOT EXISTS (SELECT 1 FROM sales_document
                    WHERE id = e.source_id AND status = 'issued' AND entry_id = e.id)
   AND NOT EXISTS (SELECT 1 FROM annulment WHERE invoice_id = e.source_id AND entry_id = e.id)
UNION ALL
SELECT 'CREDIT_EXCEEDS_INVOICE', company_id, 'sales_document', invoice_id
  FROM invoice_left
 WHERE min(taxable_minor, tax_minor, base_taxable_minor, base_tax_minor) < 0
UNION ALL
SELECT 'CREDIT_MISMATCH', n.company_id, 'sales_document', n.id
  FROM sales_document n LEFT JOIN sales_document i ON i.id = n.credits_id
 WHERE n.status = 'issued' AND n.kind = 'credit_note'
   AND (i.id IS NULL OR i.status <> 'issued' OR i.kind = 'credit_note' OR n.issue_date < i.issue_date
        OR (n.company_id, n.customer_id, n.currency, n.rate_num, n.rate_den)
             IS NOT (i.company_id, i.customer_id, i.currency, i.rate_num, i.rate_den))
UNION ALL
SELECT 'ANNULMENT_NOT_ALLOWED', z.company_id, 'sales_document', z.invoice_id
  FROM annulment z LEFT JOIN sales_document i ON i.id = z.invoice_id
 WHERE i.status IS NOT 'issued' OR i.kind = 'credit_note' OR i.company_id <> z.company_id
    OR EXISTS (SELECT 1 FROM sales_document WHERE credits_id = z.invoice_id AND status = 'issued')
    OR EXISTS (SELECT 1 FROM live_allocation WHERE invoice_id = z.invoice_id)
    OR z.annulled_on < i.issue_date
    OR z.annulled_on < (SELECT max(allocated_on) FROM allocation WHERE invoice_id = z.invoice_id)
    OR (i.entry_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
                         WHERE e.id = z.entry_id AND e.reverses_id = i.entry_id))
UNION ALL
SELECT 'SALES_VAT_PERIOD_WRONG', d.company_id, 'sales_document', d.id
  FROM sales_document d
  LEFT JOIN vat_period p ON p.company_id = d.company_id AND p.period = d.vat_period
 WHERE d.status = 'issued'
   AND CASE WHEN d.vat_period IS NULL
            THEN EXISTS (SELECT 1 FROM vat_period
                          WHERE company_id = d.company_id AND starts_on <= coalesce(d.supply_date, d.issue_date)
                            AND ends_on >= coalesce(d.supply_date, d.issue_date))
            ELSE p.period IS NULL OR p.ends_on < coalesce(d.supply_date, d.issue_date) END
UNION ALL
SELECT 'PARTNER_OF_OTHER_COMPANY', d.company_id, 'sales_document', d.id
  FROM sales_document d LEFT JOIN party p ON p.id = d.customer_id
 WHERE p.company_id IS NOT d.company_id
UNION ALL
SELECT 'TAX_CODE_WRONG', x.company_id, 'sales_document', x.document_id
  FROM sales_tax x
  JOIN sales_document d ON d.id = x.document_id AND d.status = 'issued'
  LEFT JOIN tax_code t ON t.company_id = x.company_id AND t.code = x.tax_code
 WHERE t.code IS NULL OR (x.tax_minor <> 0 AND (t.rate_bp = 0 OR t.kind = 'reverse_charge'))
UNION ALL
SELECT 'SALES_CHILD_OF_OTHER_COMPANY', x.company_id, 'sales_document', x.document_id
  FROM (SELECT document_id, company_id FROM sales_line UNION ALL SELECT document_id, company_id FROM sales_tax) x
  LEFT JOIN sales_document d ON d.id = x.document_id
 WHERE d.company_id IS NOT x.company_id;
