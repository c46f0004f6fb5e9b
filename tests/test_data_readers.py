"""Every format gives the same data; what is damaged or out of proportion is refused in one line."""

import json
import zipfile
from pathlib import Path

import datasets
import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from fedawe.core import files
from fedawe.core.errors import UserError
from fedawe.tasks import Data, from_arrays, from_huggingface, from_leaf, from_npz, from_table, from_torch
from fedawe.tasks.data.text import ALPHABET, encode

DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(30, 4)), np.arange(30) % 3
OWNERS = np.array(["bob", "ann", "eve", "ann", "bob"])[np.arange(20) % 5]
IMAGES = DRAW.integers(256, size=(30, 5, 6, 3), dtype=np.uint8)
PARTS = {"train": slice(0, 20), "val": slice(20, 24), "test": slice(24, 30)}


def arrays(x=X, y=Y, val: bool = True, **more) -> dict[str, np.ndarray]:
    names = [part for part in PARTS if val or part != "val"]
    found = {f"{key}_{part}": each[PARTS[part]] for part in names for key, each in (("x", x), ("y", y))}
    return {**found, "client": OWNERS, **more}


def table(names: bool = False) -> pl.DataFrame:
    """The same as a table, its parts shuffled."""
    split = np.array(["train"] * 20 + ["val"] * 4 + ["test"] * 6)
    client = np.concatenate([OWNERS, ["nobody"] * 10])
    columns = {f"f{n}": X[:, n] for n in range(4)}
    label = np.array(["cat", "dog", "elk"])[Y] if names else Y
    return pl.DataFrame({"split": split, **columns, "client": client, "label": label})


def same(found: Data, expected: Data) -> None:
    for name in ("x_train", "y_train", "x_val", "y_val", "x_test", "y_test"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert ours.dtype == theirs.dtype
            assert torch.equal(ours, theirs)
    assert (found.client is None) == (expected.client is None)
    if found.client is not None:
        assert found.client.tolist() == expected.client.tolist()


def leaf(folder: Path, contents: dict[str, dict]) -> Path:
    for name, users in contents.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        sizes = [len(own["y"]) for own in users.values()]
        path.write_text(json.dumps({"users": list(users), "num_samples": sizes, "user_data": users}))
    return folder


class Pairs(torch.utils.data.Dataset):
    """As torchvision's: a length, and pairs."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, n):
        return self.x[n], int(self.y[n])


# One kind of data


def test_an_npz_is_what_its_arrays_are(tmp_path):
    np.savez(tmp_path / "mine.npz", **arrays())
    found = from_npz(tmp_path / "mine.npz")
    assert found.name == "mine"
    assert torch.equal(found.x_train, torch.from_numpy(X[:20]).float())
    assert torch.equal(found.x_val, torch.from_numpy(X[20:24]).float())
    assert found.y_test.tolist() == Y[24:].tolist()
    assert found.client.tolist() == OWNERS.tolist()
    same(found, from_arrays("mine", arrays()))


def test_bytes_stay_bytes_until_they_are_used():
    found = from_arrays("mine", arrays(IMAGES))
    assert found.x_train.dtype == torch.uint8
    assert found.x_train.numel() == IMAGES[:20].size
    assert list(found.shape) == [3, 5, 6]
    rows = torch.tensor([4, 0, 19])
    # As they were when they were converted at once, bit for bit.
    expected = torch.from_numpy(IMAGES[:20].astype(np.float32) / 255).permute(0, 3, 1, 2)[rows]
    assert torch.equal(found.inputs(found.x_train, rows), expected)
    margin = found.inputs(found.x_train, rows, margin=2)
    assert torch.equal(margin[:, :, 2:-2, 2:-2], expected)
    assert float(margin.sum()) == pytest.approx(float(expected.sum()))
    grey = from_arrays("grey", arrays(IMAGES[..., 0]))
    assert list(grey.shape) == [1, 5, 6]
    flat = from_arrays("flat", arrays(IMAGES.reshape(30, -1)))  # not images
    assert torch.equal(flat.x_train, torch.from_numpy(IMAGES[:20].reshape(20, -1).astype(np.float32) / 255))


@pytest.mark.parametrize("names", [False, True])
def test_tables(tmp_path, names):
    frame = table(names)
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    frame.write_csv(tmp_path / "mine.csv")
    frame.write_parquet(tmp_path / "mine.parquet")
    for source in (frame, tmp_path / "mine.csv", str(tmp_path / "mine.parquet")):
        same(from_table(source), from_arrays("mine", arrays()))
    other = from_table(shuffled)
    assert sorted(other.client.tolist()) == sorted(OWNERS.tolist())
    assert sorted(other.x_train[:, 0].tolist()) == sorted(torch.from_numpy(X[:20, 0]).float().tolist())
    same(
        from_table(frame.rename({"label": "y", "client": "who", "split": "use"}), label="y", client="who", split="use"),
        from_arrays("mine", arrays()),
    )


def test_a_table_without_a_split_keeps_one_in_five_for_the_test():
    first, second = (from_table(table().drop("split")) for _ in range(2))
    assert (len(first.y_train), len(first.y_test), first.y_val) == (24, 6, None)
    same(first, second)
    both = torch.cat([first.x_train, first.x_test])[:, 0]
    assert sorted(both.tolist()) == sorted(torch.from_numpy(X[:, 0]).float().tolist())


def test_leaf(tmp_path):
    def users(part: str, names: list[str]) -> dict:
        rows = np.arange(30)[PARTS[part]]
        return {u: {"x": X[rows][names == u].tolist(), "y": Y[rows][names == u].tolist()} for u in np.unique(names)}

    train, test = users("train", OWNERS), users("test", np.array(["ann"] * 6))
    halves = {"train/b": {"bob": train["bob"]}, "train/a": {k: v for k, v in train.items() if k != "bob"}}
    found = from_leaf(leaf(tmp_path / "set" / "data", {**halves, "test/all": test}).parent)
    assert found.name == "set"
    expected = from_arrays("mine", arrays(val=False))
    for user in np.unique(OWNERS):
        assert torch.equal(found.x_train[found.client == user], expected.x_train[expected.client == user])
        assert torch.equal(found.y_train[found.client == user], expected.y_train[expected.client == user])
    assert torch.equal(found.x_test, expected.x_test)
    square = from_leaf(tmp_path / "set", shape=(2, 2))
    assert torch.equal(square.x_train.flatten(1), found.x_train)
    assert list(square.shape) == [1, 2, 2]


def test_leaf_text(tmp_path):
    words = {"hamlet": {"x": ["to be", "o be "], "y": [" ", "o"]}, "puck": {"x": ["I am "], "y": ["t"]}}
    folder = leaf(tmp_path / "plays", {"train/a": words, "test/a": {"puck": {"x": ["am th"], "y": ["\u00e6"]}}})
    found = from_leaf(folder)
    assert found.text
    assert found.client.tolist() == ["hamlet", "hamlet", "puck"]
    assert ["".join(ALPHABET[c - 1] for c in row) for row in found.x_train.tolist()] == ["to be", "o be ", "I am "]
    assert [ALPHABET[c - 1] for c in found.y_train.tolist()] == [" ", "o", "t"]
    assert found.y_test.tolist() == [0]  # no character of ours
    assert found.classes == len(ALPHABET) + 1 == 97
    assert encode(ALPHABET).tolist() == list(range(1, 97))


def test_hugging_face():
    features = datasets.Features({"picture": datasets.Image(), "kind": datasets.ClassLabel(names=["a", "b", "c"])})

    def rows(part, **more):
        columns = {"picture": [Image.fromarray(each) for each in IMAGES[PARTS[part]]], "kind": Y[PARTS[part]].tolist()}
        return datasets.Dataset.from_dict(
            columns | more,
            features=datasets.Features({**features, **{name: datasets.Value("string") for name in more}}),
        )

    train = rows("train", owner=OWNERS.tolist())
    found = from_huggingface(train, rows("test"), inputs="picture", label="kind", client="owner", val=rows("val"))
    same(found, from_arrays("mine", arrays(IMAGES)))
    # Columns of numbers, and names of classes.
    parts = {
        part: datasets.Dataset.from_dict(
            {f"f{n}": X[at, n].tolist() for n in range(4)} | {"label": np.array(["cat", "dog", "elk"])[Y[at]].tolist()}
        )
        for part, at in PARTS.items()
    }
    expected = arrays()
    del expected["client"]
    same(from_huggingface(parts["train"], parts["test"], val=parts["val"]), from_arrays("mine", expected))
    with pytest.raises(UserError, match="there is no column 'owner'; the columns are 'f0', 'f1', 'f2', 'f3', 'label'"):
        from_huggingface(parts["train"], parts["test"], client="owner")
    with pytest.raises(UserError, match="test has no column 'label'; its columns are 'f0', 'f1', 'f2', 'f3'"):
        from_huggingface(parts["train"], parts["test"].remove_columns("label"))


def test_torch():
    floats = IMAGES.astype(np.float32) / 255
    expected = from_arrays("mine", arrays(floats))
    for given in (floats, IMAGES):
        tensors = torch.from_numpy(given).permute(0, 3, 1, 2)  # [channels, height, width], as torchvision has them
        parts = {part: Pairs(tensors[at], Y[at]) for part, at in PARTS.items()}
        found = from_torch(parts["train"], parts["test"], val=parts["val"], client=OWNERS)
        same(found, expected if given is floats else from_arrays("mine", arrays(IMAGES)))
    pictures = {part: Pairs([Image.fromarray(each) for each in IMAGES[at]], Y[at]) for part, at in PARTS.items()}
    found = from_torch(pictures["train"], pictures["test"], val=pictures["val"], client=OWNERS)
    same(found, from_arrays("mine", arrays(IMAGES)))
    flat = {part: Pairs(torch.from_numpy(X[at]).float(), Y[at]) for part, at in PARTS.items()}
    same(from_torch(flat["train"], flat["test"], val=flat["val"], client=OWNERS), from_arrays("mine", arrays()))
    ragged = Pairs([torch.zeros(2), torch.zeros(3)], [0, 1])
    with pytest.raises(UserError, match="dataset: train: expected samples of one shape"):
        from_torch(ragged, ragged)


@pytest.mark.parametrize(
    "kind",
    [int, bool, np.uint8, torch.tensor, lambda y: torch.tensor([y]), lambda y: np.array([y])],
    ids=["int", "bool", "uint8", "tensor", "tensor of one", "array of one"],
)
def test_labels_of_torch_are_whole_numbers_in_any_form(kind):
    pairs = [(torch.zeros(2), kind(y)) for y in (1, 0, 1)]
    assert from_torch(pairs, pairs).y_train.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ((torch.zeros(2), 1.7), "dataset: y_train must be class numbers from 0, not float64"),
        ((torch.zeros(2), torch.tensor(1.0)), "dataset: y_train must be class numbers from 0, not float32"),
        ((torch.zeros(2), "cat"), "dataset: y_train must be class numbers from 0, not <U3"),
        (
            (torch.zeros(2), torch.tensor([0, 1])),
            "dataset: y_train must have one label for each of 3 samples, not shape",
        ),
        ((torch.zeros(2), 1, "id"), "dataset: sample 0 of train is a tuple of 3; expected a pair (input, label)"),
        ({"x": 0, "y": 1}, "dataset: sample 0 of train is a dict; expected a pair (input, label)"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_wrong_samples_of_torch(sample, said):
    with pytest.raises(UserError) as refused:
        from_torch([sample] * 3, [sample] * 3)
    assert said in str(refused.value)


# What is wrong


WRONG_ARRAYS = [
    (
        {"clients": OWNERS},
        "has 'clients'; expected no arrays but x_train, y_train, x_test, y_test, x_val, y_val, client",
    ),
    ({"y_val": None}, "lacks y_val; it has client, x_test, x_train, x_val, y_test, y_train"),
    (
        {"client": OWNERS[1:]},
        "client must be one whole number or name for each of 20 training samples, not <U3 of shape [19]",
    ),
    (
        {"client": np.arange(20) / 2},
        "client must be one whole number or name for each of 20 training samples, not float64",
    ),
    ({"x_val": X[20:24, :3]}, "samples of x_train have the shape [4], those of x_val [3]"),
    ({"y_val": np.array([0, 1, 2, 7])}, "y_val has class 7, which y_train does not have"),
    ({"x_test": X[24:].astype(np.float64) * 1e200}, "e+200, which is too large for float32; scale the inputs"),
    ({"x_test": X[24:] * np.nan}, "x_test has entries that are not finite"),
]


@pytest.mark.parametrize(("change", "said"), WRONG_ARRAYS, ids=[said[:40] for _, said in WRONG_ARRAYS])
def test_wrong_arrays(tmp_path, change, said):
    changed = {name: array for name, array in arrays(**change).items() if array is not None}
    np.savez(tmp_path / "mine.npz", **changed)
    with pytest.raises(UserError) as refused:
        from_npz(tmp_path / "mine.npz")
    assert said in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path / 'mine.npz'}: ")


def test_images_of_two_kinds_are_refused():
    with pytest.raises(UserError, match="x_train is uint8, x_test is float32; expected one type of numbers"):
        from_arrays("mine", arrays(IMAGES, x_test=IMAGES[24:].astype(np.float32)))
    flat = IMAGES.reshape(len(IMAGES), -1)  # uint8 that is no image is scaled too
    with pytest.raises(UserError, match="x_train is float32, x_val is uint8; expected one type of numbers"):
        from_arrays("mine", arrays(flat.astype(np.float32), x_val=flat[20:24]))


WRONG_TABLES = [
    (table().drop("label"), "expected a column 'label' and columns of numbers; it has 'split', 'f0', 'f1'"),
    (table().select("label", "client"), "expected a column 'label' and columns of numbers"),
    (table().head(0), "has no rows; expected one for each sample"),
    (table().with_columns(f2=pl.lit("red")), "the column 'f2' is String; expected numbers"),
    (table().with_columns(f1=pl.Series([None, *X[1:, 1]])), "row 1 has no 'f1'"),
    (table().with_columns(client=pl.Series([*table()["client"][:29], None])), "row 30 has no 'client'"),
    (table().with_columns(split=pl.lit("training")), "the column 'split' has 'training'; expected train, test, val"),
    (table().with_columns(label=pl.lit(0.5)), "labels are float64; expected class numbers from 0, or names"),
    (table().filter(pl.col("split") == "train"), "lacks x_test, y_test"),
    (table().drop("split").head(1), "x_train must be numbers [N, ...] with N from 1"),
]


@pytest.mark.parametrize(("frame", "said"), WRONG_TABLES, ids=[said[:40] for _, said in WRONG_TABLES])
def test_wrong_tables(tmp_path, frame, said):
    frame.write_parquet(tmp_path / "mine.parquet")
    for source in (frame, tmp_path / "mine.parquet"):
        with pytest.raises(UserError) as refused:
            from_table(source)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_csv_of_very_many_columns_is_refused_by_its_header(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{n}" for n in range(20_000)) + "\n")
    with pytest.raises(UserError, match="the first line has more than 10,000 columns"):
        from_table(path)
    path.write_text("x" * (files.EXPANDED // 512))
    with pytest.raises(UserError, match="the first line has more than 10,000 columns"):
        from_table(path)


def test_leaf_of_numbers_and_text_is_refused(tmp_path):
    numbers, text = {"ann": {"x": [[1, 2]], "y": [0]}}, {"ann": {"x": ["ab"], "y": ["c"]}}
    for name, train, test, said in (
        ("a", numbers, text, "numbers, those of test text"),
        ("b", text, numbers, "text, "),
    ):
        with pytest.raises(UserError, match=f"inputs of train are {said}.*; expected the same of both"):
            from_leaf(leaf(tmp_path / name, {"train/a": train, "test/a": test}))


WRONG_LEAF = [
    ("{", "cannot be read"),
    ("[" * 100_000 + "]" * 100_000, "cannot be read"),
    ("[]", 'expected {"users": [...], "user_data"'),
    ('{"user_data": {"ann": {"x": [[1]]}}}', "expected {"),
    ('{"user_data": {"ann": {"x": [[1], [2]], "y": [0]}}}', "user 'ann' has 2 inputs and 1 labels"),
    ('{"user_data": {"ann": {"x": [[1], [2, 3]], "y": [0, 1]}}}', "expected samples of one shape"),
    ('{"user_data": {"ann": {"x": ["a", "bc"], "y": ["b", "d"]}}}', "expected texts of one length"),
    ('{"user_data": {"ann": {"x": ["a", "b"], "y": [0, 1]}}}', "each labelled with its next character"),
    ('{"user_data": {}}', "has no samples"),
]


@pytest.mark.parametrize(("content", "said"), WRONG_LEAF, ids=[content[:50] for content, _ in WRONG_LEAF])
def test_wrong_leaf(tmp_path, content, said):
    folder = leaf(tmp_path, {"train/a": {}, "test/a": {"ann": {"x": [[1]], "y": [0]}}})
    (folder / "train" / "a.json").write_text(content)
    with pytest.raises(UserError) as refused:
        from_leaf(folder)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_that_is_not_leafs(tmp_path):
    with pytest.raises(UserError, match="expected the folders train and test with JSON files"):
        from_leaf(tmp_path)


def written(path: Path) -> Path:
    if path.suffix == ".npz":
        np.savez_compressed(path, **arrays())
    elif path.suffix == ".csv":
        table().write_csv(path)
    else:
        table().write_parquet(path)
    return path


@pytest.mark.parametrize("name", ["mine.npz", "mine.parquet", "mine.csv"])
def test_a_damaged_file_is_refused_in_one_line_or_does_no_harm(tmp_path, name):
    path = written(tmp_path / name)
    read = from_npz if name.endswith("npz") else from_table
    whole, draw, refused = path.read_bytes(), np.random.default_rng(1), 0
    expected = read(path)
    for n in draw.integers(len(whole), size=80):
        flipped = whole[:n] + bytes([whole[n] ^ (1 + int(draw.integers(255)))]) + whole[n + 1 :]
        for content in (whole[:n], flipped):
            path.write_bytes(content)
            try:
                found = read(path)
            except UserError as error:
                assert "\n" not in str(error)  # noqa: PT017
                assert str(path) in str(error)  # noqa: PT017
                refused += 1
            else:
                if path.suffix == ".npz":  # which has checksums
                    same(found, expected)
    assert refused >= (80 if path.suffix != ".csv" else 20)


# What would fill the memory


def test_an_archive_that_expands_out_of_proportion_is_not_expanded(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, **{**arrays(), "x_train": np.zeros((20, 60_000))})
    own = path.stat().st_size
    from_arrays_needs = sum(member.file_size for member in zipfile.ZipFile(path).infolist())
    assert from_arrays_needs > 100 * own
    monkeypatch.setattr(files, "EXPANDED", from_arrays_needs - 1)

    def expand(*_, **__):
        raise AssertionError("it was expanded")

    with monkeypatch.context() as patch:
        patch.setattr(np, "load", expand)
        with pytest.raises(UserError) as refused:
            from_npz(path)
    assert f"has {own:,} bytes and would take {from_arrays_needs:,} bytes of memory" in str(refused.value)
    assert "save it without compression (numpy.savez instead of savez_compressed)" in str(refused.value)
    # The way out.
    np.savez(
        path,
        **{
            **arrays(),
            "x_train": np.zeros((20, 60_000)),
            "x_val": np.zeros((4, 60_000)),
            "x_test": np.zeros((6, 60_000)),
        },
    )
    assert from_npz(path).shape == (60_000,)
    # What it says is what counts.
    np.savez_compressed(path, **arrays())
    assert from_npz(path).shape == (4,)


def test_a_parquet_file_that_expands_out_of_proportion_is_not_expanded(tmp_path, monkeypatch):
    path, rows = tmp_path / "bomb.parquet", 100_000
    pl.DataFrame({"label": np.zeros(rows, np.int64), "f": np.zeros(rows)}).write_parquet(path)
    from_table(path)
    monkeypatch.setattr(files, "EXPANDED", 16 * rows - 1)

    def expand(*_, **__):
        raise AssertionError("it was expanded")

    with monkeypatch.context() as patch:
        patch.setattr(pl, "read_parquet", expand)
        with pytest.raises(UserError, match="would take 1,600,000 bytes of memory"):
            from_table(path)
