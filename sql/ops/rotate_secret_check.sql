-- May the old secret of idem_hmac_fingerprint() be destroyed? Reads only; needs idem loaded.
--
--   :rotated_at   when the last process began to use ops/rotate_secret_claim, ms since 1970 UTC
--
-- A time of before 2001 is refused: that was seconds, or nothing.
--
-- records = 0: yes. Else: until_utc is when the last of the finished ones is forgotten; those in
-- 'open' (running, released, unknown) must be finished first.

-- json_extract() is how a SELECT fails with a sentence.
SELECT json_extract('{}', 'NOT KNOWN: :rotated_at is milliseconds since 1970, a whole number')
WHERE typeof(:rotated_at) NOT IN ('integer', 'real') OR :rotated_at < 978307200000;

SELECT count(*) AS records,
       count(*) FILTER (WHERE tombstone_until IS NULL) AS open,
       datetime(max(tombstone_until) / 1000, 'unixepoch') AS until_utc
FROM idem_records
WHERE fingerprint GLOB 'idemh1:*'
  AND (created_at <= :rotated_at OR typeof(:rotated_at) NOT IN ('integer', 'real')
                                 OR :rotated_at < 978307200000);
