"""What idem promises about a record, written down a second time.

This is the contract's sections 3 to 6 as a Python function: no line of it was derived from
ext/verdict.c, so that a mistake has to be made twice to go unnoticed. enumerate.c prints every
combination of its inputs with the verdict of the C code, one per line; predict() says for the same
inputs what the verdict must be.

Times are in ms relative to now. A value of None in a prediction means that the contract does not say
and no caller may rely on it.
"""
from collections import namedtuple

LEASE = 60_000          # the policy's times, as in enumerate.c
RETENTION = 86_400_000
TOMBSTONE = 9_000       # of the record: fixed when it was completed

Verdict = namedtuple("Verdict", "outcome error write event attempt due retry")


class In:
    """One combination of inputs; the words are those that enumerate.c prints.

    What a line does not mention is plain: no earlier attempt, the same request, the default policy.
    """
    held, attempts, logged = "yes", "1of0", "no"
    fp, op, key, allow, token = "same", "same", "plain", "no", "absent"
    stale, audit, answer = "unknown", "exceptions", "same"

    def __init__(self, verb, words):
        self.verb = verb
        self.__dict__.update(words)


# ---- what the words mean -------------------------------------------------------------------------

# record: how far its time has come. "now >= t means over, everywhere", and expiry is logical: an
# answer past its retention is a tombstone, a tombstone past its time is no record, purged or not.
STAGE = {
    "none": "absent",
    "processing:far": "live",       # the clock was set back: more than a lease is left
    "processing:+1": "live",
    "processing:0": "stale",
    "processing:-1": "stale",
    "completed:+1": "answered",
    "completed:0": "expired",
    "completed:-1": "expired",
    "completed:tomb+1": "expired",
    "completed:tomb0": "over",
    "completed:tomb-1": "over",
    "released": "released",
    "unknown": "unknown",
    "tombstone:far": "expired",     # the clock was set back into the retention: the answer is gone
    "tombstone:+1": "expired",
    "tombstone:0": "over",
    "tombstone:-1": "over",
}
LEFT = {"processing:far": 600_000, "processing:+1": 1}  # of the lease

# attempts: (attempt, granted, the policy's max_attempts). From attempt 2 on there are spent tokens.
ATTEMPTS = {
    "1of0": (1, 0, 0), "1of1": (1, 0, 1), "1of2": (1, 0, 2),
    "3of0": (3, 0, 0), "3of4": (3, 0, 4), "3of3": (3, 0, 3), "3of2": (3, 0, 2),
    "3-2of2": (3, 2, 2), "3-2of1": (3, 2, 1), "3-3of1": (3, 3, 1),
}

# fp, op: stored/presented.
FINGERPRINT = {
    "same": "same", "other": "differs", "longer": "differs", "shorter": "differs",
    "blob": "differs",               # TEXT stored, BLOB of the same bytes presented
    "blob/blob": "same",
    "blob/text": "differs",
    "form": "forms",                 # idem0: stored, idem1: presented
    "raw": "forms",                  # idem1: stored, idemr1: presented
    "hmac": "forms",                 # idem1: stored, idemh1: presented
    "blob/form": "forms",            # the same, the stored one as a BLOB
    "foreign": "same",               # fingerprints the caller made name no form
    "foreign/other": "differs", "foreign/form": "differs", "form/foreign": "differs",
    "nocolon": "differs",            # "idem1aa" names no form
    "letter": "same", "letter/other": "differs",  # the shortest there are
}
OPERATION = {"same": True, "other": False, "longer": False, "omitted": False, "added": False,
             "neither": True}

# token: only the exact text counts.
TOKEN = {"absent": None, "current": "current", "other": "other", "spent1": "spent", "spent2": "spent",
         "spent-prefix": "other", "spent-suffix": "other", "spent-length": "other",
         "current-prefix": "other", "current-longer": "other"}

# answer: presented against stored; the same only if code, headers and response are, to the type.
ANSWER = {"same": True, "same-null": True, "same-empty": True, "same-blob": True, "same-omitted": True,
          "response": False, "longer": False, "type": False, "null/empty": False, "empty/null": False,
          "code": False, "code/none": False, "none/code": False, "code0/none": False,
          "headers": False, "headers/none": False, "none/headers": False, "omitted": False}


# ---- the contract --------------------------------------------------------------------------------

def audited(i, level, event):
    """off | exceptions | all: the event if the policy wants it in the audit."""
    levels = {"off": 0, "exceptions": 1, "all": 2}
    return event if levels[i.audit] >= levels[level] else "none"


def error(name):
    """The call fails: nothing is written, no audit either."""
    return Verdict("none", name, "none", "none", None, None, None)


def token_of(i):
    """What the presented token is to this record."""
    what = TOKEN[i.token]
    if what == "current" and i.held == "no":
        return "other"                                  # resolved: nobody holds it any more
    if what == "spent" and ATTEMPTS[i.attempts][0] == 1:
        return "other"                                  # no earlier attempt, nothing is spent
    return what


def used_up(i):
    attempt, granted, limit = ATTEMPTS[i.attempts]
    return limit > 0 and attempt - granted >= limit


def claim(i):
    stage, attempt = STAGE[i.record], ATTEMPTS[i.attempts][0]

    # Shape of the arguments.
    if i.allow == "no" and i.key in ("fingerprint", "all"):
        return error("CONTENT_KEY")
    if i.allow == "no" and i.key == "scope":
        return error("SCOPE_KEY")

    def claimed():
        """Level 'all'; but where the audit's last word is 'exhausted' (logged), that the record runs
        again is an exception too, and a later exhaustion will be noted anew."""
        again = i.logged == "yes" and stage != "absent"
        return audited(i, "exceptions" if again else "all", "claim")

    def new_life(write):
        return Verdict("claimed", "none", write, claimed(), 1, LEASE, None)

    if stage == "absent":
        return new_life("insert")
    if stage == "over":
        return new_life("restart")

    # Fingerprint and operation. Two forms cannot be compared: an error instead of a guess.
    def refused(outcome, event="refused", retry=None):
        return Verdict(outcome, "none", "none", audited(i, "all", event), attempt, None, retry)

    if FINGERPRINT[i.fp] == "forms":
        return error("PREFIX")
    if FINGERPRINT[i.fp] == "differs" or not OPERATION[i.op]:
        return refused("mismatch")

    # State.
    token = token_of(i)
    if stage == "answered":
        return refused("replay", "replay")
    if stage == "expired":
        return refused("expired")
    if stage == "live" and token == "current":          # a claim is idempotent too
        return Verdict("claimed", "none", "none", "none", attempt, LEFT[i.record], None)
    if stage == "live":
        return refused("in_progress", retry=LEFT[i.record])
    if stage == "unknown" or (stage == "stale" and i.stale == "unknown"):
        return refused("unknown")

    # Released, or stale and to be retried: the next attempt, if there is one left.
    if used_up(i):
        if i.logged == "yes" or i.audit == "off":
            return refused("exhausted")
        return Verdict("exhausted", "none", "mark", "exhausted", attempt, None, None)
    # "A token is never good for a second attempt." Read as: no attempt begins with a used token. Where
    # none would begin anyway (in progress, unknown, exhausted, done), the asker is told that truth.
    if token in ("current", "spent"):
        return error("TOKEN_USED")
    event = audited(i, "exceptions", "take-over") if stage == "stale" else claimed()
    return Verdict("claimed", "none", "retry", event, attempt + 1, LEASE, None)


def gone(stage):
    """The errors that finishing, resolving and erasing share: there is no record any more."""
    if stage in ("absent", "over"):
        return error("NO_RECORD")
    return None


def finish(i):
    """complete, release, suspend, renew, checkpoint: by the holder of the token."""
    stage, attempt = STAGE[i.record], ATTEMPTS[i.attempts][0]
    if gone(stage):
        return gone(stage)
    if stage == "expired":              # a purged row has no token to compare: the same before it is
        return error("EXPIRED")
    if token_of(i) != "current":
        return error("LOST")
    if stage == "released":             # the token was given back
        return error("RELEASED")
    if stage == "answered":
        if i.verb != "complete":
            return error("COMPLETED")
        if not ANSWER[i.answer]:
            return error("ANSWERED")
        return Verdict("none", "none", "none", "none", attempt, None, None)

    # Live, stale or suspended: valid until superseded, however late.
    def done(write, event="none", due=None):
        return Verdict("none", "none", write, event, attempt, due, None)

    if i.verb == "complete":
        return done("complete", audited(i, "all", "complete"), RETENTION)
    if i.verb == "release":
        return done("release", audited(i, "exceptions", "release"))
    if i.verb == "suspend":
        if stage == "unknown":
            return done("none")
        return done("suspend", audited(i, "exceptions", "suspend"))
    if stage == "unknown":              # no lease to renew: the worker said that it does not know
        return error("SUSPENDED")
    return done(i.verb, due=LEASE)


def resolve(i):
    """By an operator: unknown records, stale ones whatever the policy, and exhausted ones."""
    stage, attempt = STAGE[i.record], ATTEMPTS[i.attempts][0]
    if gone(stage):
        return gone(stage)
    if stage == "expired":
        return error("EXPIRED")
    if stage == "answered":
        if i.verb == "resolve-completed" and ANSWER[i.answer]:
            return Verdict("none", "none", "none", "none", attempt, None, None)
        return error("RESOLVED")
    if stage == "live":
        return error("LIVE")
    if stage == "released" and not used_up(i):
        return error("CLAIMABLE")
    due = RETENTION if i.verb == "resolve-completed" else None
    return Verdict("none", "none", i.verb, audited(i, "exceptions", i.verb), attempt, due, None)


def erase(i):
    """A privacy request: finished rows only, expired and released ones too."""
    stage, attempt = STAGE[i.record], ATTEMPTS[i.attempts][0]
    if gone(stage):
        return gone(stage)
    if stage in ("answered", "expired", "released"):
        return Verdict("none", "none", "erase", audited(i, "exceptions", "erase"), attempt, None, None)
    return error("ERASE")


def predict(i):
    if i.verb == "claim":
        return claim(i)
    if i.verb in ("resolve-completed", "resolve-retry"):
        return resolve(i)
    if i.verb == "erase":
        return erase(i)
    return finish(i)


def agrees(expected, got):
    """Compares a prediction with a verdict; None is 'not said'."""
    for name, want, have in zip(Verdict._fields, expected, got):
        if name == "retry" and want is not None:
            if not 0 < have <= want:    # > 0, and at most what is left of the lease
                return False
        elif want is not None and want != have:
            return False
    return True


def visible(record, stale):
    """The state a reader sees."""
    stage = STAGE[record]
    if stage == "stale":
        return "unknown" if stale == "unknown" else "processing"
    return {"absent": "none", "over": "none", "live": "processing", "answered": "completed",
            "expired": "tombstone", "released": "released", "unknown": "unknown"}[stage]
