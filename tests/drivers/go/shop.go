// idem in Go's mattn/go-sqlite3 (cgo). Drivers without C (modernc, ncruces) load nothing.
package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-sqlite3"
)

// README: load
func openShop() (*sql.DB, error) {
	// Every connection of the pool loads idem; every Begin is a BEGIN IMMEDIATE.
	return sql.Open("sqlite3_idem", "file:shop.db?_txlock=immediate&_busy_timeout=5000")
}

func init() {
	sql.Register("sqlite3_idem", &sqlite3.SQLiteDriver{
		ConnectHook: func(c *sqlite3.SQLiteConn) error {
			return c.LoadExtension("./idem", "sqlite3_idem_init") // an empty name is an error
		}})
}

// README: end

// README: order
func placeOrder(db *sql.DB, key, body string, pieces int) (status int, answer string, err error) {
	tx, err := db.Begin()
	if err != nil {
		return
	}
	defer tx.Rollback() // does nothing after the commit
	var outcome, token string
	err = tx.QueryRow(`SELECT outcome, coalesce(token, ''), coalesce(http_status, 0),
		coalesce(response, message, '') -- database/sql refuses NULL for a string or an int
		FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')`,
		key, body).Scan(&outcome, &token, &status, &answer)
	if err == nil && outcome == "claimed" {
		status, answer, err = effect(tx, pieces)
		if err == nil {
			_, err = tx.Exec("SELECT idem_complete('shop', ?, ?, ?, ?)", key, token, answer, status)
		}
	}
	if err == nil {
		err = tx.Commit()
	}
	return
}

func effect(tx *sql.Tx, pieces int) (int, string, error) {
	result, err := tx.Exec("INSERT INTO orders(pieces) VALUES (?)", pieces)
	if err != nil {
		return 0, "", err
	}
	number, _ := result.LastInsertId()
	_, err = tx.Exec("UPDATE stock SET pieces = pieces - ?", pieces)
	return 201, fmt.Sprintf(`{"order":%d}`, number), err
}

// README: end

func say(name string, words ...interface{}) {
	fmt.Printf("%-11s %s", name, fmt.Sprintln(words...))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func order(db *sql.DB, name, key, body string, pieces int) {
	status, answer, err := placeOrder(db, key, body, pieces)
	must(err)
	say(name, status, answer)
}

func refusal(words string, err error) string {
	if err == nil {
		return "no error"
	}
	if strings.Contains(err.Error(), words) {
		return words
	}
	return err.Error()
}

func shown(value interface{}) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case []byte:
		return "blob " + hex.EncodeToString(v)
	case string:
		return "text '" + v + "'"
	}
	return fmt.Sprintf("%T", value)
}

func replay(db *sql.DB, key string) (code int64, answer string) {
	var outcome string
	var response interface{}
	must(db.QueryRow("SELECT outcome, code, response FROM idem_claim('shop', ?, 'fp')",
		key).Scan(&outcome, &code, &response))
	if outcome != "replay" {
		panic(outcome)
	}
	return code, shown(response)
}

// inProgress speaks to one connection of the pool: the clock of idem belongs to a connection.
func inProgress(db *sql.DB) {
	c, err := db.Conn(context.Background())
	must(err)
	defer c.Close()
	row := func(sql string, values ...interface{}) *sql.Row {
		return c.QueryRowContext(context.Background(), sql, values...)
	}
	var until, status, after, now int64
	must(row("SELECT idem_clock(?)", int64(4102444800000)).Scan(&now)) // 2100: over 32 bits
	must(row("SELECT lease_until FROM idem_claim('shop', 'job', 'fp')").Scan(&until))
	say("claimed", "until", until)
	must(row("SELECT http_status, retry_after_ms FROM idem_claim('shop', 'job', 'fp')").
		Scan(&status, &after))
	say("in progress", fmt.Sprintf("%d, retry after %d ms", status, after))
	must(row("SELECT idem_clock(?)", nil).Scan(&now))
	say("wrong token", refusal("claim lost", row(
		"SELECT idem_complete('shop', 'job', ?, 'x')", "not-its-token-at-all").Scan(&now)))
}

func main() {
	db, err := openShop()
	must(err)
	var text string
	must(db.QueryRow("SELECT idem_version()").Scan(&text))
	fmt.Println("#", text)
	must(db.QueryRow("PRAGMA journal_mode = WAL").Scan(&text))
	must(db.QueryRow("SELECT idem_init()").Scan(&text))
	must(db.QueryRow("SELECT idem_fingerprint(?)", `{"pieces":3}`).Scan(&text))
	say("fingerprint", text)

	order(db, "first", "k-1", `{"pieces":3}`, 3)
	order(db, "retry", "k-1", `{ "pieces": 3.0 }`, 3)
	order(db, "other body", "k-1", `{"pieces":4}`, 4)
	_, _, err = placeOrder(db, "k-2", `{"pieces":8}`, 8)
	say("sold out", refusal("CHECK constraint failed", err))
	var orders, pieces int
	must(db.QueryRow("SELECT (SELECT count(*) FROM orders), pieces FROM stock").Scan(&orders, &pieces))
	say("rolled back", fmt.Sprintf("%d order, %d pieces left", orders, pieces))
	order(db, "fewer", "k-2", `{"pieces":5}`, 5)
	inProgress(db)

	for _, a := range []struct {
		key    string
		answer interface{}
		code   int
	}{{"blob", []byte{0x00, 0xff, 0x7f, 0x80}, 200}, {"null", nil, 204}, {"empty", "", 200},
		{"text", "שלום", 200}} {
		var token string
		must(db.QueryRow("SELECT token FROM idem_claim('shop', ?, 'fp')", a.key).Scan(&token))
		_, err = db.Exec("SELECT idem_complete('shop', ?, ?, ?, ?)", a.key, token, a.answer, a.code)
		must(err)
		code, answer := replay(db, a.key)
		say(a.key, code, answer)
	}

	must(db.Close())
	if _, err = os.Stat("shop.db-wal"); err == nil {
		say("closed", "a -wal")
	} else {
		say("closed", "no -wal")
	}
	db, err = openShop()
	must(err)
	order(db, "reopened", "k-1", `{"pieces":3}`, 3)
	code, answer := replay(db, "blob")
	say("kept", code, answer)
	must(db.Close())
}
