<?php
// PDO has no loader before PHP 8.4, and SQL's load_extension() is switched off.
if (PHP_VERSION_ID >= 80400) {
    $db = new Pdo\Sqlite('sqlite::memory:');
    $db->loadExtension('./idem');
} else {
    $db = new PDO('sqlite::memory:');
    try {
        $db->query("SELECT load_extension('./idem')");
    } catch (PDOException $e) {
        exit($e->errorInfo[2] . "\n");
    }
}
echo $db->query("SELECT idem_fingerprint('1') = idem_fingerprint('1.0')")->fetchColumn(), "\n";
