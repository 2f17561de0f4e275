"""What the tests of the example server share: the server as a child process, a fake provider, a client."""
import http.client
import importlib.util
import json
import pathlib
import random
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_here = pathlib.Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("idem_shared_conftest", _here.parent / "conftest.py")
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)

SERVER = _here / "server.py"
VOLATILE = {"date", "server", "connection", "x-request-id", "idempotent-replayed"}


class Provider:
    """A payment provider with idempotency keys of its own, as a thread of the test."""

    def __init__(self):
        self.lock = threading.Lock()
        self.charges = {}              # key -> charge
        self.declined = {}             # key -> amount
        self.requests = 0
        self.delay = 0.0               # up to so long before and after it charges, seconds
        self.hold = threading.Event()  # cleared: charges wait before they happen
        self.hold.set()
        self.mute = False              # charges, and never answers
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10

            def do_POST(self):
                amount = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["amount"]
                key = self.headers["Idempotency-Key"]
                provider.pause()
                provider.hold.wait(10)
                with provider.lock:
                    provider.requests += 1
                    if amount % 10 == 3:
                        provider.declined[key] = amount
                    elif key not in provider.charges:
                        provider.charges[key] = {"id": f"ch_{len(provider.charges) + 1}", "amount": amount}
                provider.pause()
                self.tell(key)

            def do_GET(self):
                self.tell(self.path.rpartition("/")[2])

            def tell(self, key):
                if provider.mute:
                    self.close_connection = True
                    return
                with provider.lock:
                    charge = provider.charges.get(key)
                    status = 201 if charge else 402 if key in provider.declined else 404
                body = json.dumps(charge or {}).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass                                   # the asker was killed

            def log_message(self, *_):
                pass

        class Http(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):
                pass                                       # of a connection whose other end was killed

        self.http = Http(("127.0.0.1", 0), Handler)
        self.address = "127.0.0.1:%d" % self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def pause(self):
        if self.delay:
            time.sleep(random.random() * self.delay)

    def stop(self):
        self.hold.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


class Server:
    """The example server as a child process; started again on the same port after a kill."""

    def __init__(self, database, provider, *options, seconds=120):
        self.database, self.provider, self.options, self.seconds = database, provider, options, seconds
        self.port, self.process, self.standby = 0, None, None

    def launch(self):
        """A process that has read its code and waits for the word to begin."""
        return subprocess.Popen(
            [sys.executable, "-S", "-E", str(SERVER), str(self.database), str(self.port), self.provider,
             "--so", str(shared.SO), "--seconds", str(self.seconds), "--standby", *map(str, self.options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, prepare_next=False):
        """Starts it, and if more starts are to follow soon, the next one as far as it goes."""
        for _ in range(50):
            self.process, self.standby = self.standby or self.launch(), None
            try:
                self.process.stdin.write("go\n")
                self.process.stdin.flush()
                line = self.process.stdout.readline()
            except OSError:
                line = ""
            if line.startswith("listening"):
                self.port = int(line.rpartition(":")[2])
                if prepare_next:
                    self.standby = self.launch()
                return self
            self.kill()                                    # the port may still be taken for a moment
            time.sleep(0.05)
        raise AssertionError("the server does not start")

    @staticmethod
    def end(process):
        process.kill()
        process.wait(10)
        process.stdout.close()
        try:
            process.stdin.close()
        except OSError:
            pass

    def kill(self):
        """SIGKILL, and the end of it."""
        if self.process:
            self.end(self.process)
            self.process = None

    def stop(self):
        self.kill()
        if self.standby:
            self.end(self.standby)
            self.standby = None


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.getheaders()
        self.body = response.read()

    def header(self, name):
        values = [v for n, v in self.headers if n.lower() == name.lower()]
        assert len(values) <= 1
        return values[0] if values else None

    @property
    def replayed(self):
        return self.header("Idempotent-Replayed") == "true"

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def lasting(self):
        """What must be the same in every answer to one key: status, stored headers, bytes."""
        return self.status, [h for h in self.headers if h[0].lower() not in VOLATILE], self.body


def send(port, method, path, body=None, key=None, secret="secret-1", timeout=10.0, headers=()):
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.putrequest(method, path)
        if secret:
            connection.putheader("Authorization", f"Bearer {secret}")
        for one in ([key] if isinstance(key, str) else key or []):
            connection.putheader("Idempotency-Key", one)
        for name, value in headers:
            connection.putheader(name, value)
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        return Reply(connection.getresponse())
    finally:
        connection.close()


def post(port, path, body, key, **kw):
    return send(port, "POST", path, body, key, **kw)
