"""The example server, request by request: which outcome becomes which HTTP answer."""
import argparse
import importlib.util
import json
import threading
import time

import pytest
from server_kit import SERVER, Provider, Server, post, send, shared

PAYMENT = {"amount": 4990}
INVOICE = {"customer": "Ann", "total": 100}


@pytest.fixture(scope="module")
def provider():
    provider = Provider()
    yield provider
    provider.stop()


@pytest.fixture(scope="module")
def server(provider, tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server") / "shop.db", provider.address, "--lease-ms", 30_000,
                    "--reconcile-ms", 50).start()
    yield server
    server.stop()


@pytest.fixture
def port(server, provider):
    provider.mute, provider.delay = False, 0.0
    provider.hold.set()
    return server.port


@pytest.fixture
def db(server):
    db = shared.connect(server.database, init=False)
    yield db
    db.close()


@pytest.fixture
def key():
    return shared.new_key()


def expire(db, key):
    """As if its retention were over, since a second."""
    assert db.execute("UPDATE idem_store SET due_at = ? WHERE key = ? AND state = 'completed'",
                      (int(time.time() * 1000) - 1000, key)).rowcount == 1


def test_no_claim_is_lost_with_the_power(server):
    """A charge follows the claim, so the claim must be on the disk first: WAL with FULL."""
    spec = importlib.util.spec_from_file_location("example_server", SERVER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shop = module.Shop(argparse.Namespace(database=str(server.database), so=shared.SO))
    assert (shop.one("PRAGMA journal_mode"), shop.one("PRAGMA synchronous")) == ("wal", 2)
    shop.close()


@pytest.mark.parametrize("path, body", [("/payments", PAYMENT), ("/invoices", INVOICE)])
def test_the_first_answer_and_its_replay(port, key, path, body):
    first = post(port, path, body, key)
    assert first.status == 201 and not first.replayed and first.header("X-Request-Id")
    for spelling in (key, f'"{key}"', f"  {key} "):        # bare, quoted as in RFC 8941, with white space
        again = post(port, path, body, spelling)
        assert again.replayed and again.lasting == first.lasting
    assert first.header("Location") == again.header("Location")
    other = post(port, path, body, shared.new_key())
    assert other.status == 201 and not other.replayed and other.body != first.body


def test_another_spelling_of_the_same_request_is_the_same_request(port, key):
    first = post(port, "/invoices", b'{"customer":"Ann","total":100}', key)
    again = post(port, "/invoices", b'{ "total": 100, "customer": "\\u0041nn" }', key)
    assert again.replayed and again.lasting == first.lasting


def test_the_credential_may_be_replaced_between_request_and_retry(port, key):
    """RamaAditya49/titen#104: the scope is the account, not the credential."""
    first = post(port, "/payments", PAYMENT, key, secret="secret-1")
    again = post(port, "/payments", PAYMENT, key, secret="secret-1-new")
    assert again.replayed and again.lasting == first.lasting


def test_accounts_do_not_see_each_other(port, provider, key):
    mine = post(port, "/payments", PAYMENT, key, secret="secret-1")
    theirs = post(port, "/payments", PAYMENT, key, secret="secret-2")
    assert theirs.status == 201 and not theirs.replayed
    assert theirs.json["charge"] != mine.json["charge"]    # the same key, and yet two charges
    assert send(port, "GET", f"/operations/{key}", secret=None).status == 401


@pytest.mark.parametrize("bad", [None, "", "a b", '"open', "a,b", "a" * 256, '""', ["a", "b"], '"a";x=1'],
                         ids=range(9))
def test_400_without_a_good_key(port, db, bad):
    before = shared.one(db, "SELECT count(*) FROM idem_store")
    for path, body in (("/payments", PAYMENT), ("/invoices", INVOICE)):
        reply = post(port, path, body, bad)
        assert reply.status == 400 and "Idempotency-Key" in reply.json["detail"]
        assert reply.header("Content-Type") == "application/problem+json"
    assert shared.one(db, "SELECT count(*) FROM idem_store") == before


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"amount": 0}', b'{"amount": 1, "amount": 2}',
                                  b'{"amount": "5"}', b"\xff", b'{"amount": NaN}'], ids=range(9))
def test_400_for_a_bad_body_is_not_stored(port, db, key, body):
    assert post(port, "/payments", body, key).status == 400
    assert shared.record(db, key, "acct_1") is None
    assert post(port, "/payments", PAYMENT, key).status == 201   # the key is still good


def test_401_is_not_stored(port, db, key):
    assert post(port, "/payments", PAYMENT, key, secret="wrong").status == 401
    assert post(port, "/payments", PAYMENT, key, secret=None).status == 401
    assert post(port, "/payments", PAYMENT, key).status == 201


def test_409_with_retry_after_while_in_progress(port, provider, db, key):
    provider.hold.clear()
    replies = []
    thread = threading.Thread(target=lambda: replies.append(post(port, "/payments", PAYMENT, key)))
    thread.start()
    deadline = time.monotonic() + 5
    while shared.record(db, key, "acct_1") is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    reply = post(port, "/payments", PAYMENT, key)
    assert reply.status == 409
    assert 1 <= int(reply.header("Retry-After")) <= 30
    assert "still being processed, retry shortly" in reply.json["detail"]
    assert 0 < reply.json["retry_after_ms"] <= 30_000 and not reply.replayed
    assert post(port, "/payments", {"amount": 1}, key).status == 422
    provider.hold.set()
    thread.join()
    assert replies[0].status == 201
    assert post(port, "/payments", PAYMENT, key).lasting == replies[0].lasting


@pytest.mark.parametrize("path, body", [("/payments", PAYMENT), ("/invoices", INVOICE)])
def test_422_for_another_request_under_the_key(port, key, path, body):
    first = post(port, path, body, key)
    changed = {**body, **({"amount": 1} if path == "/payments" else {"total": 1})}
    assert post(port, path, changed, key).status == 422
    other = ("/invoices", INVOICE) if path == "/payments" else ("/payments", PAYMENT)
    assert post(port, *other, key).status == 422
    assert post(port, path, body, key).lasting == first.lasting


@pytest.mark.parametrize("path, body", [("/payments", PAYMENT), ("/invoices", INVOICE)])
def test_410_after_retention(port, db, key, path, body):
    post(port, path, body, key)
    expire(db, key)
    reply = post(port, path, body, key)
    assert reply.status == 410 and not reply.replayed
    assert send(port, "GET", f"/operations/{key}").status == 410
    assert shared.one(db, f"SELECT count(*) FROM {path[1:-1]} WHERE key = ?", key) == 1


def test_402_is_an_answer_and_stays(port, provider, db, key):
    first = post(port, "/payments", {"amount": 13}, key)
    assert first.status == 402
    asked = provider.requests
    again = post(port, "/payments", {"amount": 13}, key)
    assert again.replayed and again.lasting == first.lasting and provider.requests == asked
    assert shared.one(db, "SELECT count(*) FROM payment WHERE key = ?", key) == 0


def test_503_when_the_provider_is_down_and_nothing_happened(provider, db, key, tmp_path):
    away = Provider()
    address = away.address
    away.stop()
    server = Server(tmp_path / "down.db", address).start()
    try:
        reply = post(server.port, "/payments", PAYMENT, key)
        assert reply.status == 503 and reply.header("Retry-After") == "1"
        shop = shared.connect(tmp_path / "down.db", init=False)
        assert shared.record(shop, key, "acct_1")["state"] == "released"
        assert post(server.port, "/payments", PAYMENT, key).status == 503
        assert shared.record(shop, key, "acct_1")["attempt"] == 2
        shop.close()
    finally:
        server.stop()


def test_409_when_the_outcome_is_unknown_until_somebody_asks(port, provider, db, key):
    provider.mute = True                                   # charges, and does not answer
    reply = post(port, "/payments", PAYMENT, key)
    assert reply.status == 409 and "not known" in reply.json["detail"]
    reply = post(port, "/payments", PAYMENT, key)
    assert reply.status == 409 and "must be resolved first" in reply.json["detail"]
    assert reply.header("Retry-After") == "1"
    provider.mute = False                                  # now the reconciler gets its answer
    deadline = time.monotonic() + 10
    while reply.status == 409:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        reply = post(port, "/payments", PAYMENT, key)
    assert reply.status == 201 and reply.replayed
    assert shared.one(db, "SELECT count(*) FROM payment WHERE key = ?", key) == 1
    assert "resolve-completed" in [row[0] for row in db.execute(
        "SELECT event FROM idem_audit WHERE key = ?", (key,))]


def test_202_and_a_status_url(port, provider, key):
    provider.hold.clear()
    prefer = [("Prefer", "respond-async")]
    first = post(port, "/payments", PAYMENT, key, headers=prefer)
    assert first.status == 202
    url = first.header("Location")
    assert url == f"/operations/{key}"
    status = send(port, "GET", url)
    assert status.json == {"status": "processing"} and 1 <= int(status.header("Retry-After")) <= 30
    assert post(port, "/payments", PAYMENT, key, headers=prefer).status == 202   # asked again: no second run
    assert post(port, "/payments", PAYMENT, key).status == 409                   # not async: as always
    assert send(port, "GET", url, secret="secret-2").status == 404
    provider.hold.set()
    deadline = time.monotonic() + 10
    while send(port, "GET", url).json["status"] != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    status = send(port, "GET", url).json
    again = post(port, "/payments", PAYMENT, key, headers=prefer)
    assert again.status == status["code"] == 201 and again.replayed
    assert again.body.decode() == status["body"] and dict(status["headers"])["Location"] == again.header("Location")


def test_the_status_url_of_an_odd_key(port):
    odd = 'a/b "c"?d=e#f%20\\' + shared.new_key()
    quoted = '"' + odd.replace("\\", "\\\\").replace('"', '\\"') + '"'
    reply = post(port, "/payments", PAYMENT, quoted, headers=[("Prefer", "respond-async")])
    assert reply.status == 202
    deadline = time.monotonic() + 10
    while send(port, "GET", reply.header("Location")).json["status"] != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_404_of_an_unknown_key(port):
    assert send(port, "GET", "/operations/none").status == 404
    assert send(port, "GET", "/nothing").status == 404
    assert post(port, "/nothing", PAYMENT, shared.new_key()).status == 404


def test_only_allowed_headers_are_stored(port, db, key):
    for path, body, k in (("/payments", PAYMENT, key), ("/invoices", INVOICE, key + "-2")):
        first = post(port, path, body, k)
        stored = json.loads(shared.record(db, k, "acct_1")["headers"])
        assert {name for name, _ in stored} == {"Content-Type", "Location"}
        again = post(port, path, body, k)
        assert first.header("X-Request-Id") and again.header("X-Request-Id") is None
        assert again.header("Date") and again.header("Content-Length") == str(len(again.body))


def test_the_contract_is_published(port):
    documents = {d["operation"]: d for d in send(port, "GET", "/contract").json}
    assert set(documents) == {"POST /payments", "POST /invoices"}
    assert documents["POST /payments"]["header"] == "Idempotency-Key"
    assert documents["POST /payments"]["unknown"]["after_seconds_without_news"] == 30


def test_many_clients_with_one_key(port, db, key):
    """One of them wins, all get the same."""
    replies, barrier = [], threading.Barrier(12)

    def go():
        barrier.wait()
        while True:
            reply = post(port, "/invoices", INVOICE, key)
            if reply.status not in (409, 503):
                replies.append(reply)
                return
            time.sleep(0.01)

    threads = [threading.Thread(target=go) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 12 and sum(not r.replayed for r in replies) == 1
    assert all(r.lasting == replies[0].lasting for r in replies)
    assert shared.one(db, "SELECT count(*) FROM invoice WHERE key = ?", key) == 1
