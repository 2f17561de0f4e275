-- idem ledger · 75 · payments and allocations
--
--   * Unique: (company, provider, account, external id). The return page, the webhook and the CSV of
--     one charge meet on one row. For bank lines account is the bank account and external id the
--     bank's own entry reference. Ids are unique only inside the account that issued them, so the
--     account belongs to the key: the same id on another account is another payment.
--   * Cash without an id has no key, only the review list. Amount, date and party are never a key:
--     importers that made them one dropped real second payments.
--   * A payment is recorded with all its facts, then posted with its entry, and never changed. Before it
--     is posted a mistyped one may be deleted, which frees its id; after that it is answered by a
--     reversal, as one that bounced: an opposite payment, once. The id stays with the payment.
--   * An allocation says what a payment paid: money in pays invoices, advances and supplier credit
--     notes, money out pays bills and refunds credit notes. One live allocation per payment and
--     document; undone by an opposite row, never by DELETE.
--   * Never more than the payment holds, nor than the document still asks for. A refund gives back at
--     most what was paid above the invoice.
--   * An allocation moves open items from one day on, so its day is bound like an entry's: not locked, in
--     an open fiscal year, and not before payment and document. A payment of a closed year is allocated,
--     or its allocation undone, on a day that is open. What takes payment or document back (reversal,
--     annulment, void) is not dated before that: the reports of a past day would differ from the ledger.
--   * Payment and document share a currency, or the allocation names both amounts.

-- Tables -----------------------------------------------------------------------------------------

CREATE TABLE payment (
  id                 INTEGER PRIMARY KEY CHECK (id > 0),
  company_id         INTEGER NOT NULL REFERENCES company (id),
  direction          TEXT    NOT NULL CHECK (direction IN ('in', 'out')),
  provider           TEXT    NOT NULL
    CONSTRAINT "provider: not empty, no blanks around it, no control or invisible characters"
    CHECK (provider <> '' AND provider = trim(provider) AND instr(provider, char(0)) = 0
           AND provider NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*'),
  account            TEXT    NOT NULL
    CONSTRAINT "account: not empty, no blanks around it, no control or invisible characters"
    CHECK (account <> '' AND account = trim(account) AND instr(account, char(0)) = 0
           AND account NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*'),
  external_id        TEXT
    CONSTRAINT "external_id: not empty, no blanks around it, no control or invisible characters"
    CHECK (external_id <> '' AND external_id = trim(external_id) AND instr(external_id, char(0)) = 0
           AND external_id NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*'),
  method             TEXT    NOT NULL DEFAULT '',
  value_date         TEXT    NOT NULL CHECK (value_date IS date(value_date, '+0 days')),
  currency           TEXT    NOT NULL REFERENCES currency (code),
  amount_minor       INTEGER NOT NULL CHECK (amount_minor BETWEEN 1 AND 999999999999999),
  base_amount_minor  INTEGER NOT NULL CHECK (base_amount_minor BETWEEN 0 AND 999999999999999),
  party_id           INTEGER,
  memo               TEXT    NOT NULL DEFAULT '',
  status             TEXT    NOT NULL DEFAULT 'recorded' CHECK (status IN ('recorded', 'posted')),
  entry_id           INTEGER REFERENCES journal_entry (id),
  reverses_id        INTEGER REFERENCES payment (id) CHECK (reverses_id <> id),
  created_at         TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
  CHECK ((status = 'posted') = (entry_id IS NOT NULL)),
  FOREIGN KEY (company_id, party_id) REFERENCES party (company_id, id)
) STRICT;

-- amount is in the document's currency, payment_amount in the payment's.
CREATE TABLE allocation (
  id                    INTEGER PRIMARY KEY CHECK (id > 0),
  company_id            INTEGER NOT NULL REFERENCES company (id),
  payment_id            INTEGER NOT NULL REFERENCES payment (id),
  invoice_id            INTEGER REFERENCES sales_document (id),
  bill_id               INTEGER REFERENCES received_bill (id),
  allocated_on          TEXT    NOT NULL CHECK (allocated_on IS date(allocated_on, '+0 days')),
  amount_minor          INTEGER NOT NULL CHECK (amount_minor BETWEEN 1 AND 999999999999999),
  payment_amount_minor  INTEGER NOT NULL CHECK (payment_amount_minor BETWEEN 1 AND 999999999999999),
  reverses_id           INTEGER REFERENCES allocation (id) CHECK (reverses_id <> id),
  CHECK ((invoice_id IS NULL) <> (bill_id IS NULL))
) STRICT;

-- Keys -------------------------------------------------------------------------------------------

CREATE UNIQUE INDEX payment_external ON payment (company_id, provider, account, external_id)
  WHERE external_id IS NOT NULL;
CREATE UNIQUE INDEX payment_reverses ON payment (reverses_id) WHERE reverses_id IS NOT NULL;
CREATE INDEX payment_party ON payment (party_id, value_date) WHERE party_id IS NOT NULL;
CREATE UNIQUE INDEX allocation_reverses ON allocation (reverses_id) WHERE reverses_id IS NOT NULL;
CREATE INDEX allocation_payment ON allocation (payment_id);
CREATE INDEX allocation_invoice ON allocation (invoice_id) WHERE invoice_id IS NOT NULL;
CREATE INDEX allocation_bill ON allocation (bill_id) WHERE bill_id IS NOT NULL;

-- Guards: payments ---------------------------------------------------------------------------------

CREATE TRIGGER payment_insert BEFORE INSERT ON payment
BEGIN
  SELECT RAISE(ABORT, 'PAYMENT_ALREADY_RECORDED: this company has this external id of this provider account; use that row')
   WHERE NEW.external_id IS NOT NULL
     AND EXISTS (SELECT 1 FROM payment
                  WHERE company_id = NEW.company_id AND provider = NEW.provider
                    AND account = NEW.account AND external_id = NEW.external_id);
  SELECT RAISE(ABORT, 'IMMUTABLE: this payment exists; a row is never replaced')
   WHERE EXISTS (SELECT 1 FROM payment WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'MUST_START_AS_DRAFT: record the payment, then post it with UPDATE')
   WHERE NEW.status IS NOT 'recorded' OR NEW.entry_id IS NOT NULL;
  SELECT RAISE(ABORT, 'WRONG_COMPANY: the party belongs to another company')
   WHERE NEW.party_id IS NOT NULL
     AND (SELECT company_id FROM party WHERE id = NEW.party_id) IS NOT NEW.company_id;
  SELECT RAISE(ABORT, 'RATE_MISMATCH: in the base currency amount and base amount are the same')
    FROM company
   WHERE id = NEW.company_id AND base_currency = NEW.currency AND NEW.base_amount_minor <> NEW.amount_minor;
END;

CREATE TRIGGER payment_insert_reversal BEFORE INSERT ON payment
WHEN NEW.reverses_id IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: this payment is reversed already')
   WHERE EXISTS (SELECT 1 FROM payment WHERE reverses_id = NEW.reverses_id);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: a reversal is the opposite of a posted payment that is no reversal, not earlier')
   WHERE NOT EXISTS (SELECT 1 FROM payment o
                      WHERE o.id = NEW.reverses_id AND o.status = 'posted' AND o.reverses_id IS NULL
                        AND o.direction <> NEW.direction AND o.value_date <= NEW.value_date
                        AND (o.company_id, o.provider, o.account, o.currency, o.amount_minor, o.base_amount_minor, o.party_id)
                              IS (NEW.company_id, NEW.provider, NEW.account, NEW.currency, NEW.amount_minor, NEW.base_amount_minor, NEW.party_id));
  SELECT RAISE(ABORT, 'PAYMENT_ALLOCATED: undo the allocations of a payment before reversing it')
   WHERE EXISTS (SELECT 1 FROM live_allocation WHERE payment_id = NEW.reverses_id);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: a payment is not reversed before the day its last allocation was undone; take a later value date')
   WHERE NEW.value_date < (SELECT max(allocated_on) FROM allocation WHERE payment_id = NEW.reverses_id);
END;

CREATE TRIGGER payment_update BEFORE UPDATE ON payment
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a posted payment is never changed; reverse it')
   WHERE OLD.status IS NOT 'recorded';
  SELECT RAISE(ABORT, 'IMMUTABLE: a recorded payment only changes by being posted; delete it and record it again')
   WHERE NEW.status IS NOT 'posted'
      OR (NEW.id, NEW.company_id, NEW.direction, NEW.provider, NEW.account, NEW.external_id, NEW.method, NEW.value_date,
          NEW.currency, NEW.amount_minor, NEW.base_amount_minor, NEW.party_id, NEW.memo, NEW.reverses_id, NEW.created_at)
           IS NOT
         (OLD.id, OLD.company_id, OLD.direction, OLD.provider, OLD.account, OLD.external_id, OLD.method, OLD.value_date,
          OLD.currency, OLD.amount_minor, OLD.base_amount_minor, OLD.party_id, OLD.memo, OLD.reverses_id, OLD.created_at);
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: entry_id must be the entry of this payment, purpose payment; that of a reversal reverses the entry of the payment')
   WHERE NOT EXISTS (SELECT 1 FROM journal_entry
                      WHERE id = NEW.entry_id AND company_id = NEW.company_id
                        AND source_kind = 'payment' AND source_id = NEW.id AND purpose = 'payment'
                        AND reverses_id IS (SELECT entry_id FROM payment WHERE id = NEW.reverses_id));
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: money and clearing accounts must move by the payment, in its currency and in no other')
   WHERE (SELECT (coalesce(sum(l.base_amount_minor), 0), coalesce(sum(l.amount_minor) FILTER (WHERE l.currency = NEW.currency), 0),
                  count(*) FILTER (WHERE l.currency <> NEW.currency))
                 IS NOT (CASE NEW.direction WHEN 'in' THEN NEW.base_amount_minor ELSE -NEW.base_amount_minor END,
                         CASE NEW.direction WHEN 'in' THEN NEW.amount_minor ELSE -NEW.amount_minor END, 0)
            FROM journal_line l JOIN account a ON a.id = l.account_id
           WHERE l.entry_id = NEW.entry_id AND a.role IN ('money', 'clearing'));
END;

CREATE TRIGGER payment_posted AFTER UPDATE ON payment
WHEN OLD.status = 'recorded' AND NEW.status = 'posted'
BEGIN
  INSERT INTO journal_seal (entry_id) VALUES (NEW.entry_id);
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: the entry could not be sealed')
   WHERE NOT EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = NEW.entry_id);
END;

CREATE TRIGGER payment_delete BEFORE DELETE ON payment
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a posted payment is never deleted; reverse it')
   WHERE OLD.status IS NOT 'recorded';
  SELECT RAISE(ABORT, 'IMMUTABLE: an entry is written for this payment; delete the entry first')
   WHERE EXISTS (SELECT 1 FROM journal_entry
                  WHERE company_id = OLD.company_id AND source_kind = 'payment' AND source_id = OLD.id);
  SELECT RAISE(ABORT, 'IMMUTABLE: a settlement line is matched to this payment; delete its import first, or, if that is posted, post the payment and reverse it')
   WHERE EXISTS (SELECT 1 FROM settlement_line WHERE payment_id = OLD.id);
END;

-- Guards: allocations ------------------------------------------------------------------------------

CREATE TRIGGER allocation_insert BEFORE INSERT ON allocation
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: this allocation exists; a row is never replaced')
   WHERE EXISTS (SELECT 1 FROM allocation WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'WRONG_COMPANY: payment and document must belong to the company')
   WHERE (SELECT company_id FROM payment WHERE id = NEW.payment_id) IS NOT NEW.company_id
      OR (NEW.invoice_id IS NOT NULL
          AND (SELECT company_id FROM sales_document WHERE id = NEW.invoice_id) IS NOT NEW.company_id)
      OR (NEW.bill_id IS NOT NULL
          AND (SELECT company_id FROM received_bill WHERE id = NEW.bill_id) IS NOT NEW.company_id)
      OR (NEW.invoice_id IS NULL) = (NEW.bill_id IS NULL);
  SELECT RAISE(ABORT, 'PERIOD_LOCKED: the allocation date is in no open fiscal year, or on or before company.locked_through; insert the fiscal year, or take a later date')
   WHERE NEW.allocated_on <= (SELECT locked_through FROM company WHERE id = NEW.company_id)
      OR NOT EXISTS (SELECT 1 FROM fiscal_year
                      WHERE company_id = NEW.company_id AND status = 'open'
                        AND starts_on <= NEW.allocated_on AND ends_on >= NEW.allocated_on);
END;

CREATE TRIGGER allocation_new BEFORE INSERT ON allocation
WHEN NEW.reverses_id IS NULL
BEGIN
  SELECT RAISE(ABORT, 'ALLOCATION_EXISTS: this payment is allocated to this document; undo that first')
   WHERE EXISTS (SELECT 1 FROM live_allocation
                  WHERE payment_id = NEW.payment_id AND invoice_id IS NEW.invoice_id AND bill_id IS NEW.bill_id);
  SELECT RAISE(ABORT, 'PAYMENT_NOT_POSTED: only a posted payment that is neither reversed nor a reversal can be allocated')
   WHERE NOT EXISTS (SELECT 1 FROM payment
                      WHERE id = NEW.payment_id AND status = 'posted' AND reverses_id IS NULL)
      OR EXISTS (SELECT 1 FROM payment WHERE reverses_id = NEW.payment_id);
  SELECT RAISE(ABORT, 'ALLOCATION_MISMATCH: money in pays invoices and supplier credit notes, money out bills and credit notes, and only final ones')
   WHERE NOT EXISTS (SELECT 1 FROM allocatable d JOIN payment p ON p.direction = d.direction
                      WHERE p.id = NEW.payment_id AND d.invoice_id IS NEW.invoice_id AND d.bill_id IS NEW.bill_id);
  SELECT RAISE(ABORT, 'ALLOCATION_MISMATCH: a payment is allocated on its value date or later')
    FROM payment
   WHERE id = NEW.payment_id AND NEW.allocated_on < value_date;
  SELECT RAISE(ABORT, 'ALLOCATION_MISMATCH: a payment is allocated to a document on its issue or registration date or later')
   WHERE NEW.allocated_on < coalesce((SELECT issue_date FROM sales_document WHERE id = NEW.invoice_id),
                                     (SELECT registration_date FROM received_bill WHERE id = NEW.bill_id));
  SELECT RAISE(ABORT, 'ALLOCATION_MISMATCH: within one currency both amounts are the same')
    FROM allocatable d JOIN payment p ON p.id = NEW.payment_id
   WHERE d.invoice_id IS NEW.invoice_id AND d.bill_id IS NEW.bill_id
     AND d.currency = p.currency AND NEW.amount_minor <> NEW.payment_amount_minor;
  SELECT RAISE(ABORT, 'ALLOCATION_EXCEEDS_PAYMENT: the payment does not hold that much any more')
   WHERE NEW.payment_amount_minor
         + (SELECT coalesce(sum(payment_amount_minor), 0) FROM live_allocation WHERE payment_id = NEW.payment_id)
         > (SELECT amount_minor FROM payment WHERE id = NEW.payment_id);
  SELECT RAISE(ABORT, 'ALLOCATION_EXCEEDS_DOCUMENT: the document does not ask for that much any more')
    FROM allocatable d
   WHERE d.invoice_id IS NEW.invoice_id AND d.bill_id IS NEW.bill_id
     AND NEW.amount_minor > d.open_minor;
END;

CREATE TRIGGER allocation_reversal BEFORE INSERT ON allocation
WHEN NEW.reverses_id IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: this allocation is undone already')
   WHERE EXISTS (SELECT 1 FROM allocation WHERE reverses_id = NEW.reverses_id);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: an allocation is undone by a row equal to it')
   WHERE NOT EXISTS (SELECT 1 FROM allocation o
                      WHERE o.id = NEW.reverses_id AND o.reverses_id IS NULL AND o.allocated_on <= NEW.allocated_on
                        AND (o.company_id, o.payment_id, o.invoice_id, o.bill_id, o.amount_minor, o.payment_amount_minor)
                              IS (NEW.company_id, NEW.payment_id, NEW.invoice_id, NEW.bill_id, NEW.amount_minor, NEW.payment_amount_minor));
END;

CREATE TRIGGER allocation_update BEFORE UPDATE ON allocation
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: an allocation is never changed; undo it with an opposite row');
END;

CREATE TRIGGER allocation_delete BEFORE DELETE ON allocation
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: an allocation is never deleted; undo it with an opposite row');
END;

-- Views ------------------------------------------------------------------------------------------

CREATE VIEW live_allocation AS
SELECT a.*
  FROM allocation a
 WHERE a.reverses_id IS NULL
   AND NOT EXISTS (SELECT 1 FROM allocation r WHERE r.reverses_id = a.id);

-- Final documents, the direction of the money that settles them, and how much they still ask for. The
-- guards read this, so it is the present, whatever report_as_of says.
-- Invoice: gross - credited - paid + refunded. Credit note: what its invoice was paid above that, at
-- most the note itself. Bills likewise; a supplier credit note may be paid back up to its gross.
CREATE VIEW allocatable AS
SELECT i.company_id, i.id AS invoice_id, NULL AS bill_id, 'in' AS direction, i.currency,
       i.gross_minor
         - (SELECT coalesce(sum(n.gross_minor), 0) FROM sales_document n
             WHERE n.credits_id = i.id AND n.status = 'issued')
         - (SELECT coalesce(sum(a.amount_minor), 0) FROM live_allocation a WHERE a.invoice_id = i.id)
         + (SELECT coalesce(sum(a.amount_minor), 0)
              FROM sales_document n JOIN live_allocation a ON a.invoice_id = n.id
             WHERE n.credits_id = i.id AND n.status = 'issued') AS open_minor
  FROM sales_document i
 WHERE i.status = 'issued' AND i.kind <> 'credit_note'
   AND NOT EXISTS (SELECT 1 FROM annulment WHERE invoice_id = i.id)
UNION ALL
SELECT n.company_id, n.id, NULL, 'out', n.currency,
       min(n.gross_minor - (SELECT coalesce(sum(a.amount_minor), 0) FROM live_allocation a WHERE a.invoice_id = n.id),
           (SELECT coalesce(sum(a.amount_minor), 0) FROM live_allocation a WHERE a.invoice_id = i.id)
           - (SELECT coalesce(sum(a.amount_minor), 0)
                FROM sales_document m JOIN live_allocation a ON a.invoice_id = m.id
               WHERE m.credits_id = i.id AND m.status = 'issued')
           - i.gross_minor
           + (SELECT coalesce(sum(m.gross_minor), 0) FROM sales_document m
               WHERE m.credits_id = i.id AND m.status = 'issued'))
  FROM sales_document n JOIN sales_document i ON i.id = n.credits_id
 WHERE n.status = 'issued' AND n.kind = 'credit_note'
UNION ALL
SELECT b.company_id, NULL, b.id, 'out', b.currency,
       b.gross_minor
         - (SELECT coalesce(sum(n.gross_minor), 0) FROM received_bill n
             WHERE n.credits_id = b.id AND n.status = 'registered'
               AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = n.id))
         - (SELECT coalesce(sum(a.amount_minor), 0) FROM live_allocation a WHERE a.bill_id = b.id)
         + (SELECT coalesce(sum(a.amount_minor), 0)
              FROM received_bill n JOIN live_allocation a ON a.bill_id = n.id
             WHERE n.credits_id = b.id AND n.status = 'registered')
  FROM received_bill b
 WHERE b.status = 'registered' AND b.kind <> 'credit_note'
   AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = b.id)
UNION ALL
SELECT n.company_id, NULL, n.id, 'in', n.currency,
       n.gross_minor - (SELECT coalesce(sum(a.amount_minor), 0) FROM live_allocation a WHERE a.bill_id = n.id)
  FROM received_bill n
 WHERE n.status = 'registered' AND n.kind = 'credit_note'
   AND NOT EXISTS (SELECT 1 FROM bill_void WHERE bill_id = n.id);

-- As of report_as_of: what payments up to that day held beyond their allocations up to that day.
CREATE VIEW payment_unallocated AS
SELECT *
  FROM (SELECT p.company_id, p.id AS payment_id, p.direction, p.value_date, p.party_id, p.currency, p.amount_minor,
               p.amount_minor
               - (SELECT coalesce(sum(iif(a.reverses_id IS NULL, a.payment_amount_minor, -a.payment_amount_minor)), 0)
                    FROM allocation a WHERE a.payment_id = p.id AND a.allocated_on <= t.as_of) AS unallocated_minor
          FROM payment p, report_day t
         WHERE p.reverses_id IS NULL AND p.value_date <= t.as_of
           AND NOT EXISTS (SELECT 1 FROM payment r WHERE r.reverses_id = p.id AND r.value_date <= t.as_of))
 WHERE unallocated_minor > 0;

-- Review list, never a block: same company, direction, party, amount and currency within three days.
CREATE VIEW possible_duplicate_payment AS
SELECT a.company_id, a.id AS first_id, b.id AS second_id, a.party_id, a.currency, a.amount_minor,
       a.value_date AS first_date, b.value_date AS second_date
  FROM payment a
  JOIN payment b ON b.company_id = a.company_id AND b.direction = a.direction AND b.id > a.id
   AND b.currency = a.currency AND b.amount_minor = a.amount_minor AND b.party_id IS a.party_id
   AND b.value_date BETWEEN date(a.value_date, '-3 days') AND date(a.value_date, '+3 days')
 WHERE a.reverses_id IS NULL AND b.reverses_id IS NULL;

CREATE VIEW integrity_payment AS
SELECT 'PAYMENT_TWICE' AS rule, company_id, 'payment' AS subject, max(id) AS subject_id
  FROM payment WHERE external_id IS NOT NULL
 GROUP BY company_id, provider, account, external_id HAVING count(*) > 1
UNION ALL
SELECT 'PAYMENT_REVERSED_TWICE', company_id, 'payment', reverses_id
  FROM payment WHERE reverses_id IS NOT NULL GROUP BY reverses_id HAVING count(*) > 1
UNION ALL
SELECT 'PAYMENT_REVERSAL_WRONG', r.company_id, 'payment', r.id
  FROM payment r LEFT JOIN payment o ON o.id = r.reverses_id
 WHERE r.reverses_id IS NOT NULL
   AND (o.id IS NULL OR o.direction = r.direction OR o.reverses_id IS NOT NULL OR o.status <> 'posted'
        OR (o.company_id, o.currency, o.amount_minor, o.base_amount_minor, o.party_id)
             IS NOT (r.company_id, r.currency, r.amount_minor, r.base_amount_minor, r.party_id)
        OR r.value_date < o.value_date
        OR r.value_date < (SELECT max(allocated_on) FROM allocation WHERE payment_id = o.id)
        OR EXISTS (SELECT 1 FROM live_allocation WHERE payment_id IN (r.id, o.id)))
UNION ALL
SELECT 'PAYMENT_ENTRY_MISMATCH', p.company_id, 'payment', p.id
  FROM payment p
 WHERE (p.status = 'posted') <> (p.entry_id IS NOT NULL)
    OR (p.status = 'posted'
        AND (NOT EXISTS (SELECT 1 FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
                          WHERE e.id = p.entry_id AND e.company_id = p.company_id
                            AND e.source_kind = 'payment' AND e.source_id = p.id)
             OR (SELECT (coalesce(sum(l.base_amount_minor), 0), count(*) FILTER (WHERE l.currency <> p.currency))
                        IS NOT (CASE p.direction WHEN 'in' THEN p.base_amount_minor ELSE -p.base_amount_minor END, 0)
                   FROM journal_line l JOIN account a ON a.id = l.account_id
                  WHERE l.entry_id = p.entry_id AND a.role IN ('money', 'clearing'))))
UNION ALL
SELECT 'ENTRY_WITHOUT_DOCUMENT', e.company_id, 'journal_entry', e.id
  FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
 WHERE e.source_kind = 'payment'
   AND NOT EXISTS (SELECT 1 FROM payment WHERE id = e.source_id AND status = 'posted' AND entry_id = e.id)
UNION ALL
SELECT 'ALLOCATION_TWICE', company_id, 'payment', payment_id
  FROM live_allocation GROUP BY payment_id, invoice_id, bill_id HAVING count(*) > 1
UNION ALL
SELECT 'ALLOCATION_REVERSED_TWICE', company_id, 'payment', min(payment_id)
  FROM allocation WHERE reverses_id IS NOT NULL GROUP BY reverses_id HAVING count(*) > 1
UNION ALL
SELECT 'ALLOCATION_REVERSAL_WRONG', r.company_id, 'payment', r.payment_id
  FROM allocation r LEFT JOIN allocation o ON o.id = r.reverses_id
 WHERE r.reverses_id IS NOT NULL
   AND (o.reverses_id IS NOT NULL
        OR (o.company_id, o.payment_id, o.invoice_id, o.bill_id, o.amount_minor, o.payment_amount_minor)
             IS NOT (r.company_id, r.payment_id, r.invoice_id, r.bill_id, r.amount_minor, r.payment_amount_minor))
UNION ALL
SELECT 'PARTNER_OF_OTHER_COMPANY', p.company_id, 'payment', p.id
  FROM payment p LEFT JOIN party x ON x.id = p.party_id
 WHERE p.party_id IS NOT NULL AND x.company_id IS NOT p.company_id
UNION ALL
SELECT 'ALLOCATION_EXCEEDS_PAYMENT', p.company_id, 'payment', p.id
  FROM payment p JOIN live_allocation a ON a.payment_id = p.id
 GROUP BY p.id HAVING sum(a.payment_amount_minor) > p.amount_minor
UNION ALL
-- A credit note may come after the payment, so only the gross amount is a limit for ever.
SELECT 'ALLOCATION_EXCEEDS_DOCUMENT', d.company_id, 'sales_document', d.id
  FROM sales_document d JOIN live_allocation a ON a.invoice_id = d.id
 GROUP BY d.id
HAVING sum(a.amount_minor) > d.gross_minor
         + coalesce((SELECT sum(r.amount_minor) FROM sales_document n JOIN live_allocation r ON r.invoice_id = n.id
                      WHERE n.credits_id = d.id), 0)
UNION ALL
SELECT 'ALLOCATION_EXCEEDS_DOCUMENT', b.company_id, 'received_bill', b.id
  FROM received_bill b JOIN live_allocation a ON a.bill_id = b.id
 GROUP BY b.id
HAVING sum(a.amount_minor) > b.gross_minor
         + coalesce((SELECT sum(r.amount_minor) FROM received_bill n JOIN live_allocation r ON r.bill_id = n.id
                      WHERE n.credits_id = b.id), 0)
UNION ALL
SELECT 'ALLOCATION_MISMATCH', a.company_id, 'payment', a.payment_id
  FROM live_allocation a
  LEFT JOIN payment p ON p.id = a.payment_id
  LEFT JOIN sales_document d ON d.id = a.invoice_id
  LEFT JOIN received_bill b ON b.id = a.bill_id
 WHERE p.company_id IS NOT a.company_id OR p.status IS NOT 'posted'
    OR coalesce(d.company_id, b.company_id) IS NOT a.company_id
    OR (a.invoice_id IS NULL) = (a.bill_id IS NULL)
    OR coalesce(d.status, b.status) NOT IN ('issued', 'registered')
    OR p.direction <> CASE WHEN coalesce(d.kind, b.kind) = 'credit_note'
                           THEN iif(d.id IS NOT NULL, 'out', 'in') ELSE iif(d.id IS NOT NULL, 'in', 'out') END
    OR (p.currency = coalesce(d.currency, b.currency) AND a.amount_minor <> a.payment_amount_minor)
    OR a.allocated_on < p.value_date OR a.allocated_on < coalesce(d.issue_date, b.registration_date)
UNION ALL
SELECT 'ALLOCATION_IN_NO_FISCAL_YEAR', a.company_id, 'payment', a.payment_id
  FROM allocation a
 WHERE NOT EXISTS (SELECT 1 FROM fiscal_year y
                    WHERE y.company_id = a.company_id
                      AND y.starts_on <= a.allocated_on AND y.ends_on >= a.allocated_on);
