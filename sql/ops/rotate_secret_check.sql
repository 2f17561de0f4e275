-- May the old secret of idem_hmac_fingerprint() be destroyed? Reads only; needs idem loaded.
--
--   :rotated_at   when the last process began to use ops/rotate_secret_claim, ms since 1970 UTC
--
-- records = 0: yes. Else: until_utc is when the last of the finished ones is forgotten; those in
-- 'open' (running, released, unknown) must be finished first.

SELECT count(*) AS records,
       count(*) FILTER (WHERE tombstone_until IS NULL) AS open,
       datetime(max(tombstone_until) / 1000, 'unixepoch') AS until_utc
FROM idem_records
WHERE fingerprint GLOB 'idemh1:*' AND created_at <= :rotated_at;
