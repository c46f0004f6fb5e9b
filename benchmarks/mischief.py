"""What can go wrong between a device and the server: a client app that lies when told to, and a proxy that meddles."""

import contextlib
import http.client
import http.server
import threading
import time
from collections import Counter, deque
from pathlib import Path

# The digits app, except that a client that finds an order with its number carries it out instead, once.
LYING_APP = '''
import time
from pathlib import Path
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from fedawe.deploy import digits
from fedawe.deploy.apps import client_id

honest = digits.client_app()
client = ClientApp()
server = digits.server_app()


def order(message, context):
    """The order for this client, taken away so that it is carried out once, in this round."""
    path = Path(context.run_config["orders"]) / str(client_id(context))
    try:
        what = path.read_text()
        path.rename(path.with_name(f"done {path.name} {what} {message.metadata.group_id}"))
    except OSError:
        return None
    return what


@client.query("client_id")
def who(message, context):
    return honest(message, context)


@client.train()
def train(message, context):
    what = order(message, context)
    if what == "raise":
        raise RuntimeError("told to")
    if what == "sleep":
        time.sleep(float(context.run_config["timeout"]) + 5)
    reply = honest(message, context)
    record = next(iter(reply.content.array_records.values()))
    arrays = {name: array.numpy().copy() for name, array in record.items()}
    first = next(iter(arrays))
    round_said = dict(next(iter(reply.content.config_records.values())))
    if what == "nan":
        arrays[first].flat[0] = float("nan")
    elif what == "inf":
        arrays[first].flat[-1] = float("inf")
    elif what == "shape":
        arrays[first] = arrays[first][:-1].copy()
    elif what == "oversized":
        arrays[first] = arrays[first].repeat(1000, 0)
    elif what == "dtype":
        arrays[first] = arrays[first].astype("float64")
    elif what == "names":
        arrays["backdoor"] = arrays.pop(first)
    elif what == "norm":
        arrays[first] = arrays[first] + 1e6
    elif what == "negative-variance":
        arrays["2.running_var"][:] = -5.0
    elif what == "huge-statistics":
        arrays["2.running_mean"][0] = 3.4e38
    elif what == "old-round":
        round_said["server-round"] = int(round_said["server-round"]) - 1
    else:
        return reply
    lie = RecordDict({"arrays": ArrayRecord(dict_of(arrays)), "config": ConfigRecord(round_said)})
    return Message(lie, reply_to=message)


def dict_of(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
'''
LIES = {  # order: the reason for which the server must refuse it
    "raise": "error",
    "sleep": "late",
    "nan": "non-finite",
    "inf": "non-finite",
    "shape": "shape",
    "oversized": "shape",
    "dtype": "dtype",
    "names": "names",
    "norm": "norm",
    "negative-variance": "statistics",
    "huge-statistics": "statistics",
    "old-round": "version",
}
MEDDLING = ("duplicate", "delay", "corrupt", "cut")


class Proxy:
    """Stands between the nodes and the SuperLink, and meddles with the next reply of a node when told to.

    duplicate  the reply is delivered twice
    delay      it is delivered after the round is over
    corrupt    a byte in the middle of what is uploaded is another
    cut        the connection breaks after the reply was delivered, before the node hears of it
    """

    def __init__(self, port: int, delay: float) -> None:
        self.orders: deque[str] = deque()
        self.done: Counter[str] = Counter()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                what = proxy._order(self.path)
                if what == "delay":
                    time.sleep(delay)
                if what == "corrupt":
                    body = body[: len(body) // 2] + bytes([body[len(body) // 2] ^ 1]) + body[len(body) // 2 + 1 :]
                for _ in range(2 if what == "duplicate" else 1):
                    answer = self._forward(body)
                if what == "cut" or answer is None:
                    self.close_connection = True
                    return
                status, headers, content = answer
                self.send_response(status)
                for name, value in headers:
                    if name.lower() not in ("transfer-encoding", "connection", "content-length", "server", "date"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes] | None:
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                try:
                    upstream.request("POST", self.path, body, dict(self.headers))
                    response = upstream.getresponse()
                    return response.status, response.getheaders(), response.read()
                except (OSError, http.client.HTTPException):
                    return None  # the SuperLink is not there
                finally:
                    upstream.close()

            def handle(self) -> None:
                with contextlib.suppress(OSError):  # the node went away
                    super().handle()

            def log_message(self, *_: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _order(self, path: str) -> str | None:
        """What to do with this request: what is uploaded can be corrupted, the reply's own request the rest."""
        if not self.orders or path != ("/v1/fleet/push-object" if self.orders[0] == "corrupt" else REPLY):
            return None
        try:
            what = self.orders.popleft()
        except IndexError:  # another thread was faster
            return None
        self.done[what] += 1
        return what

    def close(self) -> None:
        """No more connections."""
        self._server.shutdown()
        self._server.server_close()


REPLY = "/v1/fleet/push-messages"


def told_lies(folder: Path) -> list[tuple[int, str, int]]:
    """Orders that clients have carried out: client, what, in which round."""
    found = [path.name.split() for path in folder.glob("done *")]
    return [(int(client), what, int(n)) for _, client, what, n in found]
