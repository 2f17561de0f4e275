"""A process with another libcrypto: idem uses its own, the host keeps using its own.

SQLite opens extensions with RTLD_GLOBAL, so a symbol of the host can take the place of one of ours
unless ours is hidden. The default build links libcrypto statically; a build with CRYPTO=shared
shares the host's by design, and is not tested here.
"""
import subprocess

import pytest

from conftest import SO
from driver_list import DRIVERS, ENV, OUT
from test_drivers import EXPECTED, shop, skip  # noqa: F401

SQL = ["SELECT idem_fingerprint('{\"pieces\":3}')", "SELECT idem_fingerprint_raw(x'00ff')",
       "SELECT idem_hmac_fingerprint('a secret of 16 b', '[1]')",
       "SELECT idem_derive_key('k', 's')"]
KNOWN = EXPECTED.split()[1]
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def out(*command, **env):
    ran = subprocess.run(command, env={**ENV, **env}, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


def shell(**env):
    return out("sqlite3", ":memory:", f".load {SO.removesuffix('.so')}", *SQL, **env)


@pytest.fixture(scope="module")
def alone():
    """What a process without any other libcrypto answers."""
    if "libcrypto" in subprocess.run(["ldd", SO], capture_output=True, text=True).stdout:
        pytest.skip("a build with CRYPTO=shared")
    answers = shell()
    assert answers[0] == KNOWN and len(set(answers)) == len(SQL)
    return answers


def libcrypto_so():
    path = subprocess.run(["cc", "-print-file-name=libcrypto.so"], capture_output=True, text=True)
    return path.stdout.strip()


def test_preloaded_by_the_system(alone):
    assert shell(LD_PRELOAD=libcrypto_so()) == alone


def test_every_function_of_libcrypto_is_a_trap(alone, tmp_path):
    """A host whose functions of the same names end the process when they are called."""
    symbols = out("nm", "-D", "--defined-only", libcrypto_so())
    names = sorted({line.split()[-1].split("@")[0] for line in symbols if " T " in line})
    assert len(names) > 3000 and "EVP_DigestUpdate" in names
    source = "".join(f".globl {n}\n.type {n},@function\n{n}:\n" for n in names)
    (tmp_path / "trap.s").write_text(source + "ud2\n" '.section .note.GNU-stack,"",@progbits\n')
    out("cc", "-shared", "-o", str(tmp_path / "trap.so"), str(tmp_path / "trap.s"))
    user = "import ctypes; ctypes.CDLL(None).RAND_status()"
    preload = {"LD_PRELOAD": str(tmp_path / "trap.so")}
    assert subprocess.run(["/usr/bin/python3", "-c", user], env={**ENV, **preload}).returncode < 0
    assert shell(**preload) == alone


PYTHON = """
import os, sys
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
def host():
    import _hashlib, _ssl, hmac, ssl
    assert ssl.create_default_context().get_ciphers() and len(ssl.RAND_bytes(16)) == 16
    assert _hashlib.openssl_sha256(b"abc").hexdigest() == "{abc}"
    return ssl.OPENSSL_VERSION
if {first}: host()
import sqlite3
db = sqlite3.connect(":memory:")
db.enable_load_extension(True)
db.load_extension("{so}")
for sql in {sql}:
    print(db.execute(sql).fetchone()[0])
host()
for sql in {sql}:
    print(db.execute(sql).fetchone()[0])
maps = open("/proc/self/maps").read()
assert "libcrypto.so" in maps and "idem.so" in maps
db.close()
host()
"""


@pytest.mark.parametrize("first", [True, False], ids=["ssl first", "idem first"])
def test_beside_pythons_ssl(first, alone):
    program = PYTHON.format(abc=ABC, so=SO, sql=SQL, first=first)
    assert out("/usr/bin/python3", "-c", program) == alone * 2


NODE = """
const crypto = require("node:crypto");
const host = () => {{
  if (crypto.createHash("sha256").update("abc").digest("hex") !== "{abc}") throw new Error("host");
  crypto.randomBytes(16);
  crypto.generateKeyPairSync("ec", {{ namedCurve: "P-256" }});
}};
if ({first}) host();
const db = {open};
db.loadExtension("{so}");
const ask = () => {{ for (const sql of {sql})
  console.log(Object.values(db.prepare(sql).all()[0])[0]); }};
ask();
host();
ask();
db.close();
host();
"""
HOSTS = {"better-sqlite3": "new (require('better-sqlite3'))(':memory:')",
         "libsql": "new (require('libsql'))(':memory:')",
         "node-sqlite": ("new (require('node:sqlite').DatabaseSync)"
                         "(':memory:', {allowExtension: true})")}


@pytest.mark.parametrize("first", [True, False], ids=["crypto first", "idem first"])
@pytest.mark.parametrize("name", HOSTS)
def test_inside_node(name, first, alone):
    """Node.js exports the functions of its own OpenSSL."""
    driver = next(d for d in DRIVERS if d.name == name)
    missing = driver.missing()
    if missing:
        skip(f"{name} is not installed: {missing}")
    program = NODE.format(abc=ABC, so=SO, sql=SQL, open=HOSTS[name], first=str(first).lower())
    (OUT / "libcrypto.cjs").write_text(program)
    node = [w for w in driver.words(driver.run) if not w.endswith("shop.cjs")]
    assert out(*node, str(OUT / "libcrypto.cjs")) == alone * 2
