// idem in C++, with SQLiteCpp.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
// README: load
#include <SQLiteCpp/SQLiteCpp.h>
#include <SQLiteCpp/VariadicBind.h>

SQLite::Database openShop() {
  const int flags = SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, busy_timeout = 5000;
  SQLite::Database db("shop.db", flags, busy_timeout);
  db.loadExtension("./idem", nullptr);
  return db;
}
// README: end

// README: order
struct Reply {
  int status;
  std::string answer;
};

Reply placeOrder(SQLite::Database &db, std::string key, std::string body, int pieces) {
  SQLite::Transaction transaction(db, SQLite::TransactionBehavior::IMMEDIATE);
  SQLite::Statement claim(db,
      "SELECT outcome, token, http_status, coalesce(response, message)"
      " FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')");
  SQLite::bind(claim, key, body);
  claim.executeStep();
  Reply reply{claim.getColumn(2), claim.getColumn(3)};
  if (claim.getColumn(0).getString() == "claimed") {
    SQLite::Statement insert(db, "INSERT INTO orders(pieces) VALUES (?)");
    SQLite::bind(insert, pieces);
    insert.exec();
    reply = {201, "{\"order\":" + std::to_string(db.getLastInsertRowid()) + "}"};
    SQLite::Statement update(db, "UPDATE stock SET pieces = pieces - ?");
    SQLite::bind(update, pieces);
    update.exec();
    SQLite::Statement complete(db, "SELECT idem_complete('shop', ?, ?, ?, ?)");
    SQLite::bind(complete, key, claim.getColumn(1).getString(), reply.answer, reply.status);
    complete.executeStep();
  }
  claim.reset();  // a statement that is not read to its end keeps its locks
  transaction.commit();  // without it the destructor rolls back
  return reply;
}
// README: end

static void say(const std::string &name, const std::string &words) {
  std::printf("%-11s %s\n", name.c_str(), words.c_str());
}

static void order(SQLite::Database &db, const char *name, const char *key, const char *body,
                  int pieces) {
  Reply reply = placeOrder(db, key, body, pieces);
  say(name, std::to_string(reply.status) + " " + reply.answer);
}

template <typename Call> static std::string refusal(const std::string &words, Call call) {
  try {
    call();
  } catch (const SQLite::Exception &e) {
    std::string message = e.what();
    return message.find(words) == std::string::npos ? message : words;
  }
  return "no error";
}

static std::string one(SQLite::Database &db, const std::string &sql) {
  return db.execAndGet(sql).getString();
}

static std::string shown(const SQLite::Column &value) {
  if (value.isNull()) return "null";
  std::string bytes = value.getString();
  if (value.isText()) return "text '" + bytes + "'";
  std::string hex = "blob ";
  for (unsigned char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    hex += digits;
  }
  return hex;
}

static std::string replay(SQLite::Database &db, const std::string &key) {
  SQLite::Statement s(db, "SELECT outcome, code, response FROM idem_claim('shop', ?, 'fp')");
  SQLite::bind(s, key);
  if (!s.executeStep() || s.getColumn(0).getString() != "replay") return "no replay";
  return s.getColumn(1).getString() + " " + shown(s.getColumn(2));
}

// bind gives the statement its third value: a std::string is TEXT, (void *, size) a BLOB.
template <typename Bind>
static void keep(SQLite::Database &db, const std::string &key, int code, Bind bind) {
  std::string token = one(db, "SELECT token FROM idem_claim('shop', '" + key + "', 'fp')");
  SQLite::Statement s(db, "SELECT idem_complete('shop', ?, ?, ?, ?)");
  s.bind(1, key);
  s.bind(2, token);
  bind(s);
  s.bind(4, code);
  s.executeStep();
  s.reset();
  say(key, replay(db, key));
}

static void inProgress(SQLite::Database &db) {
  SQLite::Statement clock(db, "SELECT idem_clock(?)");
  clock.bind(1, static_cast<int64_t>(4102444800000));  // the year 2100: more than 32 bits
  clock.executeStep();
  clock.reset();
  say("claimed", "until " + one(db, "SELECT lease_until FROM idem_claim('shop', 'job', 'fp')"));
  say("in progress", one(db,
      "SELECT http_status || ', retry after ' || retry_after_ms || ' ms'"
      " FROM idem_claim('shop', 'job', 'fp')"));
  one(db, "SELECT idem_clock(NULL)");
  say("wrong token", refusal("claim lost", [&] {
    one(db, "SELECT idem_complete('shop', 'job', 'not-its-token-at-all', 'x')");
  }));
}

static void day(SQLite::Database &db) {
  std::cout << "# " << one(db, "SELECT idem_version()") << std::endl;
  one(db, "PRAGMA journal_mode = WAL");
  one(db, "SELECT idem_init()");
  say("fingerprint", one(db, "SELECT idem_fingerprint('{\"pieces\":3}')"));
  order(db, "first", "k-1", "{\"pieces\":3}", 3);
  order(db, "retry", "k-1", "{ \"pieces\": 3.0 }", 3);
  order(db, "other body", "k-1", "{\"pieces\":4}", 4);
  say("sold out", refusal("CHECK constraint failed",
                          [&] { placeOrder(db, "k-2", "{\"pieces\":8}", 8); }));
  say("rolled back", one(db, "SELECT count(*) || ' order, ' || (SELECT pieces FROM stock)"
                             " || ' pieces left' FROM orders"));
  order(db, "fewer", "k-2", "{\"pieces\":5}", 5);
  inProgress(db);
  keep(db, "blob", 200, [](SQLite::Statement &s) { s.bind(3, "\x00\xff\x7f\x80", 4); });
  keep(db, "null", 204, [](SQLite::Statement &s) { s.bind(3); });
  keep(db, "empty", 200, [](SQLite::Statement &s) { s.bind(3, ""); });
  keep(db, "text", 200, [](SQLite::Statement &s) { s.bind(3, "שלום"); });
}

int main() {
  {
    SQLite::Database db = openShop();
    day(db);
  }  // the destructor closes
  say("closed", std::filesystem::exists("shop.db-wal") ? "a -wal" : "no -wal");
  SQLite::Database db = openShop();
  order(db, "reopened", "k-1", "{\"pieces\":3}", 3);
  say("kept", replay(db, "blob"));
}
