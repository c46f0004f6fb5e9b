"""What is kept: found again, shared, verified, and never half of it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedawe.core.describe import first_difference
from fedawe.core.errors import UserError
from fedawe.core.rng import rng
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings
from fedawe.tasks.data import Data, add, cache, default_folder, load

ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def npz(path, seed=0, **changes):
    draw = rng(seed, "npz")
    arrays = {
        "x_train": draw.integers(256, size=(50, 6, 5, 2)).astype(np.uint8),
        "y_train": np.arange(50) % 4,
        "x_test": draw.integers(256, size=(7, 6, 5, 2)).astype(np.uint8),
        "y_test": np.arange(7, dtype=np.uint8) % 3,
    } | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return arrays


def same(found, arrays):
    return all(np.array_equal(getattr(found, key), arrays[key]) for key in ARRAYS)


def test_a_set_is_kept_and_mapped_read_only(tmp_path):
    arrays = npz(tmp_path / "own.npz")
    entry = add("own", tmp_path / "own.npz", tmp_path / "cache")
    assert entry.counts == {"train": (13, 13, 12, 12), "test": (3, 2, 2, 0)}
    found = load("own", tmp_path / "cache")
    assert isinstance(found, Data)
    assert same(found, arrays)
    assert found.classes == 4
    for array in cache.mapped(tmp_path / "cache", entry).values():
        assert isinstance(array, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    assert (found.x_train.dtype, found.y_train.dtype, found.y_test.dtype) == (torch.uint8, torch.int64, torch.int64)
    assert repr(found) == "Data(own: 50 to train, 7 to test; samples of [2, 6, 5], 4 classes)"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the list of mapped files that Linux keeps")
def test_what_is_loaded_is_the_file_itself(tmp_path):
    npz(tmp_path / "own.npz")
    entry = add("own", tmp_path / "own.npz", tmp_path / "cache")
    found = load("own", tmp_path / "cache")
    begin, name = found.x_train.data_ptr(), str(tmp_path / "cache" / entry.folder / "x_train.npy")
    spans = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    places = [tuple(int(end, 16) for end in span[0].split("-")) for span in spans if name in span]
    assert any(low <= begin < high for low, high in places)


def test_clients_and_validation_images_are_kept_too(tmp_path):
    owners = np.array([f"phone {n % 3}" for n in range(50)])
    more = {"client": owners, "x_val": np.full((4, 6, 5, 2), 9, np.uint8), "y_val": np.array([0, 1, 2, 3])}
    arrays = npz(tmp_path / "own.npz", **more)
    entry = add("own", tmp_path / "own.npz", tmp_path / "cache")
    assert entry.counts == {"train": (13, 13, 12, 12), "test": (3, 2, 2, 0)}
    found = load("own", tmp_path / "cache")
    assert same(found, arrays)
    assert found.client.tolist() == owners.tolist()
    assert np.array_equal(found.x_val, more["x_val"])
    assert np.array_equal(found.y_val, more["y_val"])
    cache.verify(tmp_path / "cache", cache.entry(tmp_path / "cache", "own"), lambda *_: None)
    assert repr(found).endswith("50 to train, 4 to validate, 7 to test; samples of [2, 6, 5], 4 classes, 3 clients)")


def test_mean_and_std_are_those_of_the_training_images(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "CHUNK", 7)  # several pieces, the last one short
    arrays = npz(tmp_path / "own.npz")
    add("own", tmp_path / "own.npz", tmp_path / "cache")
    found = load("own", tmp_path / "cache")
    assert same(found, arrays)
    scaled = arrays["x_train"].reshape(-1, 2) / 255
    np.testing.assert_allclose(found.mean, scaled.mean(0), rtol=1e-13)
    np.testing.assert_allclose(found.std, scaled.std(0), rtol=1e-13)


def test_a_constant_channel_can_be_divided_by_its_deviation():
    assert cache.statistics(np.full((3, 9, 9, 1), 77, dtype=np.uint8)) == ((77 / 255,), (1.0,))


def test_grey_images_get_a_channel(tmp_path):
    arrays = npz(tmp_path / "g.npz", x_train=np.ones((50, 6, 5), np.uint8), x_test=np.ones((7, 6, 5), np.uint8))
    add("g", tmp_path / "g.npz", tmp_path / "cache")
    assert np.array_equal(load("g", tmp_path / "cache").x_train[..., 0], arrays["x_train"])


WRONG = {
    "lacks y_test; it has x_test, x_train, y_train": {"y_test": None},
    "x_train must be images, uint8 [N, H, W] or [N, H, W, C], not float64 of shape [50, 6]": {
        "x_train": np.ones((50, 6))
    },
    "x_test must be images": {"x_test": np.ones((0, 6, 5, 2), np.uint8)},
    "samples of x_train have the shape [6, 5, 2], those of x_test [6, 5]": {"x_test": np.ones((7, 6, 5), np.uint8)},
    "y_train must have one label for each of 50 samples, not shape [49]": {"y_train": np.arange(49)},
    "y_test must be class numbers from 0, not float64": {"y_test": np.ones(7)},
    "y_train must be class numbers from 0, not int64 from -1": {"y_train": np.arange(50) % 11 - 1},
    "y_test has class 6, which y_train does not have": {"y_test": np.arange(7)},
    "has 'labels'; expected no arrays but x_train, y_train, x_test, y_test, x_val, y_val, client": {
        "labels": np.arange(7)
    },
    "Object arrays cannot be loaded": {"y_test": np.array([{}] * 7)},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_npz(tmp_path, message):
    npz(tmp_path / "own.npz", **WRONG[message])
    with pytest.raises(UserError) as error:
        add("own", tmp_path / "own.npz", tmp_path / "cache")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not [path for path in (tmp_path / "cache").iterdir() if not path.name.startswith(".")]


def test_a_damaged_npz_is_refused(tmp_path):
    right = npz(tmp_path / "own.npz")
    whole, draw, refused = (tmp_path / "own.npz").read_bytes(), rng(0, "damage"), 0
    for n in draw.integers(len(whole), size=60):
        flipped = whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :]
        for content in (whole[:n], flipped):
            (tmp_path / "own.npz").write_bytes(content)
            try:
                add("own", tmp_path / "own.npz", tmp_path / "cache")
            except UserError as error:
                assert "\n" not in str(error)  # noqa: PT017
                refused += 1
            else:
                assert content is flipped
                assert same(load("own", tmp_path / "cache"), right)
    assert refused >= 110


def test_known_names_are_held_to_what_is_known(tmp_path):
    npz(tmp_path / "svhn.npz")
    with pytest.raises(UserError, match=r"images of x_train have the shape \[6, 5, 2\]; expected \[32, 32, 3\]"):
        add("svhn", tmp_path / "svhn.npz", tmp_path / "cache")
    images = np.zeros((50, 32, 32, 3), np.uint8)
    npz(tmp_path / "svhn.npz", x_train=images, x_test=images[:7])
    with pytest.raises(UserError, match="50 train images; svhn has 73,257"):
        add("svhn", tmp_path / "svhn.npz", tmp_path / "cache")


def test_names_and_paths_that_cannot_be(tmp_path):
    npz(tmp_path / "own.npz")
    for name in ("", "../up", "a/b", "A", ".hidden", "a.b", "x" * 100, "a\n"):
        with pytest.raises(UserError, match="cannot be called"):
            add(name, tmp_path / "own.npz", tmp_path / "cache")
        with pytest.raises(UserError, match="cannot be called"):
            load(name, tmp_path / "cache")
    with pytest.raises(
        UserError, match=r"expected an \.npz for 'mine'; other files are read for svhn, cifar10, cinic10"
    ):
        add("mine", tmp_path, tmp_path / "cache")
    with pytest.raises(UserError, match="no such file"):
        add("mine", tmp_path / "nowhere.npz", tmp_path / "cache")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the folder"):
        add("mine", tmp_path / "own.npz", tmp_path / "file")


def test_what_is_not_there_is_said_with_what_to_do(tmp_path):
    with pytest.raises(UserError, match=r"download it \(fedawe data download svhn\) or add it .* there: nothing"):
        load("svhn", tmp_path)
    npz(tmp_path / "own.npz")
    add("own", tmp_path / "own.npz", tmp_path)
    with pytest.raises(UserError, match=r"the data set other is not in .*; add it .* there: own"):
        load("other", tmp_path)


# Damage to what is kept


def damage(folder, key, change):
    entry = cache.entry(folder, "own")
    path = folder / entry.folder / f"{key}.npy"
    path.write_bytes(change(path.read_bytes()))
    return entry


def test_check_finds_a_changed_number(tmp_path):
    npz(tmp_path / "own.npz")
    add("own", tmp_path / "own.npz", tmp_path)
    entry = cache.entry(tmp_path, "own")
    cache.verify(tmp_path, entry, lambda *_: None)
    for key in ARRAYS:
        damage(tmp_path, key, lambda content: content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(UserError, match=rf"{key}\.npy: its sha256 should be .* add it again \(fedawe data add own"):
            cache.verify(tmp_path, entry, lambda *_: None)
        damage(tmp_path, key, lambda content: content[:-1] + bytes([content[-1] ^ 1]))
    cache.verify(tmp_path, entry, lambda *_: None)


def test_load_refuses_arrays_that_are_not_as_described(tmp_path):
    arrays = npz(tmp_path / "own.npz")
    for change in (
        lambda content: content[:-1],
        lambda content: b"",
        lambda content: content.replace(b"(50, 6, 5, 2)", b"(25,12, 5, 2)"),
        lambda content: content.replace(b"|u1", b"|i1"),
        lambda content: content.replace(b"|u1", b"|O "),
    ):
        add("own", tmp_path / "own.npz", tmp_path)
        damage(tmp_path, "x_train", change)
        with pytest.raises(UserError, match=r"x_train\.npy: .*the data set is damaged: add it again"):
            load("own", tmp_path)
    add("own", tmp_path / "own.npz", tmp_path)
    assert same(load("own", tmp_path), arrays)


def test_a_description_that_is_not_ours_is_refused(tmp_path):
    npz(tmp_path / "own.npz")
    add("own", tmp_path / "own.npz", tmp_path)
    path = tmp_path / "own.json"
    right = json.loads(path.read_text())
    wrong = [
        "",
        "{",
        "[]",
        "{}",
        json.dumps(right | {"more": 1}),
        json.dumps(right | {"arrays": {}}),
        json.dumps(right | {"name": "other"}),
        json.dumps(right | {"folder": ".."}),
        json.dumps(right | {"folder": "../own.12345678"}),
    ]
    for text in wrong:
        path.write_text(text)
        with pytest.raises(UserError, match=r"own\.json: .*the data set is damaged: add it again"):
            load("own", tmp_path)
    add("own", tmp_path / "own.npz", tmp_path)
    load("own", tmp_path)


# The old set or the new one


def test_a_failure_leaves_the_old_set(tmp_path, monkeypatch):
    old = npz(tmp_path / "own.npz")
    add("own", tmp_path / "own.npz", tmp_path / "cache")
    new = npz(tmp_path / "own.npz", seed=1)
    before = sorted((tmp_path / "cache").rglob("*"))

    def full(*arguments):
        raise OSError(28, "No space left on device")

    for module, name in ((os, "fsync"), (np.lib.format, "write_array_header_1_0"), (Path, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, full)
            with pytest.raises(UserError, match="No space left on device"):
                add("own", tmp_path / "own.npz", tmp_path / "cache")
        assert same(load("own", tmp_path / "cache"), old)
        assert sorted((tmp_path / "cache").rglob("*")) == before

    def stop(what, done, total):
        if what == "writing test images":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add("own", tmp_path / "own.npz", tmp_path / "cache", stop)
    assert same(load("own", tmp_path / "cache"), old)
    assert sorted((tmp_path / "cache").rglob("*")) == before

    mapped = load("own", tmp_path / "cache")
    add("own", tmp_path / "own.npz", tmp_path / "cache")
    assert same(load("own", tmp_path / "cache"), new)
    assert same(mapped, old)  # who is using the old one goes on doing so
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 1


def test_a_killed_process_leaves_the_old_set_and_no_rubbish_for_long(tmp_path):
    old = npz(tmp_path / "own.npz")
    add("own", tmp_path / "own.npz", tmp_path / "cache")
    new = npz(tmp_path / "own.npz", seed=1)
    script = (
        "import os, sys; from pathlib import Path; from fedawe.tasks.data import add\n"
        "def die(what, done, total):\n"
        "    if what == 'writing test labels': os._exit(9)\n"
        "add('own', sys.argv[1], Path(sys.argv[2]), die)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "own.npz"), str(tmp_path / "cache")]
    assert subprocess.run(command, check=False).returncode == 9
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 2
    assert same(load("own", tmp_path / "cache"), old)
    add("other", tmp_path / "own.npz", tmp_path / "cache")
    add("own", tmp_path / "own.npz", tmp_path / "cache")
    assert same(load("own", tmp_path / "cache"), new)
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 2  # own and other
    assert cache.names(tmp_path / "cache") == ["other", "own"]


def test_a_set_replaced_between_two_glances_is_found(tmp_path, monkeypatch):
    npz(tmp_path / "own.npz")
    add("own", tmp_path / "own.npz", tmp_path / "cache")
    stale = cache.entry(tmp_path / "cache", "own")
    new = npz(tmp_path / "own.npz", seed=1)
    add("own", tmp_path / "own.npz", tmp_path / "cache")
    answers = [stale, cache.entry(tmp_path / "cache", "own")]
    monkeypatch.setattr(cache, "entry", lambda *_: answers.pop(0))
    assert same(load("own", tmp_path / "cache"), new)


# Where


def test_the_folder_is_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDAWE_DATA", str(tmp_path / "named"))
    assert default_folder() == tmp_path / "named"
    npz(tmp_path / "own.npz")
    add("own", tmp_path / "own.npz")
    assert load("own").name == "own"
    assert (tmp_path / "named" / "own.json").is_file()
    monkeypatch.setenv("FEDAWE_DATA", "~/here")
    assert default_folder() == Path.home() / "here"
    monkeypatch.delenv("FEDAWE_DATA")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "xdg" / "fedawe"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "fedawe"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_folder() == tmp_path / "Library" / "Caches" / "fedawe"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert default_folder() == tmp_path / "local" / "fedawe" / "Cache"


def test_a_set_that_was_replaced_is_another_task(tmp_path):
    def run():
        settings = Settings(task="own", model="softmax", clients=2, alpha=10.0, rounds=1, data=tmp_path / "cache")
        experiment_of(settings, ["fedavg"], (0,)).run(tmp_path / "out")

    def add_seed(seed):
        npz(tmp_path / "own.npz", seed)
        add("own", tmp_path / "own.npz", tmp_path / "cache")

    add_seed(0)
    run()
    add_seed(0)  # the same once more
    run()
    add_seed(1)
    with pytest.raises(UserError, match="holds an experiment with other content of task; choose another --out"):
        run()
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(UserError, match="unknown task 'own'"):
        run()


def test_a_folder_that_does_not_say_which_set_it_was_made_from_is_accepted():
    before = {"class": "fedawe.tasks.named:NamedTask", "name": "svhn"}
    assert first_difference(before, {**before, "sha256": "0"}) is None
    assert first_difference({**before, "sha256": "1"}, {**before, "sha256": "0"}) is not None


def test_an_experiment_on_a_set_that_is_not_there_says_how_to_add_it(tmp_path):
    with pytest.raises(UserError, match="fedawe data"):
        experiment_of(Settings(task="svhn", data=tmp_path), ["fedavg"], (0,)).run(tmp_path / "out")
