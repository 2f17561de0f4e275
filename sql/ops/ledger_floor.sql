-- The ledger was restored: numbers of documents that were sent out after the backup must not be
-- given out again. Plain SQL on the ledger; idem need not be loaded. See sql/ledger/50_series.sql.
-- Run with -bail, or stop at the first error: where one says NOTHING DONE, numbers are not safe.
--
--   :company_id, :doc_kind, :series   which series: 1, 'invoice', 'INV'
--   :period      the fiscal year's label, '2026'; '' for a series that never restarts
--   :last_sent   the highest number that anybody outside has seen: mails, PDFs, the bank, customers
--   :reason      why, for the auditor: 'restored on 2026-11-30; 41 to 43 were sent and are lost'
--   :actor       who
--
-- Better than a floor: enter the lost documents again from what was sent, in the order of their
-- numbers, before anybody else issues. They get the same numbers, order and refund keys are held
-- again, and there is no gap. The floor is for what cannot be entered; number_gap shows it with the
-- reason. Without a floor the next order would get a number that a customer already has.
--
-- If the file knows :last_sent already, nothing is done. The result is what comes next.

-- json_extract() is how a SELECT fails with a sentence.
SELECT json_extract('{}', why)
FROM (
  SELECT CASE
           WHEN typeof(:last_sent) NOT IN ('integer', 'real')
             OR :last_sent <> CAST(:last_sent AS INTEGER) THEN
             'NOTHING DONE: :last_sent is not set, or no whole number'
           WHEN NOT ifnull(trim(:reason) <> '', 0) THEN
             'NOTHING DONE: :reason is required, for the auditor'
           WHEN NOT EXISTS (
             SELECT 1 FROM next_number AS n JOIN series AS s ON s.id = n.series_id
             WHERE s.company_id = :company_id AND s.doc_kind = :doc_kind
               AND s.code = CAST(:series AS TEXT) AND n.period = CAST(:period AS TEXT)) THEN
             'NOTHING DONE: no such series or period; SELECT * FROM series, fiscal_year shows all'
         END AS why
)
WHERE why NOTNULL;

INSERT INTO series_floor(series_id, company_id, period, min_next, reason, actor)
SELECT n.series_id, n.company_id, n.period, :last_sent + 1, :reason, ifnull(:actor, '')
FROM next_number AS n
JOIN series AS s ON s.id = n.series_id
WHERE s.company_id = :company_id AND s.doc_kind = :doc_kind AND s.code = CAST(:series AS TEXT)
  AND n.period = CAST(:period AS TEXT) AND n.number <= :last_sent
  AND typeof(:last_sent) IN ('integer', 'real');

SELECT n.number, n.full_number
FROM next_number AS n
JOIN series AS s ON s.id = n.series_id
WHERE s.company_id = :company_id AND s.doc_kind = :doc_kind AND s.code = CAST(:series AS TEXT)
  AND n.period = CAST(:period AS TEXT);
