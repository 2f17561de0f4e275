"""What the tests of shipping share: make, compilers, and what an ELF file says about itself."""
import pathlib
import re
import subprocess

from conftest import ROOT

HERE = pathlib.Path(__file__).resolve().parent
CLAIM = HERE / "claim.c"
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
VERSION = re.search(r'#define IDEM_VERSION *"(.*)"', (ROOT / "ext/idem.h").read_text()).group(1)


def output(*words, **options):
    """What a command prints; its failure is the test's, with what it said."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=900, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def make(*words, cwd=ROOT, **options):
    return output("make", "--no-print-directory", *words, cwd=cwd, **options)


def exported(library):
    """The symbols that an ELF library offers to others."""
    lines = output("nm", "-D", "--defined-only", library).splitlines()
    return [line.split()[-1] for line in lines]


def needed(library):
    """The libraries it asks for."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", library))


def glibc(library):
    """The newest version of the C library that it asks for, as (2, 34)."""
    found = re.findall(r"GLIBC_(\d+)\.(\d+)", output("objdump", "-T", library))
    return max((int(a), int(b)) for a, b in found)


def claim_program(tmp_path, *words, compiler="cc", language="c"):
    """Compiles claim.c with further words, runs it; what it prints must end with its language."""
    program = tmp_path / f"claim-{language.replace('+', 'x')}"
    standard = "-std=c11" if language == "c" else "-std=c++11"
    output(compiler, standard, *STRICT, "-x", language, CLAIM, "-x", "none", "-o", program, *words)
    said = output(program, tmp_path / f"{program.name}.db").splitlines()
    assert said[2:5] == ["claimed", "1", "replay201done"]
    assert said[-1] == f"closed, in {language.upper()}"
    return program
