-- A copy of the database while it is in use: a snapshot, compact, in one file. Needs idem loaded,
-- autocommit, and room for the copy. Writers go on in WAL mode.
--
--   :file   where: a name that does not exist yet. Run with -bail, or stop at the first error: if
--           there is such a file, what follows the error would praise that old one. In the
--           shell: .param set :file "'/backup/shop-2026-11-30.db'"
--
-- Write the last line down elsewhere: it is the head of the audit chain in the copy, and
-- ops/restore_check asks for it. Copy the file to another machine, and try a restore now and then:
-- a backup that was never restored is a hope. `.backup FILE` of the shell and the backup functions
-- of drivers do as well; never copy the file itself while it is open, nor without its -wal.

-- json_extract() is how a SELECT fails with a sentence.
SELECT json_extract('{}', 'NOTHING DONE: :file is not set, or no text, see .param list')
WHERE typeof(:file) <> 'text';

SELECT iif(idem_audit_verify() IS NULL, 'audit: whole', 'audit: BROKEN');

VACUUM main INTO :file;

-- A number would be a name here, and make a file.
ATTACH iif(typeof(:file) = 'text', :file, NULL) AS idem_copy;

PRAGMA idem_copy.integrity_check;

SELECT 'audit head: ' || ifnull(max(id), 0) || ' ' ||
       ifnull((SELECT digest FROM idem_copy.idem_audit ORDER BY id DESC LIMIT 1), 'idem-audit')
FROM idem_copy.idem_audit;

DETACH idem_copy;
