"""Downloads, from a server of our own that can misbehave."""

import dataclasses
import hashlib
import http.server
import re
import socket
import threading

import pytest

from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.tasks.data import sets
from fedawe.tasks.data.download import download

CONTENT = rng(0, "download").bytes(700_001)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/a.bin": CONTENT}
        self.asked = []  # (path, Range header)
        self.cuts = []  # bytes after which the next answers stop
        self.ranges = True
        self.status = 200
        self.kind = "application/octet-stream"
        self.says_length = True

    def handle_error(self, request, client_address):
        """A client that leaves in the middle is part of the tests."""

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append((self.path, wanted))
        content = server.files.get(self.path)
        if content is None or server.status != 200:
            return self.send_error(404 if content is None else server.status)
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and server.ranges else 0
        if start >= len(content):
            return self.send_error(416)
        body = content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Type", server.kind)
        if server.says_length:
            self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)
        return None


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        publish(monkeypatch, running.address + "/a.bin")
        yield running
        running.shutdown()
        thread.join()


def publish(monkeypatch, *addresses, content=CONTENT):
    file = sets.File("a.bin", hashlib.md5(content).hexdigest(), len(content), addresses)
    monkeypatch.setitem(sets.KNOWN, "svhn", dataclasses.replace(sets.SVHN, downloads=(file,)))


def fetch(folder, **options):
    said = []
    [path] = download("svhn", folder, lambda *a: said.append(a), pause=0, **options)
    assert path == folder / "downloads" / "a.bin"
    assert path.read_bytes() == CONTENT
    assert not path.with_name("a.bin.part").exists()
    return said


def refusal(folder, **options):
    with pytest.raises(UserError) as error:
        download("svhn", folder, sets.silent, pause=0, **options)
    assert "\n" not in str(error.value)
    assert not (folder / "downloads" / "a.bin").exists()
    return str(error.value)


def test_a_file_is_fetched_and_reported_and_not_fetched_twice(tmp_path, server):
    said = fetch(tmp_path)
    assert said[-1] == ("downloading a.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in said] == sorted({done for _, done, _ in said})
    assert fetch(tmp_path) == []
    assert server.asked == [("/a.bin", None)]


def test_a_connection_that_is_cut_goes_on_where_it_was(tmp_path, server):
    server.cuts = [300_000, 100, 0, 0, 0]
    fetch(tmp_path)
    assert [wanted for _, wanted in server.asked] == [None, "bytes=300000-"] + ["bytes=300100-"] * 4


def test_what_an_earlier_process_fetched_is_not_fetched_again(tmp_path, server):
    server.cuts = [200_000] + [0] * 4
    message = refusal(tmp_path)
    assert "the connection is cut after 200,000 bytes, which are kept (500,001 bytes are missing)" in message
    assert (tmp_path / "downloads" / "a.bin.part").read_bytes() == CONTENT[:200_000]
    fetch(tmp_path)
    assert server.asked[-1] == ("/a.bin", "bytes=200000-")


def test_a_part_that_is_whole_is_taken(tmp_path, server):
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "a.bin.part").write_bytes(CONTENT)
    fetch(tmp_path)


def test_a_server_without_ranges_sends_all_again(tmp_path, server):
    server.ranges, server.cuts = False, [300_000]
    fetch(tmp_path)
    assert [wanted for _, wanted in server.asked] == [None, "bytes=300000-"]


def test_a_server_that_does_not_say_how_long(tmp_path, server):
    server.says_length = False
    fetch(tmp_path)


def test_a_wrong_checksum_is_refused_and_forgotten(tmp_path, server):
    server.files["/a.bin"] = CONTENT[:-1] + b"?"
    message = refusal(tmp_path)
    assert f"what it sends is not a.bin, whose md5 is {hashlib.md5(CONTENT).hexdigest()}, and was deleted" in message
    assert not (tmp_path / "downloads" / "a.bin.part").exists()
    server.files["/a.bin"] = CONTENT
    fetch(tmp_path)


def test_a_part_of_something_else_costs_one_try(tmp_path, server):
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "a.bin.part").write_bytes(b"?" * 1000)
    assert "what it sends is not a.bin" in refusal(tmp_path)
    fetch(tmp_path)


@pytest.mark.parametrize(("status", "asked"), [(404, 1), (403, 1), (503, 4)])
def test_a_refusal_is_passed_on_and_says_what_to_bring(tmp_path, server, status, asked):
    server.status = status
    message = refusal(tmp_path)
    assert f"the server says {status} " in message
    assert f"bring a.bin ({server.address}/a.bin) from elsewhere, put it in {tmp_path / 'downloads'}" in message
    assert len(server.asked) == asked


def test_a_web_page_is_not_the_file(tmp_path, server):
    server.kind = "text/html; charset=utf-8"
    assert "it answers with a web page, not with the file" in refusal(tmp_path)


def test_the_next_address_is_tried(tmp_path, server, monkeypatch):
    publish(monkeypatch, server.address + "/moved.bin", server.address + "/a.bin")
    fetch(tmp_path)
    assert server.asked == [("/moved.bin", None), ("/a.bin", None)]


def test_a_mirror_is_used_instead(tmp_path, server, monkeypatch):
    server.files["/deep/a.bin"] = CONTENT
    publish(monkeypatch, "http://unused.invalid/a.bin")
    fetch(tmp_path, mirror=server.address + "/deep/")
    assert server.asked == [("/deep/a.bin", None)]
    for wrong in ("file:///etc", "http://[::1"):
        assert f"begins with http:// or https://, not {wrong!r}" in refusal(tmp_path / "b", mirror=wrong)


def test_without_a_network_the_error_says_which_file_to_bring_where(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/a.bin"
    publish(monkeypatch, address)
    message = refusal(tmp_path)
    assert message.startswith(f"{address}: cannot be reached (")
    assert f"bring a.bin ({address}) from elsewhere, put it in {tmp_path / 'downloads'}, and give the same" in message
    (tmp_path / "downloads" / "a.bin").write_bytes(CONTENT)  # brought
    fetch(tmp_path)
    (tmp_path / "downloads" / "a.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(UserError, match=r"a\.bin: its md5 is .* damaged or another one; delete it and fetch it again"):
        download("svhn", tmp_path, sets.silent)


def test_all_missing_files_are_named(tmp_path, monkeypatch):
    files = tuple(
        dataclasses.replace(file, addresses=("http://127.0.0.1:1/" + file.name,)) for file in sets.SVHN.downloads
    )
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setitem(sets.KNOWN, "svhn", dataclasses.replace(sets.SVHN, downloads=files))
    assert "bring train_32x32.mat and test_32x32.mat (http://127.0.0.1:1/train_32x32.mat, " in refusal(tmp_path)


def test_a_full_disk_is_not_taken_for_a_failing_network(tmp_path, server):
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "a.bin.part").symlink_to("/dev/full")
    assert "a.bin.part: No space left on device" in refusal(tmp_path)


def test_an_unknown_name_is_refused(tmp_path):
    with pytest.raises(UserError, match="'mnist' cannot be downloaded; svhn, cifar10, cinic10 can"):
        download("mnist", tmp_path, sets.silent)
