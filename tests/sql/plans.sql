.print -- idem_records: which plan serves which question
.mode list
SELECT idem_init();
EXPLAIN QUERY PLAN SELECT * FROM idem_records;
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE scope = 't' AND key = 'k';
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE scope = 't' AND key = 'k' AND token = 'x';
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE scope = 't';
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE key = 'k';
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE state = 'unknown';
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE state = 'completed' AND expires_at < 5;
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE state = 'processing' AND lease_until BETWEEN 1 AND 2;
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE expires_at > 5;
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE lease_until <= 5;
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE rowid = 1;
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE scope = 't' AND state = 'unknown';
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE scope IN ('t', 'u') AND key IN ('k', 'l');
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE scope = 't' COLLATE NOCASE;
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE state LIKE 'un%';
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE scope = 't' OR state = 'unknown';
EXPLAIN QUERY PLAN SELECT * FROM (VALUES('k'), ('l')) w, idem_records r WHERE r.scope = 't' AND r.key = w.column1;
EXPLAIN QUERY PLAN SELECT * FROM idem_records WHERE scope = 't' ORDER BY key;
EXPLAIN QUERY PLAN SELECT count(*) FROM idem_records WHERE state = 'expired';
.print -- the table-valued claim and the carrier
EXPLAIN QUERY PLAN SELECT * FROM idem_claim('t', 'k', 'fp');
EXPLAIN QUERY PLAN SELECT * FROM idem_claim('t', 'k', 'fp', 'op', 'token');
EXPLAIN QUERY PLAN SELECT * FROM (VALUES('k'), ('l')) w, idem_claim('t', w.column1, 'fp');
.print -- what a claim and a completion ask
EXPLAIN QUERY PLAN SELECT * FROM idem_store WHERE scope = 't' AND key = 'k';
EXPLAIN QUERY PLAN SELECT * FROM idem_policy WHERE operation = '*';
EXPLAIN QUERY PLAN SELECT * FROM idem_inbox WHERE source = 's' AND event_id = 'e';
