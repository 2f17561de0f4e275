-- One key: what its record says now, and what the audit has of it. Reads only; needs idem loaded.
--
--   :scope, :key   which
--
-- The audit has exceptions only (take-over, release, suspend, resolve, exhausted, erase), or all,
-- by the policy of the operation. It has no index by key: this reads all of it.

SELECT operation, state, outcome, attempt, code, recovery_point, reason, lease_remaining_ms,
       datetime(created_at / 1000, 'unixepoch') AS created_utc,
       datetime(completed_at / 1000, 'unixepoch') AS completed_utc,
       message
FROM idem_records
WHERE scope = :scope AND key = :key;

SELECT 'no record of this scope and key' || iif(:scope IS NULL OR :key IS NULL, ': not set', '')
WHERE NOT EXISTS (SELECT 1 FROM idem_records WHERE scope = :scope AND key = :key);

SELECT id, datetime(at / 1000, 'unixepoch') AS at_utc, event, attempt, detail
FROM main.idem_audit
WHERE scope = :scope AND key = :key
ORDER BY id;
