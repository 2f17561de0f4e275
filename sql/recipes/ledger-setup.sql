-- Recipe: set up the books of a company
--
-- What must be there before the first invoice, in the order in which it refers to each other. The example
-- is a Lithuanian company; put your own values in its place. Run it once, as a whole, on a book with the
-- schema (SELECT idem_schema('ledger')):
--
--   sqlite3 -bail -header book.db < sql/recipes/ledger-setup.sql
--
-- A second run is refused by its first INSERT and changes nothing. For a second company leave out the
-- currency and take another company id. Not legal advice: have the tax codes looked at by an accountant.

-- step: connect (once per connection)
PRAGMA foreign_keys = ON;
PRAGMA recursive_triggers = ON;

-- step: begin
BEGIN IMMEDIATE;

-- step: currency
-- The exponent is the number of decimals. It gives every stored amount its meaning, so it never changes.
INSERT INTO currency (code, exponent) VALUES ('EUR', 2);

-- step: company
-- The base currency never changes. Annulled invoices are known to the law of Lithuania, not to that of all.
INSERT INTO company (id, name, country, vat_id, base_currency, time_zone, allows_annulment)
VALUES (1, 'UAB Pavyzdys', 'LT', 'LT100001234567', 'EUR', 'Europe/Vilnius', 1);

-- step: accounts
-- Codes and names are yours. By the role a document finds its posting; one without a role is free.
INSERT INTO account (company_id, code, name, type, role)
VALUES (1, '1208', 'Accumulated depreciation', 'asset', 'accumulated_depreciation'),
       (1, '2410', 'Receivables', 'asset', 'receivable'),
       (1, '2441', 'Input VAT', 'asset', 'input_vat'),
       (1, '2710', 'Bank', 'asset', 'money'),
       (1, '2720', 'Payment provider', 'asset', 'clearing'),
       (1, '3000', 'Equity', 'equity', NULL),
       (1, '4430', 'Payables', 'liability', 'payable'),
       (1, '4492', 'Output VAT', 'liability', 'output_vat'),
       (1, '5000', 'Revenue', 'income', NULL),
       (1, '6000', 'Expenses', 'expense', NULL),
       (1, '6115', 'Depreciation', 'expense', NULL),
       (1, '6300', 'Fees of the payment provider', 'expense', NULL);

-- step: fiscal_year
-- The label becomes {period} in the numbers. Insert the next year, with its VAT periods, before it begins:
-- a document of a day without a year is refused (PERIOD_LOCKED).
INSERT INTO fiscal_year (company_id, label, starts_on, ends_on)
VALUES (1, '2026', '2026-01-01', '2026-12-31');

-- step: vat_period
-- Twelve months. A company without VAT has none, and its documents name none.
INSERT INTO vat_period (company_id, period, starts_on, ends_on)
WITH RECURSIVE month (first) AS (
  VALUES ('2026-01-01') UNION ALL SELECT date(first, '+1 month') FROM month WHERE first < '2026-12-01')
SELECT 1, substr(first, 1, 7), first, date(first, '+1 month', '-1 day') FROM month;

-- step: tax_code
-- rate_bp is in basis points: 2100 is 21 %. Mind the two zeros: 21 is 0.21 %, a rate like any other, so
-- nothing refuses it, and every invoice bears a hundredth of its tax. A rate is never changed; a new one
-- is a new code. isaf_code is the tax office's classifier.
INSERT INTO tax_code (company_id, code, name, kind, rate_bp, isaf_code)
VALUES (1, 'V21', 'VAT 21 %', 'standard', 2100, 'PVM1'),
       (1, 'RC21', 'Reverse charge 21 %', 'reverse_charge', 2100, 'PVM25'),
       (1, 'EX', 'Exempt', 'exempt', 0, 'PVM5');

-- step: series
-- 'INV-{period}-{number}' gives INV-2026-00001. Frozen once used.
INSERT INTO series (company_id, doc_kind, code, template)
VALUES (1, 'invoice', 'INV', 'INV-{period}-{number}'),
       (1, 'credit_note', 'CN', 'CN-{period}-{number}');

-- step: party
-- Customers and suppliers, one row for a firm that is both. VAT ids without blanks or signs.
INSERT INTO party (company_id, name, country, vat_id, address)
VALUES (1, 'UAB Pirmas', 'LT', 'LT100000000111', 'Gedimino pr. 1, Vilnius'),
       (1, 'Anna Private', NULL, NULL, NULL);

-- step: commit
COMMIT;

-- step: settings
-- The ids that the other recipes take from the settings. vat is 4492 for sales, 2441 for bills.
SELECT c.id AS company,
       (SELECT id FROM series WHERE company_id = c.id AND doc_kind = 'invoice' AND code = 'INV') AS series,
       (SELECT id FROM series WHERE company_id = c.id AND doc_kind = 'credit_note' AND code = 'CN') AS credit_series,
       (SELECT id FROM account WHERE company_id = c.id AND code = '2410') AS receivable,
       (SELECT id FROM account WHERE company_id = c.id AND code = '5000') AS revenue,
       (SELECT id FROM account WHERE company_id = c.id AND code = '4492') AS output_vat,
       (SELECT id FROM account WHERE company_id = c.id AND code = '2441') AS input_vat,
       (SELECT id FROM account WHERE company_id = c.id AND code = '4430') AS payable,
       (SELECT id FROM account WHERE company_id = c.id AND code = '6000') AS expense,
       (SELECT id FROM account WHERE company_id = c.id AND code = '2710') AS bank,
       (SELECT id FROM account WHERE company_id = c.id AND code = '2720') AS clearing,
       (SELECT id FROM account WHERE company_id = c.id AND code = '6300') AS fees,
       (SELECT id FROM account WHERE company_id = c.id AND code = '6115') AS depreciation,
       (SELECT id FROM account WHERE company_id = c.id AND code = '1208') AS accumulated
  FROM company c WHERE c.id = 1;
