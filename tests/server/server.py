"""An example: a small HTTP API on idem, with the standard library only.

    python3 server.py DATABASE PORT PROVIDER [--so idem.so] [--lease-ms 30000]

    POST /payments          an effect outside: the card is charged at a provider over HTTP
    POST /invoices          an effect inside: a row with a gapless number, in one transaction
    GET  /operations/KEY    how far a request is (what a 202 points to)
    GET  /contract          what a client may rely on, from idem_contract

Every request names its account by "Authorization: Bearer ..."; every POST brings an Idempotency-Key.

    400  no key, a malformed key, a body that is not the JSON it should be     nothing is stored
    409  in progress, or outcome unknown: Retry-After says when to ask again
    410  done, but so long ago that the answer is no longer kept
    422  the key was used for another request
    202  with "Prefer: respond-async": accepted, Location says where to look
    503  nothing happened: repeat the request with the same key

A stored answer is sent again byte for byte, with "Idempotent-Replayed: true".
"""
import argparse
import http.client
import json
import os
import secrets
import sqlite3
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Credentials name an account, and the account is the scope of a key: a credential can be replaced
# between a request and its retry.
ACCOUNTS = {"secret-1": "acct_1", "secret-1-new": "acct_1", "secret-2": "acct_2"}

# The headers of an answer that belong to the operation. All others belong to the moment: a stored
# Set-Cookie would log the next caller in as the first, a stored Date or Content-Length would lie.
STORED_HEADERS = ("Content-Type", "Content-Language", "Location", "Link")

MAX_BODY = 100_000
PROVIDER_TIMEOUT = 2.0

SCHEMA = """
CREATE TABLE IF NOT EXISTS payment(
  id INTEGER PRIMARY KEY, account TEXT NOT NULL, key TEXT NOT NULL, amount INTEGER NOT NULL,
  charge TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS invoice(
  number INTEGER NOT NULL, account TEXT NOT NULL, key TEXT NOT NULL, customer TEXT NOT NULL,
  total INTEGER NOT NULL) STRICT;
"""


class Answer:
    """What goes to a client: a status, headers, a body."""

    def __init__(self, status, body, headers=(), replayed=False):
        self.status, self.headers, self.replayed = status, list(headers), replayed
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode() + b"\n"
        if not isinstance(body, bytes):
            self.headers.insert(0, ("Content-Type", "application/json"))

    def stored_headers(self):
        return json.dumps([(name, value) for name, value in self.headers if name in STORED_HEADERS])


def problem(status, detail, retry_after_ms=None):
    headers = [("Content-Type", "application/problem+json")]
    body = {"status": status, "detail": detail}
    if retry_after_ms is not None:
        headers.append(("Retry-After", str(-(-retry_after_ms // 1000))))   # seconds, rounded up
        body["retry_after_ms"] = retry_after_ms
    return Answer(status, json.dumps(body).encode() + b"\n", headers)


class Shop:
    """The application: everything below HTTP. One object per connection to the database."""

    def __init__(self, options):
        self.options = options
        self.db = sqlite3.connect(options.database, timeout=10, isolation_level=None)
        self.db.enable_load_extension(True)
        self.db.load_extension(options.so)
        self.db.enable_load_extension(False)
        # A claim guards the charge: NORMAL could lose it with the power after the provider was called.
        self.db.execute("PRAGMA synchronous = FULL")

    def close(self):
        self.db.close()

    def one(self, sql, *values):
        return self.db.execute(sql, values).fetchall()[0][0]

    def prepare(self):
        self.db.execute("PRAGMA journal_mode = WAL").fetchall()
        self.one("SELECT idem_init()")
        self.db.executescript(SCHEMA)
        # The provider may have charged when we lost sight of it: nobody repeats that unasked.
        self.db.execute("INSERT INTO idem_policy(operation, lease_ms, on_stale, description) "
                        "VALUES ('POST /payments', ?, 'unknown', 'charges a card') "
                        "ON CONFLICT DO UPDATE SET lease_ms = excluded.lease_ms", (self.options.lease_ms,))
        self.db.execute("INSERT OR IGNORE INTO idem_policy(operation, description) "
                        "VALUES ('POST /invoices', 'issues an invoice')")

    # What both operations share

    def claim(self, account, key, body, operation):
        cursor = self.db.execute("SELECT * FROM idem_claim(?, ?, idem_fingerprint(?), ?)",
                                 (account, key, body, operation))
        names = [column[0] for column in cursor.description]
        return dict(zip(names, cursor.fetchall()[0]))

    def not_claimed(self, got):
        """The answer to a claim that was not won."""
        if got["outcome"] == "replay":
            return Answer(got["code"], got["response"] or b"", json.loads(got["headers"] or "[]"), True)
        if got["outcome"] == "in_progress":
            return problem(got["http_status"], got["message"], got["retry_after_ms"])
        if got["outcome"] == "unknown":
            return problem(got["http_status"], got["message"], 1000)
        return problem(got["http_status"], got["message"])

    def complete(self, account, key, token, answer):
        self.one("SELECT idem_complete(?, ?, ?, ?, ?, ?)", account, key, token, answer.body,
                 answer.status, answer.stored_headers())
        return answer

    def transaction(self, work):
        self.db.execute("BEGIN IMMEDIATE")
        try:
            result = work()
            self.db.execute("COMMIT")
            return result
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise

    # POST /invoices: claim, row and answer in one transaction. A crash leaves nothing behind.

    def invoice(self, account, key, body, _):
        request = json.loads(body)

        def work():
            got = self.claim(account, key, body, "POST /invoices")
            if got["outcome"] != "claimed":
                return self.not_claimed(got)
            number = self.one("INSERT INTO invoice SELECT ifnull(max(number), 0) + 1, ?, ?, ?, ? FROM invoice "
                              "RETURNING number", account, key, request["customer"], request["total"])
            return self.complete(account, key, got["token"], Answer(
                201, {"invoice": number, "mark": secrets.token_hex(8)},
                [("Location", f"/invoices/{number}"), ("X-Request-Id", secrets.token_hex(8))]))

        return self.transaction(work)

    # POST /payments: the claim is committed before the provider is called, the answer after.

    def payment(self, account, key, body, wants_async):
        got = self.claim(account, key, body, "POST /payments")
        if got["outcome"] == "claimed":
            if not wants_async:
                return self.charge(account, key, body, got["token"])
            thread = threading.Thread(target=self.charge_later, args=(account, key, body, got["token"]))
            thread.start()
        elif not (wants_async and got["outcome"] in ("in_progress", "unknown")):
            return self.not_claimed(got)
        return Answer(202, {"status": "accepted"},
                      [("Location", "/operations/" + urllib.parse.quote(key, safe="")), ("Retry-After", "1")])

    def charge_later(self, account, key, body, token):
        shop = Shop(self.options)
        try:
            shop.charge(account, key, body, token)
        finally:
            shop.close()

    def charge(self, account, key, body, token):
        amount = json.loads(body)["amount"]
        try:
            # The account is part of the provider's key: two accounts may use the same key.
            provider_key = self.one("SELECT idem_derive_key(?, ?, 'charge')", key, account)
            status, charge = provider(self.options, "POST", "/charges", provider_key, {"amount": amount})
        except ConnectionRefusedError:
            self.one("SELECT idem_release(?, ?, ?, 'provider is down')", account, key, token)
            return problem(503, "The payment provider is down, nothing was charged.", 1000)
        except (OSError, http.client.HTTPException):
            # Sent, and no answer: it may have charged. The reconciler will ask.
            self.one("SELECT idem_suspend(?, ?, ?, 'no answer from the provider')", account, key, token)
            return problem(409, "The outcome of the payment is not known yet.", 1000)
        try:
            return self.transaction(lambda: self.complete(
                account, key, token, self.record_payment(account, key, amount, status, charge)))
        except sqlite3.IntegrityError as error:
            if "claim lost" not in str(error):
                raise
            return self.not_claimed(self.claim(account, key, body, "POST /payments"))

    def record_payment(self, account, key, amount, status, charge):
        """The business row, if the card was charged, and the answer. Runs in a transaction."""
        if status == 402:
            return Answer(402, {"error": "card declined", "mark": secrets.token_hex(8)})
        payment = self.one("INSERT INTO payment(account, key, amount, charge) VALUES (?, ?, ?, ?) RETURNING id",
                           account, key, amount, charge["id"])
        return Answer(201, {"payment": payment, "charge": charge["id"], "mark": secrets.token_hex(8)},
                      [("Location", f"/payments/{payment}"), ("X-Request-Id", secrets.token_hex(8))])

    def reconcile(self):
        """Asks the provider about payments whose outcome is unknown, and decides."""
        rows = self.db.execute("SELECT scope, key FROM idem_records WHERE state = 'unknown' "
                               "AND operation = 'POST /payments'").fetchall()
        for account, key in rows:
            provider_key = self.one("SELECT idem_derive_key(?, ?, 'charge')", key, account)
            status, charge = provider(self.options, "GET", "/charges/" + provider_key)

            def work():
                if status == 404:                          # if it comes yet, it carries the same key
                    self.one("SELECT idem_resolve(?, ?, 'retry', 'no such charge')", account, key)
                else:
                    answer = self.record_payment(account, key, charge.get("amount"), status, charge)
                    self.one("SELECT idem_resolve(?, ?, 'completed', ?, ?, ?)", account, key, answer.body,
                             answer.status, answer.stored_headers())

            try:
                self.transaction(work)
            except sqlite3.IntegrityError:
                pass                                       # somebody was quicker: decided already

    # GET

    def operation(self, account, key):
        rows = self.db.execute("SELECT state, code, headers, response, retry_after_ms FROM idem_records "
                               "WHERE scope = ? AND key = ?", (account, key)).fetchall()
        if not rows:
            return problem(404, "No request with this key.")
        state, code, headers, response, retry = rows[0]
        if state == "expired":
            return problem(410, "Done, but the answer is no longer kept.")
        if state == "completed":
            return Answer(200, {"status": state, "code": code, "headers": json.loads(headers or "[]"),
                                "body": (response or b"").decode()})
        return Answer(200, {"status": state}, [("Retry-After", str(-(-(retry or 1000) // 1000)))])

    def contract(self):
        rows = self.db.execute("SELECT document FROM idem_contract WHERE operation LIKE 'POST %'")
        return Answer(200, [json.loads(row[0]) for row in rows.fetchall()])


def provider(options, method, path, key=None, body=None):
    """One request to the payment provider: (status, JSON)."""
    connection = http.client.HTTPConnection(options.provider, timeout=PROVIDER_TIMEOUT)
    try:
        connection.request(method, path, json.dumps(body) if body else None,
                           {"Idempotency-Key": key} if key else {})
        response = connection.getresponse()
        text = response.read()
        if response.status not in (200, 201, 402, 404):
            raise http.client.HTTPException(f"provider answered {response.status}")
        return response.status, json.loads(text)
    finally:
        connection.close()


def valid_payment(request):
    return isinstance(request.get("amount"), int) and 0 < request["amount"] < 10**12


def valid_invoice(request):
    return (isinstance(request.get("customer"), str) and isinstance(request.get("total"), int) and
            0 < request["total"] < 10**12)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10
    POSTS = {"/payments": (valid_payment, Shop.payment), "/invoices": (valid_invoice, Shop.invoice)}

    def setup(self):
        super().setup()
        self.shop = Shop(self.server.options)              # a thread serves a client, with its own connection

    def finish(self):
        self.shop.close()
        super().finish()

    def account(self):
        scheme, _, secret = self.headers.get("Authorization", "").partition(" ")
        return ACCOUNTS.get(secret) if scheme == "Bearer" else None

    def do_POST(self):
        self.respond(self.post)

    def do_GET(self):
        self.respond(self.get)

    def respond(self, serve):
        try:
            answer = serve()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xff != sqlite3.SQLITE_BUSY:
                raise
            answer = problem(503, "Busy, nothing happened.", 1000)
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.replayed:
            self.send_header("Idempotent-Replayed", "true")
        self.send_header("Content-Length", str(len(answer.body)))
        try:
            self.end_headers()
            self.wfile.write(answer.body)
        except OSError:
            self.close_connection = True                   # the client is gone: its retry gets a replay

    def post(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.close_connection = True
            return problem(413, f"The body is larger than {MAX_BODY} bytes.")
        body = self.rfile.read(length)
        account = self.account()
        if account is None:
            return problem(401, "Authorization is missing or wrong.")
        if self.path not in self.POSTS:
            return problem(404, "No such resource.")
        valid, run = self.POSTS[self.path]
        # Everything that is wrong with the request itself is said before the claim, and not stored.
        headers = self.headers.get_all("Idempotency-Key")
        if not headers:
            return problem(400, "This operation needs an Idempotency-Key header.")
        try:
            key = self.shop.one("SELECT idem_header_key(?)", ", ".join(headers))
            self.shop.one("SELECT idem_fingerprint(?)", body)
            request = json.loads(body)
        except (sqlite3.OperationalError, ValueError) as error:
            return problem(400, str(error))
        if not isinstance(request, dict) or not valid(request):
            return problem(400, "The body lacks a member, or one is out of range.")
        wants_async = "respond-async" in self.headers.get("Prefer", "")
        return run(self.shop, account, key, body, wants_async)

    def get(self):
        if self.path == "/contract":
            return self.shop.contract()
        account = self.account()
        if account is None:
            return problem(401, "Authorization is missing or wrong.")
        if self.path.startswith("/operations/"):
            return self.shop.operation(account, urllib.parse.unquote(self.path[len("/operations/"):]))
        return problem(404, "No such resource.")

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):     # a client that went away is no error of ours
            super().handle_error(request, client_address)


def reconcile_for_ever(options):
    shop = Shop(options)
    while True:
        try:
            shop.reconcile()
        except (OSError, http.client.HTTPException, sqlite3.OperationalError):
            pass                                           # the provider is away, or the file busy: later
        time.sleep(options.reconcile_ms / 1000)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("database")
    parser.add_argument("port", type=int)
    parser.add_argument("provider", help="host:port")
    parser.add_argument("--so", default="./idem.so")
    parser.add_argument("--lease-ms", type=int, default=30_000)
    parser.add_argument("--reconcile-ms", type=int, default=1000)
    parser.add_argument("--seconds", type=float, help="end after so long, whatever happens")
    parser.add_argument("--standby", action="store_true", help="wait for a line on standard input first")
    options = parser.parse_args()
    if options.seconds:
        timer = threading.Timer(options.seconds, os._exit, [3])
        timer.daemon = True
        timer.start()
    if options.standby and not sys.stdin.readline():
        return
    shop = Shop(options)
    shop.prepare()
    shop.close()
    server = Server(("127.0.0.1", options.port), Handler)
    server.options = options
    threading.Thread(target=reconcile_for_ever, args=(options,), daemon=True).start()
    print(f"listening on 127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
