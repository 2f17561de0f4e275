//! idem in Rust's rusqlite (feature "load_extension").
use rusqlite::types::Value;
// README: load
use rusqlite::{params, Connection, LoadExtensionGuard, Result, Row, TransactionBehavior};

fn open_shop() -> Result<Connection> {
    let db = Connection::open("shop.db")?; // its busy timeout is 5 seconds
    unsafe {
        let _guard = LoadExtensionGuard::new(&db)?;
        db.load_extension("./idem", None)?;
    }
    Ok(db)
}
// README: end

// README: order
fn place_order(db: &mut Connection, key: &str, body: &str, pieces: i64) -> Result<(i64, String)> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (outcome, token, status, answer): (String, Option<String>, Option<i64>, Option<String>) = tx
        .query_row(
            "SELECT outcome, token, http_status, coalesce(response, message)
             FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')",
            params![key, body],
            |r| r.try_into(),
        )?;
    let mut reply = (status.unwrap_or(0), answer.unwrap_or_default());
    if outcome == "claimed" {
        tx.execute("INSERT INTO orders(pieces) VALUES (?)", params![pieces])?;
        reply = (201, format!("{{\"order\":{}}}", tx.last_insert_rowid()));
        tx.execute("UPDATE stock SET pieces = pieces - ?", params![pieces])?;
        tx.query_row(
            "SELECT idem_complete('shop', ?, ?, ?, ?)",
            params![key, token, reply.1, reply.0],
            |_| Ok(()),
        )?;
    }
    tx.commit()?; // a transaction that is dropped rolls back
    Ok(reply)
}
// README: end

fn say(name: &str, words: String) {
    println!("{name:<11} {words}");
}

fn order(db: &mut Connection, name: &str, key: &str, body: &str, pieces: i64) -> Result<()> {
    let (status, answer) = place_order(db, key, body, pieces)?;
    say(name, format!("{status} {answer}"));
    Ok(())
}

fn refusal<T>(words: &str, result: Result<T>) -> String {
    match result {
        Ok(_) => "no error".into(),
        Err(e) if e.to_string().contains(words) => words.into(),
        Err(e) => e.to_string(),
    }
}

/// The first column of the only row.
fn one<T: rusqlite::types::FromSql>(db: &Connection, sql: &str) -> Result<T> {
    db.query_row(sql, [], |r| r.get(0))
}

fn replay(db: &Connection, key: &str) -> Result<String> {
    db.query_row(
        "SELECT outcome, code, response FROM idem_claim('shop', ?, 'fp')",
        params![key],
        |r: &Row| {
            assert_eq!(r.get::<_, String>(0)?, "replay");
            let shown = match r.get(2)? {
                Value::Null => "null".to_string(),
                Value::Text(t) => format!("text '{t}'"),
                Value::Blob(b) => b.iter().fold("blob ".into(), |s, x| format!("{s}{x:02x}")),
                other => format!("{other:?}"),
            };
            Ok(format!("{} {}", r.get::<_, i64>(1)?, shown))
        },
    )
}

fn main() -> Result<()> {
    let mut db = open_shop()?;
    println!("# {}", one::<String>(&db, "SELECT idem_version()")?);
    one::<String>(&db, "PRAGMA journal_mode = WAL")?;
    one::<i64>(&db, "SELECT idem_init()")?;

    say("fingerprint", one(&db, "SELECT idem_fingerprint('{\"pieces\":3}')")?);
    order(&mut db, "first", "k-1", r#"{"pieces":3}"#, 3)?;
    order(&mut db, "retry", "k-1", r#"{ "pieces": 3.0 }"#, 3)?;
    order(&mut db, "other body", "k-1", r#"{"pieces":4}"#, 4)?;
    let sold_out = place_order(&mut db, "k-2", r#"{"pieces":8}"#, 8);
    say("sold out", refusal("CHECK constraint failed", sold_out));
    let orders: i64 = one(&db, "SELECT count(*) FROM orders")?;
    let pieces: i64 = one(&db, "SELECT pieces FROM stock")?;
    say("rolled back", format!("{orders} order, {pieces} pieces left"));
    order(&mut db, "fewer", "k-2", r#"{"pieces":5}"#, 5)?;

    let year_2100: i64 = 4102444800000; // more than 32 bits
    db.query_row("SELECT idem_clock(?)", [year_2100], |_| Ok(()))?;
    let until: i64 = one(&db, "SELECT lease_until FROM idem_claim('shop', 'job', 'fp')")?;
    say("claimed", format!("until {until}"));
    let (status, after): (i64, i64) = db.query_row(
        "SELECT http_status, retry_after_ms FROM idem_claim('shop', 'job', 'fp')",
        [],
        |r| r.try_into(),
    )?;
    say("in progress", format!("{status}, retry after {after} ms"));
    one::<i64>(&db, "SELECT idem_clock(NULL)")?;
    let wrong = one::<i64>(&db, "SELECT idem_complete('shop', 'job', 'not-its-token-at-all', 'x')");
    say("wrong token", refusal("claim lost", wrong));

    let answers = [
        ("blob", Value::Blob(vec![0x00, 0xff, 0x7f, 0x80]), 200),
        ("null", Value::Null, 204),
        ("empty", Value::Text(String::new()), 200),
        ("text", Value::Text("שלום".into()), 200),
    ];
    for (key, answer, code) in answers {
        let sql = "SELECT token FROM idem_claim('shop', ?, 'fp')";
        let token: String = db.query_row(sql, [key], |r| r.get(0))?;
        let sql = "SELECT idem_complete('shop', ?, ?, ?, ?)";
        db.query_row(sql, params![key, token, answer, code], |_| Ok(()))?;
        say(key, replay(&db, key)?);
    }

    db.close().map_err(|(_, e)| e)?;
    let wal = std::path::Path::new("shop.db-wal").exists();
    say("closed", if wal { "a -wal" } else { "no -wal" }.into());
    let mut db = open_shop()?;
    order(&mut db, "reopened", "k-1", r#"{"pieces":3}"#, 3)?;
    say("kept", replay(&db, "blob")?);
    db.close().map_err(|(_, e)| e)
}
