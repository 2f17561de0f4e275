/*
** table.pml: prints verdict.pml for every combination, one per line: spin -T table.pml. A verb has
** the dimensions that matter to it and no others; what is left out stands still. That it does not
** matter to ext/verdict.c either is checked by test_protocol.py.
*/
#include "verdict.pml"

#define VERBS  9
#define STAGES 8
#define TOKENS 4

mtype verbs[VERBS], stages[STAGES], tokens[TOKENS];
byte v, s, t, p, same, used, again;

inline print_line() {
  verdict(verbs[v], stages[s], same, tokens[t], used, again);
  printf("%e %e %e same=%d tok=%e used=%d again=%d -> %e %e\n",
         verbs[v], stages[s], on_stale, same, tokens[t], used, again, says, write)
}

/* The dimensions of a verb: how many values each has. */
#define IS_CLAIM   (v == 0)
#define IS_WORKER  (v >= 1 && v <= 5)
#define IS_RESOLVE (v == 6 || v == 7)
#define FIRST_SAME  (IS_CLAIM -> 0 : 1)
#define FIRST_TOKEN (IS_WORKER -> 1 : 0) /* a worker always presents one */
#define LAST_TOKEN  (IS_CLAIM || IS_WORKER -> TOKENS - 1 : 0)
#define LAST_USED   (IS_CLAIM || IS_RESOLVE -> 1 : 0)
#define FIRST_AGAIN (v == 1 || v == 6 -> 0 : 1)

init {
  verbs[0] = claim;
  verbs[1] = complete; verbs[2] = release; verbs[3] = suspend; verbs[4] = renew;
  verbs[5] = checkpoint;
  verbs[6] = resolve_completed; verbs[7] = resolve_retry;
  verbs[8] = erase;
  stages[0] = absent; stages[1] = live; stages[2] = stale; stages[3] = answered;
  stages[4] = expired; stages[5] = over; stages[6] = released; stages[7] = unknown;
  tokens[0] = none; tokens[1] = current; tokens[2] = spent; tokens[3] = other;
  for (v : 0 .. VERBS - 1) {
    for (s : 0 .. STAGES - 1) {
      for (p : 0 .. 1) {
        on_stale = (p -> retry : unknown);
        for (t : FIRST_TOKEN .. LAST_TOKEN) {
          for (same : FIRST_SAME .. 1) {
            for (used : 0 .. LAST_USED) {
              for (again : FIRST_AGAIN .. 1) {
                print_line()
              }
            }
          }
        }
      }
    }
  }
}
