-- idem ledger · 95 · what the error codes mean to a caller
--
-- Every RAISE of this schema starts with one of these codes and a colon. store_answer says whether the
-- answer belongs under the idempotency key: yes for outcomes of the business (the client takes a new
-- key once the obstacle is gone), no for faults and for what request or settings lack, after which
-- everything is rolled back and the same key may run again. SQLITE_BUSY, FULL and IOERR are
-- no codes of this schema: nothing happened, answer 503.

-- Views ------------------------------------------------------------------------------------------

CREATE VIEW ledger_error (code, http_status, store_answer, meaning) AS
VALUES
  -- Duplicates: a natural key is taken.
  ('ORDER_ALREADY_INVOICED', 409, 1, 'another invoice holds this order part; order_invoice_status names it'),
  ('REFUND_ALREADY_CREDITED', 409, 1, 'a credit note of this invoice has this refund reference'),
  ('DUPLICATE_SUPPLIER_DOCUMENT', 409, 1, 'a bill of this supplier has this number; bill_claim names it; an override needs a reason'),
  ('MERGE_WOULD_DUPLICATE', 409, 1, 'two bills would share one number; void one first, and register it again as an override'),
  ('DEPRECIATION_PERIOD_ALREADY_POSTED', 409, 1, 'the asset has depreciation in this period, posted or in a draft'),
  ('PAYMENT_ALREADY_RECORDED', 409, 1, 'the provider account has this external id; use that payment'),
  ('ALLOCATION_EXISTS', 409, 1, 'this payment is allocated to this document'),
  ('SETTLEMENT_ALREADY_IMPORTED', 409, 1, 'this payout is imported'),
  ('SETTLEMENT_ALREADY_REVERSED', 409, 1, 'this payout is reversed, or this id reversed another'),
  ('TRANSACTION_ALREADY_SETTLED', 409, 1, 'a batch holds this provider transaction'),
  ('PAYMENT_ALREADY_SETTLED', 409, 1, 'a settlement line is matched to this payment'),
  ('EVENT_ALREADY_PROCESSED', 200, 1, 'this event is finished; acknowledge and do nothing'),
  ('ENTRY_ALREADY_POSTED', 409, 1, 'this source is posted for this purpose'),
  ('ENTRY_ALREADY_REVERSED', 409, 1, 'this entry is reversed'),
  ('ALREADY_ANNULLED', 409, 1, 'this invoice is annulled'),
  ('ALREADY_VOIDED', 409, 1, 'this bill is voided'),
  ('PARTY_EXISTS', 409, 1, 'a party has this VAT id or id'),
  ('ACCOUNT_EXISTS', 409, 1, 'an account has this code or id'),
  ('ASSET_EXISTS', 409, 1, 'an asset has this code or id'),
  ('SERIES_EXISTS', 409, 1, 'a series has this code or id'),
  ('TAX_CODE_EXISTS', 409, 1, 'a tax code has this name; a new rate is a new code'),
  ('FISCAL_YEAR_OVERLAP', 409, 1, 'fiscal years share days or a label'),
  ('VAT_PERIOD_OVERLAP', 409, 1, 'VAT periods share days or a label'),
  ('FULL_NUMBER_TAKEN', 409, 1, 'another series has printed this number; its template must differ'),
  -- Final rows.
  ('IMMUTABLE', 409, 1, 'the row is final; correct it by credit note, void or reversal'),
  ('ENTRY_SEALED', 409, 1, 'the entry is sealed; reverse it'),
  -- Business rules.
  ('ORDER_TOTAL_EXCEEDED', 422, 1, 'the order is worth less than would be invoiced'),
  ('CREDIT_EXCEEDS_INVOICE', 422, 1, 'more would be credited than invoiced, in total or of one tax code'),
  ('CREDITED_NOT_ISSUED', 422, 1, 'only a final document that still stands can be credited'),
  ('CREDIT_MISMATCH', 422, 1, 'company, partner, currency, rate or date differ from the credited document'),
  ('ANNULMENT_NOT_ALLOWED', 422, 1, 'credit the invoice instead'),
  ('VOID_NOT_ALLOWED', 422, 1, 'register a supplier credit note instead'),
  ('DOCUMENT_NUMBER_UNREADABLE', 422, 1, 'type the number in letters and digits, or say it is absent'),
  ('OVERRIDE_WITHOUT_REASON', 422, 1, 'a second bill under a number needs a dup_reason'),
  ('OVERRIDE_NOT_NEEDED', 422, 1, 'there is no bill to override; use the next free dup_seq'),
  ('MERGE_INVALID', 422, 1, 'merge once, into a party of the company that is not merged itself'),
  ('DEPRECIATION_EXCEEDS_BASE', 422, 1, 'more than cost less residual value'),
  ('DEPRECIATION_OUT_OF_SERVICE', 422, 1, 'before the asset is in service or after its disposal'),
  ('SETTLEMENT_DOES_NOT_ADD_UP', 422, 1, 'the lines are not the payout'),
  ('SETTLEMENT_MISMATCH', 422, 1, 'line and payment differ in direction, currency or provider account'),
  ('ALLOCATION_EXCEEDS_PAYMENT', 422, 1, 'the payment does not hold that much any more'),
  ('ALLOCATION_EXCEEDS_DOCUMENT', 422, 1, 'the document does not ask for that much any more'),
  ('ALLOCATION_MISMATCH', 422, 1, 'this payment does not pay this document, not in these amounts, or not on that day'),
  ('PAYMENT_NOT_POSTED', 422, 1, 'only a posted, unreversed payment can be allocated'),
  ('PAYMENT_ALLOCATED', 422, 1, 'undo the allocations first'),
  ('REVERSAL_MISMATCH', 422, 1, 'a reversal repeats its original with the opposite sign, once, and not before what it takes back'),
  ('PERIOD_LOCKED', 422, 1, 'the date is locked or in no open fiscal year'),
  ('WRONG_PERIOD', 422, 1, 'the number period does not follow from the date'),
  ('DATE_BEFORE_PREVIOUS', 422, 1, 'this series demands dates in the order of numbers'),
  ('SERIES_MISMATCH', 422, 1, 'the series does not fit company, kind or period'),
  ('VAT_PERIOD_MISMATCH', 422, 1, 'documents of these days have no VAT period; begin after them'),
  ('TAX_CODE_MISMATCH', 422, 1, 'the company has no such tax code, or it is out of date or bears no tax'),
  ('WRONG_COMPANY', 422, 1, 'rows of two companies do not mix'),
  ('MUST_START_AS_DRAFT', 422, 1, 'insert a draft, then make it final with UPDATE'),
  -- What the request or the settings lack: roll everything back; the key may come again once it is there.
  ('DOCUMENT_MISSING', 422, 0, 'no draft was made: this company has no such customer, supplier or document, or the currency is not its own'),
  ('LINES_MISSING', 422, 0, 'a document has at least one line'),
  ('WRONG_VAT_PERIOD', 422, 0, 'take the first open VAT period for the tax point; if there is none, insert it'),
  ('ACCOUNT_NOT_USABLE', 422, 0, 'an account is closed, a group, foreign, or needs a party'),
  -- Faults of the program or the sender: roll everything back.
  ('NUMBER_NOT_NEXT', 500, 0, 'take the number from next_number in the issuing statement'),
  ('TOTALS_MISMATCH', 500, 0, 'header, lines and tax rows do not add up'),
  ('RATE_MISMATCH', 500, 0, 'base amounts are not the amounts times the rate'),
  ('ENTRY_MISMATCH', 500, 0, 'the posting does not mirror the document'),
  ('ENTRY_UNBALANCED', 500, 0, 'the entry does not add up to zero'),
  ('ENTRY_TOO_SMALL', 500, 0, 'an entry has at least two lines'),
  ('ENTRY_MISSING', 500, 0, 'there is no such entry'),
  ('SOURCE_NOT_POSTED', 500, 0, 'the entry of a document is sealed by that document'),
  ('CLAIM_MISMATCH', 500, 0, 'claims are written by the schema itself'),
  ('EVENT_ID_REUSED_WITH_OTHER_BODY', 400, 0, 'keep it in webhook_conflict and raise an alert');
