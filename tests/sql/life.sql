.print -- the life of a record, with the clock in hand
.mode list
.headers off
.nullvalue NULL
SELECT idem_init();
INSERT INTO idem_policy(operation, lease_ms, retention_ms, tombstone_ms, description)
VALUES ('POST /payments', 1000, 10000, 100000, 'charges a card');
INSERT INTO idem_policy(operation, lease_ms, on_stale, max_attempts) VALUES ('notify', 1000, 'retry', 2);
SELECT idem_clock(1000000);
.print -- claimed, in progress, mismatch
SELECT outcome, token, attempt, lease_until FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments', 'token-0000000001');
SELECT outcome, http_status, retry_after_ms, token FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments');
SELECT outcome, http_status, message, code FROM idem_claim('acct_1', 'order-123', 'other', 'POST /payments');
SELECT outcome, http_status FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /refunds');
SELECT outcome FROM idem_claim('acct_2', 'order-123', 'other', 'POST /refunds');
.print -- the same claim asked again with its token; renewed; a recovery point
SELECT outcome, attempt FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments', 'token-0000000001');
SELECT idem_clock(1000500);
SELECT idem_renew('acct_1', 'order-123', 'token-0000000001');
SELECT idem_checkpoint('acct_1', 'order-123', 'token-0000000001', 'reserved', '{"stock":7}');
SELECT state, recovery_point, checkpoint, lease_remaining_ms, age_ms FROM idem_records WHERE scope = 'acct_1' AND key = 'order-123';
.print -- the lease runs out at 1001500, not before
SELECT idem_clock(1001499);
SELECT outcome, retry_after_ms FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments');
SELECT idem_clock(1001500);
SELECT outcome, http_status, recovery_point FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments');
SELECT state FROM idem_records WHERE scope = 'acct_1' AND key = 'order-123';
.print -- the late worker may still complete; once, with one answer
SELECT idem_complete('acct_1', 'order-123', 'token-0000000001', '{"charged":1200}', 201, 'Location: /p/1');
SELECT idem_complete('acct_1', 'order-123', 'token-0000000001', '{"charged":1200}', 201, 'Location: /p/1');
SELECT idem_complete('acct_1', 'order-123', 'token-0000000001', '{"charged":9}', 201);
SELECT idem_release('acct_1', 'order-123', 'token-0000000001');
SELECT outcome, http_status, code, headers, response, replayed, attempt FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments');
SELECT outcome FROM idem_claim('acct_1', 'order-123', 'other', 'POST /payments');
SELECT idem_claim('acct_1', 'order-123', 'fp', 'POST /payments');
.print -- retention ends at 1011500, counted from completion
SELECT idem_clock(1011499);
SELECT outcome FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments');
SELECT idem_purge();
SELECT idem_clock(1011500);
SELECT outcome, http_status, response, completed_at FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments');
SELECT state, expires_at, tombstone_until FROM idem_records WHERE key = 'order-123' AND scope = 'acct_1';
SELECT idem_purge();
SELECT state, response, due_at FROM idem_store WHERE scope = 'acct_1';
SELECT outcome, http_status FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments');
SELECT outcome FROM idem_claim('acct_1', 'order-123', 'other', 'POST /payments');
.print -- the tombstone ends at 1111500; then the key is free
SELECT idem_clock(1111499);
SELECT outcome FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments');
SELECT idem_clock(1111500);
SELECT count(*) FROM idem_records WHERE scope = 'acct_1';
SELECT outcome, attempt FROM idem_claim('acct_1', 'order-123', 'whatever', 'POST /payments', 'token-0000000002');
.print -- released: another try, another token, the same payload
SELECT idem_release('acct_1', 'order-123', 'token-0000000002', 'card declined before the charge');
SELECT outcome FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments');
SELECT outcome FROM idem_claim('acct_1', 'order-123', 'whatever', 'POST /payments', 'token-0000000002');
SELECT outcome, attempt FROM idem_claim('acct_1', 'order-123', 'whatever', 'POST /payments', 'token-0000000003');
SELECT idem_complete('acct_1', 'order-123', 'token-0000000002', 'late');
.print -- suspended and resolved
SELECT idem_suspend('acct_1', 'order-123', 'token-0000000003', 'the provider timed out');
SELECT outcome, message FROM idem_claim('acct_1', 'order-123', 'whatever', 'POST /payments');
SELECT idem_renew('acct_1', 'order-123', 'token-0000000003');
SELECT idem_resolve('acct_1', 'order-123', 'completed', 'found at the provider', 200);
SELECT outcome, response FROM idem_claim('acct_1', 'order-123', 'whatever', 'POST /payments');
.print -- taken over by policy, until the attempts are used up
SELECT outcome, attempt FROM idem_claim('acct_1', 'mail-1', 'fp', 'notify', 'token-0000000004');
SELECT idem_clock(1113000);
SELECT outcome, attempt FROM idem_claim('acct_1', 'mail-1', 'fp', 'notify', 'token-0000000005');
SELECT idem_complete('acct_1', 'mail-1', 'token-0000000004', 'late');
SELECT idem_clock(1115000);
SELECT outcome, attempt FROM idem_claim('acct_1', 'mail-1', 'fp', 'notify', 'token-0000000006');
SELECT idem_resolve('acct_1', 'mail-1', 'retry', 'the mail server is back');
SELECT outcome, attempt FROM idem_claim('acct_1', 'mail-1', 'fp', 'notify', 'token-0000000006');
.print -- the inbox
SELECT idem_seen('stripe', 'evt_1', 'fp'), idem_seen('stripe', 'evt_1', 'fp'), idem_seen('github', 'evt_1', 'fp');
SELECT idem_seen('stripe', 'evt_1', 'forged');
.print -- what the audit says
SELECT id, event, key, attempt, detail FROM idem_audit ORDER BY id;
SELECT idem_audit_verify();
.print -- and how it all stands
SELECT scope, key, state, attempt FROM idem_records ORDER BY scope, key;
