// idem in Java's xerial sqlite-jdbc. Kotlin and Scala use the same driver.
import java.nio.file.Files;
import java.nio.file.Path;
// README: load
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.HexFormat;
import java.util.Properties;

public class Shop {
    static Connection openShop() throws SQLException {
        Properties p = new Properties();
        p.setProperty("enable_load_extension", "true");   // else: not authorized
        p.setProperty("transaction_mode", "IMMEDIATE");
        p.setProperty("busy_timeout", "5000");
        Connection db = DriverManager.getConnection("jdbc:sqlite:shop.db", p);
        one(db, "SELECT load_extension('./idem')");
        return db;
    }
// README: end

// README: order
    record Reply(int status, String answer) {}

    static Reply placeOrder(Connection db, String key, String body, int pieces)
            throws SQLException {
        db.setAutoCommit(false);                          // says BEGIN IMMEDIATE
        try {
            Object[] claim = row(db, 4, "SELECT outcome, token, http_status,"
                + " coalesce(response, message) FROM"
                + " idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')", key, body);
            Reply reply = claim[0].equals("claimed")
                ? effect(db, key, claim[1], pieces) : new Reply((int) claim[2], (String) claim[3]);
            db.commit();
            return reply;
        } catch (Throwable e) {                           // not only SQLException: what is still
            db.rollback();                                // open is committed two lines below
            throw e;
        } finally {
            db.setAutoCommit(true);
        }
    }

    static Reply effect(Connection db, String key, Object token, int pieces) throws SQLException {
        Object number = one(db, "INSERT INTO orders(pieces) VALUES (?) RETURNING id", pieces);
        update(db, "UPDATE stock SET pieces = pieces - ?", pieces);
        Reply reply = new Reply(201, "{\"order\":" + number + "}");
        one(db, "SELECT idem_complete('shop', ?, ?, ?, ?)", key, token, reply.answer, reply.status);
        return reply;
    }
// README: end

    static PreparedStatement bound(Connection db, String sql, Object... values)
            throws SQLException {
        PreparedStatement s = db.prepareStatement(sql);
        for (int i = 0; i < values.length; i++) {
            s.setObject(i + 1, values[i]);                // byte[] is a BLOB, String TEXT
        }
        return s;
    }

    static void update(Connection db, String sql, Object... values) throws SQLException {
        try (PreparedStatement s = bound(db, sql, values)) {
            s.executeUpdate();
        }
    }

    static Object[] row(Connection db, int columns, String sql, Object... values)
            throws SQLException {
        try (PreparedStatement s = bound(db, sql, values); ResultSet r = s.executeQuery()) {
            r.next();
            Object[] row = new Object[columns];
            for (int i = 0; i < columns; i++) {
                row[i] = r.getObject(i + 1);              // getInt() of a time would overflow
            }
            while (r.next()) { }                          // an unread row keeps the statement open
            return row;
        }
    }

    static Object one(Connection db, String sql, Object... values) throws SQLException {
        return row(db, 1, sql, values)[0];
    }

    static void say(String name, Object... words) {
        StringBuilder line = new StringBuilder(String.format("%-11s", name));
        for (Object word : words) {
            line.append(' ').append(word);
        }
        System.out.println(line);
    }

    interface Call {
        void run() throws SQLException;
    }

    static String refusal(String words, Call call) {
        try {
            call.run();
        } catch (SQLException e) {
            return e.getMessage().contains(words) ? words : e.getMessage();
        }
        return "no error";
    }

    static void order(Connection db, String name, String key, String body, int pieces)
            throws SQLException {
        Reply reply = placeOrder(db, key, body, pieces);
        say(name, reply.status, reply.answer);
    }

    static String replay(Connection db, String key) throws SQLException {
        Object[] r = row(db, 3,
            "SELECT outcome, code, response FROM idem_claim('shop', ?, 'fp')", key);
        if (!r[0].equals("replay")) {
            throw new SQLException((String) r[0]);
        }
        String shown = r[2] == null ? "null" : r[2] instanceof byte[] b
            ? "blob " + HexFormat.of().formatHex(b) : "text '" + r[2] + "'";
        return r[1] + " " + shown;
    }

    static void keep(Connection db, String key, Object answer, int code) throws SQLException {
        Object token = one(db, "SELECT token FROM idem_claim('shop', ?, 'fp')", key);
        one(db, "SELECT idem_complete('shop', ?, ?, ?, ?)", key, token, answer, code);
        say(key, replay(db, key));
    }

    static void inProgress(Connection db) throws SQLException {
        one(db, "SELECT idem_clock(?)", 4102444800000L);  // the year 2100: more than 32 bits
        say("claimed", "until", one(db, "SELECT lease_until FROM idem_claim('shop', 'job', 'fp')"));
        Object[] r = row(db, 2,
            "SELECT http_status, retry_after_ms FROM idem_claim('shop', 'job', 'fp')");
        say("in progress", String.format("%d, retry after %d ms", r));
        one(db, "SELECT idem_clock(?)", (Object) null);
        say("wrong token", refusal("claim lost", () ->
            one(db, "SELECT idem_complete('shop', 'job', ?, 'x')", "not-its-token-at-all")));
    }

    public static void main(String[] arguments) throws SQLException {
        Connection db = openShop();
        System.out.println("# " + one(db, "SELECT idem_version()"));
        one(db, "PRAGMA journal_mode = WAL");
        one(db, "SELECT idem_init()");
        say("fingerprint", one(db, "SELECT idem_fingerprint(?)", "{\"pieces\":3}"));
        order(db, "first", "k-1", "{\"pieces\":3}", 3);
        order(db, "retry", "k-1", "{ \"pieces\": 3.0 }", 3);
        order(db, "other body", "k-1", "{\"pieces\":4}", 4);
        Connection shop = db;
        say("sold out", refusal("CHECK constraint failed",
            () -> placeOrder(shop, "k-2", "{\"pieces\":8}", 8)));
        say("rolled back", String.format("%d order, %d pieces left",
            row(db, 2, "SELECT (SELECT count(*) FROM orders), pieces FROM stock")));
        order(db, "fewer", "k-2", "{\"pieces\":5}", 5);
        inProgress(db);
        keep(db, "blob", new byte[] {0x00, (byte) 0xff, 0x7f, (byte) 0x80}, 200);
        keep(db, "null", null, 204);
        keep(db, "empty", "", 200);
        keep(db, "text", "שלום", 200);
        db.close();
        say("closed", Files.exists(Path.of("shop.db-wal")) ? "a -wal" : "no -wal");
        db = openShop();
        order(db, "reopened", "k-1", "{\"pieces\":3}", 3);
        say("kept", replay(db, "blob"));
        db.close();
    }
}
