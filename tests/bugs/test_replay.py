"""G. Replayed content (50-55)."""
import json

import pytest

from bug_words import CALL, TOK1, claim_once, everything, lost, one, policy


def test_50_an_answer_without_a_body(pair):
    """Sidarthapati/one_day_delivery#61: an empty body breaks a NOT NULL column and the answer is never stored."""
    pair.complete(pair.c1, "none", pair.claim(pair.c1, "none")["token"], None, 204)
    pair.complete(pair.c1, "empty", pair.claim(pair.c1, "empty")["token"], "", 200)
    answer = pair.claim(pair.c2, "none")
    assert (answer["outcome"], answer["code"], answer["response_omitted"]) == ("replay", 204, 0)
    assert "response" not in answer  # NULL, and not ''
    assert pair.claim(pair.c2, "empty")["response"] == ""


@pytest.mark.parametrize("response", [b"\x00\xff\x80", b"", bytes(range(256)), '{"b": 1,  "a": 1.0}\r\n', "\u00e9e\u0301\u20ac",
                                      "a\0b"])
def test_51_bytes_and_status_are_replayed_as_they_were(pair, response):
    """langwatch/langwatch#6511 (jsonb reorders), chuanghiduoc/nestjs-fastify-nx#127,
    rajadilipkolli/my-spring-boot-experiments#2629 (201 becomes 200): bytes, content type or status change on
    replay."""
    headers = '{ "Content-Type" :"application/octet-stream",\n\t"X-A": "1" , "Content-Type":"again" }'
    pair.complete(pair.c1, "k", pair.claim(pair.c1, "k")["token"], response, 201, headers)
    answer = pair.claim(pair.c2, "k")
    assert (answer["outcome"], answer["code"], answer["http_status"]) == ("replay", 201, 201)
    assert answer["response"] == response and type(answer["response"]) is type(response)
    assert answer["headers"] == headers
    assert pair.visible("k", "response", "code", "headers") == (response, 201, headers)


KEEP = "('content-type', 'location', 'etag')"
KEEP_HEADERS = f"SELECT json_group_object(key, value) FROM json_each(?) WHERE lower(key) IN {KEEP}"


def test_52_headers_are_the_application_s_choice(pair):
    """granit-fx/granit-dotnet#1151, hono-idempotency 0.8.3, IdempotentAPI and square1 (source): Set-Cookie,
    Content-Length, authorisation headers are replayed to another caller."""
    sent = {"Content-Type": "application/json", "Set-Cookie": "session=secret", "Location": "/orders/1",
            "Content-Length": "17", "Authorization": "Bearer secret", "WWW-Authenticate": "Basic"}
    # idem adds nothing and removes nothing ...
    pair.complete(pair.c1, "all", pair.claim(pair.c1, "all")["token"], "{}", 201, json.dumps(sent))
    assert pair.claim(pair.c2, "all")["headers"] == json.dumps(sent)
    pair.complete(pair.c1, "none", pair.claim(pair.c1, "none")["token"], "{}", 201, None)
    assert "headers" not in pair.claim(pair.c2, "none")
    # ... and an allow-list, at completion, never stores the others.
    token = pair.claim(pair.c1, "some")["token"]
    assert one(pair.c1, f"SELECT idem_complete('t', 'some', ?, '{{}}', 201, ({KEEP_HEADERS}))", token, json.dumps(sent)) == 1
    answer = pair.claim(pair.c2, "some")
    assert json.loads(answer["headers"]) == {"Content-Type": "application/json", "Location": "/orders/1"}
    kept = pair.c1.execute("SELECT * FROM idem_store WHERE key = 'some'").fetchall()
    assert "secret" not in str(kept)


def test_53_which_failures_stick_is_the_handler_s_decision(pair):
    """paveg/hono-idempotency#178, LabsCrypt/remitlend#1416, codat/codat-docs#1842, pome-sh/digital-twins#275: which
    failures stick is left to chance."""
    token = {key: pair.claim(pair.c1, key)["token"] for key in ("409", "503", "429", "timeout")}
    pair.complete(pair.c1, "409", token["409"], "not enough stock", 409)
    for key in "503", "429":
        assert one(pair.c1, "SELECT idem_release('t', ?, ?, 'nothing was done')", key, token[key]) == 1
    assert one(pair.c1, "SELECT idem_suspend('t', 'timeout', ?, 'provider did not answer')", token["timeout"]) == 1
    answer = pair.claim(pair.c2, "409")
    assert (answer["outcome"], answer["http_status"], answer["response"]) == ("replay", 409, "not enough stock")
    for key in "503", "429":
        answer = pair.claim(pair.c2, key)
        assert (answer["outcome"], answer["attempt"]) == ("claimed", 2)
    assert pair.outcome(pair.c2, "timeout") == "unknown"


def test_54_a_replay_says_that_it_is_one(pair):
    """KeeperHub/keeperhub#1849, useplunk/plunk#484, ikyriak/IdempotentAPI#85: nobody can see that an answer is a
    replay."""
    policy(pair.c1, "pay", audit="all")
    first = claim_once(pair.c1, pair.form, "k")
    pair.at(500)
    pair.complete(pair.c1, "k", first["token"], "done", 200)
    pair.at(9000)
    again = [claim_once(pair.c2, pair.form, "k") for _ in range(3)]
    assert first["replayed"] == 0
    for answer in again:
        assert (answer["replayed"], answer["outcome"]) == (1, "replay")
        assert answer["created_at"] == first["created_at"]
        assert answer["completed_at"] == first["created_at"] + 500
    assert pair.c1.execute("SELECT event, count(*) FROM idem_audit GROUP BY event ORDER BY event").fetchall() == [
        ("claim", 1), ("complete", 1), ("replay", 3)]
    # The other form counts as well.
    assert pair.outcome(pair.c2, "k") == "replay"
    assert one(pair.c1, "SELECT count(*) FROM idem_audit WHERE event = 'replay'") == 5


def test_55_nothing_is_completed_that_was_not_claimed(pair):
    """mastodon/mastodon#40399 and #30039, langgenius/dify#39685, paperclipai/paperclip#2489: the key is accepted but
    one path never enforces it, or follow-up work runs on nothing."""
    pair.claim(pair.c1, "claimed")
    for key in "never", "claimed":
        for call in ("idem_complete('t', ?, ?, 'done')", "idem_renew('t', ?, ?)", "idem_release('t', ?, ?)",
                     "idem_suspend('t', ?, ?)", "idem_checkpoint('t', ?, ?, 'charged')"):
            assert "claim lost" in lost(pair.c1, "SELECT " + call, key, TOK1)
            assert "claim lost" in lost(pair.c1, CALL + call, key, TOK1)
        before = everything(pair.c1)
        for change in ("state = 'completed', response = 'done'", "state = 'released'", "recovery_point = 'charged'"):
            cursor = pair.c1.execute(f"UPDATE idem_records SET {change} WHERE scope = 't' AND key = ? AND token = ?",
                                     (key, TOK1))
            assert cursor.rowcount == 0 and one(pair.c1, "SELECT changes()") == 0
        assert everything(pair.c1) == before
    assert "claim lost" in lost(pair.c1, "SELECT idem_resolve('t', 'never', 'completed', 'done')")
    assert pair.count() == 1
