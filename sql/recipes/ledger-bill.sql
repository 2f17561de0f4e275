-- Recipe: register a supplier's bill, exactly once
--
-- As ledger-invoice.sql, with the steps draft to issue and why below; the others are the same, the
-- claim with the operation 'POST /v1/bills'.
--
-- Parameters: company, key, body, supplier, doc_no (NULL if the paper bears none), document_date,
-- registration_date, due_date, currency (the company's own), lines (JSON array of {"description", "net_minor",
-- "tax_minor", "tax_code"}, tax as printed), sha256 of the file or NULL, dup_seq and dup_reason (0 and
-- NULL but for an override); accounts payable, expense, vat, output_vat.
--
--   the client comes again with ...         it gets
--   the same key and body                   the stored answer
--   a new key, or after the key's purge     409 DUPLICATE_SUPPLIER_DOCUMENT with the bill that has it,
--                                           also when the number is typed with other blanks or signs
--   a new key, dup_seq = 1 and a reason     registered, logged as an override, listed for review
--   a new key after the bill was voided     registered; while an override under its number lives, 409 as
--                                           above: the next dup_seq and a reason

-- step: draft
-- No row: there is no such supplier in this company, or :currency is not the company's own (a bill in
-- another one needs a rate and base amounts, which this recipe does not have). Go on to why with the code
-- DOCUMENT_MISSING: ROLLBACK, 422; nothing is stored.
INSERT INTO received_bill (company_id, supplier_id, supplier_name, supplier_vat_id, supplier_country, doc_no, doc_no_absent,
                           dup_seq, dup_reason, document_date, received_date, registration_date, due_date, currency,
                           net_minor, tax_minor, gross_minor, base_net_minor, base_tax_minor, base_gross_minor,
                           source_sha256, idem_key)
SELECT p.company_id, p.id, p.name, p.vat_id, p.country, :doc_no, :doc_no IS NULL,
       :dup_seq, :dup_reason, :document_date, :registration_date, :registration_date, :due_date, o.base_currency,
       t.net, t.tax, t.net + t.tax, t.net, t.tax, t.net + t.tax, :sha256, :key
  FROM party p
  JOIN company o ON o.id = p.company_id AND o.base_currency = :currency
  JOIN (SELECT coalesce(sum(iif(json_type(l.value, '$.net_minor') = 'integer', json_extract(l.value, '$.net_minor'), NULL)), 0) AS net,
               coalesce(sum(CASE WHEN c.kind = 'reverse_charge' THEN 0
                                 WHEN json_type(l.value, '$.tax_minor') = 'integer'
                                 THEN json_extract(l.value, '$.tax_minor') END), 0) AS tax
          FROM json_each(:lines) l
          LEFT JOIN tax_code c ON c.company_id = :company AND c.code = json_extract(l.value, '$.tax_code')) t
 WHERE p.id = :supplier AND p.company_id = :company
RETURNING id;

-- step: lines
-- An amount that is no JSON integer becomes NULL, which is refused: "10.00" would be 10 cents.
INSERT INTO bill_line (bill_id, line_no, company_id, description, net_minor, tax_code)
SELECT :document, key + 1, :company, json_extract(value, '$.description'),
       iif(json_type(value, '$.net_minor') = 'integer', json_extract(value, '$.net_minor'), NULL), json_extract(value, '$.tax_code')
  FROM json_each(:lines);

INSERT INTO bill_tax (bill_id, tax_code, company_id, taxable_minor, tax_minor, base_taxable_minor, base_tax_minor)
SELECT :document, code, :company, sum(net), sum(tax), sum(net), sum(tax)
  FROM (SELECT json_extract(value, '$.tax_code') AS code, json_extract(value, '$.net_minor') AS net,
               iif(json_type(value, '$.tax_minor') = 'integer', json_extract(value, '$.tax_minor'), NULL) AS tax
          FROM json_each(:lines))
 GROUP BY code;

-- step: entry
-- No row: a bill of zero has nothing to post. entry is NULL, postings adds nothing; go on. Reverse charge
-- may be due even where nothing is owed to the supplier.
INSERT INTO journal_entry (company_id, entry_date, journal, source_kind, source_id, purpose)
SELECT company_id, registration_date, 'purchases', 'received_bill', id, 'register'
  FROM received_bill
 WHERE id = :document
   AND (gross_minor <> 0 OR EXISTS (SELECT 1 FROM bill_vat_due WHERE bill_id = :document AND amount <> 0))
RETURNING id;

-- step: postings
-- Payable, VAT as bill_vat_due says (reverse charge is owed and deducted), the rest is expense.
INSERT INTO journal_line (entry_id, line_no, company_id, account_id, currency, amount_minor, base_amount_minor, party_id, tax_code)
SELECT :entry, row_number() OVER (), :company, account, :currency, amount, amount, party, code
  FROM (SELECT :payable AS account, -gross_minor AS amount, supplier_id AS party, NULL AS code
          FROM received_bill WHERE id = :document
        UNION ALL
        SELECT iif(role = 'input_vat', :vat, :output_vat), amount, NULL, code FROM bill_vat_due WHERE bill_id = :document
        UNION ALL
        SELECT :expense, gross_minor - (SELECT coalesce(sum(amount), 0) FROM bill_vat_due WHERE bill_id = :document), NULL, NULL
          FROM received_bill WHERE id = :document)
 WHERE amount <> 0;

-- step: issue
UPDATE received_bill
   SET status = 'registered', entry_id = :entry,
       vat_period = (SELECT period FROM vat_period
                      WHERE company_id = :company AND status = 'open' AND ends_on >= :registration_date
                      ORDER BY ends_on LIMIT 1)
 WHERE id = :document AND status = 'draft'
RETURNING id, doc_no, doc_no_norm, gross_minor;

-- step: why
-- The bill that has the number, found while the draft is still there to lend its normal form.
SELECT e.http_status, e.store_answer,
       json_object('error', e.code, 'meaning', e.meaning, 'bill_id', c.bill_id) AS response
  FROM ledger_error e
  LEFT JOIN bill_identity i ON e.code = 'DUPLICATE_SUPPLIER_DOCUMENT' AND i.bill_id = :document
  LEFT JOIN bill_claim c
    ON c.company_id = i.company_id AND c.supplier_root = i.supplier_root AND c.kind = i.kind
   AND c.doc_no_norm = i.doc_no_norm AND c.reset_year = i.reset_year AND c.dup_seq >= i.dup_seq
 WHERE e.code = :code
 ORDER BY c.dup_seq LIMIT 1;
