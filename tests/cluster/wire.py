"""A small client of dqlite's wire protocol (version 1), with the standard library alone.

    with Client("127.0.0.1:9001") as c:             # any node
        leader = c.leader()                         # its address, "" while there is none
    with Client(leader, "shop.db") as db:
        db.execute("INSERT INTO t VALUES (?, ?)", 1, "a")   # -> (last insert id, rows changed)
        db.query("SELECT * FROM t")                         # -> [(1, 'a')]
        with db.prepare("INSERT INTO t VALUES (?, ?)") as s:
            s.execute(2, "b")

A node that does not lead answers every statement with code 10250. `execute` is the request
EXEC_SQL: the only one that replicates in autocommit, and it fails if the statement yields a row.
`query` is QUERY_SQL: in autocommit for reading alone; the text of its errors is lost (dqlite 1.11
sends the number of columns as the code and the first column's name as the text). One connection,
one database, one request at a time.

A message is a header (words of the body u32, type u8, schema u8, unused u16) and a body of 8-byte
words, little-endian. A text ends with NUL and is padded to a word, a blob has its size in front.
It is sent by one write: header and body by two, without TCP_NODELAY, would take 40 ms longer each
time, as the second waits for an acknowledgement that the node delays (bench/cluster.py shows it).
"""
import socket
import struct

LEADER, OPEN, PREPARE, EXEC, QUERY, FINALIZE, EXEC_SQL, QUERY_SQL = 0, 3, 4, 5, 6, 7, 8, 9
REMOVE, DUMP, CLUSTER, TRANSFER = 14, 15, 16, 17
FAILURE, SERVER, NODES, DB, STMT, RESULT, ROWS, EMPTY, FILES = 0, 1, 3, 4, 5, 6, 7, 8, 9
INTEGER, FLOAT, TEXT, BLOB, NULL, UNIXTIME, ISO8601, BOOLEAN = 1, 2, 3, 4, 5, 9, 10, 11
ROWS_DONE, ROWS_PART = b"\xff" * 8, b"\xee" * 8

BUSY, NOT_LEADER, LEADERSHIP_LOST = 5, 10250, 10506


class Refused(Exception):
    """The node answered with an error."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


def word(value):
    return struct.pack("<Q", value)


def padded(data):
    return data + bytes(-len(data) % 8)


def text(value):
    return padded(value.encode() + b"\0")


def parameters(values):
    """A tuple: how many, their types, their values. Empty if there are none."""
    if not values:
        return b""
    types, body = bytearray(), b""
    for v in values:
        if v is None:
            types.append(NULL)
            body += word(0)
        elif isinstance(v, int):
            types.append(INTEGER)
            body += struct.pack("<q", v)
        elif isinstance(v, float):
            types.append(FLOAT)
            body += struct.pack("<d", v)
        elif isinstance(v, str):
            types.append(TEXT)
            body += text(v)
        else:
            types.append(BLOB)
            body += word(len(v)) + padded(bytes(v))
    return padded(bytes([len(values)]) + types) + body


class Body:
    """Reads what a node has written."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n : self.at]

    def unpack(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def word(self):
        return self.unpack("Q")[0]

    def text(self):
        end = self.data.index(b"\0", self.at)
        value = self.data[self.at : end].decode()
        self.at += (end - self.at) // 8 * 8 + 8
        return value

    def blob(self):
        size = self.word()
        return self.take(size + -size % 8)[:size]

    def value(self, kind):
        if kind == NULL:
            return self.take(8) and None
        return {
            INTEGER: lambda: self.unpack("q")[0],
            UNIXTIME: lambda: self.unpack("q")[0],
            BOOLEAN: lambda: self.unpack("q")[0],
            FLOAT: lambda: self.unpack("d")[0],
            TEXT: self.text,
            ISO8601: self.text,
            BLOB: self.blob,
        }[kind]()

    def rows(self):
        """One batch of rows, and whether it was the last."""
        columns = self.word()
        [self.text() for _ in range(columns)]
        rows = []
        while True:
            mark = self.data[self.at : self.at + 8]
            if mark in (ROWS_DONE, ROWS_PART):
                return rows, mark == ROWS_DONE
            kinds = self.take((columns + 15) // 16 * 8)  # four bits each
            rows.append(tuple(self.value(kinds[i // 2] >> i % 2 * 4 & 15) for i in range(columns)))


class Client:
    def __init__(self, address, database=None, timeout=5.0, nodelay=True):
        host, port = address.split(":")
        self.address = address
        self.socket = socket.create_connection((host, int(port)), timeout)
        if nodelay:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(word(1))
        if database:
            self.ask(OPEN, text(database) + word(0) + text(""), DB)

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _read(self, size):
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the node closed the connection")
            data += part
        return bytes(data)

    def _answer(self, expected):
        words, kind, _, _ = struct.unpack("<IBBH", self._read(8))
        body = Body(self._read(words * 8))
        if kind == FAILURE:
            raise Refused(body.word(), body.text())
        if kind != expected:
            raise ConnectionError(f"answer {kind}, expected {expected}")
        return body

    def send(self, kind, body):
        self.socket.sendall(struct.pack("<IBBH", len(body) // 8, kind, 0, 0) + body)

    def ask(self, kind, body, expected):
        self.send(kind, body)
        return self._answer(expected)

    def ask_rows(self, kind, body):
        rows, done = self.ask(kind, body, ROWS).rows()
        while not done:
            more, done = self._answer(ROWS).rows()
            rows += more
        return rows

    def execute(self, sql, *values):
        return self.ask(EXEC_SQL, word(0) + text(sql) + parameters(values), RESULT).unpack("qQ")

    def query(self, sql, *values):
        return self.ask_rows(QUERY_SQL, word(0) + text(sql) + parameters(values))

    def prepare(self, sql):
        return Statement(self, self.ask(PREPARE, word(0) + text(sql), STMT).unpack("II"))

    def leader(self):
        body = self.ask(LEADER, word(0), SERVER)
        body.word()
        return body.text()

    def members(self):
        """id -> (address, role); role 0 is a voter."""
        body = self.ask(CLUSTER, word(1), NODES)
        return {body.word(): (body.text(), body.word()) for _ in range(body.word())}

    def remove(self, node):
        """From the cluster: ask the leader."""
        self.ask(REMOVE, word(node), EMPTY)

    def dump(self, database):
        """The database's files, as the node has them: name -> bytes."""
        body = self.ask(DUMP, text(database), FILES)
        return {body.text(): body.blob() for _ in range(body.word())}


class Statement:
    """A prepared statement on the node."""

    def __init__(self, client, ids):
        self.client, self.ids = client, struct.pack("<II", *ids)

    def execute(self, *values):
        return self.client.ask(EXEC, self.ids + parameters(values), RESULT).unpack("qQ")

    def query(self, *values):
        return self.client.ask_rows(QUERY, self.ids + parameters(values))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.ask(FINALIZE, self.ids, EMPTY)
