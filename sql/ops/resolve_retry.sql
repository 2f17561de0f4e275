-- It did not happen: the next retry of the client runs it. For a record that ops/stuck lists with
-- blocks = 1, after somebody has found out. Needs idem loaded.
--
--   :scope, :key   which
--   :reason        who found what, for the audit; NULL: not said
--
-- Grants as many further attempts as max_attempts says. Refused while a lease is live, and if the
-- record is completed. If the client has given up, nothing more happens: the record stays released.
--
-- It did happen after all? While nobody has retried, give the released record its answer with
-- ops/adopt, under its own fingerprint: that file says how. resolve_completed finds nothing to
-- resolve in a released record.

SELECT idem_resolve(:scope, :key, 'retry', :reason) AS resolved;

SELECT key, state, attempt, reason FROM idem_records WHERE scope = :scope AND key = :key;
