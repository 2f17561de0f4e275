-- idem ledger · 80 · settlements (payouts of payment providers)
--
--   * Unique: (company, provider, account, livemode, payout id), one batch per payout; and (company,
--     provider, account, transaction id) across batches, so that overlapping exports cannot book one
--     transaction in two payouts. The account is in both, since ids are unique only inside it.
--   * A batch is imported with its lines, then posted. Posting demands that the lines add up to the
--     payout in gross, fee and net, that the clearing account moves by the gross amount, and seals
--     the entry. Before that a faulty import may be deleted and done again; after it nothing changes
--     but the matching of lines to payments of the same provider account and currency, once each: money
--     in to a line that adds, out to the others. Amounts may differ: a charge may be captured in part.
--   * Stripe cannot name the transactions of a manual payout: is_manual = 1, with one 'clearing' line.
--   * A payout that failed later is no second batch but a reversal of this one, once; its provider id
--     is unique too. The lines stay booked: fees were taken, and the net amount comes back to the
--     provider under a transaction of its own, which a later payout pays out. So the entry of the
--     reversal moves the net amount from money back to clearing, and repeats no line of the payout.

-- Tables -----------------------------------------------------------------------------------------

CREATE TABLE settlement_batch (
  id           INTEGER PRIMARY KEY CHECK (id > 0),
  company_id   INTEGER NOT NULL REFERENCES company (id),
  provider     TEXT    NOT NULL
    CONSTRAINT "provider: not empty, no blanks around it, no control or invisible characters"
    CHECK (provider <> '' AND provider = trim(provider) AND instr(provider, char(0)) = 0
           AND provider NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*'),
  account      TEXT    NOT NULL
    CONSTRAINT "account: not empty, no blanks around it, no control or invisible characters"
    CHECK (account <> '' AND account = trim(account) AND instr(account, char(0)) = 0
           AND account NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*'),
  livemode     INTEGER NOT NULL DEFAULT 1 CHECK (livemode IN (0, 1)),
  payout_id    TEXT    NOT NULL
    CONSTRAINT "payout_id: not empty, no blanks around it, no control or invisible characters"
    CHECK (payout_id <> '' AND payout_id = trim(payout_id) AND instr(payout_id, char(0)) = 0
           AND payout_id NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*'),
  payout_date  TEXT    NOT NULL CHECK (payout_date IS date(payout_date, '+0 days')),
  currency     TEXT    NOT NULL REFERENCES currency (code),
  gross_minor  INTEGER NOT NULL CHECK (gross_minor BETWEEN -999999999999999 AND 999999999999999),
  fee_minor    INTEGER NOT NULL CHECK (fee_minor BETWEEN -999999999999999 AND 999999999999999),
  net_minor    INTEGER NOT NULL CHECK (net_minor = gross_minor - fee_minor),
  is_manual    INTEGER NOT NULL DEFAULT 0 CHECK (is_manual IN (0, 1)),
  status       TEXT    NOT NULL DEFAULT 'imported' CHECK (status IN ('imported', 'posted')),
  entry_id     INTEGER REFERENCES journal_entry (id),
  created_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
  CHECK ((status = 'posted') = (entry_id IS NOT NULL))
) STRICT;

-- Provider, account and livemode repeat the batch's, so that the key is in one row.
CREATE TABLE settlement_line (
  id           INTEGER PRIMARY KEY CHECK (id > 0),
  batch_id     INTEGER NOT NULL REFERENCES settlement_batch (id),
  company_id   INTEGER NOT NULL,
  provider     TEXT    NOT NULL,
  account      TEXT    NOT NULL,
  livemode     INTEGER NOT NULL DEFAULT 1,
  txn_id       TEXT    NOT NULL
    CONSTRAINT "txn_id: not empty, no blanks around it, no control or invisible characters"
    CHECK (txn_id <> '' AND txn_id = trim(txn_id) AND instr(txn_id, char(0)) = 0
           AND txn_id NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*'),
  category     TEXT    NOT NULL CHECK (category <> ''),        -- charge, refund, fee, adjustment, clearing ...
  gross_minor  INTEGER NOT NULL CHECK (gross_minor BETWEEN -999999999999999 AND 999999999999999),
  fee_minor    INTEGER NOT NULL DEFAULT 0 CHECK (fee_minor BETWEEN -999999999999999 AND 999999999999999),
  net_minor    INTEGER NOT NULL CHECK (net_minor = gross_minor - fee_minor),
  source_ref   TEXT,
  payment_id   INTEGER REFERENCES payment (id)
) STRICT;

CREATE TABLE settlement_reversal (
  batch_id     INTEGER PRIMARY KEY REFERENCES settlement_batch (id),
  company_id   INTEGER NOT NULL REFERENCES company (id),
  provider     TEXT    NOT NULL,
  account      TEXT    NOT NULL,
  external_id  TEXT    NOT NULL
    CONSTRAINT "external_id: not empty, no blanks around it, no control or invisible characters"
    CHECK (external_id <> '' AND external_id = trim(external_id) AND instr(external_id, char(0)) = 0
           AND external_id NOT GLOB '*[' || char(
                   1,45,31,127,45,160,173,847,1564,4447,45,4448,5760,6068,45,6069,6155,45,6159,8192,45,8207,8232,45,8239,
                   8287,45,8303,10240,12288,12644,65024,45,65039,65279,65440,65520,45,65528,113824,45,113827,
                   119155,45,119162,917504,45,921599) || ']*'),
  reversed_on  TEXT    NOT NULL CHECK (reversed_on IS date(reversed_on, '+0 days')),
  reason       TEXT    NOT NULL CHECK (trim(reason) <> ''),
  entry_id     INTEGER NOT NULL REFERENCES journal_entry (id),
  created_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT;

-- Keys -------------------------------------------------------------------------------------------

CREATE UNIQUE INDEX settlement_batch_payout ON settlement_batch (company_id, provider, account, livemode, payout_id);
CREATE UNIQUE INDEX settlement_line_txn ON settlement_line (company_id, provider, account, livemode, txn_id);
CREATE UNIQUE INDEX settlement_line_payment ON settlement_line (payment_id) WHERE payment_id IS NOT NULL;
CREATE INDEX settlement_line_batch ON settlement_line (batch_id);
CREATE UNIQUE INDEX settlement_reversal_external ON settlement_reversal (company_id, provider, account, external_id);

-- Guards -----------------------------------------------------------------------------------------

CREATE TRIGGER settlement_batch_insert BEFORE INSERT ON settlement_batch
BEGIN
  SELECT RAISE(ABORT, 'SETTLEMENT_ALREADY_IMPORTED: this payout is imported; use that batch')
   WHERE EXISTS (SELECT 1 FROM settlement_batch
                  WHERE company_id = NEW.company_id AND provider = NEW.provider AND account = NEW.account
                    AND livemode = NEW.livemode AND payout_id = NEW.payout_id);
  SELECT RAISE(ABORT, 'IMMUTABLE: this batch exists; a row is never replaced')
   WHERE EXISTS (SELECT 1 FROM settlement_batch WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'MUST_START_AS_DRAFT: import the batch and its lines, then post it with UPDATE')
   WHERE NEW.status IS NOT 'imported' OR NEW.entry_id IS NOT NULL;
END;

CREATE TRIGGER settlement_batch_update BEFORE UPDATE ON settlement_batch
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a batch only changes by being posted; delete a faulty import, reverse a posted batch')
   WHERE OLD.status IS NOT 'imported' OR NEW.status IS NOT 'posted'
      OR (NEW.id, NEW.company_id, NEW.provider, NEW.account, NEW.livemode, NEW.payout_id, NEW.payout_date, NEW.currency,
          NEW.gross_minor, NEW.fee_minor, NEW.net_minor, NEW.is_manual, NEW.created_at)
           IS NOT
         (OLD.id, OLD.company_id, OLD.provider, OLD.account, OLD.livemode, OLD.payout_id, OLD.payout_date, OLD.currency,
          OLD.gross_minor, OLD.fee_minor, OLD.net_minor, OLD.is_manual, OLD.created_at);
  SELECT RAISE(ABORT, 'SETTLEMENT_DOES_NOT_ADD_UP: gross, fee and net of the lines must be those of the payout')
   WHERE (SELECT (sum(gross_minor), sum(fee_minor), sum(net_minor))
                 IS NOT (NEW.gross_minor, NEW.fee_minor, NEW.net_minor)
            FROM settlement_line WHERE batch_id = NEW.id)
      OR (NEW.is_manual = 1
          AND (SELECT (count(*), min(category)) IS NOT (1, 'clearing') FROM settlement_line WHERE batch_id = NEW.id));
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: entry_id must be the entry of this batch, purpose payout')
   WHERE NOT EXISTS (SELECT 1 FROM journal_entry
                      WHERE id = NEW.entry_id AND company_id = NEW.company_id
                        AND source_kind = 'settlement_batch' AND source_id = NEW.id AND purpose = 'payout'
                        AND reverses_id IS NULL);
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: the clearing account must fall by the gross and the money account rise by the net amount')
   WHERE (SELECT (coalesce(sum(l.amount_minor) FILTER (WHERE a.role = 'clearing'), 0),
                  coalesce(sum(l.amount_minor) FILTER (WHERE a.role = 'money'), 0))
                 IS NOT (-NEW.gross_minor, NEW.net_minor)
            FROM journal_line l JOIN account a ON a.id = l.account_id
           WHERE l.entry_id = NEW.entry_id AND l.currency = NEW.currency);
END;

CREATE TRIGGER settlement_batch_posted AFTER UPDATE ON settlement_batch
WHEN OLD.status = 'imported' AND NEW.status = 'posted'
BEGIN
  INSERT INTO journal_seal (entry_id) VALUES (NEW.entry_id);
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: the entry could not be sealed')
   WHERE NOT EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = NEW.entry_id);
END;

CREATE TRIGGER settlement_batch_delete BEFORE DELETE ON settlement_batch
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a posted batch is never deleted; reverse it')
   WHERE OLD.status IS NOT 'imported';
  SELECT RAISE(ABORT, 'IMMUTABLE: an entry is written for this batch; delete the entry first')
   WHERE EXISTS (SELECT 1 FROM journal_entry
                  WHERE company_id = OLD.company_id AND source_kind = 'settlement_batch' AND source_id = OLD.id);
  DELETE FROM settlement_line WHERE batch_id = OLD.id;
END;

CREATE TRIGGER settlement_line_insert BEFORE INSERT ON settlement_line
BEGIN
  SELECT RAISE(ABORT, 'TRANSACTION_ALREADY_SETTLED: this transaction is booked in a batch')
   WHERE EXISTS (SELECT 1 FROM settlement_line
                  WHERE company_id = NEW.company_id AND provider = NEW.provider AND account = NEW.account
                    AND livemode = NEW.livemode AND txn_id = NEW.txn_id);
  SELECT RAISE(ABORT, 'IMMUTABLE: this line exists; a row is never replaced')
   WHERE EXISTS (SELECT 1 FROM settlement_line WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'DOCUMENT_MISSING: there is no such batch in this company; insert the batch first')
   WHERE NOT EXISTS (SELECT 1 FROM settlement_batch WHERE id = NEW.batch_id AND company_id = NEW.company_id);
  SELECT RAISE(ABORT, 'IMMUTABLE: lines are only added to an imported batch of the same company, provider, account and mode')
   WHERE NOT EXISTS (SELECT 1 FROM settlement_batch b
                      WHERE b.id = NEW.batch_id AND b.status = 'imported'
                        AND (b.company_id, b.provider, b.account, b.livemode)
                              IS (NEW.company_id, NEW.provider, NEW.account, NEW.livemode));
  SELECT RAISE(ABORT, 'PAYMENT_ALREADY_SETTLED: another line is matched to this payment')
   WHERE NEW.payment_id IS NOT NULL
     AND EXISTS (SELECT 1 FROM settlement_line WHERE payment_id = NEW.payment_id);
  SELECT RAISE(ABORT, 'WRONG_COMPANY: the payment belongs to another company')
   WHERE NEW.payment_id IS NOT NULL
     AND (SELECT company_id FROM payment WHERE id = NEW.payment_id) IS NOT NEW.company_id;
  SELECT RAISE(ABORT, 'SETTLEMENT_MISMATCH: a line with a gross amount above zero is matched to money in, any other to money out')
   WHERE NEW.payment_id IS NOT NULL
     AND (SELECT direction FROM payment WHERE id = NEW.payment_id) IS NOT iif(NEW.gross_minor > 0, 'in', 'out');
  SELECT RAISE(ABORT, 'SETTLEMENT_MISMATCH: a line is matched to a payment of its provider account and currency; the amounts may differ')
    FROM payment
   WHERE id = NEW.payment_id
     AND (provider, account, currency)
           IS NOT (NEW.provider, NEW.account, (SELECT currency FROM settlement_batch WHERE id = NEW.batch_id));
END;

CREATE TRIGGER settlement_line_update BEFORE UPDATE ON settlement_line
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a line only changes by being matched to a payment, once')
   WHERE OLD.payment_id IS NOT NULL OR NEW.payment_id IS NULL
      OR (NEW.id, NEW.batch_id, NEW.company_id, NEW.provider, NEW.account, NEW.livemode, NEW.txn_id, NEW.category,
          NEW.gross_minor, NEW.fee_minor, NEW.net_minor, NEW.source_ref)
           IS NOT
         (OLD.id, OLD.batch_id, OLD.company_id, OLD.provider, OLD.account, OLD.livemode, OLD.txn_id, OLD.category,
          OLD.gross_minor, OLD.fee_minor, OLD.net_minor, OLD.source_ref);
  SELECT RAISE(ABORT, 'PAYMENT_ALREADY_SETTLED: another line is matched to this payment')
   WHERE EXISTS (SELECT 1 FROM settlement_line WHERE payment_id = NEW.payment_id);
  SELECT RAISE(ABORT, 'WRONG_COMPANY: the payment belongs to another company')
   WHERE (SELECT company_id FROM payment WHERE id = NEW.payment_id) IS NOT NEW.company_id;
  SELECT RAISE(ABORT, 'SETTLEMENT_MISMATCH: a line with a gross amount above zero is matched to money in, any other to money out')
   WHERE (SELECT direction FROM payment WHERE id = NEW.payment_id) IS NOT iif(NEW.gross_minor > 0, 'in', 'out');
  SELECT RAISE(ABORT, 'SETTLEMENT_MISMATCH: a line is matched to a payment of its provider account and currency; the amounts may differ')
    FROM payment
   WHERE id = NEW.payment_id
     AND (provider, account, currency)
           IS NOT (NEW.provider, NEW.account, (SELECT currency FROM settlement_batch WHERE id = NEW.batch_id));
END;

CREATE TRIGGER settlement_line_delete BEFORE DELETE ON settlement_line
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a line of a posted batch is never deleted; reverse the batch')
   WHERE (SELECT status FROM settlement_batch WHERE id = OLD.batch_id) IS 'posted';
END;

CREATE TRIGGER settlement_reversal_insert BEFORE INSERT ON settlement_reversal
BEGIN
  SELECT RAISE(ABORT, 'SETTLEMENT_ALREADY_REVERSED: this payout is reversed, or this id reversed another')
   WHERE EXISTS (SELECT 1 FROM settlement_reversal WHERE batch_id = NEW.batch_id)
      OR EXISTS (SELECT 1 FROM settlement_reversal
                  WHERE company_id = NEW.company_id AND provider = NEW.provider
                    AND account = NEW.account AND external_id = NEW.external_id);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: only a posted batch of this company, provider and account is reversed, not before the date of its entry')
   WHERE NOT EXISTS (SELECT 1 FROM settlement_batch b JOIN journal_entry o ON o.id = b.entry_id
                      WHERE b.id = NEW.batch_id AND b.status = 'posted' AND o.entry_date <= NEW.reversed_on
                        AND (b.company_id, b.provider, b.account) IS (NEW.company_id, NEW.provider, NEW.account));
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: entry_id must be an entry of this batch, purpose payout_reversal, without reverses_id, dated as reversed')
   WHERE NOT EXISTS (SELECT 1 FROM journal_entry
                      WHERE id = NEW.entry_id AND company_id = NEW.company_id
                        AND source_kind = 'settlement_batch' AND source_id = NEW.batch_id
                        AND purpose = 'payout_reversal' AND entry_date = NEW.reversed_on AND reverses_id IS NULL);
  SELECT RAISE(ABORT, 'ENTRY_MISMATCH: the money account must fall and the clearing account rise by the net amount; fees stay booked')
    FROM settlement_batch b
   WHERE b.id = NEW.batch_id
     AND (SELECT (coalesce(sum(l.amount_minor) FILTER (WHERE a.role = 'clearing'), 0),
                  coalesce(sum(l.amount_minor) FILTER (WHERE a.role = 'money'), 0))
                 IS NOT (b.net_minor, -b.net_minor)
            FROM journal_line l JOIN account a ON a.id = l.account_id
           WHERE l.entry_id = NEW.entry_id AND l.currency = b.currency);
END;

CREATE TRIGGER settlement_reversal_inserted AFTER INSERT ON settlement_reversal
BEGIN
  INSERT INTO journal_seal (entry_id) VALUES (NEW.entry_id);
  SELECT RAISE(ABORT, 'REVERSAL_MISMATCH: the reversal could not be posted')
   WHERE NOT EXISTS (SELECT 1 FROM journal_seal WHERE entry_id = NEW.entry_id);
END;

CREATE TRIGGER settlement_reversal_update BEFORE UPDATE ON settlement_reversal
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a reversal is final');
END;

CREATE TRIGGER settlement_reversal_delete BEFORE DELETE ON settlement_reversal
BEGIN
  SELECT RAISE(ABORT, 'IMMUTABLE: a reversal is final');
END;

-- Views ------------------------------------------------------------------------------------------

-- Lines that should have a payment behind them and do not.
CREATE VIEW settlement_unmatched AS
SELECT l.company_id, l.batch_id, b.payout_id, l.id AS line_id, l.txn_id, l.category, l.source_ref,
       b.currency, l.gross_minor, l.fee_minor, l.net_minor
  FROM settlement_line l JOIN settlement_batch b ON b.id = l.batch_id
 WHERE l.payment_id IS NULL AND l.category IN ('charge', 'refund', 'payment', 'payment_refund');

CREATE VIEW integrity_settlement AS
SELECT 'SETTLEMENT_TWICE' AS rule, company_id, 'settlement_batch' AS subject, max(id) AS subject_id
  FROM settlement_batch GROUP BY company_id, provider, account, livemode, payout_id HAVING count(*) > 1
UNION ALL
SELECT 'TRANSACTION_SETTLED_TWICE', company_id, 'settlement_batch', max(batch_id)
  FROM settlement_line GROUP BY company_id, provider, account, livemode, txn_id HAVING count(*) > 1
UNION ALL
SELECT 'PAYMENT_SETTLED_TWICE', company_id, 'payment', payment_id
  FROM settlement_line WHERE payment_id IS NOT NULL GROUP BY payment_id HAVING count(*) > 1
UNION ALL
SELECT 'SETTLEMENT_DOES_NOT_ADD_UP', b.company_id, 'settlement_batch', b.id
  FROM settlement_batch b
 WHERE b.net_minor <> b.gross_minor - b.fee_minor
    OR (b.status = 'posted'
        AND (SELECT (sum(gross_minor), sum(fee_minor), sum(net_minor)) IS NOT (b.gross_minor, b.fee_minor, b.net_minor)
               FROM settlement_line WHERE batch_id = b.id))
    OR (b.status = 'posted' AND b.is_manual = 1
        AND (SELECT (count(*), min(category)) IS NOT (1, 'clearing') FROM settlement_line WHERE batch_id = b.id))
UNION ALL
SELECT 'SETTLEMENT_ENTRY_MISMATCH', b.company_id, 'settlement_batch', b.id
  FROM settlement_batch b
 WHERE (b.status = 'posted') <> (b.entry_id IS NOT NULL)
    OR (b.status = 'posted'
        AND (NOT EXISTS (SELECT 1 FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
                          WHERE e.id = b.entry_id AND e.company_id = b.company_id
                            AND e.source_kind = 'settlement_batch' AND e.source_id = b.id)
             OR (SELECT coalesce(sum(l.amount_minor), 0)
                   FROM journal_line l JOIN account a ON a.id = l.account_id
                  WHERE l.entry_id = b.entry_id AND l.currency = b.currency AND a.role = 'clearing')
                <> -b.gross_minor))
UNION ALL
SELECT 'SETTLEMENT_LINE_OF_OTHER_BATCH', l.company_id, 'settlement_batch', l.batch_id
  FROM settlement_line l LEFT JOIN settlement_batch b ON b.id = l.batch_id
  LEFT JOIN payment p ON p.id = l.payment_id
 WHERE (b.company_id, b.provider, b.account, b.livemode) IS NOT (l.company_id, l.provider, l.account, l.livemode)
    OR (l.payment_id IS NOT NULL AND p.company_id IS NOT l.company_id)
UNION ALL
SELECT 'SETTLEMENT_MISMATCH', l.company_id, 'settlement_batch', l.batch_id
  FROM settlement_line l JOIN settlement_batch b ON b.id = l.batch_id JOIN payment p ON p.id = l.payment_id
 WHERE p.direction <> iif(l.gross_minor > 0, 'in', 'out')
    OR (p.provider, p.account, p.currency) IS NOT (l.provider, l.account, b.currency)
UNION ALL
SELECT 'SETTLEMENT_REVERSAL_WRONG', r.company_id, 'settlement_batch', r.batch_id
  FROM settlement_reversal r
  LEFT JOIN settlement_batch b ON b.id = r.batch_id
  LEFT JOIN journal_entry e ON e.id = r.entry_id
  LEFT JOIN journal_seal s ON s.entry_id = e.id
 WHERE (b.company_id, b.provider, b.account, b.status) IS NOT (r.company_id, r.provider, r.account, 'posted')
    OR s.entry_id IS NULL
    OR (e.company_id, e.source_kind, e.source_id, e.purpose, e.entry_date, e.reverses_id)
         IS NOT (r.company_id, 'settlement_batch', r.batch_id, 'payout_reversal', r.reversed_on, NULL)
    OR e.entry_date < (SELECT entry_date FROM journal_entry WHERE id = b.entry_id)
    OR (SELECT (coalesce(sum(l.amount_minor) FILTER (WHERE a.role = 'clearing'), 0),
                coalesce(sum(l.amount_minor) FILTER (WHERE a.role = 'money'), 0))
               IS NOT (b.net_minor, -b.net_minor)
          FROM journal_line l JOIN account a ON a.id = l.account_id
         WHERE l.entry_id = r.entry_id AND l.currency = b.currency)
UNION ALL
SELECT 'ENTRY_WITHOUT_DOCUMENT', e.company_id, 'journal_entry', e.id
  FROM journal_entry e JOIN journal_seal s ON s.entry_id = e.id
 WHERE e.source_kind = 'settlement_batch'
   AND NOT EXISTS (SELECT 1 FROM settlement_batch
                    WHERE id = e.source_id AND status = 'posted' AND entry_id = e.id)
   AND NOT EXISTS (SELECT 1 FROM settlement_reversal WHERE batch_id = e.source_id AND entry_id = e.id);
