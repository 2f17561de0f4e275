-- A payment in three steps that survives a crash after any of them:
--
--     reserve the stock (ours)  ->  charge the card (the provider's)  ->  ship (ours), and answer
--
-- Each step that is ours is one transaction with its checkpoint: both happen or neither. The step that
-- is the provider's cannot be in a transaction with ours, so it is made repeatable instead: every
-- attempt sends the provider the same key, derived from the client's, and the provider charges once.
--
-- An attempt begins with a claim. A later attempt is told the last recovery point and goes on from
-- there; it never has to ask how far the dead one came. Each section below, from its name to the next
-- one, is run as it stands; names with a colon are parameters:
--
--     :account   who pays: the scope of the key             :key     the client's Idempotency-Key
--     :body      the request as JSON                        :token   what the claim answered
--     :sku, :quantity, :amount   read from the request      :order   read from the checkpoint
--     :charge    the provider's name of the charge
--
-- Run the sections in autocommit mode (Python: isolation_level=None): they say BEGIN and COMMIT where
-- they mean it. If a section fails, run ROLLBACK; an error that begins with "claim lost" after the
-- function's name means that another attempt has taken over, which will finish the work: stop here.


-- section: setup
-- Business tables, and how this operation behaves. A stale claim may be taken over ('retry') because
-- every step may be repeated. If the provider did not know idempotency keys, it would have to be
-- 'unknown': then somebody asks the provider and calls idem_resolve().

CREATE TABLE stock(
  sku  TEXT PRIMARY KEY,
  free INTEGER NOT NULL CHECK (free >= 0)
) STRICT;

CREATE TABLE orders(
  id       INTEGER PRIMARY KEY,
  account  TEXT NOT NULL,
  sku      TEXT NOT NULL REFERENCES stock,
  quantity INTEGER NOT NULL CHECK (quantity > 0),
  amount   INTEGER NOT NULL CHECK (amount > 0),    -- cents
  status   TEXT NOT NULL CHECK (status IN ('reserved', 'charged', 'shipped', 'declined')),
  charge   TEXT
) STRICT;

CREATE TABLE shipment(
  id       INTEGER PRIMARY KEY,
  order_id INTEGER NOT NULL REFERENCES orders
) STRICT;

INSERT INTO idem_policy(operation, lease_ms, on_stale, description)
VALUES ('POST /orders', 30000, 'retry', 'reserve, charge and ship; safe to repeat');


-- section: claim
-- Committed by itself, before anything happens. The answer is JSON; act on its outcome:
--
--     claimed       go on by its recovery_point:  (none)      run 'reserve', then as below
--                                                 'reserved'  charge, run 'charged', then as below
--                                                 'charged'   run 'ship'
--     replay        give the client code, headers and response: done before
--     in_progress   409, with a Retry-After of retry_after_ms
--     anything else give the client http_status and message

INSERT INTO idem_call DEFAULT VALUES
RETURNING idem_claim(:account, :key, idem_fingerprint(:body), 'POST /orders');


-- section: reserve
-- If the UPDATE changes no row, the goods are sold out: ROLLBACK, and run 'sold_out' instead.

BEGIN IMMEDIATE;
UPDATE stock SET free = free - :quantity WHERE sku = :sku AND free >= :quantity;
INSERT INTO orders(account, sku, quantity, amount, status)
VALUES (:account, :sku, :quantity, :amount, 'reserved');
SELECT idem_checkpoint(:account, :key, :token, 'reserved', json_object('order', last_insert_rowid()));
COMMIT;


-- section: charge_key
-- What to send the provider as its idempotency key. The account is part of it: keys are unique within
-- an account only, and two accounts may well choose the same one. Call the provider outside any
-- transaction. If it does not answer, end the attempt; the client's retry continues it.

SELECT idem_derive_key(:key, :account, 'charge');


-- section: charged

BEGIN IMMEDIATE;
UPDATE orders SET status = 'charged', charge = :charge WHERE id = :order AND status = 'reserved';
SELECT idem_checkpoint(:account, :key, :token, 'charged', json_object('order', CAST(:order AS INTEGER)));
COMMIT;


-- section: ship
-- The last step, with the answer that every retry will get.

BEGIN IMMEDIATE;
INSERT INTO shipment(order_id) VALUES (:order);
UPDATE orders SET status = 'shipped' WHERE id = :order;
SELECT idem_complete(:account, :key, :token,
                     json_object('order', CAST(:order AS INTEGER), 'status', 'shipped'), 201,
                     json_object('Content-Type', 'application/json', 'Location', '/orders/' || CAST(:order AS INTEGER)));
COMMIT;


-- section: sold_out
-- A refusal is an answer too: the retry of this request gets it again, whatever the stock is by then.

SELECT idem_complete(:account, :key, :token, json_object('error', 'sold out'), 409,
                     json_object('Content-Type', 'application/json'));


-- section: declined
-- The provider refused the card for good: the goods go back, and that is the answer.

BEGIN IMMEDIATE;
UPDATE stock SET free = free + (SELECT quantity FROM orders WHERE id = :order)
WHERE sku = (SELECT sku FROM orders WHERE id = :order);
UPDATE orders SET status = 'declined' WHERE id = :order;
SELECT idem_complete(:account, :key, :token, json_object('order', CAST(:order AS INTEGER), 'status', 'declined'), 402,
                     json_object('Content-Type', 'application/json'));
COMMIT;
