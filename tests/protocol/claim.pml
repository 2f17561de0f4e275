/*
** claim.pml: the life of one idempotency key, checked exhaustively with spin.
**
** PROCESSES. Clients ask with a token of their own, act, and finish; they may crash between any two
** steps, lose the answer of a call, renew, release, suspend, be late. A patient client never
** crashes and asks until it is told something final. An operator resolves and erases, rightly or
** rashly. The clock ends leases, retentions and tombstones at any moment (and may be set back). The
** purge runs at any moment.
**
** STEPS. As in ext/: a call loads the row, decides (verdict.pml), and writes if the row is still
** what was loaded; each of load and write is atomic, and anything may come between. A call may also
** decide from memory (idemStoreRecall): a claim on the guess that there is no row, a completion on
** the row as its own claim left it.
**
** EFFECTS. Each claim acts in both ways: an external effect before the completion, and rows in the
** transaction of the completion.
**
** PROPERTIES. Every MUST() below; no process stuck; and, with -a -f, `progress`.
**   ONE_CLAIMANT   every grant is a new attempt of its life; a token is granted once in a life
**   FENCED         what a worker writes, the claimant of the latest attempt writes, who has not
**                  given it back
**   TRUSTED_LEASE  no grant while a lease that nobody gave up is live
**   ONE_ANSWER     an answer is stored once in a life, and every replay gives it
**   UNKNOWN_ONCE   with on_stale = unknown the external effect runs at most once in a life, if the
**                  operator says 'retry' only of what did not happen and no longer can
**   RETRY_VISIBLE  every run of the effect has an attempt of its own
**   ROWS           the rows of the completion appear at most once in a life, whatever anybody does
**   FORGOTTEN      a life ends only when its tombstone is over, or by an erasure of what is done
**   LIMIT          no more than max_attempts attempts between two grants of the operator
**
** The numbers of a run come from the environment: see checker.py, which also has the mutants.
*/
#include "verdict.pml"

c_decl {
  \#include <stdlib.h>
  static unsigned char number(const char *zName) {
    const char *z = getenv(zName);
    return (unsigned char)(z ? atoi(z) : 0);
  }
}

#define PATIENT  0           /* the client that never gives up; the others are 1, 2 */
#define TOKEN(me, try) (me == PATIENT -> 1 + try : 7 + 4 * (me - 1) + try)
#define OPERATOR 15          /* who answered, if it was no client: no token has that number */
#define OTHER    16          /* added to the number of one who gives another answer */
#define LIVES    4           /* that end by the clock or by erasure, and one more */

#define BIT(n)         (1 << (n))

/* A property has a number, so that a report of pan can be read by checker.py. */
#define MUST(property, holds) assert((holds) || property == 0)
#define ONE_CLAIMANT 101
#define FENCED 102
#define TRUSTED_LEASE 103
#define ONE_ANSWER 104
#define UNKNOWN_ONCE 105
#define RETRY_VISIBLE 106
#define ROWS 107
#define FORGOTTEN 108
#define LIMIT 109

/* ---- the row ------------------------------------------------------------------------------- */

typedef Row {
  mtype state;    /* none: there is no row */
  byte attempt, granted;
  byte token;     /* of the latest attempt; 0 once resolved */
  short earlier;   /* bits of the earlier ones */
  byte due;       /* 0: none */
  byte answer;    /* the token of the claim that gave it */
  bit request     /* fingerprint and operation */
};
Row row;
byte passed;      /* of the row's deadlines: 1 the lease; 1 the retention, 2 the tombstone */

/* ---- the policy and what may still happen -------------------------------------------------- */

byte max_attempts;
bit stale_may_run_again;
byte clients;     /* beside the patient one */
bit stranger;     /* these ask for something else under the same key */
byte tries;       /* requests of each of these, every one with a token of its own */
byte crashes, losses, renewals, rulings, ends, setbacks;

/* ---- what nobody sees, for the properties -------------------------------------------------- */

byte life;        /* of the key; counts inserts and restarts */
byte latest;      /* attempts of this life */
byte holder;      /* of the latest grant: its token, until it is given back or taken away */
byte first;       /* who gave this life's answer */
byte ran[LIVES];  /* bits of the attempts whose external effect ran */
bit rows[LIVES];  /* the completion's rows are there */
byte rash;        /* bits of the lives about which the operator was wrong */
bit trusted;      /* a lease is live that nobody has given up */
bit forgotten;    /* this life may end */
short alive;      /* bits of the claims whose effect may still run */
bit done;         /* the patient client has a final answer */

/* ---- one call: load, decide, write --------------------------------------------------------- */

/* What a verdict was based on, as each process remembers it until the write. */
#define SEEN mtype seen, todo; byte seen_life, seen_attempt, seen_token, seen_due

mtype stage, relation;      /* scratch of inlines, none between steps */

inline forget() {
  seen = none; todo = none; seen_life = 0; seen_attempt = 0; seen_token = 0; seen_due = 0
}

inline find_stage() {
  if
  :: row.state == none -> stage = absent
  :: row.state == processing -> stage = (passed -> stale : live)
  :: row.state == completed -> stage = (passed == 0 -> answered : (passed == 1 -> expired : over))
  :: row.state == tombstone -> stage = (passed -> over : expired)
  :: row.state == released || row.state == unknown -> stage = row.state
  fi
}

inline find_relation(its) {
  if
  :: its == 0 -> relation = none
  :: its != 0 && its == row.token -> relation = current
  :: its != 0 && its != row.token && (row.earlier & BIT(its)) -> relation = spent
  :: else -> relation = other
  fi
}

#define USED_UP (max_attempts > 0 && row.attempt - row.granted >= max_attempts)

inline decide(asks, its, who, what) {
  d_step {
    find_stage();
    find_relation(its);
    verdict(asks, stage, (row.request == what), relation, USED_UP, (row.answer == who));
    if
    :: write != none || says == replay ->
       seen = row.state; seen_life = (seen == none -> 0 : life);
       seen_attempt = row.attempt; seen_token = row.token; seen_due = row.due
    :: else -> skip
    fi;
    todo = write;
    stage = none; relation = none; write = none
  }
}

/* Deadlines are moments, which never come twice: here they are numbers within one life. */
#define AS_SEEN (mutant == 21 || (row.state == seen && (seen == none || seen_life == life) && \
                 row.attempt == seen_attempt && \
                 row.token == seen_token && (mutant == 22 || row.due == seen_due)))

inline spend() {
  row.earlier = row.earlier | (row.token && mutant != 23 -> BIT(row.token) : 0)
}


inline grant(new_token, what) {
  if
  :: todo == insert || todo == restart ->
     MUST(FORGOTTEN, life == 0 || forgotten);
     life++;
     latest = 0; first = 0; forgotten = 0;
     row.attempt = 0; row.granted = 0; row.earlier = 0; row.answer = 0;
     row.request = what
  :: else -> spend()
  fi;
  MUST(TRUSTED_LEASE, !trusted);
  row.state = processing;
  row.token = new_token;
  row.attempt = (mutant == 24 && row.attempt -> row.attempt : row.attempt + 1);
  MUST(ONE_CLAIMANT, row.attempt == latest + 1);
  MUST(LIMIT, max_attempts == 0 || row.attempt - row.granted <= max_attempts);
  latest = row.attempt;
  holder = new_token;
  alive = alive | BIT(new_token);
  trusted = 1;
  row.due = 1; passed = 0
}

inline store_answer(who) {
  MUST(ONE_ANSWER, first == 0);
  first = who;
  row.state = completed; row.answer = who;
  trusted = 0;
  row.due = 0; passed = 0
}

/* The rows and the completion are one transaction. */
inline add_rows() {
  MUST(ROWS, !rows[life - 1]);
  rows[life - 1] = 1
}

inline give_back(new_state) {
  row.state = new_state; row.due = 0;
  passed = 0; trusted = 0
}

/* The write: 1 in wrote if the row was still what was seen. */
inline carry_out(its, who, what, done_it) {
  d_step {
    if
    :: AS_SEEN ->
       done_it = 1;
       if
       :: todo == insert || todo == restart || todo == retry -> grant(its, what)
       :: todo == complete -> MUST(FENCED, its == holder); store_answer(who); add_rows()
       :: todo == release -> MUST(FENCED, its == holder); holder = 0; give_back(released)
       :: todo == suspend -> MUST(FENCED, its == holder); give_back(unknown)
       :: todo == renew || todo == checkpoint ->
          MUST(FENCED, its == holder);
          row.due++; passed = 0; trusted = 1
       :: todo == resolve_completed -> spend(); row.token = 0; holder = 0; store_answer(who)
       :: todo == resolve_retry ->
          spend(); row.token = 0; row.granted = row.attempt; row.state = released; row.due = 0;
          passed = 0; holder = 0
       :: todo == erase ->
          MUST(FORGOTTEN, row.state != processing && row.state != unknown);
          row.state = none; row.token = 0; row.attempt = 0; row.granted = 0; row.earlier = 0;
          row.answer = 0; row.request = 0; row.due = 0; passed = 0; forgotten = 1
       fi
    :: else -> done_it = 0
    fi;
    forget()
  }
}

/* ---- the processes ------------------------------------------------------------------------- */

#define MAY_FAIL (me != PATIENT)
#define ANSWER   (token + (changed -> OTHER : 0))

inline run_effect() {
  d_step {
    MUST(RETRY_VISIBLE, !(ran[my_life - 1] & BIT(my_attempt)));
    MUST(UNKNOWN_ONCE, on_stale == retry || ran[my_life - 1] == 0 || (rash & BIT(my_life)));
    ran[my_life - 1] = ran[my_life - 1] | BIT(my_attempt);
    acted = 1
  }
}

inline leave() {
  d_step {
    alive = alive & ~BIT(token);
    verb = none; token = 0; my_life = 0; my_attempt = 0; my_due = 0;
    acted = 0; reload = 0; changed = 0;
    forget()
  }
}

proctype Client(byte me) {
  SEEN;
  mtype verb;
  byte try, token, my_life, my_attempt, my_due;
  bit request, acted, wrote, reload, changed;

  request = (me == PATIENT -> 0 : stranger);
next: /* what it knew is over, or was lost in a crash */
  atomic {
    leave();
    if
    :: try < (me == PATIENT -> 6 : tries) -> token = TOKEN(me, try); try++
    :: else -> goto gone
    fi;
    goto ask
  }

asks_again:
  skip;
ask:
  atomic {
    if
    :: decide(claim, token, 0, request)
    :: !reload -> d_step { says = claimed; todo = insert } /* from memory: there is no row */
    fi;
    if
    :: todo != none -> says = none
    :: todo == none && says == claimed ->
       says = none;
       MUST(ONE_CLAIMANT, my_life == life && my_attempt == row.attempt && token == row.token);
       goto granted
    :: says == in_progress -> says = none; goto asks_again
    :: says == in_progress && MAY_FAIL -> says = none; goto next
    :: says == token_used -> says = none; goto next
    :: says == replay ->
       says = none;
       MUST(ONE_ANSWER, row.answer == first && row.request == request);
       goto told
    :: says == mismatch || says == expired || says == unknown || says == exhausted ->
       says = none;
       goto told
    fi
  }
  atomic {
    carry_out(token, 0, request, wrote);
    if
    :: wrote ->
       MUST(ONE_CLAIMANT, my_life != life);
       d_step {
         wrote = 0; reload = 0;
         my_life = life; my_attempt = row.attempt; my_due = row.due
       };
       if
       :: losses > 0 -> losses--; goto asks_again /* the answer was lost: asks again */
       :: skip
       fi
    :: else -> reload = 1; goto ask
    fi
  }

granted:
  if
  :: atomic { !acted -> run_effect(); goto granted }
  :: atomic { acted -> verb = complete; goto finish }
  :: atomic { MAY_FAIL && !acted -> verb = release; goto finish }
  :: atomic { MAY_FAIL -> verb = suspend; goto finish }
  :: atomic { renewals > 0 -> renewals--; verb = renew; goto finish }
  :: atomic { MAY_FAIL && crashes > 0 -> crashes--; goto next }
  fi;

says_again:
  skip;
finish:
  atomic {
    if
    :: decide(verb, token, ANSWER, request)
    :: verb == complete && !reload -> /* from memory: as the claim left it */
       d_step {
         says = ok; todo = complete;
         seen = processing; seen_life = my_life; seen_attempt = my_attempt; seen_token = token;
         seen_due = my_due
       }
    fi;
    if
    :: todo != none -> says = none
    :: todo == none && says == ok -> says = none; goto finished
    :: todo == none && says != ok && mutant == 25 && verb == complete ->
       says = none; add_rows(); goto next
    :: else -> says = none; goto next /* lost: the transaction rolls back */
    fi
  }
  atomic {
    carry_out(token, ANSWER, request, wrote);
    if
    :: wrote ->
       d_step { wrote = 0; reload = 0; my_due = row.due };
       if
       :: losses > 0 -> losses--; goto says_again /* says it again */
       :: losses > 0 && verb == complete && MAY_FAIL -> losses--; changed = 1; goto says_again
       :: goto finished
       fi
    :: else -> reload = 1; goto finish
    fi
  }

finished:
  if
  :: atomic { verb == renew -> verb = none; goto granted }
  :: atomic { verb == suspend && acted -> verb = complete; goto finish } /* it found out */
  :: atomic { verb == suspend || verb == release -> goto next }
  :: atomic { verb == complete -> goto told }
  fi;

told:
  atomic {
    if
    :: me == PATIENT -> done = 1; leave()
    :: else -> goto next
    fi
  }
gone:
  skip
}

proctype Operator() {
  SEEN;
  bit wrote;

end:
  do
  :: atomic {
       rulings > 0 ->
       if
       :: decide(resolve_completed, 0, OPERATOR, row.request)
       :: decide(resolve_retry, 0, OPERATOR, row.request)
       :: decide(erase, 0, OPERATOR, row.request)
       fi;
       says = none;
       if
       :: todo == none -> goto end
       :: else -> rulings--
       fi
     }
     atomic {
       if
       :: todo == resolve_retry && (ran[life - 1] || (alive & (row.earlier | BIT(row.token)))) ->
          rash = rash | BIT(life)
       :: else -> skip
       fi;
       carry_out(0, OPERATOR, row.request, wrote);
       wrote = 0
     }
  od
}

#define GONE d_step { row.state = none; row.attempt = 0; row.granted = 0; row.token = 0; \
                      row.earlier = 0; row.answer = 0; row.request = 0; row.due = 0; passed = 0 }

proctype Purge() {
end:
  do
  :: d_step {
       row.state == completed && passed > 0 && mutant != 26 ->
       row.state = tombstone; row.token = 0; row.earlier = 0; row.answer = 0; passed--
     }
  :: atomic { row.state == tombstone && (passed || mutant == 29) -> GONE }
  :: atomic { row.state == completed && passed && mutant == 26 -> GONE }
  :: atomic { row.state == processing && passed && mutant == 27 -> GONE }
  :: atomic { row.state == released && mutant == 28 -> GONE }
  od
}

proctype Clock() {
end:
  do
  :: d_step { row.state == processing && !passed && mutant != 30 -> passed = 1; trusted = 0 }
  :: d_step { row.state == completed && passed == 0 -> passed = 1 }
  :: d_step {
       ends > 0 && (row.state == completed -> passed == 1 : row.state == tombstone && !passed) ->
       ends--;
       passed++;
       forgotten = 1
     }
  :: d_step { setbacks > 0 && passed > 0 -> setbacks--; passed-- }
  od
}

init {
  atomic {
    c_code {
      now.mutant = number("MUTANT");
      now.stale_may_run_again = number("RETRY");
      now.max_attempts = number("MAX_ATTEMPTS");
      now.clients = number("CLIENTS");
      now.stranger = number("STRANGER");
      now.tries = number("TRIES");
      now.crashes = number("CRASHES");
      now.losses = number("LOSSES");
      now.renewals = number("RENEWALS");
      now.rulings = number("RULINGS");
      now.ends = number("ENDS");
      now.setbacks = number("SETBACKS");
    };
    row.state = none; says = none; write = none; stage = none; relation = none;
    on_stale = (stale_may_run_again -> retry : unknown);
    run Clock();
    run Purge();
    run Client(PATIENT);
    if :: clients > 0 -> run Client(1) :: else -> skip fi;
    if :: clients > 1 -> run Client(2) :: else -> skip fi;
    if :: rulings > 0 -> run Operator() :: else -> skip fi
  }
}

ltl progress { <> done }
