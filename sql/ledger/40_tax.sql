-- idem ledger · 40 · tax codes, VAT periods
--
--   * Unique: (company, tax code). A code has one rate; a new rate is a new code, so a document needs
--     no copy of the rate and an old credit note keeps the old one. Frozen, apart from name, valid_to
--     and, until a filed VAT period reports it, isaf_code; a missing one may be added at any time.
--   * kind: 'standard' (any rate the document charges, 0 too), 'exempt', 'reverse_charge' (a seller
--     charges no tax, a buyer owes and deducts it), 'non_deductible' (charged, but no input tax).
--   * isaf_code is the tax office's classifier: `PVM` and digits in Lithuania.
--   * Unique: (company, VAT period label); periods do not overlap. A document belongs to the period
--     of its tax point (sales: supply date, else issue date; purchases: registration date). A filed
--     period takes no documents: they fall into the next open one. Filed is final. Documents without
--     a period, from before the company had any, stay so: no period is inserted over their days.

-- Tables -----------------------------------------------------------------------------------------

CREATE TABLE tax_code (
  company_id  INTEGER NOT NULL REFERENCES company (id),
  code        TEXT    NOT NULL CHECK (code <> '' AND code = trim(code)),
  name        TEXT    NOT NULL DEFAULT '',
  kind        TEXT    NOT NULL DEFAULT 'standard'
                CHECK (kind IN ('standard', 'exempt', 'reverse_charge', 'non_deductible')),
  rate_bp     INTEGER NOT NULL CHECK (rate_bp BETWEEN 0 AND 10000),
  isaf_code   TEXT    CHECK (isaf_code <> ''),
  valid_from  TEXT    NOT NULL DEFAULT '1900-01-01' CHECK (valid_from IS date(valid_from, '+0 days')),
  valid_to    TEXT    CHECK (valid_to IS date(valid_to, '+0 days') AND valid_to >= valid_from),
  PRIMARY KEY (company_id, code),
  CHECK (kind <> 'exempt' OR rate_bp = 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE vat_period (
  company_id  INTEGER NOT NULL REFERENCES company (id),
  period      TEXT    NOT NULL CHECK (period <> '' AND period = trim(period)),
  starts_on   TEXT    NOT NULL CHECK (starts_on IS date(starts_on, '+0 days')),
  ends_on     TEXT    NOT NULL CHECK (ends_on IS date(ends_on, '+0 days')),
  status      TEXT    NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'filed')),
  PRIMARY KEY (company_id, period),
  UNIQUE (company_id, ends_on),
  CHECK (starts_on <= ends_on)
) STRICT, WITHOUT ROWID;

-- Guards -----------------------------------------------------------------------------------------

CREATE TRIGGER tax_code_insert BEFORE INSERT ON tax_code
BEGIN
  SELECT RAISE(ABORT, 'TAX_CODE_EXISTS: this company has this tax code; a new rate is a new code')
   WHERE EXISTS (SELECT 1 FROM tax_code WHERE company_id = NEW.company_id AND code = NEW.code);
END;

CREATE TRIGGER tax_code_update BEFORE UPDATE ON tax_code
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a tax code only changes its name, classifier and end; a new rate is a new code')
   WHERE (NEW.company_id, NEW.code, NEW.kind, NEW.rate_bp, NEW.valid_from)
           IS NOT (OLD.company_id, OLD.code, OLD.kind, OLD.rate_bp, OLD.valid_from);
  SELECT RAISE(ABORT, 'IMMUTABLE: a filed VAT period reports this classifier; insert a new tax code for the new one')
   WHERE NEW.isaf_code IS NOT OLD.isaf_code AND OLD.isaf_code IS NOT NULL
     AND (EXISTS (SELECT 1 FROM vat_register_sales r
                    JOIN vat_period p ON p.company_id = r.company_id AND p.period = r.vat_period
                   WHERE r.company_id = OLD.company_id AND r.tax_code = OLD.code AND p.status = 'filed')
          OR EXISTS (SELECT 1 FROM vat_register_purchases r
                       JOIN vat_period p ON p.company_id = r.company_id AND p.period = r.vat_period
                      WHERE r.company_id = OLD.company_id AND r.tax_code = OLD.code AND p.status = 'filed'));
END;

CREATE TRIGGER tax_code_delete BEFORE DELETE ON tax_code
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a tax code is never deleted; set valid_to');
END;

CREATE TRIGGER vat_period_insert BEFORE INSERT ON vat_period
BEGIN
  SELECT RAISE(ABORT, 'VAT_PERIOD_OVERLAP: a VAT period of this company has this label or shares days with it')
   WHERE EXISTS (SELECT 1 FROM vat_period
                  WHERE company_id = NEW.company_id
                    AND (period = NEW.period OR (starts_on <= NEW.ends_on AND ends_on >= NEW.starts_on)));
  SELECT RAISE(ABORT, 'VAT_PERIOD_MISMATCH: documents of these days have no VAT period, and that is final; begin after them')
   WHERE EXISTS (SELECT 1 FROM sales_document
                  WHERE company_id = NEW.company_id AND status = 'issued' AND vat_period IS NULL
                    AND coalesce(supply_date, issue_date) BETWEEN NEW.starts_on AND NEW.ends_on)
      OR EXISTS (SELECT 1 FROM received_bill
                  WHERE company_id = NEW.company_id AND status = 'registered' AND vat_period IS NULL
                    AND registration_date BETWEEN NEW.starts_on AND NEW.ends_on);
END;

CREATE TRIGGER vat_period_update BEFORE UPDATE ON vat_period
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a VAT period only moves from open to filed')
   WHERE (NEW.company_id, NEW.period, NEW.starts_on, NEW.ends_on)
           IS NOT (OLD.company_id, OLD.period, OLD.starts_on, OLD.ends_on)
      OR OLD.status = 'filed';
END;

CREATE TRIGGER vat_period_delete BEFORE DELETE ON vat_period
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a VAT period is never deleted');
END;

-- Views ------------------------------------------------------------------------------------------

CREATE VIEW integrity_tax AS
SELECT 'VAT_PERIODS_OVERLAP' AS rule, a.company_id, 'vat_period' AS subject, NULL AS subject_id
  FROM vat_period a JOIN vat_period b
    ON b.company_id = a.company_id AND b.period > a.period
   AND b.starts_on <= a.ends_on AND b.ends_on >= a.starts_on;
