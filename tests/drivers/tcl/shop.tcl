# idem in Tcl.

# README: load
package require sqlite3

proc open_shop {} {
    sqlite3 db shop.db
    db timeout 5000
    db enable_load_extension 1
    db eval {SELECT load_extension('./idem')}
    db enable_load_extension 0
}
# README: end

# README: order
proc place_order {key body pieces} {
    db transaction immediate {    ;# commits, or rolls back on an error
        lassign [db eval {
            SELECT outcome, token, http_status, coalesce(response, message)
            FROM idem_claim('shop', $key, idem_fingerprint($body), 'POST /orders')
        }] outcome token status answer
        if {$outcome eq "claimed"} {
            db eval {INSERT INTO orders(pieces) VALUES ($pieces)}
            set status 201
            set answer "{\"order\":[db last_insert_rowid]}"
            db eval {UPDATE stock SET pieces = pieces - $pieces}
            db eval {SELECT idem_complete('shop', $key, $token, $answer, $status)}
        }
    }
    list $status $answer
}
# README: end

proc say {name args} {
    puts [format "%-11s %s" $name [join $args]]
}

proc refusal {words script} {
    if {![catch {uplevel $script} message]} { return "no error" }
    expr {[string first $words $message] >= 0 ? $words : $message}
}

proc replay {key} {    ;# all Tcl values are strings: SQL knows the type
    lassign [db eval {
        SELECT outcome, code, typeof(response), response FROM idem_claim('shop', $key, 'fp')
    }] outcome code type answer
    if {$outcome ne "replay"} { error $outcome }
    switch $type {
        null { list $code null }
        blob { list $code blob [binary encode hex $answer] }
        text { list $code text '$answer' }
    }
}

fconfigure stdout -encoding utf-8
open_shop
puts "# [db onecolumn {SELECT idem_version()}]"
db eval {PRAGMA journal_mode = WAL}
db eval {SELECT idem_init()}

set body {{"pieces":3}}
say fingerprint [db onecolumn {SELECT idem_fingerprint($body)}]
say first {*}[place_order k-1 {{"pieces":3}} 3]
say retry {*}[place_order k-1 {{ "pieces": 3.0 }} 3]
say "other body" {*}[place_order k-1 {{"pieces":4}} 4]
say "sold out" [refusal "CHECK constraint failed" {place_order k-2 {{"pieces":8}} 8}]
say "rolled back" [format "%d order, %d pieces left" {*}[db eval {
    SELECT (SELECT count(*) FROM orders), pieces FROM stock
}]]
say fewer {*}[place_order k-2 {{"pieces":5}} 5]

set ms 4102444800000    ;# the year 2100: more than 32 bits
db eval {SELECT idem_clock($ms)}
say claimed until [db eval {SELECT lease_until FROM idem_claim('shop', 'job', 'fp')}]
say "in progress" [format "%d, retry after %d ms" {*}[db eval {
    SELECT http_status, retry_after_ms FROM idem_claim('shop', 'job', 'fp')
}]]
db eval {SELECT idem_clock(NULL)}
say "wrong token" [refusal "claim lost" {
    db eval {SELECT idem_complete('shop', 'job', 'not-its-token-at-all', 'x')}
}]

# A byte array is bound as a BLOB if the name has an @. There is no null: leave the variable unset.
set bytes [binary decode hex 00ff7f80]
foreach {key bound code} {blob @bytes 200  null :unset 204  empty :empty 200  text :text 200} {
    set empty ""
    set text "שלום"
    set token [db onecolumn {SELECT token FROM idem_claim('shop', $key, 'fp')}]
    db eval "SELECT idem_complete('shop', \$key, \$token, $bound, \$code)"
    say $key {*}[replay $key]
}

db close
say closed [expr {[file exists shop.db-wal] ? "a -wal" : "no -wal"}]
open_shop
say reopened {*}[place_order k-1 {{"pieces":3}} 3]
say kept {*}[replay blob]
db close
