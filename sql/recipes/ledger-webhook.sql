-- Recipe: take a payment webhook, act on it exactly once
--
-- Here the event id is the key, so the inbox row takes the place of the claim. Verify the signature
-- first. Parameters: company, provider, account, event_id, event_type, body (the raw bytes), sha256 (hex
-- of the body); for the effect, here a charge that succeeded: external_id, value_date, currency (the
-- company's own), amount_minor, party, invoice (the id of the one it pays, or NULL), accounts clearing
-- and receivable. From earlier steps: event, payment, entry, error.
--
--   the sender comes again with ...         it gets
--   the same event                          200, nothing is written (receive returns no row)
--   the same event after a failure          200; the row waits as failed and is worked by a later try
--   the same id, another body               400; the stranger is kept in webhook_conflict
--   another event about the same charge     200; the effect finds its payment and does nothing

-- step: begin
BEGIN IMMEDIATE;

-- step: receive
-- A row: the event is new, go on. No row: seen before, COMMIT and answer 200 (or go on from resume).
-- After EVENT_ID_REUSED_WITH_OTHER_BODY go to conflict. After any other error ROLLBACK: 400 for any
-- other SQLITE_CONSTRAINT, as the input is malformed, 503 for SQLITE_BUSY, a full disk and the like.
INSERT INTO webhook_event (company_id, provider, account, event_id, event_type, body, body_sha256, signature_ok)
VALUES (:company, :provider, :account, :event_id, :event_type, :body, :sha256, 1)
RETURNING id AS event;

-- step: resume
-- For a worker that tries failed events again.
SELECT id AS event FROM webhook_event
 WHERE provider = :provider AND account = :account AND event_id = :event_id
   AND status NOT IN ('processed', 'ignored');

-- step: work
SAVEPOINT work;

-- step: effect
-- No row: another event, or the return page, has recorded this charge with this amount; go to finish.
-- Another amount under the same id is no repeat and raises PAYMENT_ALREADY_RECORDED. Of a currency that is
-- not the company's own the base amount is not known here: it stays NULL and is refused, so that the event
-- waits as failed for somebody who knows the rate.
INSERT INTO payment (company_id, direction, provider, account, external_id, method, value_date, currency,
                     amount_minor, base_amount_minor, party_id)
SELECT :company, 'in', :provider, :account, :external_id, 'card', :value_date, :currency, :amount_minor,
       (SELECT :amount_minor FROM company WHERE id = :company AND base_currency = :currency), :party
 WHERE NOT EXISTS (SELECT 1 FROM payment
                    WHERE company_id = :company AND provider = :provider AND account = :account
                      AND external_id = :external_id AND currency = :currency AND amount_minor = :amount_minor)
RETURNING id AS payment;

-- step: entry
INSERT INTO journal_entry (company_id, entry_date, journal, source_kind, source_id, purpose)
VALUES (:company, :value_date, 'bank', 'payment', :payment, 'payment')
RETURNING id AS entry;

-- step: postings
INSERT INTO journal_line (entry_id, line_no, company_id, account_id, currency, amount_minor, base_amount_minor, party_id)
VALUES (:entry, 1, :company, :clearing, :currency, :amount_minor, :amount_minor, NULL),
       (:entry, 2, :company, :receivable, :currency, -:amount_minor, -:amount_minor, :party);
UPDATE payment SET status = 'posted', entry_id = :entry WHERE id = :payment;

-- step: allocate
-- Posted is not allocated: without this receivable_open still shows the invoice. Not more than it still
-- asks for; the rest, or a payment without an invoice, is in payment_unallocated until a person allocates it.
-- A payment in advance pays the invoice from the day of the invoice on.
INSERT INTO allocation (company_id, payment_id, invoice_id, allocated_on, amount_minor, payment_amount_minor)
SELECT :company, :payment, d.invoice_id, max(:value_date, i.issue_date), min(:amount_minor, d.open_minor), min(:amount_minor, d.open_minor)
  FROM allocatable d JOIN sales_document i ON i.id = d.invoice_id
 WHERE d.company_id = :company AND d.invoice_id = :invoice AND d.direction = 'in' AND d.currency = :currency AND d.open_minor > 0;

-- step: finish
UPDATE webhook_event
   SET status = 'processed', attempts = attempts + 1, processed_at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now'),
       effect_kind = 'payment',
       effect_id = (SELECT id FROM payment WHERE company_id = :company AND provider = :provider
                       AND account = :account AND external_id = :external_id)
 WHERE id = :event;
RELEASE work;

-- step: failed
-- After an error in effect ... finish: undo it, keep the inbox row, answer 200; a worker tries again.
ROLLBACK TO work;
RELEASE work;
UPDATE webhook_event SET status = 'failed', attempts = attempts + 1, last_error = :error WHERE id = :event;

-- step: conflict
-- After EVENT_ID_REUSED_WITH_OTHER_BODY in receive: keep it, alert, COMMIT, answer 400.
INSERT INTO webhook_conflict (company_id, provider, account, event_id, body, body_sha256)
VALUES (:company, :provider, :account, :event_id, :body, :sha256);

-- step: commit
COMMIT;
