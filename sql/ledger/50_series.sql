-- idem ledger · 50 · number series: gapless by construction
--
-- EU VAT Directive 2006/112/EC art. 226(2) asks for a sequential number that identifies the invoice;
-- "without gaps" is national law (France, CGI annex II art. 242 nonies A). The strictest market is
-- the default, chronology is a switch per series.
--
--   * Unique: (company, document kind, code). Parallel series are fine: shop, site, till, supplier of
--     a self-billed document. An offline device gets its own.
--   * There is no counter. The number is taken by the statement that issues the document, from the
--     view next_number; a trigger demands exactly that number, and a unique index is the second
--     lock. The number lives and dies with its row: a rollback, a failed statement, a savepoint or a
--     kill leaves no hole, and no two issuers can hold one number.
--   * Numbers restart 'never' or every fiscal 'year'; the period is the year's label, '' for never.
--   * template holds {number} and, for yearly series, {period}: 'INV-{period}-{number}'.
--   * Frozen once it has a number or a floor, apart from `active`. Numbers are never used again or
--     re-sequenced.
--   * series_floor is the only sanctioned gap: after restoring a backup, numbers already sent out
--     must not be issued again. number_gap shows it with its reason.

-- Tables -----------------------------------------------------------------------------------------

CREATE TABLE series (
  id            INTEGER PRIMARY KEY CHECK (id > 0),
  company_id    INTEGER NOT NULL REFERENCES company (id),
  doc_kind      TEXT    NOT NULL CHECK (doc_kind IN ('invoice', 'advance', 'credit_note', 'bill')),
  code          TEXT    NOT NULL CHECK (code <> '' AND code = trim(code)),
  reset         TEXT    NOT NULL DEFAULT 'year' CHECK (reset IN ('never', 'year')),
  first_no      INTEGER NOT NULL DEFAULT 1 CHECK (first_no BETWEEN 1 AND 999999999999),
  template      TEXT    NOT NULL,
  digits        INTEGER NOT NULL DEFAULT 5 CHECK (digits BETWEEN 1 AND 12),
  strict_dates  INTEGER NOT NULL DEFAULT 0 CHECK (strict_dates IN (0, 1)),
  active        INTEGER NOT NULL DEFAULT 1 CHECK (active IN (0, 1)),
  UNIQUE (company_id, doc_kind, code),
  UNIQUE (company_id, id),
  CONSTRAINT "template: holds {number}, no blanks around it"
  CHECK (template = trim(template) AND instr(template, '{number}') > 0),
  CONSTRAINT "template: holds {period} if the series restarts every year, and only then"
  CHECK ((reset = 'year') = (instr(template, '{period}') > 0))
) STRICT;

CREATE TABLE series_floor (
  series_id   INTEGER NOT NULL,
  company_id  INTEGER NOT NULL,
  period      TEXT    NOT NULL,
  min_next    INTEGER NOT NULL CHECK (min_next BETWEEN 1 AND 999999999999),
  reason      TEXT    NOT NULL CHECK (trim(reason) <> ''),
  actor       TEXT    NOT NULL DEFAULT '',
  PRIMARY KEY (series_id, period, min_next),
  FOREIGN KEY (company_id, series_id) REFERENCES series (company_id, id)
) STRICT, WITHOUT ROWID;

-- Guards -----------------------------------------------------------------------------------------

CREATE TRIGGER series_insert BEFORE INSERT ON series
BEGIN
  SELECT RAISE(ABORT, 'SERIES_EXISTS: this company has a series with this code for this kind of document')
   WHERE EXISTS (SELECT 1 FROM series WHERE id = NEW.id)
      OR EXISTS (SELECT 1 FROM series
                  WHERE company_id = NEW.company_id AND doc_kind = NEW.doc_kind AND code = NEW.code);
END;

CREATE TRIGGER series_update BEFORE UPDATE ON series
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: id and company of a series never change')
   WHERE (NEW.id, NEW.company_id) IS NOT (OLD.id, OLD.company_id);
  SELECT RAISE(ABORT, 'SERIES_EXISTS: this company has a series with this code for this kind of document')
   WHERE EXISTS (SELECT 1 FROM series
                  WHERE company_id = NEW.company_id AND doc_kind = NEW.doc_kind AND code = NEW.code
                    AND id <> OLD.id);
  SELECT RAISE(ABORT, 'IMMUTABLE: a series with numbers or a floor is frozen; deactivate it and open another')
   WHERE (NEW.doc_kind, NEW.code, NEW.reset, NEW.first_no, NEW.template, NEW.digits, NEW.strict_dates)
           IS NOT (OLD.doc_kind, OLD.code, OLD.reset, OLD.first_no, OLD.template, OLD.digits, OLD.strict_dates)
     AND (EXISTS (SELECT 1 FROM sales_document WHERE series_id = OLD.id AND number IS NOT NULL)
          OR EXISTS (SELECT 1 FROM received_bill WHERE series_id = OLD.id AND number IS NOT NULL)
          OR EXISTS (SELECT 1 FROM series_floor WHERE series_id = OLD.id));
END;

CREATE TRIGGER series_delete BEFORE DELETE ON series
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a series is never deleted; deactivate it');
END;

CREATE TRIGGER series_floor_insert BEFORE INSERT ON series_floor
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: this floor is set already')
   WHERE EXISTS (SELECT 1 FROM series_floor
                  WHERE series_id = NEW.series_id AND period = NEW.period AND min_next = NEW.min_next);
  SELECT RAISE(ABORT, 'SERIES_MISMATCH: a floor belongs to a series of its company, and raises its next number')
   WHERE NOT EXISTS (SELECT 1 FROM next_number
                      WHERE series_id = NEW.series_id AND company_id = NEW.company_id
                        AND period = NEW.period AND number < NEW.min_next);
END;

CREATE TRIGGER series_floor_log AFTER INSERT ON series_floor
BEGIN
  INSERT INTO override_log (company_id, kind, subject_id, detail, reason, actor)
  VALUES (NEW.company_id, 'series_floor', NEW.series_id,
          'period ' || NEW.period || ' from ' || NEW.min_next, NEW.reason, NEW.actor);
END;

CREATE TRIGGER series_floor_update BEFORE UPDATE ON series_floor
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a floor is never changed; a higher one may follow');
END;

CREATE TRIGGER series_floor_delete BEFORE DELETE ON series_floor
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a floor is never deleted');
END;

-- Views ------------------------------------------------------------------------------------------

-- The number each series gives next, per period. The issuing statement takes it from here, and the
-- guards compare with it, so the rule is written once. One index probe per lookup.
CREATE VIEW next_number AS
SELECT company_id, series_id, period, number,
       replace(replace(template, '{period}', period), '{number}', printf('%0*d', digits, number)) AS full_number
  FROM (SELECT s.company_id, s.id AS series_id, s.template, s.digits,
               CASE s.reset WHEN 'year' THEN y.label ELSE '' END AS period,
               max(s.first_no,
                   1 + coalesce(CASE s.doc_kind
                                  WHEN 'bill' THEN
                                    (SELECT max(b.number) FROM received_bill b
                                      WHERE b.series_id = s.id AND b.number IS NOT NULL
                                        AND b.period = CASE s.reset WHEN 'year' THEN y.label ELSE '' END)
                                  ELSE
                                    (SELECT max(d.number) FROM sales_document d
                                      WHERE d.series_id = s.id AND d.number IS NOT NULL
                                        AND d.period = CASE s.reset WHEN 'year' THEN y.label ELSE '' END)
                                END, 0),
                   coalesce((SELECT max(f.min_next) FROM series_floor f
                              WHERE f.series_id = s.id
                                AND f.period = CASE s.reset WHEN 'year' THEN y.label ELSE '' END), 0)) AS number
          FROM series s
          LEFT JOIN fiscal_year y ON y.company_id = s.company_id AND s.reset = 'year');

-- All numbers handed out, of all kinds.
CREATE VIEW issued_number AS
SELECT company_id, kind AS doc_kind, series_id, period, number, full_number, issue_date AS dated,
       'sales_document' AS subject, id AS subject_id
  FROM sales_document WHERE number IS NOT NULL
UNION ALL
SELECT company_id, 'bill', series_id, period, number, full_number, registration_date, 'received_bill', id
  FROM received_bill WHERE number IS NOT NULL;

-- Holes. A row with a reason is a sanctioned floor, one without is a violation.
CREATE VIEW number_gap AS
SELECT g.company_id, g.series_id, g.period, g.previous + 1 AS first_missing, g.number - 1 AS last_missing,
       (SELECT f.reason FROM series_floor f
         WHERE f.series_id = g.series_id AND f.period = g.period AND f.min_next = g.number) AS reason
  FROM (SELECT n.company_id, n.series_id, n.period, n.number,
               coalesce(lag(n.number) OVER (PARTITION BY n.series_id, n.period ORDER BY n.number),
                        s.first_no - 1) AS previous
          FROM issued_number n JOIN series s ON s.id = n.series_id) g
 WHERE g.number > g.previous + 1;

CREATE VIEW number_out_of_date_order AS
SELECT company_id, series_id, period, number, full_number, dated, previous_date
  FROM (SELECT company_id, series_id, period, number, full_number, dated,
               lag(dated) OVER (PARTITION BY series_id, period ORDER BY number) AS previous_date
          FROM issued_number)
 WHERE dated < previous_date;

CREATE VIEW integrity_series AS
SELECT 'NUMBER_GAP' AS rule, company_id, 'series' AS subject, series_id AS subject_id
  FROM number_gap WHERE reason IS NULL
UNION ALL
SELECT 'NUMBER_TWICE', company_id, 'series', series_id
  FROM issued_number GROUP BY series_id, period, number HAVING count(*) > 1
UNION ALL
SELECT 'FULL_NUMBER_TWICE', company_id, subject, max(subject_id)
  FROM issued_number GROUP BY company_id, subject, full_number HAVING count(*) > 1
UNION ALL
SELECT 'NUMBER_OF_OTHER_SERIES', n.company_id, n.subject, n.subject_id
  FROM issued_number n LEFT JOIN series s ON s.id = n.series_id
 WHERE s.id IS NULL OR s.company_id <> n.company_id OR s.doc_kind <> n.doc_kind OR n.number < s.first_no
    OR n.period IS NOT CASE s.reset WHEN 'never' THEN ''
                       ELSE (SELECT y.label FROM fiscal_year y
                              WHERE y.company_id = n.company_id AND y.starts_on <= n.dated AND y.ends_on >= n.dated) END
    OR n.full_number <> replace(replace(s.template, '{period}', n.period), '{number}',
                                printf('%0*d', s.digits, n.number))
UNION ALL
SELECT 'FLOOR_WITHOUT_SERIES', f.company_id, 'series', f.series_id
  FROM series_floor f LEFT JOIN series s ON s.id = f.series_id
 WHERE s.company_id IS NOT f.company_id
UNION ALL
SELECT 'DATE_BEFORE_PREVIOUS', o.company_id, 'series', o.series_id
  FROM number_out_of_date_order o JOIN series s ON s.id = o.series_id
 WHERE s.strict_dates = 1;
