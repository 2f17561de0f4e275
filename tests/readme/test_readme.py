"""The README is executed: every SQL and Python block in it, with the output it claims."""
import re
import subprocess
import sys

import pytest

from conftest import ROOT

TEXT = (ROOT / "README.md").read_text()
# Regions of the drivers' programs run there, see test_examples.py.
OWN = re.sub(r"^<!-- tests/drivers/.*? -->\n```.*?^```$", "", TEXT, flags=re.M | re.S)
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", OWN, re.M | re.S)


def shell(folder, blocks):
    """What the shell says to each of these SQL blocks, in one session on shop.db."""
    script = "".join(".mode list\n" + body.replace(".load ./idem\n", "") + ".print -- end of block\n"
                     for body in blocks)
    # Line by line, so that what the shell says on standard error stands where it belongs.
    run = subprocess.run(["stdbuf", "-oL", "sqlite3", str(folder / "shop.db")], cwd=ROOT,
                         input=".load ./idem\n" + script, text=True, timeout=60,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out = re.sub(r"(Runtime error) near line \d+:", r"\1:", run.stdout)
    out = re.sub(r"(created_utc = )\S+ \S+", r"\g<1>2026-11-30 14:05:09", out)
    out = re.sub(r"(age_s = )\d+", r"\g<1>0", out)
    return out.split("-- end of block\n")[:-1]


def python(folder, body):
    run = subprocess.run(["/usr/bin/python3", "-c", body.replace("./idem", str(ROOT / "idem"))],
                         cwd=folder, capture_output=True, text=True, timeout=60)
    assert run.stderr == ""
    return run.stdout


def test_every_sql_and_python_block_says_what_it_says(tmp_path):
    """From the first to the last on one database, as a reader does who tries it all."""
    waiting, seen = [], []
    for (kind, body), (next_kind, output) in zip(BLOCKS, BLOCKS[1:] + [("", "")]):
        if kind not in ("sql", "python"):
            continue
        output = output if next_kind == "text" else ""
        if kind == "sql":
            waiting.append((body, output))
            continue
        seen.append(body)
        assert shell(tmp_path, [b for b, _ in waiting]) == [o for _, o in waiting]
        waiting = []
        assert python(tmp_path, body) == output
    assert shell(tmp_path, [b for b, _ in waiting]) == [o for _, o in waiting]
    assert len(seen) >= 2 and len(waiting) >= 4


SHELL = [i for i, ((kind, _), (then, _)) in enumerate(zip(BLOCKS, BLOCKS[1:]))
         if kind == "sh" and then == "text"]


@pytest.mark.parametrize("i", SHELL)
def test_every_shell_block_with_an_output_says_it(i, tmp_path):
    for name in ("sql", "idem.so"):
        (tmp_path / name).symlink_to(ROOT / name)
    run = subprocess.run(["sh", "-eu"], input=BLOCKS[i][1], cwd=tmp_path, text=True, timeout=60,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert run.stdout == BLOCKS[i + 1][1]


def test_every_linked_file_is_there():
    targets = re.findall(r"\]\(([^)#]+)|<img src=\"([^\"]+)", TEXT)
    for target in filter(lambda t: not t.startswith("https:"), (a or b for a, b in targets)):
        assert (ROOT / target).exists(), target


def test_every_link_into_this_file_finds_its_heading():
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", TEXT, flags=re.M | re.S), re.M)
    anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
    links = set(re.findall(r"\]\(#([^)]+)\)", TEXT))
    assert len(links) > 10 and links <= anchors, links - anchors


def test_every_function_is_in_the_table():
    listed = set(re.findall(r"^\| `(idem_\w+)\(", TEXT, re.M))
    source = (ROOT / "ext" / "idem.c").read_text()
    assert listed == set(re.findall(r'\{"(idem_\w+)", -?\d+, -?\d+, ', source))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
