"""Mutants of what fences a token off: one change of ext/ each, and the tests that must notice it.

    python3 tests/fencing/breaches.py [FIRST]  # all of them, one line each: make test-mutants

The verdict function has mutants of its own: tests/verdict/mutants.py.
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
from collections import namedtuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXT = ROOT / "ext"
CC = ["cc", "-std=c11", "-O0", "-w", "-fPIC", "-fvisibility=hidden", "-DNDEBUG",
      "-D_POSIX_C_SOURCE=200809L", f"-I{EXT}"]

Breach = namedtuple("Breach", "what file was now tests")

BETWEEN = "fencing/test_between.py"
WRITE = "life/test_records_write.py"

BREACHES = [
    # What a write demands (store.c, AS_ROW). Not here: id and operation, since scope and key name
    # one row, and the token that is demanded belongs to one operation.
    Breach("another scope's record", 'store.c',
           ' id=? AND scope=?',
           ' id=? AND (scope=? OR 1)',
           BETWEEN),
    Breach("another key's record", 'store.c',
           'scope=? AND key=? AND operation=?',
           'scope=? AND (key=? OR 1) AND operation=?',
           BETWEEN),
    Breach('any state', 'store.c',
           'AND state=? AND attempt=?',
           'AND (state=? OR 1) AND attempt=?',
           BETWEEN),
    Breach('any attempt', 'store.c',
           'AND state=? AND attempt=?',
           'AND state=? AND (attempt=? OR 1)',
           BETWEEN),
    Breach('any due_at', 'store.c',
           'AND due_at IS ? AND',
           'AND (due_at IS ? OR 1) AND',
           BETWEEN),
    Breach('any token', 'store.c',
           'AND token IS ?"',
           'AND (token IS ? OR 1)"',
           BETWEEN),
    Breach('any policy', 'store.c',
           'FROM main.idem_meta WHERE id=1)=?',
           'FROM main.idem_meta WHERE id=1)<>?+.5',
           BETWEEN),
    Breach('any policy for a new key', 'store.c',
           'WHERE id=1 AND policy_version=?8))"',
           'WHERE id=1 AND policy_version<>?8+.5))"',
           BETWEEN),
    Breach('any policy for a new key, audited', 'store.c',
           '" FROM main.idem_meta WHERE id=1 AND policy_version=?8"',
           '" FROM main.idem_meta WHERE id=1 AND policy_version<>?8+.5"',
           BETWEEN),
    Breach('a claim takes the row that is there', 'store.c',
           'INSERT OR IGNORE INTO main.idem_store',
           'INSERT OR REPLACE INTO main.idem_store',
           BETWEEN),
    # How a write knows that it was done.
    Breach('a write that changed nothing', 'store.c',
           'return sqlite3_changes(pCall->db) > 0;\n  }\n  sqlite3_stmt',
           'return 1;\n  }\n  sqlite3_stmt',
           BETWEEN),
    Breach('an audited claim that changed nothing', 'store.c',
           'return pStmt && bRow;',
           'return pStmt != 0;',
           BETWEEN),
    Breach("an audited claim's row has any token", 'store.c',
           'AND token=?"\n',
           'AND (token=? OR 1)"\n',
           BETWEEN),
    Breach("an audited claim's row is of any key", 'store.c',
           'idem_store WHERE scope=? AND key=? AND token=?"',
           'idem_store WHERE scope=? AND (key=? OR 1) AND token=?"',
           BETWEEN),
    Breach("an audited claim's row is of any scope", 'store.c',
           'idem_store WHERE scope=? AND key=? AND token=?"',
           'idem_store WHERE (scope=? OR 1) AND key=? AND token=?"',
           BETWEEN),
    Breach("an audited claim's row has any state", 'store.c',
           '" AND state=\'processing\' AND attempt=1"',
           '" AND attempt=1"',
           BETWEEN),
    Breach("an audited claim's row is of any attempt", 'store.c',
           '" AND state=\'processing\' AND attempt=1"',
           '" AND state=\'processing\'"',
           BETWEEN),
    # What becomes of a token.
    Breach('a take-over does not spend the token', 'store.c',
           'SET(SPEND ",token=?,due_at=?',
           'SET("token=?,due_at=?',
           'life review/test_used_token.py'),
    # Not here: that an operator's answer spends the token. Nothing reads it before the next life,
    # which begins without.
    Breach("an operator's answer leaves the token", 'store.c',
           'SET(ANSWER ",reason=?," SPEND ",token=NULL")',
           'SET(ANSWER ",reason=?," SPEND)',
           "life"),
    Breach("an operator's retry does not spend the token", 'store.c',
           '"granted=attempt," SPEND ",token=NULL"',
           '"granted=attempt,token=NULL"',
           BETWEEN),
    # Not here: that an operator's retry leaves no token. It is spent as well, and a released record
    # refuses its own token in the same way.
    Breach("an operator's retry grants nothing", 'store.c',
           '"granted=attempt," SPEND',
           'SPEND',
           BETWEEN),
    Breach('a new life remembers tokens', 'store.c',
           'attempt=1,granted=0,spent=NULL,',
           'attempt=1,granted=0,',
           BETWEEN),
    Breach('a new life remembers grants', 'store.c',
           'attempt=1,granted=0,spent=NULL,',
           'attempt=1,spent=NULL,',
           BETWEEN),
    Breach('a retry is no new attempt', 'store.c',
           '"attempt=attempt+1"',
           '"attempt=attempt"',
           "life"),
    # Whether an audited claim is the one that is there. Not here: due_at, since all else is.
    Breach("another's operation is mine", 'store.c',
           '" AND operation=? AND fingerprint=? AND due_at=?"',
           '" AND (operation=? OR 1) AND fingerprint=? AND due_at=?"',
           BETWEEN),
    Breach("another's fingerprint is mine", 'store.c',
           '" AND operation=? AND fingerprint=? AND due_at=?"',
           '" AND operation=? AND (fingerprint=? OR 1) AND due_at=?"',
           BETWEEN),
    # Not here: what is remembered (recallRecord). The verdict compares the token again and the
    # write demands what was remembered, so a wrong memory costs a look and changes nothing.
    # Whose token it is (claim.c, finish.c).
    Breach("the caller's token is not taken", 'claim.c',
           'if (pReq->token.eType != SQLITE_NULL) {',
           'if (0) {',
           "life"),
    Breach('a lost race is told as won', 'claim.c',
           'return bDone;',
           'return 1;',
           BETWEEN),
    Breach('a lost completion is told as done', 'finish.c',
           'p->bDone = p->verdict.eWrite == IDEM_WR_NONE ||',
           'p->bDone = 1 ||',
           "life"),
    Breach('another large answer is the same', 'finish.c',
           'pReq->response.p = aDigest;',
           'pReq->response.p = pLoaded->record.bOmitted ?'
           ' pLoaded->record.response.p : (void *)aDigest;',
           'life bugs'),
    # The token in idem_records.
    Breach('any token finds a record', 'records_table.c',
           '!idemSame(&p->token, &p->record.token))',
           '0)',
           WRITE),
    Breach('the stored token is shown', 'records_table.c',
           'if (p->bToken) idemCellValue(pCell, &p->token);',
           'idemCellValue(pCell, &p->record.token);',
           'life hostile'),
    Breach('a token that is too long is cut', 'records_table.c',
           'if (p->token.n > IDEM_TOKEN_MAX) p->token.eType = SQLITE_NULL;',
           'if (p->token.n > IDEM_TOKEN_MAX) p->token.n = IDEM_TOKEN_MAX;',
           'life hostile review fencing'),
    Breach('a token learnt late', 'records_table.c',
           'if (isTokenEq(pInfo, i) && !pInfo->aConstraint[i].usable) return SQLITE_CONSTRAINT;',
           '',
           'life sql'),
]


class Bench:
    """Builds the extension with one file changed."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        text = subprocess.run(["sh", str(ROOT / "sql" / "embed.sh")], capture_output=True,
                              check=True)
        (self.directory / "sql_text.c").write_bytes(text.stdout)
        sources = [*sorted(EXT.glob("*.c")), self.directory / "sql_text.c"]
        self.objects = {source.name: self.compile(source, source.stem) for source in sources}

    def compile(self, source, name):
        target = self.directory / f"{name}.o"
        subprocess.run([*CC, "-c", "-o", str(target), str(source)], check=True)
        return target

    def build(self, breach):
        text = (EXT / breach.file).read_text()
        assert text.count(breach.was) == 1, f"the source has changed, adapt: {breach.what}"
        name = f"changed-{BREACHES.index(breach)}"
        changed = self.directory / f"{name}.c"
        changed.write_text(text.replace(breach.was, breach.now))
        objects = {**self.objects, breach.file: self.compile(changed, name)}
        so = self.directory / name / "idem.so"          # SQLite calls the entry point by this name
        so.parent.mkdir(exist_ok=True)
        subprocess.run(["cc", "-shared", "-o", str(so), *map(str, objects.values()), "-lcrypto"],
                       check=True)
        return so

    def noticed(self, breach):
        """The first test that fails; None if all pass."""
        environment = dict(os.environ, IDEM_SO=str(self.build(breach)))
        # One that does not even load would fail every test, and tell nothing.
        subprocess.run([sys.executable, "-c", "from conftest import connect; connect(':memory:')"],
                       cwd=ROOT / "tests", env=environment, check=True)
        tests = [str(ROOT / "tests" / name) for name in breach.tests.split()]
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", *tests],
                              cwd=ROOT, env=environment, capture_output=True, text=True,
                              timeout=900)
        if done.returncode > 1:
            raise RuntimeError(done.stdout + done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        return None if done.returncode == 0 else (lines or ["crash"])[0]


def main(first=0):
    survivors = 0
    with tempfile.TemporaryDirectory() as tmp:
        bench = Bench(tmp)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for breach, how in zip(BREACHES[first:], pool.map(bench.noticed, BREACHES[first:])):
                survivors += how is None
                print(f"{breach.what}: {how or 'SURVIVED'}", flush=True)
    print(f"{len(BREACHES)} mutants, {survivors} survived")
    return survivors != 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
