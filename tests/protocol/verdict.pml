/*
** verdict.pml: the rules of ext/verdict.c once more, over stages instead of times.
**
**     verdict(verb, stage, same, tok, used, again)  sets  says, write
**
** stage is how far the record's time has come, whether or not a purge has run:
**     absent live stale answered expired over released unknown
** same: fingerprint and operation are the record's. tok: what the presented token is to the record
** (none current spent other). used: max_attempts are used up. again: the answer presented is the
** one that is stored. says is the outcome of a claim, or ok, or the error of the call; write is the
** one change of the row.
**
** table.pml prints this for all combinations, and test_protocol.py compares that with every line of
** tests/verdict/enumerate.c, which asks ext/verdict.c. claim.pml asks it in every step.
**
** mutant is 0. Other values are mistakes that the checker must notice: see checker.py.
*/
mtype = {
  none, current, spent, other,                                        /* tokens */
  absent, live, stale, answered, expired, over, released, unknown,    /* stages; outcomes too */
  processing, completed, tombstone,                                   /* stored states */
  claim, complete, release, suspend, renew, checkpoint,               /* verbs; writes too */
  resolve_completed, resolve_retry, erase,
  insert, restart, retry,                                             /* writes of a claim */
  claimed, replay, in_progress, mismatch, exhausted,                  /* outcomes */
  ok, token_used, no_record, lost, was_answered, was_completed,       /* errors */
  suspended, lease_live, resolved, claimable, not_erasable
};

mtype on_stale;     /* the policy: unknown or retry */
byte mutant;
mtype says, write;  /* results; none between two calls */

inline claim_verdict(stage, same, tok, used) {
  if
  :: stage == absent -> says = claimed; write = insert
  :: stage == over -> says = claimed; write = restart
  :: else ->
     if
     :: !same -> says = mismatch
     :: same && stage == answered -> says = replay
     :: same && stage == expired -> says = expired
     :: same && stage == live && tok == current -> says = claimed
     :: same && stage == live && tok != current -> says = in_progress
     :: same && (stage == unknown || (stage == stale && on_stale == unknown)) -> says = unknown
     :: same && (stage == released || (stage == stale && on_stale == retry)) ->
        if
        :: used -> says = exhausted
        :: !used && (tok == current || tok == spent) -> says = token_used
        :: else -> says = claimed; write = retry
        fi
     fi
  fi
}

/* complete, release, suspend, renew, checkpoint: valid until superseded, however late. */
inline worker_verdict(verb, stage, tok, again) {
  if
  :: tok != current -> says = lost
  :: tok == current && stage == released -> says = released
  :: tok == current && stage == answered && verb != complete -> says = was_completed
  :: tok == current && stage == answered && verb == complete && !again -> says = was_answered
  :: tok == current && stage == answered && verb == complete && again -> says = ok
  :: tok == current && stage == unknown && (verb == renew || verb == checkpoint) -> says = suspended
  :: tok == current && stage == unknown && verb == suspend -> says = ok
  :: else -> says = ok; write = verb
  fi
}

inline resolve_verdict(verb, stage, used, again) {
  if
  :: stage == answered && (verb == resolve_retry || !again) -> says = resolved
  :: stage == answered && verb == resolve_completed && again -> says = ok
  :: stage == live -> says = lease_live
  :: stage == released && !used -> says = claimable
  :: else -> says = ok; write = verb
  fi
}

inline erase_verdict(stage) {
  if
  :: stage == live || stage == stale || stage == unknown -> says = not_erasable
  :: else -> says = ok; write = erase
  fi
}

inline sound_verdict(verb, stage, same, tok, used, again) {
  if
  :: verb == claim -> claim_verdict(stage, same, tok, used)
  :: verb != claim && (stage == absent || stage == over) -> says = no_record
  :: verb == erase && stage != absent && stage != over -> erase_verdict(stage)
  :: verb != claim && verb != erase && stage == expired -> says = expired
  :: else ->
     if
     :: verb == resolve_completed || verb == resolve_retry ->
        resolve_verdict(verb, stage, used, again)
     :: else -> worker_verdict(verb, stage, tok, again)
     fi
  fi
}

inline verdict(verb, stage, same, tok, used, again) {
  says = none;
  write = none;
  sound_verdict(verb, stage, same, tok, used, again);
  if
  :: mutant == 0 || mutant > 20 -> skip
  :: mutant == 1 && verb == complete && says == lost && stage != answered ->
     says = ok; write = complete
  :: mutant == 2 && says == was_answered -> says = ok; write = complete
  :: mutant == 3 && says == in_progress -> says = claimed; write = retry
  :: mutant == 4 && says == unknown && stage == stale -> says = claimed; write = retry
  :: mutant == 5 && says == unknown && stage == unknown -> says = claimed; write = retry
  :: mutant == 6 && says == replay -> says = claimed; write = restart
  :: mutant == 7 && verb == claim && says == expired -> says = claimed; write = restart
  :: mutant == 8 && says == token_used -> says = claimed; write = retry
  :: mutant == 9 && says == exhausted -> says = claimed; write = retry
  :: mutant == 10 && says == lease_live -> says = ok; write = verb
  :: mutant == 11 && says == resolved && verb == resolve_completed -> says = ok; write = verb
  :: mutant == 12 && verb == claim && stage == released && says == claimed ->
     says = in_progress; write = none
  :: mutant == 13 && verb == claim && stage == stale && says == claimed ->
     says = in_progress; write = none
  :: mutant == 14 && says == not_erasable -> says = ok; write = erase
  :: mutant == 15 && says == mismatch -> sound_verdict(verb, stage, true, tok, used, again)
  :: mutant == 16 && says == lost && verb == release && stage == live -> says = ok; write = release
  :: else -> skip
  fi
}
