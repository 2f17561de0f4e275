-- Changes the policy of an operation, or gives it one; what is NULL or not set stays as it is (in a
-- new row: as the default row '*' has it). Plain SQL: idem need not be loaded.
--
--   :operation   its name, as it is claimed; '*' for all that have none of their own
--   :lease_ms, :retention_ms, :tombstone_ms, :wait_ms, :on_stale, :max_attempts,
--   :max_response_bytes, :allow_content_key, :audit, :description
--
-- Effective at the next call of every connection. Deadlines are fixed when they are granted: the
-- first three do not move those of records that exist, the others apply to these at once.

BEGIN IMMEDIATE;

INSERT INTO main.idem_policy
SELECT :operation, lease_ms, retention_ms, tombstone_ms, wait_ms, on_stale, max_attempts,
       max_response_bytes, allow_content_key, audit, NULL
FROM main.idem_policy
WHERE operation = '*'
  AND NOT EXISTS (SELECT 1 FROM main.idem_policy WHERE operation = :operation);

UPDATE main.idem_policy
SET lease_ms           = ifnull(:lease_ms, lease_ms),
    retention_ms       = ifnull(:retention_ms, retention_ms),
    tombstone_ms       = ifnull(:tombstone_ms, tombstone_ms),
    wait_ms            = ifnull(:wait_ms, wait_ms),
    on_stale           = ifnull(:on_stale, on_stale),
    max_attempts       = ifnull(:max_attempts, max_attempts),
    max_response_bytes = ifnull(:max_response_bytes, max_response_bytes),
    allow_content_key  = ifnull(:allow_content_key, allow_content_key),
    audit              = ifnull(:audit, audit),
    description        = ifnull(:description, description)
WHERE operation = :operation;

COMMIT;

-- What clients may now rely on.
SELECT document FROM main.idem_contract WHERE operation = :operation;

-- The policy of a misspelt name would never be used.
SELECT 'no record has this operation yet: is it spelt as it is claimed?'
WHERE :operation <> '*' AND NOT EXISTS (SELECT 1 FROM main.idem_store WHERE operation = :operation);
