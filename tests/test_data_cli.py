"""The verbs of `fedawe data`, and what their page says."""

import dataclasses
import functools
import http.server
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import tyro

from fedawe.cli.data import DataAddCommand, DataCheckCommand, DataDownloadCommand, DataListCommand
from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.tasks.data import cache, load, sets

PAGE = (Path(__file__).parent.parent / "docs" / "data.md").read_text(encoding="utf-8")


def fedawe_data(verb, *arguments):
    tyro.cli(verb, args=[str(argument) for argument in arguments]).run()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDAWE_DATA", str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def own(tmp_path):
    x = rng(0, "own").integers(256, size=(6, 4, 4, 1)).astype(np.uint8)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=np.arange(6) % 3, x_test=x[:2], y_test=np.array([0, 2]))
    return tmp_path / "own.npz"


@pytest.fixture
def svhn(tmp_path, monkeypatch):
    """Two images to train and one to test of each digit, published as a folder says."""
    (tmp_path / "svhn").mkdir()
    files = []
    for part, each in (("train", 2), ("test", 1)):
        arrays = {"X": np.zeros((32, 32, 3, 10 * each), np.uint8), "y": np.repeat(np.arange(1, 11), each)[:, None]}
        path = tmp_path / "svhn" / f"{part}_32x32.mat"
        scipy.io.savemat(path, arrays)
        files.append(sets.File(path.name, sets.digest(path, "md5"), path.stat().st_size, ("http://127.0.0.1:1/x",)))
    known = dataclasses.replace(sets.SVHN, train=(2,) * 10, test=(1,) * 10, downloads=tuple(files))
    monkeypatch.setitem(sets.KNOWN, "svhn", known)
    return tmp_path / "svhn"


def test_add_prints_class_counts(folder, own, capsys):
    fedawe_data(DataAddCommand, "own", own)
    kept = cache.entry(folder, "own").folder
    assert capsys.readouterr() == (
        f"class  train  test\n"
        f"0          2     1\n"
        f"1          2     0\n"
        f"2          2     1\n"
        f"all        6     2\n"
        f"own: images of 4 x 4 x 1, kept in {folder / kept}\n",
        "",
    )


@pytest.mark.parametrize("name", ["digits", "chars", "quadratic", "synthetic"])
def test_the_name_of_a_bundled_task_is_refused(folder, own, name):
    with pytest.raises(UserError, match=f"^{name} is the name of a task that .* than digits, chars, quadratic, synth"):
        fedawe_data(DataAddCommand, name, own)
    assert not folder.exists()


def test_add_says_whether_files_are_the_published_ones(folder, svhn, capsys):
    fedawe_data(DataAddCommand, "svhn", svhn)
    assert "published" not in capsys.readouterr().out
    arrays = scipy.io.loadmat(svhn / "test_32x32.mat", variable_names=["X", "y"])
    anew = {name: arrays[name] for name in ("X", "y")}
    scipy.io.savemat(svhn / "test_32x32.mat", anew, do_compression=True)
    fedawe_data(DataAddCommand, "svhn", svhn)
    out = capsys.readouterr().out
    assert "counts, shapes and labels are right, but the files may differ from the published ones" in out
    assert re.search(r"^9 +2 +1$", out, re.MULTILINE)


def test_add_keeps_where_it_is_told(folder, own, tmp_path):
    fedawe_data(DataAddCommand, "own", own, "--data", tmp_path / "elsewhere")
    assert load("own", tmp_path / "elsewhere").classes == 3
    assert not folder.exists()


def test_list(folder, own, svhn, capsys):
    fedawe_data(DataListCommand)
    assert f"svhn          -     -  -      -        not here: fedawe data download svhn\nin {folder}\n" in (
        capsys.readouterr().out
    )
    assert not folder.exists()  # looking changes nothing
    fedawe_data(DataAddCommand, "own", own)
    fedawe_data(DataAddCommand, "svhn", svhn)
    (folder / "broken.json").write_text("{")
    capsys.readouterr()
    fedawe_data(DataListCommand)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "data set  train  test  image        classes  made from"
    assert lines[1] == "broken        -     -  -            -        damaged: fedawe data add broken PATH"
    assert lines[4] == "own           6     2  4 x 4 x 1    3        own.npz"
    assert lines[5] == "svhn         20    10  32 x 32 x 3  10       train_32x32.mat, test_32x32.mat (as published)"


def test_check(folder, own, svhn, capsys):
    fedawe_data(DataCheckCommand)
    assert capsys.readouterr().out == f"no data sets in {folder}\n"
    fedawe_data(DataAddCommand, "own", own)
    fedawe_data(DataAddCommand, "svhn", svhn)
    capsys.readouterr()
    fedawe_data(DataCheckCommand)
    assert capsys.readouterr().out == "own: as it was stored\nsvhn: as it was stored\n"
    path = folder / cache.entry(folder, "own").folder / "y_test.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(UserError, match=r"y_test\.npy: its sha256 should be"):
        fedawe_data(DataCheckCommand)
    assert capsys.readouterr().out == "svhn: as it was stored\n"
    fedawe_data(DataCheckCommand, "svhn")
    with pytest.raises(UserError, match="there is no data set cinic10 in"):
        fedawe_data(DataCheckCommand, "cinic10")


def test_download_takes_files_that_were_brought_and_adds_them(folder, svhn, capsys, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(UserError, match=r"bring train_32x32\.mat and test_32x32\.mat .* put it in"):
        fedawe_data(DataDownloadCommand, "svhn")
    for path in svhn.iterdir():
        path.rename(folder / "downloads" / path.name)
    fedawe_data(DataDownloadCommand, "svhn")
    assert re.search(r"^all +20 +10$", capsys.readouterr().out, re.MULTILINE)
    assert len(load("svhn").x_train) == 20
    fedawe_data(DataDownloadCommand, "svhn")
    assert capsys.readouterr().out == (
        f"svhn is in {folder} already, as published; fedawe data check svhn verifies it\n"
    )
    with pytest.raises(UserError, match="'mine' cannot be downloaded"):
        fedawe_data(DataDownloadCommand, "mine")


def test_download_from_a_mirror(folder, svhn, capsys, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=svhn)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            fedawe_data(DataDownloadCommand, "svhn", "--mirror", f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
    assert cache.entry(folder, "svhn").published
    files = [str(folder / "downloads" / name) for name in ("train_32x32.mat", "test_32x32.mat")]
    assert capsys.readouterr().out.endswith(f"no longer needed: {', '.join(files)}\n")


def test_a_bar_is_shown_to_a_terminal_alone(folder, own, capsys, monkeypatch):
    fedawe_data(DataAddCommand, "own", own)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fedawe_data(DataAddCommand, "own", own)
    assert "writing train images" in capsys.readouterr().err


def test_the_page_says_what_is_known():
    for known in sets.KNOWN.values():
        assert f"| {sum(known.train):,} / {sum(known.test):,} |" in PAGE
        for file in known.downloads:
            assert f"| `{file.name}` | {file.size:,} | `{file.md5}` | " in PAGE
            assert all(f"<{address}>" in PAGE for address in file.addresses)


def test_the_commands_of_the_page_are_understood():
    verbs = {"add": DataAddCommand, "list": DataListCommand, "check": DataCheckCommand, "download": DataDownloadCommand}
    commands = re.findall(r"^fedawe data (\w+)(.*?)(?: +#.*)?$", PAGE, re.MULTILINE)
    assert {verb for verb, _ in commands} == set(verbs)
    for verb, arguments in commands:
        tyro.cli(verbs[verb], args=arguments.split())
