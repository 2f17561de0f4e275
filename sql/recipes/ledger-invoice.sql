-- Recipe: issue an invoice for an order, exactly once, in one transaction
--
-- Local work only, so claim, invoice and answer commit or vanish together. Each step is one or more
-- statements with :named parameters; the program runs them in order and keeps what RETURNING gives.
-- Nothing slow (HTTP, PDF, mail) belongs between begin and commit: SQLite has one writer. Render and
-- send after the commit, by document id.
--
-- Parameters from the request: company, key, body (the raw JSON request), customer, channel, order_ref,
-- part (NULL for the usual one), currency (the company's own), issue_date, due_date, and lines, a JSON array of
-- {"description", "quantity_milli", "unit_price_minor", "net_minor", "tax_code"}. From the settings:
-- series, receivable, revenue, vat (account ids). From earlier steps: token, document, entry, response.
-- Bind references as texts: order 1001 as a number is the order '1001' from one driver and '1001.0' from
-- another.
--
--   the client comes again with ...         it gets
--   the same key and body                   the stored answer, the first number, nothing is written
--   the same key, another body              422 mismatch
--   a new key, or after the key's purge     409 ORDER_ALREADY_INVOICED, from the natural key
--   a new key after a full credit note      a new invoice with the next number
-- A refused order burns no number: the number is taken only by the step issue, in its own row.

-- step: connect (once per connection)
PRAGMA foreign_keys = ON;
PRAGMA recursive_triggers = ON;
PRAGMA busy_timeout = 5000;

-- step: begin
BEGIN IMMEDIATE;

-- step: claim
-- claimed: keep the token and go on. replay: COMMIT and give the stored code and response. Anything
-- else: ROLLBACK and answer with http_status and message. The CAST is for drivers that bind every number
-- as REAL (most of JavaScript's): theirs would be another scope, 'company:1.0'.
INSERT INTO idem_call DEFAULT VALUES
RETURNING idem_claim('company:' || CAST(:company AS INTEGER), :key, idem_fingerprint(:body), 'POST /v1/invoices');

-- step: work
SAVEPOINT work;

-- step: draft
-- No row: there is no such customer in this company, or :currency is not the company's own (an invoice
-- in another one needs a rate and base amounts, which this recipe does not have). Go on to why with the
-- code DOCUMENT_MISSING: ROLLBACK, 422; nothing is stored.
-- Tax is computed per document and tax code, rounded half up. What is wrong with the lines is told by
-- the steps lines (no such tax code, an amount that is none) and issue (no lines at all).
INSERT INTO sales_document (company_id, kind, customer_id, customer_name, customer_vat_id, customer_address,
                            customer_country, order_channel, order_ref, order_part, currency, net_minor, tax_minor,
                            gross_minor, base_net_minor, base_tax_minor, base_gross_minor, issue_date, due_date, idem_key)
SELECT p.company_id, 'invoice', p.id, p.name, p.vat_id, p.address, p.country,
       iif(:order_ref IS NULL, NULL, :channel), :order_ref, coalesce(:part, '1'),
       o.base_currency, t.net, t.tax, t.net + t.tax, t.net, t.tax, t.net + t.tax, :issue_date, :due_date, :key
  FROM party p
  JOIN company o ON o.id = p.company_id AND o.base_currency = :currency
  JOIN (SELECT coalesce(sum(net), 0) AS net,
               coalesce(sum(iif(kind = 'reverse_charge', 0, (net * rate_bp + 5000) / 10000)), 0) AS tax
          FROM (SELECT c.kind, c.rate_bp,
                       sum(iif(json_type(l.value, '$.net_minor') = 'integer', json_extract(l.value, '$.net_minor'), NULL)) AS net
                  FROM json_each(:lines) l
                  LEFT JOIN tax_code c ON c.company_id = :company AND c.code = json_extract(l.value, '$.tax_code')
                 GROUP BY c.code)) t
 WHERE p.id = :customer AND p.company_id = :company
RETURNING id;

-- step: lines
-- An amount that is no JSON integer becomes NULL, which is refused: "10.00" would be 10 cents.
INSERT INTO sales_line (document_id, line_no, company_id, description, quantity_milli, unit_price_minor, net_minor, tax_code)
SELECT :document, key + 1, :company, json_extract(value, '$.description'), json_extract(value, '$.quantity_milli'),
       iif(json_type(value, '$.unit_price_minor') = 'integer', json_extract(value, '$.unit_price_minor'), NULL),
       iif(json_type(value, '$.net_minor') = 'integer', json_extract(value, '$.net_minor'), NULL),
       json_extract(value, '$.tax_code')
  FROM json_each(:lines);

INSERT INTO sales_tax (document_id, tax_code, company_id, taxable_minor, tax_minor, base_taxable_minor, base_tax_minor)
SELECT :document, code, :company, net, tax, net, tax
  FROM (SELECT c.code, sum(l.net_minor) AS net,
               iif(c.kind = 'reverse_charge', 0, (sum(l.net_minor) * c.rate_bp + 5000) / 10000) AS tax
          FROM sales_line l JOIN tax_code c ON c.company_id = l.company_id AND c.code = l.tax_code
         WHERE l.document_id = :document
         GROUP BY c.code);

-- step: entry
-- No row: a document of zero has nothing to post. entry is NULL, postings adds nothing; go on.
INSERT INTO journal_entry (company_id, entry_date, journal, source_kind, source_id, purpose)
SELECT company_id, issue_date, 'sales', 'sales_document', id, 'issue'
  FROM sales_document WHERE id = :document AND gross_minor <> 0
RETURNING id;

-- step: postings
-- Receivable, revenue, and VAT per tax code. No seal yet: issuing the document seals its entry.
INSERT INTO journal_line (entry_id, line_no, company_id, account_id, currency, amount_minor, base_amount_minor, party_id, tax_code)
SELECT :entry, row_number() OVER (), :company, account, :currency, amount, amount, party, code
  FROM (SELECT :receivable AS account, gross_minor AS amount, customer_id AS party, NULL AS code
          FROM sales_document WHERE id = :document
        UNION ALL
        SELECT :revenue, -net_minor, NULL, NULL FROM sales_document WHERE id = :document
        UNION ALL
        SELECT :vat, -tax_minor, NULL, tax_code FROM sales_tax WHERE document_id = :document)
 WHERE amount <> 0;

-- step: issue
-- One statement takes the number, the order and the seal, or does nothing at all.
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

-- step: answer
RELEASE work;
INSERT INTO idem_call DEFAULT VALUES
RETURNING idem_complete('company:' || CAST(:company AS INTEGER), :key, :token, :response, 201);

-- step: commit
COMMIT;

-- step: why
-- After an error in draft ... issue. code is its text before the first colon. store_answer = 0: ROLLBACK
-- everything, answer http_status; the key may run again. No row at all: ROLLBACK likewise, 503 for
-- SQLITE_BUSY, a full disk and the like, 422 for any other SQLITE_CONSTRAINT.
SELECT e.http_status, e.store_answer,
       json_object('error', e.code, 'meaning', e.meaning, 'invoice', s.full_number, 'invoice_id', s.invoice_id) AS response
  FROM ledger_error e
  LEFT JOIN order_invoice_status s
    ON e.code = 'ORDER_ALREADY_INVOICED' AND s.company_id = :company AND s.channel = :channel
   AND s.order_ref = :order_ref AND s.part = coalesce(:part, '1') AND s.released_by IS NULL
 WHERE e.code = :code;

-- step: refused
-- store_answer = 1: undo the work, keep the claim, store the refusal as the key's answer, then commit.
ROLLBACK TO work;
RELEASE work;
INSERT INTO idem_call DEFAULT VALUES
RETURNING idem_complete('company:' || CAST(:company AS INTEGER), :key, :token, :response, :status);
