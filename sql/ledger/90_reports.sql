-- idem ledger · 90 · reports across documents, and the proof
--
--   * receivable_open, payable_open: what each final document still asks for, as of report_as_of: only
--     documents, credit notes and allocations dated up to that day count. Credit notes and refunds are
--     counted with the document they correct; a supplier credit note without one stands alone,
--     negative.
--   * receivable_aging, payable_aging: the same by days overdue (due date, else document date).
--   * vat_register_check: register against ledger, per VAT period. On a VAT account a line that names a
--     tax code is tax of its period. A line without one settles tax (pays, nets or transfers it) and is
--     left out; invoices and bills have no such line, their guards demand the code. A difference means
--     tax in the ledger that no document explains, or the reverse.
--   * integrity_report: every rule of this schema proved again from the rows. Empty on a healthy book.
--     SQLite has no users: whoever has the file can drop a trigger. This view tells what came of it.

-- Views ------------------------------------------------------------------------------------------

CREATE VIEW receivable_open AS
SELECT company_id, invoice_id, full_number, customer_id, customer_name, issue_date, due_date, currency, gross_minor,
       credited_minor, paid_minor, gross_minor - credited_minor - paid_minor AS open_minor
  FROM (SELECT i.company_id, i.id AS invoice_id, i.full_number, i.customer_id, i.customer_name, i.issue_date,
               coalesce(i.due_date, i.issue_date) AS due_date, i.currency, i.gross_minor,
               (SELECT coalesce(sum(n.gross_minor), 0) FROM sales_document n
                 WHERE n.credits_id = i.id AND n.status = 'issued' AND n.issue_date <= t.as_of) AS credited_minor,
               (SELECT coalesce(sum(CASE WHEN a.reverses_id IS NULL THEN a.amount_minor ELSE -a.amount_minor END), 0)
                  FROM allocation a WHERE a.invoice_id = i.id AND a.allocated_on <= t.as_of)
               - (SELECT coalesce(sum(CASE WHEN a.reverses_id IS NULL THEN a.amount_minor ELSE -a.amount_minor END), 0)
                    FROM sales_document n JOIN allocation a ON a.invoice_id = n.id
                   WHERE n.credits_id = i.id AND n.status = 'issued' AND a.allocated_on <= t.as_of) AS paid_minor
          FROM sales_document i, report_day t
         WHERE i.status = 'issued' AND i.kind <> 'credit_note' AND i.issue_date <= t.as_of
           AND NOT EXISTS (SELECT 1 FROM annulment WHERE invoice_id = i.id AND annulled_on <= t.as_of))
 WHERE gross_minor - credited_minor - paid_minor <> 0;

CREATE VIEW payable_open AS
SELECT company_id, bill_id, doc_no, supplier_id, supplier_name, document_date, due_date, currency, gross_minor,
       credited_minor, paid_minor, gross_minor - credited_minor - paid_minor AS open_minor
  FROM (SELECT b.company_id, b.id AS bill_id, b.doc_no, b.supplier_id, b.supplier_name, b.document_date,
               coalesce(b.due_date, b.document_date) AS due_date, b.currency,
               CASE b.kind WHEN 'credit_note' THEN -b.gross_minor ELSE b.gross_minor END AS gross_minor,
               (SELECT coalesce(sum(n.gross_minor), 0) FROM received_bill n
                 WHERE n.credits_id = b.id AND n.status = 'registered' AND n.registration_date <= t.as_of
                   AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = n.id AND voided_on <= t.as_of)) AS credited_minor,
               (SELECT coalesce(sum(CASE WHEN a.reverses_id IS NULL THEN a.amount_minor ELSE -a.amount_minor END), 0)
                  FROM allocation a WHERE a.bill_id = b.id AND a.allocated_on <= t.as_of)
               * CASE b.kind WHEN 'credit_note' THEN -1 ELSE 1 END
               - (SELECT coalesce(sum(CASE WHEN a.reverses_id IS NULL THEN a.amount_minor ELSE -a.amount_minor END), 0)
                    FROM received_bill n JOIN allocation a ON a.bill_id = n.id
                   WHERE n.credits_id = b.id AND n.status = 'registered' AND a.allocated_on <= t.as_of) AS paid_minor
          FROM received_bill b, report_day t
         WHERE b.status = 'registered' AND b.credits_id IS NULL AND b.registration_date <= t.as_of
           AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = b.id AND voided_on <= t.as_of))
 WHERE gross_minor - credited_minor - paid_minor <> 0;

CREATE VIEW receivable_aging AS
SELECT o.company_id, o.customer_id AS party_id, o.currency,
       sum(iif(days <= 0, o.open_minor, 0)) AS not_due_minor,
       sum(iif(days BETWEEN 1 AND 30, o.open_minor, 0)) AS days_1_30_minor,
       sum(iif(days BETWEEN 31 AND 60, o.open_minor, 0)) AS days_31_60_minor,
       sum(iif(days BETWEEN 61 AND 90, o.open_minor, 0)) AS days_61_90_minor,
       sum(iif(days > 90, o.open_minor, 0)) AS over_90_minor,
       sum(o.open_minor) AS total_minor
  FROM (SELECT r.*, CAST(julianday(t.as_of) - julianday(r.due_date) AS INTEGER) AS days
          FROM receivable_open r, report_day t) o
 GROUP BY o.company_id, o.customer_id, o.currency;

CREATE VIEW payable_aging AS
SELECT o.company_id, o.supplier_id AS party_id, o.currency,
       sum(iif(days <= 0, o.open_minor, 0)) AS not_due_minor,
       sum(iif(days BETWEEN 1 AND 30, o.open_minor, 0)) AS days_1_30_minor,
       sum(iif(days BETWEEN 31 AND 60, o.open_minor, 0)) AS days_31_60_minor,
       sum(iif(days BETWEEN 61 AND 90, o.open_minor, 0)) AS days_61_90_minor,
       sum(iif(days > 90, o.open_minor, 0)) AS over_90_minor,
       sum(o.open_minor) AS total_minor
  FROM (SELECT p.*, CAST(julianday(t.as_of) - julianday(p.due_date) AS INTEGER) AS days
          FROM payable_open p, report_day t) o
 GROUP BY o.company_id, o.supplier_id, o.currency;

-- Tax in the base currency, positive as in the registers. Ledger movements of a document count in its
-- VAT period, all others (manual entries) in the period of their date. Without a tax code it is no tax.
CREATE VIEW vat_register_check AS
SELECT company_id, vat_period, side,
       sum(register_minor) AS register_minor, sum(ledger_minor) AS ledger_minor,
       sum(register_minor) - sum(ledger_minor) AS difference_minor
  FROM (SELECT company_id, vat_period, 'output' AS side, tax_minor AS register_minor, 0 AS ledger_minor
          FROM vat_register_sales
        UNION ALL
        SELECT p.company_id, p.vat_period, iif(d.role = 'input_vat', 'input', 'output'),
               CASE p.kind WHEN 'credit_note' THEN -1 ELSE 1 END * abs(d.amount), 0
          FROM bill_vat_due d JOIN received_bill p ON p.id = d.bill_id
         WHERE p.status = 'registered' AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = p.id)
        UNION ALL
        SELECT l.company_id,
               coalesce(s.vat_period, b.vat_period,
                        (SELECT v.period FROM vat_period v
                          WHERE v.company_id = l.company_id AND v.starts_on <= e.entry_date AND v.ends_on >= e.entry_date)),
               iif(a.role = 'input_vat', 'input', 'output'), 0,
               iif(a.role = 'input_vat', l.base_amount_minor, -l.base_amount_minor)
          FROM journal_line l
          JOIN account a ON a.id = l.account_id AND a.role IN ('input_vat', 'output_vat')
          JOIN journal_entry e ON e.id = l.entry_id
          JOIN journal_seal z ON z.entry_id = e.id
          LEFT JOIN sales_document s ON e.source_kind = 'sales_document' AND s.id = e.source_id
          LEFT JOIN received_bill b ON e.source_kind = 'received_bill' AND b.id = e.source_id
         WHERE l.tax_code IS NOT NULL)
 GROUP BY company_id, vat_period, side;

CREATE VIEW integrity_violation AS
SELECT * FROM integrity_party
UNION ALL SELECT * FROM integrity_account
UNION ALL SELECT * FROM integrity_journal
UNION ALL SELECT * FROM integrity_tax
UNION ALL SELECT * FROM integrity_series
UNION ALL SELECT * FROM integrity_sales
UNION ALL SELECT * FROM integrity_bill
UNION ALL SELECT * FROM integrity_depreciation
UNION ALL SELECT * FROM integrity_payment
UNION ALL SELECT * FROM integrity_settlement
UNION ALL SELECT * FROM integrity_webhook;

-- One row per violated rule. integrity_violation names every case.
CREATE VIEW integrity_report AS
SELECT rule, count(*) AS violations, min(subject) AS subject, min(subject_id) AS first_id
  FROM integrity_violation GROUP BY rule;
