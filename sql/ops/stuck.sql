-- What is stuck, and why. Reads only; needs idem loaded.
--
--     sqlite3 -readonly shop.db
--     .load ./idem
--     .param clear                what an earlier task has set stays set
--     .read sql/ops/stuck.sql
--
--   :scope     one tenant alone; NULL or not set: all
--   :slow_ms   live work is listed when it is this old; NULL or not set: 10 minutes
--
-- blocks = 1: no retry gets through before somebody decides (ops/resolve_completed,
-- ops/resolve_retry). blocks = 0: the next retry goes on by itself, or the work still runs. Why a
-- record came to this tells ops/history.

WITH found AS (
  SELECT *,
         CASE
           WHEN outcome = 'exhausted'                   THEN 'exhausted'
           WHEN state = 'unknown' AND lease_until NOTNULL THEN 'lease over'
           WHEN state = 'unknown'                       THEN 'suspended'
           WHEN state = 'released'                      THEN 'not retried'
           WHEN lease_remaining_ms = 0                  THEN 'not taken over'
           ELSE                                              'slow'
         END AS why
  FROM idem_records
  WHERE state IN ('unknown', 'released', 'processing')
    AND (:scope IS NULL OR scope = :scope)
    AND (state <> 'processing' OR lease_remaining_ms = 0
         OR age_ms >= ifnull(CAST(:slow_ms AS INTEGER), 600000))
)
SELECT scope, key, operation, why,
       why IN ('exhausted', 'lease over', 'suspended') AS blocks,
       CASE why
         WHEN 'exhausted'      THEN 'max_attempts are used up: find out why they failed, resolve'
         WHEN 'lease over'     THEN 'its worker died or is slow: ask the provider, resolve'
         WHEN 'suspended'      THEN 'its worker did not know: ask the provider, resolve'
         WHEN 'not retried'    THEN 'it did not happen, and the client did not come back'
         WHEN 'not taken over' THEN 'its worker died, and the client did not come back'
         ELSE                       'it runs, and its lease is renewed'
       END AS what_to_do,
       attempt, recovery_point, reason,
       datetime(created_at / 1000, 'unixepoch') AS created_utc,
       age_ms / 1000 AS age_s
FROM found
ORDER BY blocks DESC, created_at, scope, key;
