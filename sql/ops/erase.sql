-- Erases a person's records, for a privacy request. Needs idem loaded, and autocommit.
--
--   :scope   whose; required
--   :key     one key alone; NULL or not set: all of the scope
--
-- WHAT GOES      answers, headers, checkpoints, reasons, fingerprints, keys: the whole record. Its
--                bytes are overwritten, and the -wal file is emptied, if the three numbers of the
--                checkpoint begin with 0. With 1 another connection was in the way (a reader with
--                a transaction open, a backup), and the bytes are still in the -wal: run this
--                again.
-- WHAT STAYS     - records that run or that nobody has decided ('not erased'): resolve these, then
--                  run this again;
--                - the audit: scope, key, operation and reason of each event, of this one too. It
--                  is append-only. So let scopes and keys be names without a person in them, and
--                  keep persons out of reasons;
--                - event ids of idem_seen(), which go after their retention;
--                - your own rows, the ledger's documents (kept by law), backups, logs.
--
-- An erased key is free: a late retry of it would run. Erase after the last retry can have come.

-- json_extract() is how a SELECT fails with a sentence.
SELECT json_extract('{}', 'NOTHING ERASED: :scope is not set, see .param list')
WHERE :scope IS NULL;

SELECT 'secure_delete, 1 is on:';

PRAGMA secure_delete = ON;

DELETE FROM idem_records
WHERE scope = :scope AND (:key IS NULL OR key = :key) AND state NOT IN ('processing', 'unknown');

SELECT 'erased: ' || iif(:scope IS NULL, 'nothing, no scope was given', changes());

-- Records whose time is over are not visible any more, and wait for a purge: once to lose the
-- answer, once to go. In short transactions, since the purge takes everybody's.
SELECT 'purged, of any scope: ' || idem_purge(10000);

SELECT 'purged again, of any scope: ' || idem_purge(10000);

SELECT 'checkpoint, 0 first is good: blocked, frames in the -wal, frames copied:';

PRAGMA main.wal_checkpoint(TRUNCATE);

SELECT 'not erased' AS what, key, operation, state, reason
FROM idem_records
WHERE scope = :scope AND (:key IS NULL OR key = :key);

-- A subquery, as HAVING without GROUP BY is SQLite 3.39.
SELECT 'not purged yet, run this again' AS what, records
FROM (
  SELECT count(*) AS records
  FROM idem_store AS s
  WHERE scope = :scope AND (:key IS NULL OR key = :key)
    AND NOT EXISTS (SELECT 1 FROM idem_records AS r WHERE r.scope = s.scope AND r.key = s.key)
)
WHERE records > 0;
