-- Recipe: import a payout of a payment provider, exactly once
--
-- As ledger-invoice.sql, with the steps draft to issue below and the operation 'payout'. Parameters:
-- company, key, body, provider, account, livemode, payout_id, payout_date, currency (the company's own),
-- gross_minor, fee_minor, lines (JSON array of {"txn_id", "category", "gross_minor", "fee_minor",
-- "source_ref"}), accounts bank, fees, clearing.
--
-- A line whose source_ref is the external id of a payment of that provider account and currency, money in
-- for a line that adds and out for one that takes, is matched to it; settlement_unmatched lists the others.
--
--   the import comes again with ...         it gets
--   the same key and body                   the stored answer
--   a new key, e.g. another webhook event   409 SETTLEMENT_ALREADY_IMPORTED
--   another payout that repeats one of the
--   transactions (overlapping exports)      409 TRANSACTION_ALREADY_SETTLED, nothing of it is stored
--   lines that are not the payout           422 SETTLEMENT_DOES_NOT_ADD_UP
--
-- A payout that failed after it was posted: an entry of the batch, purpose payout_reversal, that takes the
-- net amount from bank and gives it to clearing, then a row in settlement_reversal, in one transaction. The
-- next payout brings the money as one of its lines.

-- step: draft
-- No row: there is no such company, or :currency is not its own (another one needs base amounts, which
-- this recipe does not have). Go on to why with the code DOCUMENT_MISSING: ROLLBACK, 422; nothing is stored.
INSERT INTO settlement_batch (company_id, provider, account, livemode, payout_id, payout_date, currency,
                              gross_minor, fee_minor, net_minor)
SELECT id, :provider, :account, :livemode, :payout_id, :payout_date, base_currency,
       :gross_minor, :fee_minor, :gross_minor - :fee_minor
  FROM company WHERE id = :company AND base_currency = :currency
RETURNING id;

-- step: lines
-- An amount that is no JSON integer becomes NULL, which is refused: "10.00" would be 10 cents.
INSERT INTO settlement_line (batch_id, company_id, provider, account, livemode, txn_id, category, gross_minor, fee_minor,
                             net_minor, source_ref)
SELECT :document, :company, :provider, :account, :livemode, json_extract(l.value, '$.txn_id'),
       json_extract(l.value, '$.category'),
       iif(json_type(l.value, '$.gross_minor') = 'integer', json_extract(l.value, '$.gross_minor'), NULL),
       iif(json_type(l.value, '$.fee_minor') = 'integer', json_extract(l.value, '$.fee_minor'), NULL),
       json_extract(l.value, '$.gross_minor') - json_extract(l.value, '$.fee_minor'),
       json_extract(l.value, '$.source_ref')
  FROM json_each(:lines) l;

-- A charge and its refunds may share one source_ref: of the lines of one sign the first is matched. The
-- statement may run again later, for payments recorded after their payout.
UPDATE settlement_line AS l
   SET payment_id = p.id
  FROM payment p, settlement_batch b
 WHERE l.batch_id = :document AND l.payment_id IS NULL AND b.id = l.batch_id
   AND p.company_id = l.company_id AND p.provider = l.provider AND p.account = l.account AND p.currency = b.currency
   AND p.external_id = l.source_ref AND p.direction = iif(l.gross_minor > 0, 'in', 'out')
   AND NOT EXISTS (SELECT 1 FROM settlement_line WHERE payment_id = p.id)
   AND NOT EXISTS (SELECT 1 FROM settlement_line e
                    WHERE e.batch_id = l.batch_id AND e.source_ref = l.source_ref
                      AND (e.gross_minor > 0) = (l.gross_minor > 0) AND e.id < l.id);

-- step: entry
INSERT INTO journal_entry (company_id, entry_date, journal, source_kind, source_id, purpose)
VALUES (:company, :payout_date, 'bank', 'settlement_batch', :document, 'payout')
RETURNING id;

-- step: postings
-- Clearing gives up what was charged and takes back what was refunded: two lines, so that a payout in
-- which they cancel out is an entry too.
INSERT INTO journal_line (entry_id, line_no, company_id, account_id, currency, amount_minor, base_amount_minor)
SELECT :entry, row_number() OVER (), :company, account, :currency, amount, amount
  FROM (SELECT :bank AS account, net_minor AS amount FROM settlement_batch WHERE id = :document
        UNION ALL SELECT :fees, fee_minor FROM settlement_batch WHERE id = :document
        UNION ALL SELECT :clearing, -sum(gross_minor) FROM settlement_line WHERE batch_id = :document GROUP BY gross_minor > 0)
 WHERE amount <> 0;

-- step: issue
UPDATE settlement_batch SET status = 'posted', entry_id = :entry
 WHERE id = :document AND status = 'imported'
RETURNING id, payout_id, net_minor;

-- step: why
SELECT e.http_status, e.store_answer,
       json_object('error', e.code, 'meaning', e.meaning,
                   'batch_id', (SELECT b.id FROM settlement_batch b
                                 WHERE b.company_id = :company AND b.provider = :provider AND b.account = :account
                                   AND b.livemode = :livemode AND b.payout_id = :payout_id
                                   AND b.id IS NOT :document)) AS response
  FROM ledger_error e WHERE e.code = :code;
