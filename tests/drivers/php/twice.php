<?php
// What PHP's SQLite3 class does to a SELECT with an effect: execute() and query() step it once and
// reset it, fetchArray() begins again. The inbox then says "seen before" the first time.
$db = new SQLite3(':memory:');
$db->enableExceptions(true);
$db->loadExtension('idem.so');
$db->querySingle('SELECT idem_init()');
$seen = $db->prepare("SELECT idem_seen('queue', ?)");
$seen->bindValue(1, 'prepared');
echo 'execute ', $seen->execute()->fetchArray(SQLITE3_NUM)[0], "\n";
echo 'query ', $db->query("SELECT idem_seen('queue', 'query')")->fetchArray(SQLITE3_NUM)[0], "\n";
echo 'querySingle ', $db->querySingle("SELECT idem_seen('queue', 'single')"), "\n";
$seen->close();
// With bound values: an INSERT ... SELECT runs once, and changes() counts idem's own row too.
$db->exec('CREATE TABLE event(id TEXT PRIMARY KEY, fresh INTEGER) STRICT');
$insert = $db->prepare("INSERT INTO event SELECT ?1, idem_seen('queue', ?1)");
$insert->bindValue(1, 'inserted');
$insert->execute();
$insert->close();
echo 'INSERT ', $db->querySingle("SELECT fresh FROM event WHERE id = 'inserted'"), "\n";
$db->close();
