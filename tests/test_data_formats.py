"""The published formats, read from small files made here; and what a hostile or damaged file can do: nothing."""

import dataclasses
import gzip
import io
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.tasks.data import cifar10, cinic10, sets, svhn
from fedawe.tasks.data import images as data

TRAIN, TEST = (2, 1, 3, 1, 1, 1, 1, 1, 2, 2), (1,) * 10


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    for known in (sets.SVHN, sets.CIFAR10, sets.CINIC10):
        monkeypatch.setitem(sets.KNOWN, known.name, dataclasses.replace(known, train=TRAIN, test=TEST))


def made_up(part):
    """Labels in no particular order, and an image for each."""
    draw = rng(0, part)
    y = draw.permutation(np.repeat(np.arange(10), TRAIN if part == "train" else TEST))
    return draw.integers(256, size=(len(y), 32, 32, 3)).astype(np.uint8), y


def svhn_folder(folder, compressed=True, **changes):
    folder.mkdir(exist_ok=True)
    for part in ("train", "test"):
        x, y = made_up(part)
        arrays = {"X": x.transpose(1, 2, 3, 0), "y": np.where(y == 0, 10, y).astype(np.uint8)[:, None]}
        arrays |= changes if part == "train" else {}
        scipy.io.savemat(folder / f"{part}_32x32.mat", arrays, do_compression=compressed)
    return folder


def batches():
    """The six batches as (name, rows, labels); the five of the training images are not of one size."""
    x, y = made_up("train")
    rows = x.transpose(0, 3, 1, 2).reshape(-1, 3072)
    cuts = [0, 3, 6, 9, 12, len(y)]
    for n in range(5):
        yield f"data_batch_{n + 1}", rows[cuts[n] : cuts[n + 1]], y[cuts[n] : cuts[n + 1]].tolist()
    x, y = made_up("test")
    yield "test_batch", x.transpose(0, 3, 1, 2).reshape(-1, 3072), y.tolist()


def as_python_2(rows, labels):
    """The opcodes of the published files: Python 2's protocol 2, in which texts are bytes."""

    def text(word):
        return b"U" + bytes([len(word)]) + word

    content = rows.tobytes()
    return b"".join(
        [
            b"\x80\x02}(",
            text(b"batch_label") + text(b"training batch 1 of 5"),
            text(b"labels") + b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e",
            text(b"data") + b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R",
            b"(K\x01M" + struct.pack("<H", len(rows)) + b"M\x00\x0c\x86cnumpy\ndtype\n" + text(b"u1"),
            b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T" + struct.pack("<I", len(content)) + content + b"tb",
            text(b"filenames") + b"](" + text(b"leptodactylus_pentadactylus_s_000004.png") + b"e",
            b"u.",
        ]
    )


def as_python_3(rows, labels):
    return pickle.dumps({b"labels": labels, b"data": rows, b"filenames": [b"a.png"]}, 2)


def as_fortran(rows, labels):
    return pickle.dumps({"labels": labels, "data": np.asfortranarray(rows)}, 4)


def cifar_archive(path, write=as_python_2, replace=None, extra=()):
    """The batches, last first as archives may have them; `replace` gives the bytes of some, None leaves one out."""
    contents = {name: write(rows, labels) for name, rows, labels in batches()} | (replace or {})
    with tarfile.open(path, "w:gz") as tar:
        for member in extra:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
        for name, content in reversed(contents.items()):
            if content is not None:
                member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return path


def cinic_files():
    """The PNGs by path; named so that sorting by name does not put them into the order they come in."""
    for part in ("train", "test"):
        x, y = made_up(part)
        for n, (image, label) in enumerate(zip(x, y, strict=True)):
            yield f"{part}/{sets.THINGS[label]}/n{99 - n}.png", png(Image.fromarray(image))
    yield "valid/cat/n1.png", b"not read"
    yield "train/cat/._n1.png", b"not read"
    yield "README.md", b"not read"


def png(image):
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


def cinic_folder(folder, **changes):
    for name, content in (dict(cinic_files()) | changes).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def cinic_archive(path, prefix="./"):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in cinic_files():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def kept(name, source, folder):
    data.add(name, source, folder)
    return data.load(name, folder)


def in_order(found):
    for part in ("train", "test"):
        x, y = made_up(part)
        assert np.array_equal(getattr(found, f"x_{part}"), x)
        assert np.array_equal(getattr(found, f"y_{part}"), y)


# What is published is read


@pytest.mark.parametrize("compressed", [True, False])
def test_svhn_is_read(tmp_path, compressed):
    folder = svhn_folder(tmp_path / "svhn", compressed)
    in_order(kept("svhn", folder, tmp_path / "cache"))
    found = kept("svhn", folder / "train_32x32.mat", tmp_path / "cache")
    in_order(found)
    assert found.mean == (0.4376821, 0.4437697, 0.47280442)
    assert found.std == (0.19803012, 0.20101562, 0.19703614)
    assert found.classes == 10


@pytest.mark.parametrize("write", [as_python_2, as_python_3, as_fortran])
def test_cifar10_is_read_from_archive_and_folder(tmp_path, write):
    in_order(kept("cifar10", cifar_archive(tmp_path / "c.tar.gz", write), tmp_path / "cache"))
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name, rows, labels in batches():
        (folder / name).write_bytes(write(rows, labels))
    in_order(kept("cifar10", folder, tmp_path / "cache"))
    in_order(kept("cifar10", tmp_path, tmp_path / "cache"))


def test_cinic10_is_read_by_class_and_name_from_archive_and_folder(tmp_path):
    sources = [
        cinic_archive(tmp_path / "a.tar.gz"),
        cinic_archive(tmp_path / "b.tar.gz", "CINIC-10/"),
        cinic_folder(tmp_path / "c"),
        cinic_folder(tmp_path / "d" / "CINIC-10").parent,
    ]
    for source in sources:
        found = kept("cinic10", source, tmp_path / "cache")
        for part in ("train", "test"):
            x, y = made_up(part)
            order = sorted(range(len(y)), key=lambda n, y=y: (y[n], f"n{99 - n}.png"))
            assert np.array_equal(getattr(found, f"x_{part}"), x[order])
            assert np.array_equal(getattr(found, f"y_{part}"), y[order])


def test_grey_pngs_become_colours(tmp_path):
    grey = np.arange(1024, dtype=np.int64).reshape(32, 32).astype(np.uint8)
    assert np.array_equal(cinic10.decode(png(Image.fromarray(grey)), "x"), np.repeat(grey[..., None], 3, 2))


def test_what_is_known_of_the_sets_adds_up():
    assert [sum(sets.SVHN.train), sum(sets.SVHN.test)] == [73_257, 26_032]
    assert [sum(sets.CIFAR10.train), sum(sets.CIFAR10.test)] == [50_000, 10_000]
    assert [sum(sets.CINIC10.train), sum(sets.CINIC10.test)] == [90_000, 90_000]


# No code runs, and nothing is written outside the cache


class Runs:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def hostile(marker):
    import os
    import subprocess

    yield pickle.dumps(Runs(os.system, f"touch {marker}"), 2)
    yield pickle.dumps({b"data": Runs(eval, f"open({str(marker)!r}, 'w')"), b"labels": [0]}, 2)
    yield pickle.dumps(Runs(subprocess.check_call, ["touch", str(marker)]), 4)
    yield pickle.dumps(Runs(open, str(marker), "w"), 2)
    yield f"cnumpy.core.multiarray\nos.system\n(S'touch {marker}'\ntR.".encode()
    yield b"\x80\x04\x8c\x05numpy\x8c\x14ndarray.tofile.__new\x93."
    yield f"cnumpy\nfromfile\n(S'{marker}'\ntR.".encode()
    yield b"c_codecs\ndecode\n(S'x'\nS'rot13'\ntR."
    yield b"c_codecs\nencode\n(I5\nS'zip'\ntR."
    yield b"\x82\x01."  # the extension registry
    yield b"\x80\x02Px\n."  # a persistent id


def test_a_malicious_pickle_executes_nothing(tmp_path):
    marker = tmp_path / "executed"
    for content in hostile(marker):
        with pytest.raises(UserError) as error:
            data.add(
                "cifar10", cifar_archive(tmp_path / "c.tar.gz", replace={"data_batch_1": content}), tmp_path / "cache"
            )
        assert "data_batch_1" in str(error.value)
        assert "\n" not in str(error.value)
        assert not marker.exists()
    # The first of them is a program indeed.
    pickle.loads(next(hostile(marker)))
    assert marker.exists()


def test_a_pickle_cannot_change_the_reader(tmp_path):
    """BUILD sets attributes of whatever is on the stack, also of what the names stand for."""
    for name in (b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"c_codecs\nencode\n"):
        pollution = b"\x80\x02" + name + b"N}U\x0c__defaults__K\x05\x85s\x86b."
        with pytest.raises(UserError):
            cifar10.parse(pollution, "x")
    in_order(kept("cifar10", cifar_archive(tmp_path / "c.tar.gz"), tmp_path / "cache"))


def linked(name, kind, target):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def sized(name, size):
    member = tarfile.TarInfo(name)
    member.size = size
    return member


def test_an_archive_writes_nothing(tmp_path):
    inside = tmp_path / "deep" / "inside"
    inside.mkdir(parents=True)
    extra = [
        sized("../../escaped", 5),
        sized(str(tmp_path / "absolute"), 5),
        linked("link", tarfile.SYMTYPE, str(tmp_path)),
        sized("link/through", 5),
        linked("data_batch_1", tarfile.SYMTYPE, "/etc/hostname"),
        linked("data_batch_2", tarfile.LNKTYPE, "../../escaped"),
    ]
    archive = cifar_archive(inside / "c.tar.gz", extra=extra)
    before = set(tmp_path.rglob("*"))
    in_order(kept("cifar10", archive, inside / "cache"))
    assert {path for path in tmp_path.rglob("*") if inside / "cache" not in (path, *path.parents)} == before


def test_an_archive_cannot_write_to_the_terminal_either(tmp_path):
    archive = cifar_archive(tmp_path / "c.tar.gz", extra=[sized("\x1b[2J/data_batch_1", 20)])
    assert "unprintable name '\\x1b[2J/data_batch_1'" in refusal("cifar10", archive, tmp_path / "cache")
    content = b"c\x1b[2J\nsystem\n)R."
    archive = cifar_archive(tmp_path / "c.tar.gz", replace={"data_batch_1": content})
    assert "asks for '\\x1b[2J.system'" in refusal("cifar10", archive, tmp_path / "cache")


def test_a_huge_member_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "LARGEST", 10_000)
    archive = cifar_archive(tmp_path / "c.tar.gz", extra=[sized("data_batch_1", 20_000)])
    assert "data_batch_1 has 20,000 bytes; expected at most 10,000" in refusal("cifar10", archive, tmp_path / "cache")


# What is wrong is said in one line


def refusal(name, source, folder):
    with pytest.raises(UserError) as error:
        data.add(name, source, folder)
    message = str(error.value)
    assert "\n" not in message
    assert data.cache.names(folder) == []
    assert not [path for path in folder.glob("*") if path.is_dir()]
    return message


def test_wrong_svhn(tmp_path):
    x, y = made_up("train")
    cache = tmp_path / "cache"
    ten = np.where(y == 0, 10, y).astype(np.uint8)[:, None]

    def said(**changes):
        return refusal("svhn", svhn_folder(tmp_path / "svhn", **changes), cache)

    assert "X, uint8 of shape [32, 32, 3, N], not uint8 of shape [15, 32, 32, 3]" in said(X=x)
    assert "not double of shape" in said(X=x.transpose(1, 2, 3, 0) / 255)
    assert "14 train images; svhn has 15" in said(X=x.transpose(1, 2, 3, 0)[..., 1:], y=ten[1:])
    assert "one label for each of 15 images, not uint8 of shape [14, 1]" in said(y=ten[1:])
    assert "labels 1 to 10, where 10 is the digit 0" in said(y=y.astype(np.uint8)[:, None])
    assert "labels 1 to 10" in said(y=ten + 0.5)
    assert "labels 1 to 10" in said(y=np.array([["a"]] * 15))
    assert "3 train images are labelled 0; svhn has 2: the labels are wrong" in said(y=np.where(ten == 1, 10, ten))
    scipy.io.savemat(tmp_path / "svhn" / "test_32x32.mat", {"Z": ten})
    assert "nothing of that name" in refusal("svhn", svhn_and(tmp_path, "test_32x32.mat", {"Z": ten}), cache)
    (tmp_path / "svhn" / "test_32x32.mat").unlink()
    assert "lacks test_32x32.mat; SVHN is train_32x32.mat and test_32x32.mat" in refusal(
        "svhn", tmp_path / "svhn", cache
    )
    assert "no such file" in refusal("svhn", tmp_path / "nowhere", cache)


def svhn_and(tmp_path, name, arrays):
    folder = svhn_folder(tmp_path / "svhn")
    scipy.io.savemat(folder / name, arrays)
    return folder


def test_wrong_cifar10(tmp_path):
    (_, rows, labels), *_ = batches()
    cache = tmp_path / "cache"

    def said(content):
        return refusal("cifar10", cifar_archive(tmp_path / "c.tar.gz", replace={"data_batch_1": content}), cache)

    assert "lacks data_batch_1; CIFAR-10 (python version) is" in said(None)
    assert "a dictionary with data and labels, not list" in said(pickle.dumps([1], 2))
    assert "expected labels" in said(pickle.dumps({b"data": rows}, 2))
    assert "class numbers 0 to 9; the labels are wrong" in said(as_python_3(rows, [10, *labels[1:]]))
    assert "class numbers 0 to 9" in said(as_python_3(rows, [True, *labels[1:]]))
    assert "2 labels for 3 images" in said(as_python_3(rows, labels[1:]))
    assert "13 train images; cifar10 has 15" in said(as_python_3(rows[2:], labels[2:]))
    assert "train images are labelled" in said(as_python_3(rows, [(n + 1) % 10 for n in labels]))
    assert "uint8 of shape [n, 3072]" in said(as_python_3(rows[:, 1:], labels))
    assert "uint8 of shape [n, 3072]" in said(as_python_3(rows.astype(np.int8), labels))
    assert "uint8 of shape [n, 3072]" in said(as_python_3(None, labels))
    short = as_python_2(rows, labels).replace(b"M\x03\x00", b"M\x04\x00")
    assert "uint8 of shape [n, 3072]" in said(short)
    (tmp_path / "empty").mkdir()
    assert "lacks data_batch_1, data_batch_2" in refusal("cifar10", tmp_path / "empty", cache)
    assert "no such file or folder" in refusal("cifar10", tmp_path / "nowhere", cache)
    (tmp_path / "page.tar.gz").write_bytes(b"<html>")
    assert "cannot be read" in refusal("cifar10", tmp_path / "page.tar.gz", cache)


def test_wrong_cinic10(tmp_path):
    cache, count = tmp_path / "cache", iter(range(100))

    def said(**changes):
        return refusal("cinic10", cinic_folder(tmp_path / str(next(count)), **changes), cache)

    small, jpeg = png(Image.new("RGB", (31, 32))), io.BytesIO()
    Image.new("RGB", (32, 32)).save(jpeg, "JPEG")
    assert "train/cat/n0.png: has 31 x 32 pixels; expected 32 x 32" in said(**{"train/cat/n0.png": small})
    assert "train/aeroplane is not one of the classes airplane" in said(**{"train/aeroplane/n0.png": small})
    assert "train/cat/n0.png: cannot be read" in said(**{"train/cat/n0.png": jpeg.getvalue()})
    assert "train/cat/n0.png: cannot be read" in said(**{"train/cat/n0.png": b""})
    right = png(Image.new("RGB", (32, 32)))
    assert "more than 10 test images" in said(**{"test/cat/n0.png": right})
    moved = cinic_folder(tmp_path / "moved")
    victim = next((moved / "test" / "dog").iterdir())
    victim.rename(moved / "test" / "cat" / "moved.png")
    assert "2 test images are labelled cat; cinic10 has 1" in refusal("cinic10", moved, cache)
    (moved / "test" / "cat" / "moved.png").unlink()
    assert "9 test images; cinic10 has 10" in refusal("cinic10", moved, cache)
    (tmp_path / "empty").mkdir()
    assert "lacks the folders train and test" in refusal("cinic10", tmp_path / "empty", cache)
    assert "no such file or folder" in refusal("cinic10", tmp_path / "nowhere", cache)


def damaged(content: bytes):
    """The file cut at many places, and with single bytes changed."""
    draw = rng(0, "damage")
    for n in sorted({0, 1, 130, *draw.integers(len(content), size=25).tolist(), len(content) - 1}):
        yield content[:n]
    for n in draw.integers(len(content), size=60):
        yield content[:n] + bytes([content[n] ^ (1 + int(draw.integers(255)))]) + content[n + 1 :]


@pytest.mark.parametrize("name", ["svhn", "svhn-plain", "cifar10", "cinic10"])
def test_a_damaged_file_is_refused_in_one_line_or_does_no_harm(tmp_path, name):
    if name.startswith("svhn"):
        source = svhn_folder(tmp_path / "svhn", compressed=name == "svhn")
        path: Path = source / "test_32x32.mat"
    else:
        source = path = (cifar_archive if name == "cifar10" else cinic_archive)(tmp_path / "x.tar.gz")
    plain, name, whole = name == "svhn-plain", name.removesuffix("-plain"), path.read_bytes()
    right = [np.array(array) for array in arrays(kept(name, source, tmp_path / "cache"))]
    refused = 0
    for content in damaged(whole):
        path.write_bytes(content)
        try:
            data.add(name, source, tmp_path / "cache")
        except UserError as error:
            assert "\n" not in str(error)  # noqa: PT017
            refused += 1
        else:  # bytes that do not matter; in a file without checksums also pixels
            found = arrays(data.load(name, tmp_path / "cache"))
            if len(content) < len(whole) or not plain:
                assert all(np.array_equal(a, b) for a, b in zip(found, right, strict=True))
    assert refused >= 25


def arrays(found):
    return [each.numpy() for each in (found.x_train, found.y_train, found.x_test, found.y_test)]


def test_every_byte_of_a_published_archive_counts(tmp_path):
    """Also those behind the last member, where the checksum of the whole is."""
    path = cifar_archive(tmp_path / "x.tar.gz")
    content = bytearray(gzip.compress(gzip.decompress(path.read_bytes())))
    content[-8] ^= 1  # crc32
    path.write_bytes(content)
    assert "CRC check failed" in refusal("cifar10", path, tmp_path / "cache")


def test_a_file_as_long_as_the_published_one_must_be_it(tmp_path, monkeypatch):
    folder = svhn_folder(tmp_path / "svhn")
    files = [folder / "train_32x32.mat", folder / "test_32x32.mat"]
    downloads = tuple(sets.File(f.name, sets.digest(f, "md5"), f.stat().st_size) for f in files)
    monkeypatch.setitem(sets.KNOWN, "svhn", dataclasses.replace(sets.KNOWN["svhn"], downloads=downloads))
    assert data.add("svhn", folder, tmp_path / "a").published
    wrong = (dataclasses.replace(downloads[0], md5="0" * 32), downloads[1])
    monkeypatch.setitem(sets.KNOWN, "svhn", dataclasses.replace(sets.KNOWN["svhn"], downloads=wrong))
    assert f"its md5 is {downloads[0].md5}, that of the published train_32x32.mat is 000" in refusal(
        "svhn", folder, tmp_path / "b"
    )
    longer = (dataclasses.replace(wrong[0], size=1), downloads[1])
    monkeypatch.setitem(sets.KNOWN, "svhn", dataclasses.replace(sets.KNOWN["svhn"], downloads=longer))
    assert not data.add("svhn", folder, tmp_path / "c").published


def test_a_version_7_3_file_is_refused(tmp_path):
    folder = svhn_folder(tmp_path / "svhn")
    header = b"MATLAB 7.3 MAT-file".ljust(124) + struct.pack("<H", 0x0200) + b"IM"
    (folder / "train_32x32.mat").write_bytes(header.ljust(1000, b"\0"))
    assert "cannot be read" in refusal("svhn", folder, tmp_path / "cache")


def test_svhn_reader_reports(tmp_path):
    said = []
    list(svhn.read(svhn.files(svhn_folder(tmp_path / "s")), sets.KNOWN["svhn"], lambda *a: said.append(a)))
    assert said[-1] == ("reading", 2, 2)
