-- idem ledger · 70 · fixed assets and depreciation runs
--
--   * Unique: (company, asset code). Live depreciation of one (company, asset, book, kind) never
--     overlaps: a first-quarter run after a January run is a duplicate as much as a second January
--     run. The amount is no part of it.
--   * Live means not reversed. A reversal is a run that repeats another one line by line and names
--     it; it frees the periods for a corrected run. At most one reversal per run and line.
--   * kind: 'scheduled'; 'catch_up' and 'impairment' stand beside the schedule and only collide with
--     their own kind, declared by whoever books them.
--   * in_service_on is the first day to depreciate. Where depreciation begins the month after the asset
--     is taken into use, as is the practice in Lithuania, it is the first of that month: otherwise
--     depreciation_missing_period lists the part month before, and close_month is blocked by it.
--   * Never before the in-service date, after the disposal, or beyond the depreciable base (cost less
--     residual value) per book.
--   * A run is a draft while its lines are entered; lines claim their period at once. Posting is one
--     UPDATE, checks the entry (accumulated depreciation moves by the sum of the lines) and seals it.
--     Runs and entries are linked by id; matching amounts is how others post every day anew.
--   * Amounts are in the company's base currency. book is NOT NULL, as a NULL would never collide.

-- Tables -----------------------------------------------------------------------------------------

CREATE TABLE asset (
  id              INTEGER PRIMARY KEY CHECK (id > 0),
  company_id      INTEGER NOT NULL REFERENCES company (id),
  code            TEXT    NOT NULL CHECK (code <> '' AND code = trim(code)),
  name            TEXT    NOT NULL CHECK (trim(name) <> ''),
  in_service_on   TEXT    NOT NULL CHECK (in_service_on IS date(in_service_on, '+0 days')),
  disposed_on     TEXT    CHECK (disposed_on IS date(disposed_on, '+0 days') AND disposed_on >= in_service_on),
  cost_minor      INTEGER NOT NULL CHECK (cost_minor BETWEEN 0 AND 999999999999999),
  residual_minor  INTEGER NOT NULL DEFAULT 0 CHECK (residual_minor BETWEEN 0 AND cost_minor),
  UNIQUE (company_id, code),
  UNIQUE (company_id, id)
) STRICT;

CREATE TABLE depreciation_run (
  id            INTEGER PRIMARY KEY CHECK (id > 0),
  company_id    INTEGER NOT NULL REFERENCES company (id),
  book          TEXT    NOT NULL DEFAULT 'main'
    CONSTRAINT "book: not empty, no blanks around it, no control or invisible characters"
    CHECK (book <> '' AND book = trim(book) AND instr(book, char(0)) = 0
           AND (book NOT GLOB '*[^ -~]*'
                OR book NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*')),
  kind          TEXT    NOT NULL DEFAULT 'scheduled' CHECK (kind IN ('scheduled', 'catch_up', 'impairment')),
  period_start  TEXT    NOT NULL CHECK (period_start IS date(period_start, '+0 days')),
  period_end    TEXT    NOT NULL CHECK (period_end IS date(period_end, '+0 days')),
  status        TEXT    NOT NULL DEFAULT 'draft' CHECK (status IN ('draft', 'posted')),
  entry_id      INTEGER REFERENCES journal_entry (id),
  reverses_id   INTEGER REFERENCES depreciation_run (id) CHECK (reverses_id <> id),
  created_at    TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
  CHECK (period_start <= period_end),
  CHECK ((status = 'posted') = (entry_id IS NOT NULL))
) STRICT;

-- Book, kind and period repeat the run's, so that the key is in one row.
CREATE TABLE depreciation_line (
  id            INTEGER PRIMARY KEY CHECK (id > 0),
  run_id        INTEGER NOT NULL REFERENCES depreciation_run (id),
  company_id    INTEGER NOT NULL,
  asset_id      INTEGER NOT NULL,
  book          TEXT    NOT NULL DEFAULT 'main',
  kind          TEXT    NOT NULL DEFAULT 'scheduled',
  period_start  TEXT    NOT NULL CHECK (period_start IS date(period_start, '+0 days')),
  period_end    TEXT    NOT NULL CHECK (period_end IS date(period_end, '+0 days')),
  amount_minor  INTEGER NOT NULL CHECK (amount_minor BETWEEN 1 AND 999999999999999),
  reverses_id   INTEGER REFERENCES depreciation_line (id),
  CHECK (period_start <= period_end),
  FOREIGN KEY (company_id, asset_id) REFERENCES asset (company_id, id)
) STRICT;

-- Keys -------------------------------------------------------------------------------------------

CREATE UNIQUE INDEX depreciation_run_reverses ON depreciation_run (reverses_id) WHERE reverses_id IS NOT NULL;
CREATE UNIQUE INDEX depreciation_line_reverses ON depreciation_line (reverses_id) WHERE reverses_id IS NOT NULL;
CREATE INDEX depreciation_line_asset ON depreciation_line (asset_id, book, kind, period_start);
CREATE INDEX depreciation_line_run ON depreciation_line (run_id);

-- Guards -----------------------------------------------------------------------------------------

CREATE TRIGGER asset_insert BEFORE INSERT ON asset
BEGIN
  SELECT RAISE(ABORT, 'ASSET_EXISTS: this company has an asset with this code or id')
   WHERE EXISTS (SELECT 1 FROM asset WHERE id = NEW.id)
      OR EXISTS (SELECT 1 FROM asset WHERE company_id = NEW.company_id AND code = NEW.code);
END;

CREATE TRIGGER asset_update BEFORE UPDATE ON asset
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: id and company of an asset never change')
   WHERE (NEW.id, NEW.company_id) IS NOT (OLD.id, OLD.company_id);
  SELECT RAISE(ABORT, 'ASSET_EXISTS: this company has an asset with this code')
   WHERE EXISTS (SELECT 1 FROM asset
                  WHERE company_id = NEW.company_id AND code = NEW.code AND id <> OLD.id);
  SELECT RAISE(ABORT, 'IMMUTABLE: a depreciated asset keeps code, cost, residual value and dates; only a disposal may follow')
   WHERE (NEW.code, NEW.in_service_on, NEW.cost_minor, NEW.residual_minor)
           IS NOT (OLD.code, OLD.in_service_on, OLD.cost_minor, OLD.residual_minor)
     AND EXISTS (SELECT 1 FROM depreciation_line WHERE asset_id = OLD.id);
  SELECT RAISE(ABORT, 'DEPRECIATION_OUT_OF_SERVICE: a disposal is final, and not before the end of live depreciation; reverse that first')
   WHERE NEW.disposed_on IS NOT OLD.disposed_on
     AND (OLD.disposed_on IS NOT NULL
          OR EXISTS (SELECT 1 FROM live_depreciation
                      WHERE asset_id = OLD.id AND period_end > NEW.disposed_on));
END;

CREATE TRIGGER asset_delete BEFORE DELETE ON asset
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a depreciated asset is never deleted; dispose of it')
   WHERE EXISTS (SELECT 1 FROM depreciation_line WHERE asset_id = OLD.id);
END;

CREATE TRIGGER depreciation_run_insert BEFORE INSERT ON depreciation_run
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: this run exists; a row is never replaced')
   WHERE EXISTS (SELECT 1 FROM depreciation_run WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'MUST_START_AS_DRAFT: insert a draft and its lines, then post it with UPDATE')
   WHERE NEW.status IS NOT 'draft' OR NEW.entry_id IS NOT NULL;
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: this run is reversed already')
   WHERE NEW.reverses_id IS NOT NULL
     AND EXISTS (SELECT 1 FROM depreciation_run WHERE reverses_id = NEW.reverses_id);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: a reversal has company, book, kind and period of a posted run that is no reversal')
   WHERE NEW.reverses_id IS NOT NULL
     AND NOT EXISTS (SELECT 1 FROM depreciation_run o
                      WHERE o.id = NEW.reverses_id AND o.status = 'posted' AND o.reverses_id IS NULL
                        AND (o.company_id, o.book, o.kind, o.period_start, o.period_end)
                              IS (NEW.company_id, NEW.book, NEW.kind, NEW.period_start, NEW.period_end));
END;

CREATE TRIGGER depreciation_run_update BEFORE UPDATE ON depreciation_run
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a posted run is never changed; reverse it')
   WHERE OLD.status IS NOT 'draft';
  SELECT RAISE(ABORT, 'IMMUTABLE: a run only changes by being posted; delete the draft and start again')
   WHERE (NEW.id, NEW.company_id, NEW.book, NEW.kind, NEW.period_start, NEW.period_end, NEW.reverses_id, NEW.created_at)
           IS NOT (OLD.id, OLD.company_id, OLD.book, OLD.kind, OLD.period_start, OLD.period_end, OLD.reverses_id, OLD.created_at)
      OR NEW.status IS NOT 'posted';
  SELECT RAISE(ABORT, 'LINES_MISSING: a run has at least one line')
   WHERE NOT EXISTS (SELECT 1 FROM depreciation_line WHERE run_id = NEW.id);
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: entry_id must be the entry of this run, purpose post; that of a reversal reverses the entry of the run')
   WHERE NOT EXISTS (SELECT 1 FROM journal_entry
                      WHERE id = NEW.entry_id AND company_id = NEW.company_id
                        AND source_kind = 'depreciation_run' AND source_id = NEW.id AND purpose = 'post'
                        AND reverses_id IS (SELECT entry_id FROM depreciation_run WHERE id = NEW.reverses_id));
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: accumulated depreciation must move by the sum of the lines')
   WHERE (SELECT coalesce(sum(l.base_amount_minor), 0)
            FROM journal_line l JOIN account a ON a.id = l.account_id
           WHERE l.entry_id = NEW.entry_id AND a.role = 'accumulated_depreciation')
         IS NOT (SELECT CASE WHEN NEW.reverses_id IS NULL THEN -sum(amount_minor) ELSE sum(amount_minor) END
                   FROM depreciation_line WHERE run_id = NEW.id);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: a reversal repeats every line of the run')
   WHERE NEW.reverses_id IS NOT NULL
     AND EXISTS (SELECT 1 FROM depreciation_line o
                  WHERE o.run_id = NEW.reverses_id
                    AND NOT EXISTS (SELECT 1 FROM depreciation_line r
                                     WHERE r.reverses_id = o.id AND r.run_id = NEW.id));
END;

CREATE TRIGGER depreciation_run_posted AFTER UPDATE ON depreciation_run
WHEN OLD.status = 'draft' AND NEW.status = 'posted'
BEGIN
  INSERT INTO journal_seal (entry_id) VALUES (NEW.entry_id);
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: the entry could not be sealed')
   WHERE NOT EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = NEW.entry_id);
END;

CREATE TRIGGER depreciation_run_delete BEFORE DELETE ON depreciation_run
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a posted run is never deleted; reverse it')
   WHERE OLD.status IS NOT 'draft';
  SELECT RAISE(ABORT, 'IMMUTABLE: an entry is written for this draft; delete the entry first')
   WHERE EXISTS (SELECT 1 FROM journal_entry
                  WHERE company_id = OLD.company_id AND source_kind = 'depreciation_run' AND source_id = OLD.id);
  DELETE FROM depreciation_line WHERE run_id = OLD.id;
END;

CREATE TRIGGER depreciation_line_insert BEFORE INSERT ON depreciation_line
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: this line exists; a row is never replaced')
   WHERE EXISTS (SELECT 1 FROM depreciation_line WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'DOCUMENT_MISSING: there is no such run in this company; insert the draft first')
   WHERE NOT EXISTS (SELECT 1 FROM depreciation_run WHERE id = NEW.run_id AND company_id = NEW.company_id);
  SELECT RAISE(ABORT, 'IMMUTABLE: lines are only added to a draft run of the same company, book and kind, within its period')
   WHERE NOT EXISTS (SELECT 1 FROM depreciation_run r
                      WHERE r.id = NEW.run_id AND r.status = 'draft'
                        AND (r.company_id, r.book, r.kind) IS (NEW.company_id, NEW.book, NEW.kind)
                        AND NEW.period_start >= r.period_start AND NEW.period_end <= r.period_end);
  SELECT RAISE(ABORT, 'WRONG_COMPANY: the asset belongs to another company')
   WHERE (SELECT company_id FROM asset WHERE id = NEW.asset_id) IS NOT NEW.company_id;
END;

CREATE TRIGGER depreciation_line_new BEFORE INSERT ON depreciation_line
WHEN NEW.reverses_id IS NULL
BEGIN
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: every line of a reversing run names the line it reverses')
   WHERE (SELECT reverses_id FROM depreciation_run WHERE id = NEW.run_id) IS NOT NULL;
  SELECT RAISE(ABORT, 'DEPRECIATION_PERIOD_ALREADY_POSTED: a draft run has this asset in this period; delete that draft, or post it')
   WHERE EXISTS (SELECT 1 FROM live_depreciation l JOIN depreciation_run r ON r.id = l.run_id AND r.status = 'draft'
                  WHERE l.asset_id = NEW.asset_id AND l.book = NEW.book AND l.kind = NEW.kind
                    AND l.period_start <= NEW.period_end AND l.period_end >= NEW.period_start);
  SELECT RAISE(ABORT, 'DEPRECIATION_PERIOD_ALREADY_POSTED: this asset has live depreciation in this period; reverse that run first')
   WHERE EXISTS (SELECT 1 FROM live_depreciation
                  WHERE asset_id = NEW.asset_id AND book = NEW.book AND kind = NEW.kind
                    AND period_start <= NEW.period_end AND period_end >= NEW.period_start);
  SELECT RAISE(ABORT, 'DEPRECIATION_OUT_OF_SERVICE: the period begins before the asset is in service or ends after its disposal')
    FROM asset
   WHERE id = NEW.asset_id
     AND (NEW.period_start < in_service_on OR NEW.period_end > disposed_on);
  SELECT RAISE(ABORT, 'DEPRECIATION_EXCEEDS_BASE: not more than cost less residual value can be depreciated')
    FROM asset
   WHERE id = NEW.asset_id
     AND NEW.amount_minor + (SELECT coalesce(sum(amount_minor), 0) FROM live_depreciation
                              WHERE asset_id = NEW.asset_id AND book = NEW.book)
         > cost_minor - residual_minor;
END;

CREATE TRIGGER depreciation_line_reversal BEFORE INSERT ON depreciation_line
WHEN NEW.reverses_id IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: this line is reversed already')
   WHERE EXISTS (SELECT 1 FROM depreciation_line WHERE reverses_id = NEW.reverses_id);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: the line must equal, in all but its sign, a line of the run being reversed')
   WHERE NOT EXISTS (SELECT 1 FROM depreciation_line o
                       JOIN depreciation_run r ON r.reverses_id = o.run_id
                      WHERE o.id = NEW.reverses_id AND r.id = NEW.run_id
                        AND (o.company_id, o.asset_id, o.book, o.kind, o.period_start, o.period_end, o.amount_minor)
                              IS (NEW.company_id, NEW.asset_id, NEW.book, NEW.kind, NEW.period_start, NEW.period_end, NEW.amount_minor));
END;

CREATE TRIGGER depreciation_line_update BEFORE UPDATE ON depreciation_line
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a line is never changed; delete it from the draft, or reverse the run');
END;

CREATE TRIGGER depreciation_line_delete BEFORE DELETE ON depreciation_line
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a line of a posted run is never deleted; reverse the run')
   WHERE (SELECT status FROM depreciation_run WHERE id = OLD.run_id) IS 'posted';
END;

-- Views ------------------------------------------------------------------------------------------

-- Lines that claim their period: drafts and posted ones, until a posted reversal frees them.
CREATE VIEW live_depreciation AS
SELECT l.*
  FROM depreciation_line l
 WHERE l.reverses_id IS NULL
   AND NOT EXISTS (SELECT 1 FROM depreciation_line r JOIN depreciation_run n ON n.id = r.run_id
                    WHERE r.reverses_id = l.id AND n.status = 'posted');

CREATE VIEW asset_value AS
SELECT a.company_id, a.id AS asset_id, a.code, a.name, b.book, a.cost_minor, a.residual_minor,
       coalesce((SELECT sum(l.amount_minor)
                   FROM live_depreciation l JOIN depreciation_run r ON r.id = l.run_id AND r.status = 'posted'
                  WHERE l.asset_id = a.id AND l.book = b.book), 0) AS depreciated_minor
  FROM asset a
  JOIN (SELECT 'main' AS book, id AS asset_id FROM asset
        UNION SELECT book, asset_id FROM depreciation_line) b ON b.asset_id = a.id;

-- Months in service, up to the last complete month before the report day, that no posted scheduled line
-- touches, for assets with something left to depreciate. The first and the last are cut to the days in
-- service, so that each row is a period the guards accept.
CREATE VIEW depreciation_missing_period AS
WITH RECURSIVE month (company_id, asset_id, book, starts_on) AS (
  SELECT v.company_id, v.asset_id, v.book, date(a.in_service_on, 'start of month')
    FROM asset_value v JOIN asset a ON a.id = v.asset_id
   WHERE v.depreciated_minor < v.cost_minor - v.residual_minor
  UNION ALL
  SELECT m.company_id, m.asset_id, m.book, date(m.starts_on, '+1 month')
    FROM month m JOIN asset a ON a.id = m.asset_id
   WHERE date(m.starts_on, '+1 month') <= coalesce(a.disposed_on, '9999-12-31')
     AND date(m.starts_on, '+2 months') <= (SELECT as_of FROM report_day)
)
SELECT m.company_id, m.asset_id, m.book, max(m.starts_on, a.in_service_on) AS period_start,
       min(date(m.starts_on, '+1 month', '-1 day'), coalesce(a.disposed_on, '9999-12-31')) AS period_end
  FROM month m JOIN asset a ON a.id = m.asset_id
 WHERE date(m.starts_on, '+1 month') <= (SELECT as_of FROM report_day)
   AND NOT EXISTS (SELECT 1 FROM live_depreciation l
                     JOIN depreciation_run r ON r.id = l.run_id AND r.status = 'posted'
                    WHERE l.asset_id = m.asset_id AND l.book = m.book AND l.kind = 'scheduled'
                      AND l.period_start < date(m.starts_on, '+1 month') AND l.period_end >= m.starts_on);

CREATE VIEW integrity_depreciation AS
SELECT 'DEPRECIATION_OVERLAPS' AS rule, a.company_id, 'asset' AS subject, a.asset_id AS subject_id
  FROM live_depreciation a JOIN live_depreciation b
    ON b.asset_id = a.asset_id AND b.book = a.book AND b.kind = a.kind AND b.id > a.id
   AND b.period_start <= a.period_end AND b.period_end >= a.period_start
UNION ALL
SELECT 'DEPRECIATION_EXCEEDS_BASE', a.company_id, 'asset', a.id
  FROM asset a JOIN live_depreciation l ON l.asset_id = a.id
 GROUP BY a.id, l.book HAVING sum(l.amount_minor) > a.cost_minor - a.residual_minor
UNION ALL
SELECT 'DEPRECIATION_OUT_OF_SERVICE', l.company_id, 'asset', l.asset_id
  FROM live_depreciation l LEFT JOIN asset a ON a.id = l.asset_id
 WHERE l.period_start < a.in_service_on OR l.period_end > a.disposed_on OR l.company_id IS NOT a.company_id
UNION ALL
SELECT 'DEPRECIATION_REVERSAL_WRONG', l.company_id, 'depreciation_run', l.run_id
  FROM depreciation_line l LEFT JOIN depreciation_line o ON o.id = l.reverses_id
 WHERE l.reverses_id IS NOT NULL
   AND (o.reverses_id IS NOT NULL
        OR (o.company_id, o.asset_id, o.book, o.kind, o.period_start, o.period_end, o.amount_minor)
             IS NOT (l.company_id, l.asset_id, l.book, l.kind, l.period_start, l.period_end, l.amount_minor))
UNION ALL
SELECT 'DEPRECIATION_REVERSED_TWICE', company_id, 'depreciation_run', min(run_id)
  FROM depreciation_line WHERE reverses_id IS NOT NULL GROUP BY reverses_id HAVING count(*) > 1
UNION ALL
SELECT 'DEPRECIATION_LINE_OF_OTHER_RUN', l.company_id, 'depreciation_run', l.run_id
  FROM depreciation_line l LEFT JOIN depreciation_run r ON r.id = l.run_id
 WHERE (r.company_id, r.book, r.kind) IS NOT (l.company_id, l.book, l.kind)
    OR l.period_start < r.period_start OR l.period_end > r.period_end
    OR (r.reverses_id IS NULL) <> (l.reverses_id IS NULL)
UNION ALL
SELECT 'DEPRECIATION_ENTRY_MISMATCH', r.company_id, 'depreciation_run', r.id
  FROM depreciation_run r
 WHERE r.status = 'posted'
   AND (NOT EXISTS (SELECT 1 FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
                     WHERE e.id = r.entry_id AND e.company_id = r.company_id
                       AND e.source_kind = 'depreciation_run' AND e.source_id = r.id)
        OR (SELECT coalesce(sum(l.base_amount_minor), 0)
              FROM journal_line l JOIN account a ON a.id = l.account_id
             WHERE l.entry_id = r.entry_id AND a.role = 'accumulated_depreciation')
           IS NOT (SELECT CASE WHEN r.reverses_id IS NULL THEN -sum(amount_minor) ELSE sum(amount_minor) END
                     FROM depreciation_line WHERE run_id = r.id))
UNION ALL
SELECT 'ENTRY_WITHOUT_DOCUMENT', e.company_id, 'journal_entry', e.id
  FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
 WHERE e.source_kind = 'depreciation_run'
   AND NOT EXISTS (SELECT 1 FROM depreciation_run
                    WHERE id = e.source_id AND status = 'posted' AND entry_id = e.id);
