"""The marked regions of the drivers' programs, which the README shows word for word.

A region begins after a line that holds "README: NAME" and ends before one with "README: end".
Run as a program, this prints them as Markdown, ready for the README: all, or those named.
"""
import re
import sys
import textwrap

from driver_list import DRIVERS, HERE

LANGUAGES = {".py": "python", ".cjs": "js", ".rb": "ruby", ".php": "php", ".pl": "perl", ".c": "c",
             ".tcl": "tcl", ".go": "go", ".rs": "rust", ".java": "java", ".sh": "sh",
             ".cpp": "cpp"}


def regions(path):
    found, name = {}, None
    for line in path.read_text().splitlines():
        mark = re.search(r"README: (\w+)", line)
        if mark:
            name = None if mark[1] == "end" else mark[1]
        elif name:
            found.setdefault(name, []).append(line)
    return {name: textwrap.dedent("\n".join(lines)).strip("\n") + "\n"
            for name, lines in found.items()}


def block(path, name):
    """What the README holds for a region: a comment that names it, and the code."""
    return (f"<!-- {path.relative_to(HERE.parents[1])}: {name} -->\n"
            f"```{LANGUAGES[path.suffix]}\n{regions(path)[name]}```\n")


def row(driver):
    """The cells of the driver's row in the README's table: host, loads by, proven with, program."""
    lines = (HERE.parents[1] / "README.md").read_text().splitlines()
    link = f"({driver.path.relative_to(HERE.parents[1])}) |"
    found = ([line for line in lines if line.startswith(f"| {driver.title} |")]
             or [line for line in lines if line.startswith("| ") and line.endswith(link)])
    return [cell.strip() for cell in found[0].strip("|").split("|")] if found else None


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["load", "order"]
    for driver in (d for d in DRIVERS if not d.other):
        print(f"<details><summary>{driver.title}</summary>\n")
        print("\n".join(block(driver.path, name) for name in wanted))
        print("</details>\n")
