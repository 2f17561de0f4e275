#!/bin/sh
# idem in the sqlite3 shell: each call is a process, and one that fails rolls back by ending.
set -u

# README: load
shop() { # runs the SQL of standard input
  sqlite3 -batch -bail -list -separator ' ' -cmd '.timeout 5000' -cmd '.load ./idem' shop.db
}
# README: end

# README: order
quote() { # a shell word as an SQL literal
  printf "'%s'" "$(printf %s "$1" | sed "s/'/''/g")"
}

place_order() { # key, body, pieces: SQL has no "if", so each step says WHERE outcome = 'claimed'
  shop <<SQL
BEGIN IMMEDIATE;
CREATE TEMP TABLE claim AS SELECT outcome, token, http_status, coalesce(response, message) AS answer
FROM idem_claim('shop', $(quote "$1"), idem_fingerprint($(quote "$2")), 'POST /orders');
INSERT INTO orders(pieces) SELECT $(quote "$3") FROM claim WHERE outcome = 'claimed';
UPDATE claim SET http_status = 201, answer = json_object('order', last_insert_rowid())
WHERE outcome = 'claimed';
UPDATE stock SET pieces = pieces - $(quote "$3")
WHERE (SELECT outcome FROM claim) = 'claimed';
.once /dev/null
SELECT idem_complete('shop', $(quote "$1"), token, answer, http_status) FROM claim
WHERE outcome = 'claimed';
COMMIT;
SELECT http_status, answer FROM claim;
SQL
}
# README: end

say() { printf '%-11s %s\n' "$1" "$2"; }
keep() { # name, answer as SQL, code
  claim="idem_claim('shop', '$1', 'fp')"
  echo "SELECT idem_complete('shop', '$1', $claim ->> '\$.token', $2, $3);" | shop >/dev/null
  replay "$1"
}
replay() {
  shop <<SQL
SELECT code, CASE typeof(response) WHEN 'null' THEN 'null'
  WHEN 'text' THEN 'text ' || quote(response) ELSE 'blob ' || lower(hex(response)) END
FROM idem_claim('shop', '$1', 'fp') WHERE outcome = 'replay';
SQL
}
refusal() { # words, command ...: the words, if the command fails with them
  words=$1
  shift
  if "$@" 2>&1; then echo "no error"; fi | grep -o "$words"
}

echo "# $(echo 'SELECT idem_version();' | shop)"
echo "PRAGMA journal_mode = WAL; SELECT idem_init();" | shop >/dev/null
say fingerprint "$(echo "SELECT idem_fingerprint('{\"pieces\":3}');" | shop)"
say first "$(place_order k-1 '{"pieces":3}' 3)"
say retry "$(place_order k-1 '{ "pieces": 3.0 }' 3)"
say "other body" "$(place_order k-1 '{"pieces":4}' 4)"
say "sold out" "$(refusal 'CHECK constraint failed' place_order k-2 '{"pieces":8}' 8)"
say "rolled back" "$(echo "SELECT count(*) || ' order, ' || (SELECT pieces FROM stock) ||
  ' pieces left' FROM orders;" | shop)"
say fewer "$(place_order k-2 '{"pieces":5}' 5)"
shop <<'SQL'
.once /dev/null
SELECT idem_clock(4102444800000);
SELECT 'claimed     until ' || lease_until FROM idem_claim('shop', 'job', 'fp');
SELECT 'in progress ' || http_status || ', retry after ' || retry_after_ms || ' ms'
FROM idem_claim('shop', 'job', 'fp');
SQL
complete() { echo "SELECT idem_complete('shop', 'job', 'not-its-token-at-all', 'x');" | shop; }
say "wrong token" "$(refusal 'claim lost' complete)"
say blob "$(keep blob "x'00ff7f80'" 200)"
say null "$(keep null NULL 204)"
say empty "$(keep empty "''" 200)"
say text "$(keep text "'שלום'" 200)"
say closed "$([ -e shop.db-wal ] && echo "a -wal" || echo "no -wal")"
say reopened "$(place_order k-1 '{"pieces":3}' 3)"
say kept "$(replay blob)"
