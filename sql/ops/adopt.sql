-- Something that happened has no record (a restored file has forgotten it, or it was done before
-- idem came): make its record, so that a retry gets the answer and does not run again. Needs idem
-- loaded. One transaction; run with -bail, or stop at the first error.
--
--   :scope, :key     which
--   :fingerprint     of its request: idem_fingerprint(body) of the logged body, as the application
--                    makes it. If no body was kept: any text, 'lost' say. Every retry is then
--                    refused as a mismatch, 422: not helpful, but it never runs
--   :operation       as the application claims it, '' if it names none
--   :response, :code, :headers   the answer that the client got, or would have got
--   :token           16 to 128 printable characters of your own, 'adopted-2026-11-30-1' say
--
-- If the key has a record already, idem_complete() fails and nothing is changed: see ops/history.

BEGIN IMMEDIATE;

SELECT idem_claim(:scope, :key, :fingerprint, :operation, :token) ->> '$.outcome';

SELECT idem_complete(:scope, :key, :token, :response, :code, :headers);

COMMIT;
