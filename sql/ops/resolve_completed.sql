-- It happened: the answer becomes that of every retry, and the key is done. For a record that
-- ops/stuck lists with blocks = 1, after somebody has found out (the provider's records, the bank
-- statement, the customer). Needs idem loaded.
--
--   :scope, :key   which
--   :response      what the client would have got, text or blob. Mind the shell's quotes:
--                    .param set :response "'{\"payment\":\"pay_1\"}'"
--                  A .param line that prints its help has set nothing, and -bail does not stop
--                  there; and what the task before has set stays set. So .param clear first,
--                  and look at .param list before you go on
--   :no_response   1 if the answer has no body; else a :response that is NULL or not set is refused
--   :code          its status, 201 say; NULL: none
--   :headers       its headers, as the application stores them; NULL: none
--
-- Refused while a lease is live (a worker may still say better), and if the record is completed
-- with another answer. The worker's token is spent: if it comes late, it is told "claim lost"
-- and rolls back. Business rows that the answer speaks of are yours to enter, in the same
-- transaction.

-- An answer stays, so ask first. json_extract() is how a SELECT fails with a sentence.
SELECT idem_resolve(:scope, :key,
  iif(:response IS NULL AND :no_response IS NOT 1,
      json_extract('{}', 'NOTHING DONE: :response is NULL or not set, see .param list. '
                      || 'Set it, or set :no_response to 1 if the answer has no body'),
      'completed'),
  :response, :code, :headers) AS resolved;

SELECT key, state, code, response FROM idem_records WHERE scope = :scope AND key = :key;
