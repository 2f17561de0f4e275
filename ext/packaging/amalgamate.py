#!/usr/bin/python3
"""Writes idem as one C file and one header: amalgamate.py SQL_TEXT.c OUTPUT_FOLDER

idem.c is the generated SQL text, then every file of ext/, each header where it is first included.
What has external linkage only because several files share it becomes static, so the one symbol
left is sqlite3_idem_init. Compile it

    into a program     cc -DSQLITE_CORE -c idem.c               link with SQLite and libcrypto
    as an extension    cc -shared -fPIC -fvisibility=hidden idem.c -lcrypto -o idem.so

A name that two files use for different static functions is renamed in the later one; a macro of a
.c file ends with the file. The output depends on nothing but the input: no date, no path.
"""
import pathlib
import re
import sys

EXT = pathlib.Path(__file__).resolve().parent.parent

PREAMBLE = """\
/*
** idem {version}: all of the extension in one file. Generated: change the files it was made from.
**
**   into a program     cc -DSQLITE_CORE -c idem.c               link with SQLite and libcrypto
**   as an extension    cc -shared -fPIC -fvisibility=hidden idem.c -lcrypto -o idem.so
**
** Needs a C11 compiler, the headers of SQLite 3.37 or later, and those of OpenSSL 3.
**
{licence}*/
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#define IDEM_MAIN
#ifdef __GNUC__
#pragma GCC diagnostic ignored "-Wunused-function" /* what tests of single files call */
#endif
"""

INCLUDE = re.compile(r'^#include "(\w+\.h)".*\n', re.M)
DEFINE = re.compile(r"^#define (\w+)", re.M)
STATIC_FUNCTION = re.compile(r"^static (?:inline )?[\w *]*?(\w+)\([^;]*?\{", re.M)
SHARED_FUNCTION = re.compile(r"^(?!static\b|typedef\b|extern\b)([A-Za-z_][\w *]*\bidem[A-Z]\w*\()",
                             re.M)
SHARED_OBJECT = re.compile(r"^(?:extern )?(const (?:sqlite3_module|IdemSqlFile) idem)", re.M)


class Amalgamation:
    """The text so far, what it holds already, and which names are taken."""

    def __init__(self):
        self.parts = []
        self.headers = {"idem.h"}  # stays a file of its own
        self.taken = {}            # a static function's name -> the file that has it

    def header(self, match):
        name = match.group(1)
        if name in self.headers:
            return match.group(0) if name == "idem.h" else ""
        self.headers.add(name)
        text = (EXT / name).read_text()
        text = SHARED_FUNCTION.sub(r"static \1", text)
        if name == "schema.h":  # its array has no length yet; the definition comes first anyway
            text, n = re.subn(r"^extern const IdemSqlFile .*\n", "", text, flags=re.M)
            assert n == 1
        text = INCLUDE.sub(self.header, SHARED_OBJECT.sub(r"static \1", text))
        if name == "idem_int.h":
            text += "SQLITE_EXTENSION_INIT1\n"
        return f"/* ==== ext/{name} ==== */\n{text}"

    def source(self, name, text):
        text = re.sub(r"^(#define IDEM_MAIN|SQLITE_EXTENSION_INIT1)\n", "", text, flags=re.M)
        macros = list(dict.fromkeys(DEFINE.findall(text)))
        functions = set(STATIC_FUNCTION.findall(text))
        renamed = sorted(f for f in functions if f in self.taken)
        self.taken.update((f, name) for f in functions)
        stem = pathlib.Path(name).stem
        text = INCLUDE.sub(self.header, SHARED_OBJECT.sub(r"static \1", text))
        self.parts.append(f"\n/* ==== {name} ==== */\n")
        # After the headers, which another file's section may have brought already.
        self.parts += [f"#define {f} {f}_{stem}\n" for f in renamed]
        self.parts.append(text)
        self.parts += [f"#undef {m}\n" for m in macros + renamed]


def main(sql_text, folder):
    version = re.search(r'#define IDEM_VERSION *"(.*)"', (EXT / "idem.h").read_text()).group(1)
    licence = (EXT.parent / "LICENSE").read_text()
    licence = "".join(f"** {line}".rstrip() + "\n" for line in licence.splitlines())
    whole = Amalgamation()
    whole.source("sql/", sql_text.read_text())
    for path in sorted(EXT.glob("*.c")):
        whole.source(f"ext/{path.name}", path.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "idem.c").write_text(PREAMBLE.format(version=version, licence=licence)
                                   + "".join(whole.parts))
    (folder / "idem.h").write_text((EXT / "idem.h").read_text())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
