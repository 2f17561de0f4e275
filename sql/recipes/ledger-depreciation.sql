-- Recipe: depreciate the assets of a company for one month, exactly once
--
-- A scheduler's job: the same month may be started by a timer, by hand, and again after a crash. As
-- ledger-invoice.sql, with the steps draft to issue below and the operation 'depreciation'; a good key
-- is the job's own run id. Parameters: company, key, body, book, period_start, period_end, lines (JSON
-- array of {"asset", "amount_minor"}), accounts expense and accumulated. An asset that is in service for a
-- part of the month has a run of its own: depreciation_missing_period gives the periods.
--
--   the job comes again with ...            it gets
--   the same key and body                   the stored answer
--   a new key, the same or an overlapping
--   period, whatever the amounts            409 DEPRECIATION_PERIOD_ALREADY_POSTED
--   a new key after the run was reversed    a corrected run

-- step: draft
INSERT INTO depreciation_run (company_id, book, period_start, period_end)
VALUES (:company, :book, :period_start, :period_end)
RETURNING id;

-- step: lines
-- An amount that is no JSON integer becomes NULL, which is refused: "10.00" would be 10 cents.
INSERT INTO depreciation_line (run_id, company_id, asset_id, book, period_start, period_end, amount_minor)
SELECT :document, :company, json_extract(value, '$.asset'), :book, :period_start, :period_end,
       iif(json_type(value, '$.amount_minor') = 'integer', json_extract(value, '$.amount_minor'), NULL)
  FROM json_each(:lines);

-- step: entry
INSERT INTO journal_entry (company_id, entry_date, journal, source_kind, source_id, purpose)
VALUES (:company, :period_end, 'depreciation', 'depreciation_run', :document, 'post')
RETURNING id;

-- step: postings
INSERT INTO journal_line (entry_id, line_no, company_id, account_id, currency, amount_minor, base_amount_minor)
SELECT :entry, 1, :company, :expense, c.base_currency, sum(l.amount_minor), sum(l.amount_minor)
  FROM depreciation_line l JOIN company c ON c.id = l.company_id WHERE l.run_id = :document GROUP BY c.id
UNION ALL
SELECT :entry, 2, :company, :accumulated, c.base_currency, -sum(l.amount_minor), -sum(l.amount_minor)
  FROM depreciation_line l JOIN company c ON c.id = l.company_id WHERE l.run_id = :document GROUP BY c.id;

-- step: issue
UPDATE depreciation_run SET status = 'posted', entry_id = :entry
 WHERE id = :document AND status = 'draft'
RETURNING id, period_start, period_end;

-- step: why
SELECT e.http_status, e.store_answer, json_object('error', e.code, 'meaning', e.meaning) AS response
  FROM ledger_error e WHERE e.code = :code;
