# idem in Ruby's sqlite3 gem.
require "openssl" # the process holds another libcrypto before idem comes

# README: load
require "sqlite3"

def open_shop
  db = SQLite3::Database.new("shop.db")
  db.busy_timeout = 5000
  db.enable_load_extension(true)
  db.load_extension("./idem") # since gem 2.4: Database.new("shop.db", extensions: ["./idem"])
  db.enable_load_extension(false)
  db
end
# README: end

# README: order
def place_order(db, key, body, pieces)
  db.transaction(:immediate)
  begin
    outcome, token, status, answer = db.execute(<<~SQL, [key, body]).first
      SELECT outcome, token, http_status, coalesce(response, message)
      FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')
    SQL
    if outcome == "claimed"
      db.execute("INSERT INTO orders(pieces) VALUES (?)", [pieces])
      status, answer = 201, %({"order":#{db.last_insert_row_id}})
      db.execute("UPDATE stock SET pieces = pieces - ?", [pieces])
      db.execute("SELECT idem_complete('shop', ?, ?, ?, ?)", [key, token, answer, status])
    end
    db.commit
  rescue Exception # "transaction do ... end" would commit at an Interrupt or a time-out
    db.rollback if db.transaction_active?
    raise
  end
  [status, answer]
end
# README: end

def say(name, *words)
  puts [name.ljust(11), *words].join(" ")
end

def row(db, sql, *values)
  db.execute(sql, values).first
end

def shown(value)
  return "null" if value.nil?
  value.encoding == Encoding::BINARY ? "blob #{value.unpack1('H*')}" : "text '#{value}'"
end

def refusal(words)
  yield
  "no error"
rescue SQLite3::ConstraintException => e
  e.message.include?(words) ? words : e.message
end

def replay(db, key)
  outcome, code, answer = row(
    db, "SELECT outcome, code, response FROM idem_claim('shop', ?, 'fp')", key
  )
  raise outcome unless outcome == "replay"
  [code, shown(answer)]
end

raise unless OpenSSL::Digest::SHA256.hexdigest("abc").start_with?("ba7816bf")
db = open_shop
puts "# #{row(db, 'SELECT idem_version()')[0]}"
row(db, "PRAGMA journal_mode = WAL")
row(db, "SELECT idem_init()")

say "fingerprint", *row(db, "SELECT idem_fingerprint(?)", '{"pieces":3}')
say "first", *place_order(db, "k-1", '{"pieces":3}', 3)
say "retry", *place_order(db, "k-1", '{ "pieces": 3.0 }', 3)
say "other body", *place_order(db, "k-1", '{"pieces":4}', 4)
say "sold out", refusal("CHECK constraint failed") { place_order(db, "k-2", '{"pieces":8}', 8) }
say "rolled back", format("%d order, %d pieces left",
                          *row(db, "SELECT (SELECT count(*) FROM orders), pieces FROM stock"))
say "fewer", *place_order(db, "k-2", '{"pieces":5}', 5)

row(db, "SELECT idem_clock(?)", 4102444800000) # the year 2100: more than 32 bits
say "claimed", "until", *row(db, "SELECT lease_until FROM idem_claim('shop', 'job', 'fp')")
say "in progress", format("%d, retry after %d ms", *row(
  db, "SELECT http_status, retry_after_ms FROM idem_claim('shop', 'job', 'fp')"))
row(db, "SELECT idem_clock(?)", nil)
say "wrong token", refusal("claim lost") {
  row(db, "SELECT idem_complete('shop', 'job', ?, 'x')", "not-its-token-at-all")
}

{ "blob" => ["\x00\xff\x7f\x80".b, 200], # a String of binary encoding is bound as a BLOB
  "null" => [nil, 204],
  "empty" => ["", 200],
  "text" => ["שלום", 200] }.each do |key, (answer, code)|
  token, = row(db, "SELECT token FROM idem_claim('shop', ?, 'fp')", key)
  row(db, "SELECT idem_complete('shop', ?, ?, ?, ?)", key, token, answer, code)
  say key, *replay(db, key)
end

db.close
say "closed", File.exist?("shop.db-wal") ? "a -wal" : "no -wal"
db = open_shop
say "reopened", *place_order(db, "k-1", '{"pieces":3}', 3)
say "kept", *replay(db, "blob")
db.close
