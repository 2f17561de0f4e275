<?php
// idem in PHP's SQLite3 class. Its loader knows one folder only, sqlite3.extension_dir of php.ini,
// and takes a bare file name: php -d sqlite3.extension_dir="$PWD" shop.php

// README: load
function openShop(): SQLite3 {
    $db = new SQLite3('shop.db');
    $db->enableExceptions(true);       // else an error is a warning and a false
    $db->busyTimeout(5000);
    $db->loadExtension('idem.so');     // from sqlite3.extension_dir in php.ini; no path
    return $db;
}
// README: end

// README: order
function placeOrder(SQLite3 $db, string $key, string $body, int $pieces): array {
    // PHP runs a statement twice, in execute() and again in fetchArray(). With a token of ours the
    // second claim is told "claimed" again. querySingle() runs once.
    $token = bin2hex(random_bytes(16));
    $db->exec('BEGIN IMMEDIATE');
    try {
        [$outcome, $status, $answer] = row($db,
            "SELECT outcome, http_status, coalesce(response, message)
             FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders', ?)",
            $key, $body, $token);
        if ($outcome === 'claimed') {
            row($db, 'INSERT INTO orders(pieces) VALUES (?)', $pieces);
            [$status, $answer] = [201, '{"order":' . $db->lastInsertRowID() . '}'];
            row($db, 'UPDATE stock SET pieces = pieces - ?', $pieces);
            row($db, "SELECT idem_complete('shop', ?, ?, ?, ?)", $key, $token, $answer, $status);
        }
        $db->exec('COMMIT');
        return [$status, $answer];
    } catch (Throwable $e) {
        @$db->exec('ROLLBACK');        // a full disk may have ended the transaction
        throw $e;
    }
}

function row(SQLite3 $db, string $sql, ...$values): array|false {
    $statement = $db->prepare($sql);
    foreach ($values as $i => $value) {
        $statement->bindValue($i + 1, $value);   // a BLOB needs its type: SQLITE3_BLOB
    }
    $result = $statement->execute();
    $row = $result->numColumns() ? $result->fetchArray(SQLITE3_NUM) : false;
    $statement->close();               // an open statement keeps its locks
    return $row;
}
// README: end

function say(string $name, ...$words): void {
    echo str_pad($name, 11), ' ', implode(' ', $words), "\n";
}

function refusal(string $words, callable $call): string {
    try {
        $call();
    } catch (Exception $e) {
        return str_contains($e->getMessage(), $words) ? $words : $e->getMessage();
    }
    return 'no error';
}

function replay(SQLite3 $db, string $key): array {
    [$outcome, $code, $type, $answer] = row($db,   // PHP has one type for text and bytes
        "SELECT outcome, code, typeof(response), response FROM idem_claim('shop', ?, 'fp')", $key);
    assert($outcome === 'replay' && ($type === 'null') === is_null($answer));
    return [$code, ['null' => 'null', 'blob' => 'blob ' . bin2hex($answer ?? ''),
                    'text' => "text '$answer'"][$type]];
}

$db = openShop();
echo '# ', row($db, 'SELECT idem_version()')[0], "\n";
row($db, 'PRAGMA journal_mode = WAL');
row($db, 'SELECT idem_init()');

say('fingerprint', ...row($db, 'SELECT idem_fingerprint(?)', '{"pieces":3}'));
say('first', ...placeOrder($db, 'k-1', '{"pieces":3}', 3));
say('retry', ...placeOrder($db, 'k-1', '{ "pieces": 3.0 }', 3));
say('other body', ...placeOrder($db, 'k-1', '{"pieces":4}', 4));
say('sold out', refusal('CHECK constraint failed',
    fn() => placeOrder($db, 'k-2', '{"pieces":8}', 8)));
say('rolled back', vsprintf('%d order, %d pieces left',
    row($db, 'SELECT (SELECT count(*) FROM orders), pieces FROM stock')));
say('fewer', ...placeOrder($db, 'k-2', '{"pieces":5}', 5));

row($db, 'SELECT idem_clock(?)', 4102444800000);   // the year 2100: more than 32 bits
say('claimed', 'until',
    $db->querySingle("SELECT lease_until FROM idem_claim('shop', 'job', 'fp')"));
say('in progress', vsprintf('%d, retry after %d ms', row($db,
    "SELECT http_status, retry_after_ms FROM idem_claim('shop', 'job', 'fp')")));
row($db, 'SELECT idem_clock(?)', null);
say('wrong token', refusal('claim lost', fn() =>
    row($db, "SELECT idem_complete('shop', 'job', ?, 'x')", 'not-its-token-at-all')));

foreach ([['blob', "\x00\xff\x7f\x80", 200, SQLITE3_BLOB], ['null', null, 204, SQLITE3_NULL],
          ['empty', '', 200, SQLITE3_TEXT], ['text', 'שלום', 200, SQLITE3_TEXT]]
         as [$key, $answer, $code, $type]) {
    $token = $db->querySingle("SELECT token FROM idem_claim('shop', '$key', 'fp')");   // runs once
    $complete = $db->prepare("SELECT idem_complete('shop', :key, :token, :answer, :code)");
    $complete->bindValue(':key', $key);
    $complete->bindValue(':token', $token);
    $complete->bindValue(':answer', $answer, $type);
    $complete->bindValue(':code', $code);
    $complete->execute()->finalize();
    $complete->close();
    say($key, ...replay($db, $key));
}

$db->close();                          // throws "Unable to close database: 5" if something is open
say('closed', file_exists('shop.db-wal') ? 'a -wal' : 'no -wal');
$db = openShop();
say('reopened', ...placeOrder($db, 'k-1', '{"pieces":3}', 3));
say('kept', ...replay($db, 'blob'));
$db->close();
