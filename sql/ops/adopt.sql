-- Something that happened has no record (a restored file has forgotten it, or it was done before
-- idem came): make its record, so that a retry gets the answer and does not run again. Or a record
-- was resolved with ops/resolve_retry by mistake, and nobody has retried yet: give it the answer.
-- Needs idem loaded. One transaction; run with -bail, or stop at the first error.
--
--   :scope, :key     which
--   :fingerprint     of its request: idem_fingerprint(body) of the logged body, as the application
--                    makes it. If no body was kept: any text, 'lost' say. Every retry is then
--                    refused as a mismatch, 422: not helpful, but it never runs.
--                    After resolve_retry the one in the record; in the shell:
--                    .param set :fingerprint
--                      "(SELECT fingerprint FROM idem_records WHERE scope = 'a' AND key = 'p1')"
--                    (on one line)
--   :operation       as the application claims it, '' if it names none
--   :response, :code, :headers   the answer that the client got, or would have got; how to quote
--                    it in the shell, and what .param does not tell: ops/resolve_completed.
--                    .param clear first
--   :no_response     1 if the answer has no body; else a :response that is NULL is refused
--   :token           16 to 128 printable characters of your own, 'adopted-2026-11-30-1' say
--
-- If the key has a record that is not released, or one of another request, idem_complete() fails
-- and nothing is changed: see ops/history.

BEGIN IMMEDIATE;

-- An answer stays, so ask first. json_extract() is how a SELECT fails with a sentence.
SELECT json_extract(
  idem_claim(
    CASE
      WHEN :response IS NULL AND :no_response IS NOT 1 THEN
        json_extract('{}', 'NOTHING DONE: :response is NULL or not set, see .param list. '
                        || 'Set it, or set :no_response to 1 if the answer has no body')
      WHEN :token IS NULL THEN
        json_extract('{}', 'NOTHING DONE: :token is not set: 16 to 128 characters of your own')
      ELSE :scope
    END, :key, :fingerprint, :operation, :token),
  '$.outcome') AS outcome;

SELECT idem_complete(:scope, :key, :token, :response, :code, :headers) AS completed;

COMMIT;
