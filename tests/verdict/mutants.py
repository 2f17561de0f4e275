"""Breaks ext/verdict.c on purpose, in every small way, and demands that the enumeration notices.

    python3 tests/verdict/mutants.py          # all of them, one line each

A mutant is the text with one operator, constant, condition or statement changed. It is killed if the
enumeration prints a line that the oracle rejects (or crashes, or never ends). A survivor must be in
EQUIVALENT with the reason why no caller can tell it from the original.

test_mutants.py runs a sample by default and all of them with IDEM_DEEP=1.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
from collections import namedtuple

import verdict_lines

Mutant = namedtuple("Mutant", "line was now text")  # text: of the whole file

# (original line, mutated line) -> why nobody can tell.
EQUIVALENT = {
    ('if (pFp->n < 6 || memcmp(z, "idem", 4) != 0) return 0;',
     'if (pFp->n < 5 || memcmp(z, "idem", 4) != 0) return 0;'):
        "five bytes hold no digit and colon after idem: the end of the function refuses them too",
    ("if (idemSame(&pRec->token, pToken)) return 1;", "if (idemSame(&pRec->token, pToken)) return 2;"):
        "true is anything but 0",
    ("if (n == pToken->n && idemEqual(z, pToken->p, (size_t)n)) return 1;",
     "if (n == pToken->n && idemEqual(z, pToken->p, (size_t)n)) return 2;"):
        "true is anything but 0",
    ("while (z < zEnd) {", "while (z <= zEnd) {"):
        "one more turn with nothing left finds a token of no length, and there is none",
    ("pOut->retry_after_ms = left < pPol->lease_ms ? left : pPol->lease_ms;",
     "pOut->retry_after_ms = left <= pPol->lease_ms ? left : pPol->lease_ms;"):
        "the lesser of two equal numbers is either",
}

SWAPS = [
    ("==", ["!="]), ("!=", ["=="]), (">=", [">", "<"]), ("<=", ["<", ">"]),
    ("&&", ["||"]), ("||", ["&&"]),
    (" > ", [" >= ", " < "]), (" < ", [" <= ", " > "]),
    (" + ", [" - "]), (" - ", [" + "]), ("+=", ["-="]), ("++", ["--"]),
    (" 0", [" 1"]), (" 1", [" 0", " 2"]), ("(0)", ["(1)"]), (" 4", [" 5"]), (" 6", [" 5", " 7"]),
    ("'a'", ["'b'"]), ("'z'", ["'y'"]), ("'0'", ["'1'"]), ("'9'", ["'8'"]), ("'\\n'", ["','"]),
    ("!", [""]),
]
FAMILIES = ("IDEM_OUT_", "IDEM_E_", "IDEM_WR_", "IDEM_EV_", "IDEM_AUDIT_", "IDEM_ST_", "IDEM_STALE_",
            "IDEM_COMPLETE", "IDEM_RELEASE", "IDEM_SUSPEND", "IDEM_RENEW", "IDEM_CHECKPOINT",
            "IDEM_RESOLVE_", "IDEM_ERASE", "IDEM_CLAIM")
STATEMENT = re.compile(r"^\s*(?:if \([^;]*\) )?(?:[\w>.\-]+(?: [+-]?= |\()|break|return)[^;{}]*;")
CONDITION = re.compile(r"(if|while) \((.*)\)(?= \{|;|\n| [a-z])")
TERNARY = re.compile(r" \? ([^?:]+?) : ([^?:;,)]+)")


def constants(text):
    """The constants the file uses, by family: each is replaced by the next one of its own."""
    found = {}
    for name in sorted(set(re.findall(r"\bIDEM_[A-Z_]+\b", text))):
        for family in FAMILIES:
            if name.startswith(family):
                kind = family if family.endswith("_") and family != "IDEM_RESOLVE_" else "verb"
                found.setdefault(kind, []).append(name)
                break
    return found


def code_lines(text):
    """The lines that hold code: no comments, no assertions, no preprocessor."""
    comment = False
    for number, line in enumerate(text.splitlines(keepends=True)):
        starts, ends = "/*" in line, "*/" in line
        plain = not comment and not line.lstrip().startswith(("/*", "#", "assert("))
        comment = (comment or starts) and not ends
        if plain and line.strip() not in ("", "}", "{"):
            yield number, line


def changes(line, names):
    """All changed versions of one line."""
    code = re.sub(r" /\*.*?\*/", "", line)
    if not code.startswith(" "):
        return  # the head of a function
    for old, news in SWAPS:
        for m in re.finditer(re.escape(old), code):
            before, after = code[:m.start()], code[m.end():]
            if old == "!" and after.startswith("="):
                continue
            if old in (" > ", " < ") and after.startswith("="):
                continue
            if old.lstrip() in ("0", "1", "4", "6") and (after[:1].isalnum() or after[:1] == "."):
                continue
            for new in news:
                yield before + new + after
    for family in names.values():
        for name, other in zip(family, family[1:] + family[:1]):
            for m in re.finditer(rf"\b{name}\b", code):
                if name != other and not code.lstrip().startswith("case "):
                    yield code[:m.start()] + other + code[m.end():]
    if STATEMENT.match(code) and not re.match(r"^\s*(int|int64_t|const)\b", code):
        yield re.sub(r"\S.*;", ";", code)
    for m in CONDITION.finditer(code):
        for value in ("0", "1"):
            if m.group(1) == "if" or value == "0":
                yield code[:m.start(2)] + value + code[m.end(2):]
    for m in TERNARY.finditer(code):
        yield f"{code[:m.start()]} ? {m.group(2)} : {m.group(1)}{code[m.end():]}"


def mutants(text):
    lines, names, seen = text.splitlines(keepends=True), constants(text), set()
    for number, line in code_lines(text):
        for now in changes(line, names):
            if now == line or (number, now) in seen:
                continue
            seen.add((number, now))
            yield Mutant(number + 1, line.strip(), now.strip(),
                         "".join(lines[:number] + [now] + lines[number + 1:]))


class Court:
    """Judges mutants. Assertions are off: the enumeration itself must notice."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.original = (verdict_lines.EXT / "verdict.c").read_text()
        self.objects = verdict_lines.compile_parts(self.directory)
        program = self.build(self.original)
        self.small = self.output(program, "small")
        self.lines = self.output(program)  # test_verdict.py compares these with the oracle

    def build(self, text):
        name = f"mutant-{threading.get_ident()}"        # one at a time in each thread
        source = self.directory / f"{name}.c"
        source.write_text(text)
        return verdict_lines.link(self.directory / name, source, self.objects)

    @staticmethod
    def output(program, *args):
        return subprocess.run([program, *args], check=True, capture_output=True,
                              timeout=60).stdout.splitlines()

    def judge(self, mutant):
        """How it was killed, or None if it survived."""
        try:
            program = self.build(mutant.text)
        except subprocess.CalledProcessError:
            return "does not compile"
        try:
            if self.output(program, "small") != self.small:  # each line of it is exact: test_verdict.py
                return "small"
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return "crash"
        run = subprocess.Popen(["timeout", "60", program], stdout=subprocess.PIPE)
        try:
            return self.compare(run.stdout)
        finally:
            run.kill()
            run.stdout.close()
            run.wait()

    def compare(self, stream):
        """The first line that the oracle rejects; None if there is none."""
        at, rest = 0, b""
        while block := stream.read1(1 << 20):
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            if lines != self.lines[at:at + len(lines)]:
                for was, now in zip(self.lines[at:], lines):
                    if now != was and verdict_lines.wrong(now.decode()) is not None:
                        return now.decode()
            at += len(lines)
        return "crash" if rest or at != len(self.lines) else None


def judge_all(chosen, court, report=lambda mutant, how: None):
    """Judges mutants and returns (killed, equivalent, survivors)."""
    killed, equivalent, survivors = [], [], []
    chosen = list(chosen)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, how in zip(chosen, pool.map(court.judge, chosen)):
            if how == "does not compile":
                continue
            excused = (mutant.was, mutant.now) in EQUIVALENT
            kind = killed if how else equivalent if excused else survivors
            kind.append(mutant)
            report(mutant, how)
    return killed, equivalent, survivors


def describe(mutant):
    return f"line {mutant.line}: {mutant.was}\n    became {mutant.now}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as tmp:
        bench = Court(tmp)
        result = judge_all(mutants(bench.original), bench, lambda mutant, how: print(
            "killed  " if how else "SURVIVED", describe(mutant), flush=True))
    print("killed %d, equivalent %d, survivors %d" % tuple(map(len, result)))
    sys.exit(bool(result[2]))
