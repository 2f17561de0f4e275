"""Writes the seeds of the fuzz target into a directory: seeds.py DIRECTORY

Small documents that reach every branch, every vector and test-suite file that can be found, and
documents preceded by paths in the target's format.
"""
import base64
import hashlib
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"

PLAIN = [
    b"{}", b"[]", b'""', b"0", b"-0.0e+1", b"1e999999999", b"10e999999999", b"true", b"false", b"null",
    b'{"b":1,"a":{"d":[1,2,{"z":0,"y":0}],"c":2}}', b'{"a":1,"b":1,"b":2,"a":3}', b'{"\\u0061":1,"a":2}',
    b'["\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u001F\\ud83d\\ude00\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa9 long enough for a block"]',
    b'{"\xef\xac\xb3":1,"\xf0\x9f\x98\x80":2,"samesame1":1,"samesame0":2,"samesam\\n":3}', b" \t\r\n 1 \n", b"[" * 513,
    b'{"p":{"o":{"n":{"b":1,"a":2},"m":0},"l":0},"k":0}', b"[1200.0,12E+2,0.5e-4,1e21,1e20,0.0000001,123456789012345678901.5]",
    ("{" + ",".join(f'"k{(i * 37) % 100:02d}":{i}' for i in range(100)) + "}").encode(),
]
PATHS = [
    ([b"-$.a"], b'{"a":1,"b":{"a":2}}'), ([b"+$.b.a", b"-$.b.c"], b'{"a":1,"b":{"c":0,"a":2}}'),
    ([b"-$[*].t", b"-$[1]"], b'[{"t":1,"u":2},3,{"u":1,"t":0}]'), ([b'-$."a.b"', b"-$.*.x"], b'{"a.b":1,"c":{"x":1}}'),
    ([b"+$"], b"5"), ([b"+$.none"], b'{"a":1}'), ([b"-$.ts"], b'{"a":1,"ts":1,"ts":2}'), ([b"-$[01]"], b"[]"),
]


def seeds():
    yield from PLAIN
    for paths, payload in PATHS:
        yield bytes([len(paths)]) + b"".join(path + b"\n" for path in paths) + payload
    vectors = DATA / "fingerprint-vectors.jsonl"
    for line in vectors.read_text("utf-8").splitlines() if vectors.exists() else ():
        vector = json.loads(line)
        paths = [path.encode() for path in vector.get("paths", [])]
        prefix = bytes([len(paths)]) + b"".join(path + b"\n" for path in paths) if paths else b""
        for side in "ab":
            if side in vector:
                yield prefix + vector[side].encode()
            elif side + "_b64" in vector:
                yield prefix + base64.b64decode(vector[side + "_b64"])
    for file in sorted(DATA.glob("jsontestsuite/**/*.json")):
        yield file.read_bytes()[:4096]


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for seed in seeds():
        (out / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
