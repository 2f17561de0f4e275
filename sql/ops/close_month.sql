-- The ledger: closes a month. Shows what must be empty first; if all of it is, files the VAT period
-- that ends with the month and locks all days through its last one, in one transaction. Plain SQL
-- on the ledger; idem need not be loaded. Run with -bail, or stop at the first error.
--
-- The proofs read the whole book, which takes seconds in a large one. They come before the
-- transaction, so that in WAL mode others write meanwhile. The transaction counts only what is
-- cheap, the entries that came since the proofs among it.
--
--   :company   its id: 1
--   :until     the last day of the month: '2026-03-31'
--
-- FINAL: a filed VAT period is never opened again, and its invoices and bills can be neither
-- annulled nor voided; a lock only moves back after an 'unlock' in override_log. Compare
-- vat_register_sales and vat_register_purchases with what you file before.
--
-- Every count must be 0:
--
--   webhook_stuck ... draft or recorded   what the books of the month may still lack. A draft of
--                                         the month cannot become final after it: issue, post, date
--                                         it later, or delete it
--   depreciation_missing_period           from in_service_on on, the first day to depreciate, see
--                                         sql/ledger/70_depreciation.sql
--   unbalanced_or_unsealed_entry,
--   integrity_violation                   the proof of the book; integrity_report sums it up
--   vat_register_check                    VAT periods whose register and ledger differ. A line on a
--                                         VAT account is tax if it names a tax code; what pays or
--                                         nets tax names none. Filed periods count too: a manual
--                                         entry dated in them mends it, unlock first if need be. A
--                                         closed fiscal year's do not: nothing can be posted there
--   entry since the proof                 of the month or before, not proved yet: run this again
--   earlier VAT period open               months are closed in their order
--   next VAT period missing               the day after must be in an open one, or nothing can be
--                                         issued: INSERT INTO vat_period first. A company without
--                                         VAT periods needs none
--   month not over                        by report_as_of, or today (UTC): depreciation that is
--                                         missing shows from the first of the next month on. A
--                                         report_as_of beyond tomorrow counts as tomorrow, which is
--                                         for time zones ahead of UTC
--
-- Run again for a month that is closed it says so and changes nothing, whatever the counts are.
-- The year itself is closed in fiscal_year, by hand.

DROP TABLE IF EXISTS temp.close_month;

-- One statement, so that all of it sees the same moment. What comes after it meets the guards of
-- the tables, but a manual entry may still post tax on a VAT account: the last row begins with
-- minus the entries of this moment, and the transaction adds those it finds.
CREATE TEMP TABLE close_month AS
SELECT 'unbalanced_or_unsealed_entry' AS must_be_0, count(*) AS found
FROM unbalanced_or_unsealed_entry WHERE company_id = :company
UNION ALL
SELECT 'integrity_violation', count(*)
FROM integrity_violation WHERE company_id = :company OR company_id IS NULL
UNION ALL
SELECT 'vat_register_check, difference', count(*)
FROM vat_register_check AS c
JOIN vat_period AS v ON v.company_id = c.company_id AND v.period = c.vat_period
WHERE v.company_id = :company AND v.ends_on <= :until AND c.difference_minor <> 0
  AND NOT EXISTS (SELECT 1 FROM fiscal_year AS y
                  WHERE y.company_id = v.company_id AND y.status = 'closed'
                    AND y.starts_on <= v.starts_on AND y.ends_on >= v.ends_on)
UNION ALL
SELECT 'entry since the proof', -count(*)
FROM journal_entry WHERE company_id = :company AND entry_date <= :until;

BEGIN IMMEDIATE;

UPDATE temp.close_month
SET found = found + (SELECT count(*) FROM journal_entry
                     WHERE company_id = :company AND entry_date <= :until)
WHERE must_be_0 = 'entry since the proof';

-- :company as a text would find nothing and pass for a clean book.
INSERT INTO temp.close_month(must_be_0, found)
SELECT ':company is not the id of a company, a number',
       NOT EXISTS (SELECT 1 FROM company
                   WHERE id = :company AND typeof(:company) IN ('integer', 'real'))
UNION ALL
SELECT ':until is not the last day of a month, a text',
       NOT ifnull(:until = date(:until, 'start of month', '+1 month', '-1 day'), 0)
UNION ALL
SELECT 'webhook_stuck', count(*) FROM webhook_stuck WHERE company_id = :company
UNION ALL
SELECT 'depreciation_missing_period', count(*)
FROM depreciation_missing_period WHERE company_id = :company AND period_end <= :until
UNION ALL
SELECT 'sales_document, draft', count(*)
FROM sales_document
WHERE company_id = :company AND status = 'draft' AND coalesce(issue_date, supply_date) <= :until
UNION ALL
SELECT 'received_bill, draft', count(*)
FROM received_bill
WHERE company_id = :company AND status = 'draft'
  AND coalesce(registration_date, document_date) <= :until
UNION ALL
SELECT 'payment, recorded', count(*)
FROM payment WHERE company_id = :company AND status = 'recorded' AND value_date <= :until
UNION ALL
SELECT 'depreciation_run, draft', count(*)
FROM depreciation_run WHERE company_id = :company AND status = 'draft' AND period_end <= :until
UNION ALL
SELECT 'settlement_batch, imported', count(*)
FROM settlement_batch
WHERE company_id = :company AND status = 'imported' AND payout_date <= :until
UNION ALL
SELECT 'earlier VAT period open', count(*)
FROM vat_period WHERE company_id = :company AND status = 'open' AND ends_on < :until
UNION ALL
SELECT 'next VAT period missing',
       EXISTS (SELECT 1 FROM vat_period WHERE company_id = :company)
       AND NOT EXISTS (SELECT 1 FROM vat_period
                       WHERE company_id = :company AND status = 'open'
                         AND starts_on <= date(:until, '+1 day') AND ends_on > :until)
UNION ALL
SELECT 'month not over', NOT ifnull(min(as_of, date('now', '+1 day')) > :until, 0) FROM report_day;

SELECT must_be_0, found FROM temp.close_month;

UPDATE vat_period
SET status = 'filed'
WHERE company_id = :company AND ends_on = :until AND status = 'open'
  AND NOT EXISTS (SELECT 1 FROM temp.close_month WHERE found <> 0);

UPDATE company
SET locked_through = :until
WHERE id = :company AND ifnull(locked_through, '') < :until
  AND NOT EXISTS (SELECT 1 FROM temp.close_month WHERE found <> 0);

DROP TABLE temp.close_month;

COMMIT;

-- What the book says now. json_extract() is how a SELECT fails with a sentence.
SELECT CASE
         WHEN EXISTS (
           SELECT 1 FROM company
           WHERE id = :company AND typeof(:company) IN ('integer', 'real')
             AND locked_through >= :until
             AND :until = date(:until, 'start of month', '+1 month', '-1 day')
             AND NOT EXISTS (SELECT 1 FROM vat_period
                             WHERE company_id = :company AND ends_on = :until AND status = 'open'))
         THEN
           'closed: company ' || CAST(:company AS INTEGER) || ' is locked through ' ||
           (SELECT locked_through FROM company WHERE id = :company) ||
           ifnull((SELECT ', VAT period ' || period || ' is filed'
                   FROM vat_period WHERE company_id = :company AND ends_on = :until), '')
         ELSE
           json_extract('{}', 'NOT CLOSED, nothing was changed: the counts above must be 0')
       END;
