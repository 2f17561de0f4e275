# idem in Perl's DBD::SQLite.
use strict;
use warnings;
use utf8;

# README: load
use DBI qw(:sql_types);

sub open_shop {
    my $db = DBI->connect("dbi:SQLite:dbname=shop.db", "", "",
        { RaiseError => 1, PrintError => 0, sqlite_unicode => 1 });
    $db->sqlite_enable_load_extension(1);
    $db->sqlite_load_extension("./idem");
    $db->sqlite_enable_load_extension(0);
    return $db;
}
# README: end

# README: order
sub place_order {
    my ($db, $key, $body, $pieces) = @_;
    my ($outcome, $token, $status, $answer);
    $db->begin_work;    # DBD::SQLite says BEGIN IMMEDIATE (sqlite_use_immediate_transaction)
    eval {
        ($outcome, $token, $status, $answer) = row($db, <<'SQL', $key, $body);
SELECT outcome, token, http_status, coalesce(response, message)
FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')
SQL
        if ($outcome eq 'claimed') {
            $db->do("INSERT INTO orders(pieces) VALUES (?)", undef, $pieces);
            ($status, $answer) = (201, sprintf '{"order":%d}', $db->sqlite_last_insert_rowid);
            $db->do("UPDATE stock SET pieces = pieces - ?", undef, $pieces);
            row($db, "SELECT idem_complete('shop', ?, ?, ?, ?)", $key, $token, $answer, $status);
        }
        $db->commit;
        1;
    } or do {
        my $error = $@;
        eval { $db->rollback };
        die $error;
    };
    return ($status, $answer);
}

sub row {               # fetches all: an unread row keeps a statement open
    my ($db, $sql, @values) = @_;
    return @{ $db->selectall_arrayref($sql, undef, @values)->[0] // [] };
}
# README: end

sub say_line {
    my ($name, @words) = @_;
    printf "%-11s %s\n", $name, join ' ', @words;
}

sub refusal {
    my ($words, $call) = @_;
    eval { $call->(); 1 } and return 'no error';
    return $@ =~ /\Q$words\E/ ? $words : $@;
}

sub replay {
    my ($db, $key) = @_;
    my ($outcome, $code, $type, $answer) = row($db,    # Perl has one type for text and bytes
        "SELECT outcome, code, typeof(response), response FROM idem_claim('shop', ?, 'fp')", $key);
    die $outcome unless $outcome eq 'replay' and ($type eq 'null') == !defined $answer;
    return ($code, $type eq 'null' ? 'null'
        : $type eq 'blob' ? 'blob ' . unpack('H*', $answer) : "text '$answer'");
}

binmode STDOUT, ':encoding(UTF-8)';
my $db = open_shop();
print "# ", row($db, "SELECT idem_version()"), "\n";
row($db, "PRAGMA journal_mode = WAL");
row($db, "SELECT idem_init()");

say_line('fingerprint', row($db, "SELECT idem_fingerprint(?)", '{"pieces":3}'));
say_line('first', place_order($db, 'k-1', '{"pieces":3}', 3));
say_line('retry', place_order($db, 'k-1', '{ "pieces": 3.0 }', 3));
say_line('other body', place_order($db, 'k-1', '{"pieces":4}', 4));
say_line('sold out', refusal('CHECK constraint failed',
    sub { place_order($db, 'k-2', '{"pieces":8}', 8) }));
say_line('rolled back', sprintf '%d order, %d pieces left',
    row($db, "SELECT (SELECT count(*) FROM orders), pieces FROM stock"));
say_line('fewer', place_order($db, 'k-2', '{"pieces":5}', 5));

row($db, "SELECT idem_clock(?)", 4102444800000);    # the year 2100: more than 32 bits
say_line('claimed', 'until', row($db, "SELECT lease_until FROM idem_claim('shop', 'job', 'fp')"));
say_line('in progress', sprintf '%d, retry after %d ms',
    row($db, "SELECT http_status, retry_after_ms FROM idem_claim('shop', 'job', 'fp')"));
row($db, "SELECT idem_clock(?)", undef);
say_line('wrong token', refusal('claim lost',
    sub { row($db, "SELECT idem_complete('shop', 'job', ?, 'x')", 'not-its-token-at-all') }));

for (['blob', "\x00\xff\x7f\x80", 200], ['null', undef, 204], ['empty', '', 200],
    ['text', 'שלום', 200]) {
    my ($key, $answer, $code) = @$_;
    my ($token) = row($db, "SELECT token FROM idem_claim('shop', ?, 'fp')", $key);
    my $complete = $db->prepare("SELECT idem_complete('shop', ?, ?, ?, ?)");
    $complete->bind_param(1, $key);
    $complete->bind_param(2, $token);
    $complete->bind_param(3, $answer, $key eq 'blob' ? SQL_BLOB : SQL_VARCHAR);   # else TEXT
    $complete->bind_param(4, $code, SQL_INTEGER);
    $complete->execute;
    $complete->finish;
    say_line($key, replay($db, $key));
}

$db->disconnect;
say_line('closed', -e 'shop.db-wal' ? 'a -wal' : 'no -wal');
$db = open_shop();
say_line('reopened', place_order($db, 'k-1', '{"pieces":3}', 3));
say_line('kept', replay($db, 'blob'));
$db->disconnect;
