"""A small model of idem: what its store holds and what each call answers, from the contract alone.

A State is never changed: each call returns an Effect with the state after it. That makes a rollback
the return to an earlier State.
"""
import hashlib
from collections import namedtuple

POLICY_DEFAULTS = dict(lease_ms=60_000, retention_ms=86_400_000, tombstone_ms=2_592_000_000, wait_ms=0,
                       on_stale="unknown", max_attempts=0, max_response_bytes=1_048_576,
                       allow_content_key=0, audit="exceptions")

Record = namedtuple(
    "Record", "operation fingerprint state attempt granted token spent due tombstone_ms created_at "
              "completed_at code headers response omitted point checkpoint reason logged")

# answer: a dict for a claim, else the value returned. error: one of ERRORS, or None.
# needs: the call must write, even if only an audit row; "note": it does without if it cannot.
Effect = namedtuple("Effect", "state answer error needs")

# The errors: the class of their SQLite code, and words of the message by which they are told apart.
ERRORS = {
    "content key": ("ERROR", "key equals the fingerprint"),
    "scope key": ("ERROR", "key equals the scope"),
    "forms": ("ERROR", "they cannot be compared"),
    "token used": ("CONSTRAINT", "a token is good for one attempt"),
    "no record": ("CONSTRAINT", "there is no record of this scope and key"),
    "expired": ("CONSTRAINT", "its answer has expired"),
    "lost": ("CONSTRAINT", "the token does not hold the record"),
    "released": ("CONSTRAINT", "the record was released"),
    "answered": ("CONSTRAINT", "the record is completed with another answer"),
    "completed": ("CONSTRAINT", "claim lost: the record is already completed"),
    "suspended": ("CONSTRAINT", "the record is suspended"),
    "live": ("CONSTRAINT", "under a live lease"),
    "resolved": ("CONSTRAINT", "the record is already completed, its answer stays"),
    "claimable": ("CONSTRAINT", "the next claim may execute"),
    "erase": ("CONSTRAINT", "only finished records can be erased"),
    "seen other": ("CONSTRAINT", "this event id was seen with another fingerprint"),
}

MESSAGES = {
    "mismatch": "Idempotency-Key was already used with a different request payload.",
    "in_progress": "A request with this Idempotency-Key is still being processed, retry shortly.",
}
HTTP = {"in_progress": 409, "mismatch": 422, "unknown": 409, "expired": 410, "exhausted": 409}


def form(fingerprint):
    """idem1: and the like; None for a fingerprint of the caller's own making."""
    text = fingerprint if isinstance(fingerprint, str) else fingerprint.decode()
    head, colon, _ = text.partition(":")
    return head if colon and head in ("idem0", "idem1", "idemr1", "idemh1") else None


def same(a, b):
    return type(a) is type(b) and a == b


class State:
    __slots__ = ("records", "policies", "inbox", "audit")

    def __init__(self, records, policies, inbox, audit):
        self.records, self.policies, self.inbox, self.audit = records, policies, inbox, audit

    @staticmethod
    def new():
        return State({}, {"*": POLICY_DEFAULTS, "inbox": {**POLICY_DEFAULTS, "retention_ms": 2_592_000_000}},
                     {}, ())

    def __eq__(self, other):
        return all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    def policy(self, operation):
        return self.policies.get(operation) or self.policies["*"]

    # ---- changes ---------------------------------------------------------------------------------

    def put(self, key, record):
        records = dict(self.records)
        if record is None:
            del records[key]
        else:
            records[key] = record
        return State(records, self.policies, self.inbox, self.audit)

    def log(self, policy, level, at, event, key, operation, attempt, detail=None):
        """The state with an audit row, if the policy wants events of this level."""
        levels = ["off", "exceptions", "all"]
        if levels.index(policy["audit"]) < levels.index(level):
            return self
        row = (at, event, *key, operation, attempt, detail)
        return State(self.records, self.policies, self.inbox, self.audit + (row,))

    def write(self, key, record, policy, level, at, event, detail=None):
        """A change of a record with its audit row."""
        was = self.records.get(key)
        after = self.put(key, record)
        if event is not None:
            shown = record or was
            after = after.log(policy, level, at, event, key, shown.operation, shown.attempt, detail)
            if len(after.audit) > len(self.audit) and record is not None:
                after = after.put(key, record._replace(logged=event == "exhausted"))
        return after

    def set_policy(self, operation, column, value):
        policies = dict(self.policies)
        policies[operation] = {**policies.get(operation, POLICY_DEFAULTS), column: value}
        return State(self.records, policies, self.inbox, self.audit)

    # ---- what a reader sees ----------------------------------------------------------------------

    def seen_state(self, record, now):
        """processing, unknown, released, completed, expired, or None when its time is over."""
        if record is None:
            return None
        if record.state == "processing":
            stale = now >= record.due
            return "unknown" if stale and self.policy(record.operation)["on_stale"] == "unknown" \
                else "processing"
        if record.state in ("completed", "tombstone"):
            tombstone = record.state == "tombstone"     # no answer left, whatever the clock says
            if now >= record.due + (0 if tombstone else record.tombstone_ms):
                return None
            return "expired" if tombstone or now >= record.due else "completed"
        return record.state

    # ---- calls -----------------------------------------------------------------------------------

    def refused(self, now, key, operation, policy, outcome, record, **columns):
        """A claim that is not granted: at level 'all' the audit notes it."""
        answer = dict(outcome=outcome, replayed=int(outcome == "replay"),
                      http_status=HTTP.get(outcome, record.code),
                      message=MESSAGES.get(outcome, "any" if outcome != "replay" else None), **columns)
        if outcome != "mismatch":
            answer.update(attempt=record.attempt, created_at=record.created_at)
        after = self.log(policy, "all", now, "replay" if outcome == "replay" else "refused", key,
                         operation, record.attempt, outcome)
        return Effect(after, answer, None, after is not self)

    def fail(self, error):
        return Effect(self, None, error, False)

    def claim(self, now, scope, key, fingerprint, operation, token, new_token):
        """new_token: the one that this claim would get, the caller's own or whatever idem makes."""
        name, operation = (scope, key), operation or ""
        policy = self.policy(operation)
        fp_text = fingerprint if isinstance(fingerprint, str) else fingerprint.decode()
        if not policy["allow_content_key"]:
            if key == fp_text:
                return self.fail("content key")
            if key == scope:
                return self.fail("scope key")

        def granted(record, level, event, created_at):
            after = self.write(name, record, policy, level, now, event)
            return Effect(after, dict(outcome="claimed", replayed=0, token=new_token,
                                      attempt=record.attempt, lease_until=record.due,
                                      created_at=created_at, recovery_point=record.point,
                                      checkpoint=record.checkpoint), None, True)

        record = self.records.get(name)
        # Where the audit's last word is 'exhausted', that the record runs again is an exception too.
        logged = record is not None and record.logged
        if record is None or (record.state in ("completed", "tombstone")
                              and self.seen_state(record, now) is None):
            fresh = Record(operation, fingerprint, "processing", 1, 0, new_token, (),
                           now + policy["lease_ms"], None, now, None, None, None, None, 0, None, None,
                           None, logged)
            return granted(fresh, "exceptions" if logged else "all", "claim", now)

        ours, theirs = form(record.fingerprint), form(fingerprint)
        if ours and theirs and ours != theirs:
            return self.fail("forms")
        if not same(record.fingerprint, fingerprint) or record.operation != operation:
            return self.refused(now, name, operation, policy, "mismatch", record)

        state = self.seen_state(record, now)
        if state == "completed":
            return self.refused(now, name, operation, policy, "replay", record, code=record.code,
                                headers=record.headers, response_omitted=record.omitted,
                                response=None if record.omitted else record.response,
                                completed_at=record.completed_at)
        if state == "expired":
            return self.refused(now, name, operation, policy, "expired", record,
                                completed_at=record.completed_at)
        if state == "unknown":
            return self.refused(now, name, operation, policy, "unknown", record,
                                recovery_point=record.point)
        stale = record.state == "processing" and now >= record.due
        if record.state == "processing" and not stale:
            if token is not None and token == record.token:
                return Effect(self, dict(outcome="claimed", replayed=0, token=token,
                                         attempt=record.attempt, lease_until=record.due,
                                         created_at=record.created_at, recovery_point=record.point,
                                         checkpoint=record.checkpoint), None, False)
            return self.refused(now, name, operation, policy, "in_progress", record,
                                lease_until=record.due,
                                retry_after_ms=(record.due - now, policy["lease_ms"]))

        if policy["max_attempts"] and record.attempt - record.granted >= policy["max_attempts"]:
            if record.logged or policy["audit"] == "off":
                return self.refused(now, name, operation, policy, "exhausted", record)
            answer = self.refused(now, name, operation, policy, "exhausted", record).answer
            after = self.write(name, record, policy, "exceptions", now, "exhausted")
            return Effect(after, answer, None, True if policy["audit"] == "all" else "note")
        if token is not None and (token == record.token or token in record.spent):
            return self.fail("token used")
        spent = record.spent if record.token is None else (record.token, *record.spent)
        retry = record._replace(state="processing", attempt=record.attempt + 1, token=new_token,
                                spent=spent, due=now + policy["lease_ms"])
        return granted(retry, "exceptions" if stale or logged else "all",
                       "take-over" if stale else "claim", record.created_at)

    def finish(self, now, verb, scope, key, token=None, response=None, code=None, headers=None,
               reason=None, point=None, checkpoint=None):
        """complete, release, suspend, renew, checkpoint; resolve-completed, resolve-retry; erase."""
        name = (scope, key)
        record = self.records.get(name)
        state = self.seen_state(record, now)
        if state is None:
            return self.fail("no record")
        policy = self.policy(record.operation)

        def done(after, level, event, detail=None, answer=1):
            return Effect(self.write(name, after, policy, level, now, event, detail), answer, None, True)

        nothing = Effect(self, 1, None, False)
        if verb == "erase":
            if record.state in ("processing", "unknown"):
                return self.fail("erase")
            return done(None, "exceptions", "erase")
        if state == "expired":
            return self.fail("expired")

        # An answer that is too large is represented by its digest, also when it is compared.
        omitted, raw = 0, response.encode() if isinstance(response, str) else response
        if response is not None and (record.omitted if state == "completed"
                                     else len(raw) > policy["max_response_bytes"]):
            omitted, response = 1, hashlib.sha256(raw).digest()
        equal = (same(record.response, response) and same(record.headers, headers)
                 and record.code == code)
        answered = record._replace(state="completed", due=now + policy["retention_ms"],
                                   tombstone_ms=policy["tombstone_ms"], code=code, headers=headers,
                                   response=response, omitted=omitted, completed_at=now)

        if verb.startswith("resolve"):
            if state == "completed":
                return nothing if verb == "resolve-completed" and equal else self.fail("resolved")
            if record.state == "processing" and now < record.due:
                return self.fail("live")
            limit = policy["max_attempts"]
            if record.state == "released" and not (limit and record.attempt - record.granted >= limit):
                return self.fail("claimable")
            spent = record.spent if record.token is None else (record.token, *record.spent)
            if verb == "resolve-completed":
                after = answered._replace(token=None, spent=spent, reason=None)
            else:
                after = record._replace(state="released", due=None, granted=record.attempt, token=None,
                                        spent=spent, reason=reason)
            return done(after, "exceptions", verb, after.reason)

        if token != record.token:
            return self.fail("lost")
        if record.state == "released":
            return self.fail("released")
        if state == "completed":
            if verb != "complete":
                return self.fail("completed")
            return nothing if equal else self.fail("answered")
        if verb == "complete":
            return done(answered, "all", "complete")
        if verb == "release":
            return done(record._replace(state="released", due=None, reason=reason), "exceptions",
                        "release", reason)
        if record.state == "unknown":
            return nothing if verb == "suspend" else self.fail("suspended")
        if verb == "suspend":
            return done(record._replace(state="unknown", due=None, reason=reason), "exceptions",
                        "suspend", reason)
        due = now + policy["lease_ms"]
        if verb == "renew":
            return done(record._replace(due=due), None, None, answer=due)
        return done(record._replace(due=due, point=point, checkpoint=checkpoint), None, None)

    def see(self, now, source, event, fingerprint):
        policy = (self.policies.get("inbox:" + source) or self.policies.get("inbox")
                  or self.policies["*"])
        known = self.inbox.get((source, event))
        if known and now < known[2]:
            if known[0] is not None and fingerprint is not None and not same(known[0], fingerprint):
                return self.fail("seen other")
            return Effect(self, 0, None, False)
        inbox = {**self.inbox, (source, event): (fingerprint, now, now + policy["retention_ms"])}
        return Effect(State(self.records, self.policies, inbox, self.audit), 1, None, True)

    def purge(self, now, limit, tie):
        """A batch: tombstones first, then answers, then events, of each the oldest first.

        tie(kind, candidates, n) chooses among equally old ones; the store's choice is as good as any.
        """
        def oldest(kind, due, room):
            over = [(at, name) for name, at in due if at <= now]
            return tie(kind, sorted(over), min(room, len(over)))

        gone = oldest("tombstone", ((n, r.due) for n, r in self.records.items()
                                    if r.state == "tombstone"), limit)
        answers = oldest("completed", ((n, r.due) for n, r in self.records.items()
                                       if r.state == "completed"), limit - len(gone))
        events = oldest("event", ((n, e[2]) for n, e in self.inbox.items()),
                        limit - len(gone) - len(answers))
        records = {n: r for n, r in self.records.items() if n not in gone}
        for name in answers:
            r = records[name]
            records[name] = r._replace(state="tombstone", due=r.due + r.tombstone_ms, token=None,
                                       spent=(), headers=None, response=None, omitted=0, point=None,
                                       checkpoint=None, reason=None)
        inbox = {n: e for n, e in self.inbox.items() if n not in events}
        n = len(gone) + len(answers) + len(events)
        return Effect(State(records, self.policies, inbox, self.audit), n, None, n > 0)

    # ---- listings --------------------------------------------------------------------------------

    def listing(self, now):
        """What idem_records shows: (scope, key, state, operation, fingerprint, attempt, ...)."""
        rows = []
        for (scope, key), r in self.records.items():
            state = self.seen_state(r, now)
            if state is None:
                continue
            done, gone = r.state in ("completed", "tombstone"), state == "expired"
            expires = None if not done else r.due if r.state == "completed" else r.due - r.tombstone_ms
            rows.append((
                scope, key, state, r.operation, r.fingerprint, None, r.attempt,
                r.due if r.state == "processing" else None,
                max(r.due - now, 0) if r.state == "processing" else None,
                expires, expires + r.tombstone_ms if done else None, now - r.created_at,
                None if gone else r.headers, None if gone or r.omitted else r.response,
                None if gone else r.point, None if gone else r.checkpoint))
        return sorted(rows, key=repr)

    LISTING = ("scope, key, state, operation, fingerprint, token, attempt, lease_until, "
               "lease_remaining_ms, expires_at, tombstone_until, age_ms, headers, response, "
               "recovery_point, checkpoint")

    def stored(self):
        """The rows of idem_store as they must be."""
        return sorted(((*name, r.operation, r.fingerprint, r.state, r.attempt, r.granted, r.token,
                        "".join(t + "\n" for t in r.spent) or None, r.due, r.tombstone_ms, r.created_at,
                        r.completed_at, r.code, r.headers, r.response, r.omitted, r.point, r.checkpoint,
                        r.reason) for name, r in self.records.items()), key=repr)

    STORED = ("scope, key, operation, fingerprint, state, attempt, granted, token, spent, due_at, "
              "tombstone_ms, created_at, completed_at, code, headers, response, response_omitted, "
              "recovery_point, checkpoint, reason")
