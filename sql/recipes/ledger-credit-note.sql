-- Recipe: credit an invoice, in full or in part, exactly once
--
-- As ledger-invoice.sql, with the steps draft to issue below; connect, begin, claim (with the operation
-- 'POST /v1/credit-notes'), work, answer, commit, why and refused are the same.
--
-- Further parameters: invoice (the document to correct), refund_ref (the payment provider's refund id,
-- or NULL), reason, and lines as there. series is a credit-note series. The currency is the invoice's.
--
--   the client comes again with ...         it gets
--   the same key and body                   the stored answer
--   a new key, same refund_ref              409 REFUND_ALREADY_CREDITED
--   a new key, no refund_ref                another partial note, while something is left; then
--                                           422 CREDIT_EXCEEDS_INVOICE
-- When the notes reach the full gross amount the order part is free to be invoiced again.

-- step: draft
-- No row: there is no such invoice in this company, or it is in a currency other than the company's own
-- (its credit note needs the invoice's rate, which this recipe does not have). Go on to why with the code
-- DOCUMENT_MISSING: ROLLBACK, 422; nothing is stored.
INSERT INTO sales_document (company_id, kind, credits_id, refund_ref, reason, customer_id, customer_name, customer_vat_id,
                            customer_address, customer_country, currency, net_minor, tax_minor, gross_minor,
                            base_net_minor, base_tax_minor, base_gross_minor, issue_date, idem_key)
SELECT i.company_id, 'credit_note', i.id, :refund_ref, :reason, i.customer_id, i.customer_name, i.customer_vat_id,
       i.customer_address, i.customer_country, i.currency, 0, 0, 0, 0, 0, 0, :issue_date, :key
  FROM sales_document i
  JOIN company o ON o.id = i.company_id AND o.base_currency = i.currency
 WHERE i.id = :invoice AND i.company_id = :company
RETURNING id;

-- step: lines
-- An amount that is no JSON integer becomes NULL, which is refused: "10.00" would be 10 cents.
INSERT INTO sales_line (document_id, line_no, company_id, description, quantity_milli, unit_price_minor, net_minor, tax_code)
SELECT :document, key + 1, :company, json_extract(value, '$.description'), json_extract(value, '$.quantity_milli'),
       iif(json_type(value, '$.unit_price_minor') = 'integer', json_extract(value, '$.unit_price_minor'), NULL),
       iif(json_type(value, '$.net_minor') = 'integer', json_extract(value, '$.net_minor'), NULL),
       json_extract(value, '$.tax_code')
  FROM json_each(:lines);

-- Notes rounded one by one need not add up to the invoice: the note that takes the last of a tax code
-- takes the rest of its tax, and none takes more.
INSERT INTO sales_tax (document_id, tax_code, company_id, taxable_minor, tax_minor, base_taxable_minor, base_tax_minor)
SELECT :document, code, :company, net, tax, net, tax
  FROM (SELECT n.code, n.net,
               iif(n.net = i.taxable_minor, i.tax_minor,
                   min(coalesce(i.tax_minor, 0), (n.net * c.rate_bp + 5000) / 10000)) AS tax
          FROM (SELECT tax_code AS code, sum(net_minor) AS net
                  FROM sales_line WHERE document_id = :document GROUP BY tax_code) n
          JOIN tax_code c ON c.company_id = :company AND c.code = n.code
          LEFT JOIN invoice_left i ON i.invoice_id = :invoice AND i.tax_code = n.code);

UPDATE sales_document
   SET (net_minor, tax_minor, gross_minor, base_net_minor, base_tax_minor, base_gross_minor) =
         (t.net, t.tax, t.net + t.tax, t.net, t.tax, t.net + t.tax)
  FROM (SELECT coalesce(sum(taxable_minor), 0) AS net, coalesce(sum(tax_minor), 0) AS tax
          FROM sales_tax WHERE document_id = :document) t
 WHERE id = :document;

-- step: entry
-- No row: a document of zero has nothing to post. entry is NULL, postings adds nothing; go on.
INSERT INTO journal_entry (company_id, entry_date, journal, source_kind, source_id, purpose)
SELECT company_id, issue_date, 'sales', 'sales_document', id, 'issue'
  FROM sales_document WHERE id = :document AND gross_minor <> 0
RETURNING id;

-- step: postings
-- The signs of the invoice, turned round.
INSERT INTO journal_line (entry_id, line_no, company_id, account_id, currency, amount_minor, base_amount_minor, party_id, tax_code)
SELECT :entry, row_number() OVER (), :company, account, o.base_currency, amount, amount, party, code
  FROM (SELECT :receivable AS account, -gross_minor AS amount, customer_id AS party, NULL AS code
          FROM sales_document WHERE id = :document
        UNION ALL
        SELECT :revenue, net_minor, NULL, NULL FROM sales_document WHERE id = :document
        UNION ALL
        SELECT :vat, tax_minor, NULL, tax_code FROM sales_tax WHERE document_id = :document)
  JOIN company o ON o.id = :company
 WHERE amount <> 0;

-- step: issue
UPDATE sales_document
   SET status = 'issued', entry_id = :entry, issued_at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now'),
       (series_id, period, number, full_number) =
         (SELECT n.series_id, n.period, n.number, n.full_number
            FROM next_number n
           WHERE n.series_id = :series
             AND n.period = (SELECT CASE s.reset WHEN 'never' THEN '' ELSE y.label END
                               FROM series s LEFT JOIN fiscal_year y ON y.company_id = :company
                                AND y.starts_on <= :issue_date AND y.ends_on >= :issue_date
                              WHERE s.id = :series)),
       vat_period = (SELECT period FROM vat_period
                      WHERE company_id = :company AND status = 'open' AND ends_on >= :issue_date
                      ORDER BY ends_on LIMIT 1)
 WHERE id = :document AND status = 'draft'
RETURNING id, number, full_number, gross_minor;
