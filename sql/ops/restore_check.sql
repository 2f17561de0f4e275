-- A file came back from a backup: is it whole, is it the one, and how much has it forgotten? Needs
-- idem loaded; writes nothing but, in a file without a store, the store. Nothing else may have the
-- file open yet. Before a file is put back under its name, remove the -wal and -shm files of the
-- old one: SQLite would take them for this one's.
--
--   :audit_id, :audit_digest   the head of the audit chain as it was written down at the backup
--                              (ops/backup), or the last line of ops/audit_export. NULL: not known
--
-- Every line but the last must end in 'ok'. Then run ops/after_restore; for the ledger
-- ops/ledger_floor and SELECT * FROM integrity_report.
--
-- THE DANGER OF A RESTORED FILE is that it gives out again what the world has seen already:
-- document numbers, rowids, attempts, and the right to execute keys that it has forgotten.

SELECT 'schema version ' || idem_init() || ': ok';

SELECT 'file: ' || group_concat(integrity_check, '; ') FROM pragma_integrity_check;

SELECT 'foreign keys: ' || iif(count(*) = 0, 'ok', count(*) || ' rows without their parent')
FROM pragma_foreign_key_check;

SELECT 'audit: ' || iif(idem_audit_verify() IS NULL, 'ok',
                        'BROKEN at id ' || idem_audit_verify());

SELECT 'audit head: ' ||
       CASE
         WHEN :audit_id IS NULL THEN 'not compared: ok'
         WHEN :audit_id > (SELECT ifnull(max(id), 0) FROM main.idem_audit) THEN
           (:audit_id - (SELECT ifnull(max(id), 0) FROM main.idem_audit)) || ' rows are MISSING'
         WHEN ifnull((SELECT digest FROM main.idem_audit WHERE id = :audit_id), 'idem-audit')
              IS NOT :audit_digest THEN 'ANOTHER chain'
         ELSE 'ok'
       END;

-- The newest thing it remembers; what came later is lost.
SELECT 'remembers until ' || ifnull(strftime('%Y-%m-%d %H:%M:%f',
         (SELECT max(updated_at) FROM main.idem_store) / 1000.0, 'unixepoch') || ' UTC', 'nothing');
