-- idem_health as lines of the Prometheus text format, one column. Reads only, takes no parameter,
-- and works in any SQLite from 3.37 on, without the extension. For the textfile collector of
-- node_exporter, every minute:
--
--     sqlite3 -readonly -list -noheader shop.db < metrics.sql > idem.prom.$$ &&
--       mv idem.prom.$$ /var/lib/prometheus/node-exporter/idem.prom
--
-- The rename makes the file appear whole. Several databases: one file each, and a label put in with
-- sed 's/^idem_[a-z_]*/&{db="shop"}/' on the lines that have none.
--
-- What deserves an alert:
--
--     idem_unknown > 0 for 15 m               somebody must decide: ops/stuck
--     idem_stale > 0 for 15 m                 workers died; where on_stale is 'unknown' their keys
--                                             are blocked, else nobody comes back: ops/stuck
--     idem_oldest_processing_seconds > 3600   work hangs, its lease being renewed, or idem_stale
--     idem_released > 0 for a day             not retried, or exhausted, which blocks: ops/stuck
--     idem_purgeable rising for a day         nobody runs idem_purge()
--     increase(idem_audit_rows[1h]) > 100     exceptions are no exceptions any more
--     time() - idem_scrape_timestamp_seconds > 300   this file is old

WITH metric(name, help, value) AS (
  SELECT 'idem_processing', 'Claims under a live lease.', processing FROM idem_health
  UNION ALL
  SELECT 'idem_stale', 'Claims whose lease is over without an answer.', stale FROM idem_health
  UNION ALL
  SELECT 'idem_unknown', 'Suspended claims: somebody must decide.', unknown FROM idem_health
  UNION ALL
  SELECT 'idem_released', 'Claims given back and not retried.', released FROM idem_health
  UNION ALL
  SELECT 'idem_completed', 'Answers that are replayed.', completed FROM idem_health
  UNION ALL
  SELECT 'idem_expired', 'Keys that are refused, their answer gone.', expired FROM idem_health
  UNION ALL
  SELECT 'idem_purgeable', 'Rows that idem_purge() would touch.', purgeable FROM idem_health
  UNION ALL
  SELECT 'idem_oldest_processing_seconds', 'Age of the oldest claim in work; 0 if there is none.',
         ifnull(oldest_processing_ms, 0) / 1000.0 FROM idem_health
  UNION ALL
  SELECT 'idem_oldest_unknown_seconds', 'Time since the oldest suspension; 0 if there is none.',
         ifnull(oldest_unknown_ms, 0) / 1000.0 FROM idem_health
  UNION ALL
  SELECT 'idem_inbox', 'Event ids that are remembered.', inbox FROM idem_health
  UNION ALL
  SELECT 'idem_audit_rows', 'Rows of the audit.', audit_rows FROM idem_health
  UNION ALL
  SELECT 'idem_scrape_timestamp_seconds', 'When this was read.', now / 1000.0 FROM idem_health
)
SELECT '# HELP ' || name || ' ' || help || char(10) ||
       '# TYPE ' || name || iif(name = 'idem_audit_rows', ' counter', ' gauge') || char(10) ||
       name || ' ' || printf('%!.15g', value)
FROM metric;
