-- After a backup was restored: what was going on when it was made may not go on by itself.
--
-- WHAT A RESTORED FILE HAS FORGOTTEN
--   A backup is an earlier moment of the file. What was committed after that moment is gone, here
--   and only here: cards were charged, mail was sent, clients hold answers. So of every record
--
--     completed, expired    still true: an answer never changes
--     processing            its worker may have finished since
--     released              somebody may have claimed it again since, and finished
--     unknown               somebody may have resolved it since
--     none at all           the key may have been claimed and finished since: no SQL finds it
--
-- WHAT THIS FILE DOES
--   Every record of the three middle kinds loses its token, so that no worker of the time before
--   can write to it, and becomes
--
--     unknown    where the policy says on_stale = 'unknown', or it was unknown before: somebody
--                finds out what happened and says so: ops/resolve_completed, ops/resolve_retry
--     released   where the policy says on_stale = 'retry': the operation may safely run twice,
--                so the next retry runs it
--
--   Attempts go on 1,000 higher: a number that was given out in the lost time does not come again,
--   for whoever fences by it. How many attempts are left (max_attempts) does not change. Each
--   record gets its row in the audit with :reason, whatever the audit level; one more row,
--   'restore', says that all this was done.
--
-- WHAT REMAINS TO BE DONE
--   Keys claimed in the lost time are not here; a retry of one is told 'claimed' and runs. That is
--   right where effect and record were in one transaction: both are gone. For effects outside it
--   is right only if the provider was sent idem_derive_key(): it answers as it did the first time.
--   Else compare the provider's list with yours before you open, and enter what is missing:
--   ops/adopt. Numbers that were sent out must not be given out again: ops/ledger_floor.
--
-- WHEN
--   Once per restore, after ops/restore_check, before the first writer. It is one transaction; run
--   again with the same :reason it does nothing. Needs idem loaded. From the shell:
--
--     sqlite3 -bail shop.db
--     .load ./idem
--     .param set :reason "'restored on 2026-11-30, backup of 14:05'"
--     .read sql/ops/after_restore.sql
--
--   :reason   what was restored, and when: 1 to 1000 characters

-- json_extract() is how a SELECT fails with a sentence.
SELECT json_extract('{}', 'NOTHING DONE: :reason is required, 1 to 1000 characters')
WHERE NOT ifnull(length(:reason) BETWEEN 1 AND 1000, 0);

-- Refuses a file whose store is not what idem created.
SELECT 'schema version ' || idem_init();

BEGIN IMMEDIATE;

UPDATE main.idem_store
SET state       = iif(state <> 'unknown' AND p.on_stale = 'retry', 'released', 'unknown'),
    audit_event = iif(state <> 'unknown' AND p.on_stale = 'retry', 'release', 'suspend'),
    reason      = :reason,
    token       = NULL,
    spent       = substr(ifnull(token || char(10), '') || ifnull(spent, ''), 1, 8192),
    attempt     = attempt + 1000,
    granted     = granted + 1000,
    due_at      = NULL,
    updated_at  = idem_clock()
FROM main.idem_policy AS p
WHERE p.operation = ifnull((SELECT q.operation FROM main.idem_policy AS q
                            WHERE q.operation = idem_store.operation), '*')
  AND state IN ('processing', 'released', 'unknown')
  AND length(:reason) BETWEEN 1 AND 1000
  AND NOT EXISTS (SELECT 1 FROM main.idem_audit WHERE event = 'restore' AND key = :reason);

-- Who goes on without a :reason fails here again: the audit's rows have no NULL.
INSERT INTO main.idem_audit_entry(at, event, scope, key, operation, attempt, detail)
SELECT idem_clock(), 'restore', '', iif(length(:reason) BETWEEN 1 AND 1000, :reason, NULL), '', 0,
       'records fenced: ' || changes()
WHERE NOT EXISTS (SELECT 1 FROM main.idem_audit WHERE event = 'restore' AND key = :reason);

COMMIT;

-- What waits for a decision, and what the next retry will run.
SELECT scope, key, operation, state, attempt, recovery_point
FROM idem_records
WHERE reason = :reason AND state IN ('unknown', 'released')
ORDER BY state DESC, operation, scope, key;
