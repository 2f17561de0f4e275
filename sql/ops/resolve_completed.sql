-- It happened: the answer becomes that of every retry, and the key is done. For a record that
-- ops/stuck lists with blocks = 1, after somebody has found out (the provider's records, the bank
-- statement, the customer). Needs idem loaded.
--
--   :scope, :key   which
--   :response      what the client would have got: text, blob or NULL
--   :code          its status, 201 say; NULL: none
--   :headers       its headers, as the application stores them; NULL: none
--
-- Refused while a lease is live (a worker may still say better), and if the record is completed
-- with another answer. The worker's token is spent: if it comes late, it is told "claim lost"
-- and rolls back. Business rows that the answer speaks of are yours to enter, in the same
-- transaction.

SELECT idem_resolve(:scope, :key, 'completed', :response, :code, :headers);

SELECT key, state, code, response FROM idem_records WHERE scope = :scope AND key = :key;
