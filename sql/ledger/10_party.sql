-- idem ledger · 10 · parties: customers and suppliers
--
-- One table for both, because one firm is often both and its VAT id identifies it either way.
--   * Unique: (company, country, VAT id) where a VAT id is present, with or without the country
--     prefix (LT123 and 123 are one firm; Greece writes EL).
--   * A supplier entered twice is merged: merged_into points at the root, one level deep. Bill claims
--     follow in the same statement; if both own the same document number the merge is refused
--     (MERGE_WOULD_DUPLICATE) until one bill is voided or overridden.
--   * number_reset says how a supplier numbers: 'never' repeats a number, or restarts every 'year'
--     of the document date. The strict form is the default; some suppliers do restart.
--   * Never deleted: documents and claims point here.

-- Tables -----------------------------------------------------------------------------------------

CREATE TABLE party (
  id            INTEGER PRIMARY KEY CHECK (id > 0),
  company_id    INTEGER NOT NULL REFERENCES company (id),
  name          TEXT    NOT NULL CHECK (trim(name) <> ''),
  country       TEXT    CHECK (country GLOB '[A-Z][A-Z]'),
  vat_id        TEXT
    CONSTRAINT "vat_id: not empty, capital letters and digits only"
    CHECK (vat_id <> '' AND vat_id NOT GLOB '*[^A-Z0-9]*'),
  address       TEXT,
  number_reset  TEXT    NOT NULL DEFAULT 'never' CHECK (number_reset IN ('never', 'year')),
  merged_into   INTEGER CHECK (merged_into <> id),
  -- The VAT id without its country prefix.
  vat_key       TEXT    AS (CASE
                  WHEN substr(vat_id, 1, 2) = country THEN substr(vat_id, 3)
                  WHEN country = 'GR' AND substr(vat_id, 1, 2) = 'EL' THEN substr(vat_id, 3)
                  ELSE vat_id END) VIRTUAL,
  CHECK (vat_id IS NULL OR country IS NOT NULL),
  UNIQUE (company_id, id),
  FOREIGN KEY (company_id, merged_into) REFERENCES party (company_id, id)
) STRICT;

-- Keys -------------------------------------------------------------------------------------------

CREATE UNIQUE INDEX party_vat_key ON party (company_id, country, vat_key) WHERE vat_id IS NOT NULL;
CREATE INDEX party_merged_into ON party (merged_into) WHERE merged_into IS NOT NULL;

-- Guards -----------------------------------------------------------------------------------------

CREATE TRIGGER party_insert BEFORE INSERT ON party
BEGIN
  SELECT RAISE(ABORT, 'PARTY_EXISTS: use the existing party; a row is never replaced')
   WHERE EXISTS (SELECT 1 FROM party WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'PARTY_EXISTS: a party of this company has this VAT id; use it')
   WHERE NEW.vat_id IS NOT NULL
     AND EXISTS (SELECT 1 FROM party
                  WHERE company_id = NEW.company_id AND country = NEW.country AND vat_id IS NOT NULL
                    AND vat_key = CASE
                          WHEN substr(NEW.vat_id, 1, 2) = NEW.country THEN substr(NEW.vat_id, 3)
                          WHEN NEW.country = 'GR' AND substr(NEW.vat_id, 1, 2) = 'EL' THEN substr(NEW.vat_id, 3)
                          ELSE NEW.vat_id END);
  SELECT RAISE(ABORT, 'MERGE_INVALID: create the party first, then merge it with UPDATE')
   WHERE NEW.merged_into IS NOT NULL;
END;

CREATE TRIGGER party_update BEFORE UPDATE ON party
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: id and company of a party never change')
   WHERE (NEW.id, NEW.company_id) IS NOT (OLD.id, OLD.company_id);
  SELECT RAISE(ABORT, 'PARTY_EXISTS: a party of this company has this VAT id; merge the two instead')
   WHERE NEW.vat_id IS NOT NULL
     AND EXISTS (SELECT 1 FROM party
                  WHERE company_id = NEW.company_id AND country = NEW.country AND vat_id IS NOT NULL
                    AND id <> OLD.id
                    AND vat_key = CASE
                          WHEN substr(NEW.vat_id, 1, 2) = NEW.country THEN substr(NEW.vat_id, 3)
                          WHEN NEW.country = 'GR' AND substr(NEW.vat_id, 1, 2) = 'EL' THEN substr(NEW.vat_id, 3)
                          ELSE NEW.vat_id END);
END;

-- A merge is one step, to a root of the same company, and final. The only later change is to follow
-- one's root when that root is itself merged (party_follow in 65_bill.sql does it, with the claims).
CREATE TRIGGER party_merge BEFORE UPDATE ON party
WHEN NEW.merged_into IS NOT OLD.merged_into
BEGIN
  SELECT RAISE(ABORT, 'MERGE_INVALID: merge into another party of the same company that is not itself merged')
   WHERE NEW.merged_into IS NOT NULL
     AND NOT EXISTS (SELECT 1 FROM party
                      WHERE id = NEW.merged_into AND id <> OLD.id
                        AND company_id = OLD.company_id AND merged_into IS NULL);
  SELECT RAISE(ABORT, 'MERGE_INVALID: a merge is final')
   WHERE OLD.merged_into IS NOT NULL
     AND (NEW.merged_into IS NULL
          OR (SELECT merged_into FROM party WHERE id = OLD.merged_into) IS NOT NEW.merged_into);
END;

CREATE TRIGGER party_delete BEFORE DELETE ON party
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a party is never deleted; merge it');
END;

-- Views ------------------------------------------------------------------------------------------

CREATE VIEW integrity_party AS
SELECT 'PARTY_VAT_ID_TWICE' AS rule, company_id, 'party' AS subject, max(id) AS subject_id
  FROM party WHERE vat_id IS NOT NULL GROUP BY company_id, country, vat_key HAVING count(*) > 1
UNION ALL
SELECT 'PARTY_MERGE_NOT_ONE_LEVEL', p.company_id, 'party', p.id
  FROM party p LEFT JOIN party r ON r.id = p.merged_into
 WHERE p.merged_into IS NOT NULL
   AND (r.id IS NULL OR r.merged_into IS NOT NULL OR r.company_id <> p.company_id);
