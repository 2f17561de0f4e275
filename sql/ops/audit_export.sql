-- Copies the audit's newest rows out: one line of JSON each, for a place that the writers of this
-- database cannot change. Reads only; needs idem loaded.
--
--   :after_id       the id of the last row exported before; 0 at first
--   :after_digest   its digest, from that export; 'idem-audit' at first
--
-- The first line says whether the chain is whole and still holds what was exported: keep nothing
-- that follows a line 'BROKEN'. The chain itself is never cut: a row is some 300 bytes, and at the
-- level 'exceptions' there is one only when something went wrong. What shows that the end of the
-- chain was cut off is the last line of the last export.

-- json_extract() is how a SELECT fails with a sentence.
SELECT json_extract('{}', 'NOTHING EXPORTED: :after_id and :after_digest are not set. They are '
                       || 'the last row exported before; at first 0 and idem-audit')
WHERE :after_id IS NULL OR :after_digest IS NULL;

SELECT CASE
         WHEN :after_id IS NULL OR :after_digest IS NULL THEN
           'BROKEN: not compared'
         WHEN idem_audit_verify() IS NOT NULL THEN
           'BROKEN: the chain is not whole'
         WHEN ifnull((SELECT digest FROM main.idem_audit WHERE id = :after_id),
                     iif(:after_id = 0, 'idem-audit', NULL)) IS NOT :after_digest THEN
           'BROKEN: row ' || quote(:after_id) || ' is not the one that was exported'
         ELSE 'whole'
       END;

SELECT json_object('id', id, 'at', at, 'event', event, 'scope', scope, 'key', key,
                   'operation', operation, 'attempt', attempt, 'detail', detail,
                   'prev', prev, 'digest', digest)
FROM main.idem_audit
WHERE id > :after_id
ORDER BY id;
