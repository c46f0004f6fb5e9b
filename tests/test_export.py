"""What other tools read from an export is what the records and the models say."""

import csv
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import samples
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch import nn

import fedawe
from fedawe.cli.main import main
from fedawe.core.errors import UserError
from fedawe.experiments.build import experiment_of
from fedawe.experiments.settings import Settings
from fedawe.results import events as event_files
from fedawe.results.events import write_tensorboard
from fedawe.results.frame import below, frame, write_csv
from fedawe.tasks import Classification, ModuleNetwork
from fedawe.tasks.data import load
from fedawe.tasks.models import paper

LABELS = ("fedawe", "fedavg(eta0=0.25)", "mifa")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two experiments."""
    out = tmp_path_factory.mktemp("whole") / "runs"
    own = {"fedavg(eta0=0.25)": {"rate": {"class": "fedawe.training.local:Rate", "eta0": 0.25}}}
    samples.experiment(out / "digits" / "sine", LABELS, (0, 1), locals_=own)
    samples.experiment(out / "q", ("fedawe",), (3,), task="quadratic", header={"p": [0.9, 0.3]})
    return out


def everything(folder: Path) -> pd.DataFrame:
    """The table of all experiments in a folder."""
    return frame(below(folder, pytest.fail))


@pytest.fixture
def own(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(whole, tmp_path / "runs"))


def raw(out: Path, label: str, seed: int) -> list[dict[str, object]]:
    """The evaluations of a record, read with nothing of ours."""
    lines = map(json.loads, (out / label / f"seed-{seed}" / "record.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == "evaluation"]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def says(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    """The exit code of `fedawe`, and what it wrote to standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["fedawe", *arguments])
    code = 0
    try:
        main()
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    return code, *capsys.readouterr()


def test_importing_fedawe_imports_none_of_these_tools():
    code = "import fedawe, sys; print({'pandas', 'tensorboard', 'scipy', 'polars'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


# pandas


def test_a_row_for_every_evaluation(whole: Path):
    found = everything(whole)
    keys = ["folder", "label", "seed", "round"]
    assert not found.duplicated(keys).any()
    seen = 0
    for place, labels, seeds in (("digits/sine", LABELS, (0, 1)), ("q", ("fedawe",), (3,))):
        for label in labels:
            for seed in seeds:
                part = found[(found.folder == place) & (found.label == label) & (found.seed == seed)]
                lines = raw(whole / place, label, seed)
                assert part["round"].tolist() == [line["round"] for line in lines] == list(range(0, 61, 5))
                for name in set(lines[0]) - {"kind", "crc", "test_accuracy_by_class", "latest_test_accuracy_by_class"}:
                    assert part[name].tolist() == [line[name] for line in lines]
                seen += len(part)
    assert seen == len(found) == 7 * 13


def test_classes_are_columns(whole: Path):
    found = fedawe.load(whole / "digits" / "sine").frame()
    by_class = found[(found.label == "fedawe") & (found.seed == 1)].filter(regex=r"^test_accuracy_class_\d+$")
    assert list(by_class) == [f"test_accuracy_class_{c}" for c in range(10)]
    assert by_class.to_numpy().tolist() == [
        line["test_accuracy_by_class"] for line in raw(whole / "digits" / "sine", "fedawe", 1)
    ]
    assert found.loc[found.label == "mifa", "latest_test_accuracy_class_9"].isna().all()
    assert found.loc[found.label == "fedawe", "latest_test_accuracy_class_9"].notna().all()


def test_columns_are_tidy(whole: Path):
    found = everything(whole)
    first = ["folder", "task", "availability", "label", "name", "algorithm", "seed", "status", "finished", "round"]
    columns = list(found.columns)
    assert columns[:10] == first
    assert columns.index("clients") > columns.index("test_accuracy_class_9")  # settings are last
    assert not {"kind", "crc", "metrics", "parameters", "versions"} & set(columns)
    assert found.dtypes[["seed", "round", "clients"]].eq("int64").all()
    assert found.finished.dtype == bool
    assert found.finished.all()
    assert not found.map(lambda cell: isinstance(cell, list | dict | tuple)).any(axis=None)
    assert set(found.algorithm) == {"FedAWE", "FedAvg", "MIFA"}
    assert set(found.name) == {"FedAWE", "FedAvg (eta0=0.25)", "MIFA"}
    assert found.groupby("folder")["p"].first().to_dict()["q"] == "0.9 0.3"
    assert found.loc[found.task == "digits", "p"].isna().all()
    assert set(found.loc[found.task == "digits", "task.model"]) == {"mlp"}


def test_hyper_parameters_are_columns(whole: Path):
    rates = everything(whole).groupby(["folder", "label"])["local.rate.eta0"].agg(["min", "max"])
    assert rates.loc[("digits/sine", "fedavg(eta0=0.25)")].tolist() == [0.25, 0.25]
    assert rates.loc[("digits/sine", "mifa")].tolist() == [0.1, 0.1]
    kinds = everything(whole).groupby("label")["algorithm.class"].unique()
    assert kinds["mifa"].tolist() == ["fedawe.algorithms.memory:MIFA"]


def test_one_folder_has_its_own_name(whole: Path, monkeypatch):
    assert set(fedawe.load(str(whole / "q")).frame().folder) == {"q"}
    monkeypatch.chdir(whole / "q")
    assert set(fedawe.load(".").frame().folder) == {"q"}


@pytest.mark.parametrize(
    ("spoil", "status", "rows"), [(samples.diverge, "diverged", 7), (samples.interrupt, "unfinished", 11)]
)
def test_runs_that_are_not_complete_are_there_as_far_as_they_went(own: Path, spoil, status: str, rows: int):
    spoil(own / "digits" / "sine", "mifa", 0)
    found = everything(own)
    part = found[~found.finished]
    assert set(zip(part.label, part.seed, part.status, strict=True)) == {("mifa", 0, status)}
    assert part["round"].tolist() == list(range(0, 61, 5))[: len(part)]
    assert len(part) in (rows, rows - 1)
    assert len(found) == 6 * 13 + len(part)


def test_damage_is_warned_of_and_what_is_before_it_kept(own: Path):
    samples.damage(own / "digits" / "sine", "mifa", 0)
    with pytest.warns(UserWarning, match=r"mifa/seed-0/record.jsonl:4: the line is damaged") as said:
        found = fedawe.load(own / "digits" / "sine").frame()
    assert [warning.filename for warning in said] == [__file__]
    assert found[found.status == "damaged"][["label", "seed", "round"]].to_numpy().tolist() == [
        ["mifa", 0, 0],
        ["mifa", 0, 5],
    ]


def test_a_folder_in_which_nothing_was_evaluated_is_an_empty_table(own: Path):
    for seed in (0, 1):
        for label in LABELS:
            samples.record(own / "digits" / "sine", label, seed).unlink()
    found = fedawe.load(own / "digits" / "sine").frame()
    assert len(found) == 0
    assert {"label", "round"} <= set(found.columns)


@pytest.mark.parametrize("tool", ["pandas", "tensorboard"])
def test_a_tool_that_is_not_there_is_named(whole: Path, tmp_path: Path, monkeypatch, tool: str):
    monkeypatch.setitem(sys.modules, tool, None)
    with pytest.raises(UserError, match=rf"{tool}; install it with: pip install 'fedawe\[export\]'"):
        everything(whole) if tool == "pandas" else write_tensorboard(whole, tmp_path / "tb")
    write_csv(whole, tmp_path / "x.csv")  # needs neither


# CSV


def test_the_csv_is_the_same_table(whole: Path, tmp_path: Path, monkeypatch, capsys):
    out = tmp_path / "new" / "all.csv"
    assert says(monkeypatch, capsys, "export", str(whole), "--out", str(out)) == (0, f"{out}\n", "")
    pd.testing.assert_frame_equal(pd.read_csv(out), everything(whole))
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    line = raw(whole / "digits" / "sine", "fedavg(eta0=0.25)", 1)[4]
    row = next(r for r in rows if (r["label"], r["seed"], r["round"]) == ("fedavg(eta0=0.25)", "1", "20"))
    assert float(row["test_accuracy"]) == line["test_accuracy"]
    assert row["latest_test_accuracy"] == row["local.clip_grad"] == ""


def test_a_table_is_csv_and_nothing_else(whole: Path, tmp_path: Path, monkeypatch, capsys):
    code, _, said = says(monkeypatch, capsys, "export", str(whole), "--out", str(tmp_path / "x.parquet"))
    assert code == 2
    assert "a table is written as CSV; give a name that ends in .csv" in said
    assert not (tmp_path / "x.parquet").exists()


def test_exports_have_a_place_of_their_own(own: Path, monkeypatch, capsys):
    before = everything(own)
    for folder in (own, own / "q"):
        assert says(monkeypatch, capsys, "export", str(folder))[1] == f"{folder / 'records.csv'}\n"
        said = says(monkeypatch, capsys, "export", str(folder), "--format", "tensorboard")
        assert said == (0, f"{folder / 'tensorboard'}\n", "")
    pd.testing.assert_frame_equal(everything(own), before)  # they are not taken for runs


def test_damage_is_told_on_the_command_line(own: Path, monkeypatch, capsys):
    samples.damage(own / "q", "fedawe", 3)
    for how in ("csv", "tensorboard"):
        code, _, said = says(monkeypatch, capsys, "export", str(own), "--format", how)
        path = samples.record(own / "q", "fedawe", 3)
        assert (code, said) == (0, f"fedawe: {path}:4: the line is damaged or unfinished\n")


# TensorBoard


def accumulated(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()


def test_tensorboard_reads_what_the_records_say(whole: Path, tmp_path: Path):
    write_tensorboard(whole, tmp_path / "tb")
    found = {path.parent.relative_to(tmp_path / "tb").as_posix() for path in (tmp_path / "tb").rglob("*tfevents*")}
    assert found == {f"digits/sine/{label}/seed-{seed}" for label in LABELS for seed in (0, 1)} | {"q/fedawe/seed-3"}
    tags = {
        "accuracy/test": lambda line: line["test_accuracy"],
        "accuracy/train": lambda line: line["train_accuracy"],
        "accuracy/client": lambda line: line["client_accuracy"],
        "loss/test": lambda line: line["test_loss"],
        "loss/train": lambda line: line["train_loss"],
        "accuracy/test_latest": lambda line: line["latest_test_accuracy"],
        "accuracy_by_class/test_7": lambda line: line["test_accuracy_by_class"][7],
        "accuracy_by_class/test_latest_0": lambda line: line["latest_test_accuracy_by_class"][0],
        "diagnostics/active": lambda line: line["active"],
        "diagnostics/live_versions": lambda line: line["live_versions"],
    }
    events, lines = accumulated(tmp_path / "tb/digits/sine/fedawe/seed-1"), raw(whole / "digits/sine", "fedawe", 1)
    for tag, value in tags.items():
        scalars = events.Scalars(tag)
        assert [event.step for event in scalars] == [line["round"] for line in lines]
        assert [event.value for event in scalars] == [float(np.float32(value(line))) for line in lines]
    assert {tag.split("/")[0] for tag in events.Tags()["scalars"]} == {
        "accuracy",
        "loss",
        "accuracy_by_class",
        "diagnostics",
    }
    quadratic = accumulated(tmp_path / "tb/q/fedawe/seed-3")
    assert set(quadratic.Tags()["scalars"]) == {"metrics/distance", "metrics/loss", "diagnostics/active"}


def test_a_class_without_a_number_has_no_scalar():
    line = {"round": 5, "test_accuracy_by_class": [0.5, None, 0.0]}
    assert dict(event_files.scalars(line, (), ("test_accuracy",))) == {
        "accuracy_by_class/test_0": 0.5,
        "accuracy_by_class/test_2": 0.0,
    }


def test_one_experiment_needs_no_folder_of_its_own(whole: Path, tmp_path: Path):
    write_tensorboard(whole / "q", tmp_path / "tb")
    assert [str(Path(name).parent) for name in files(tmp_path / "tb")] == ["fedawe/seed-3"]


def test_wall_time_is_when_the_run_was(own: Path, tmp_path: Path):
    ended = 1_700_000_000
    os.utime(samples.record(own / "q", "fedawe", 3), (ended, ended))
    write_tensorboard(own / "q", tmp_path / "tb")
    scalars = accumulated(tmp_path / "tb/fedawe/seed-3").Scalars("metrics/distance")
    elapsed = [line["elapsed_seconds"] for line in raw(own / "q", "fedawe", 3)]
    assert [event.wall_time for event in scalars] == pytest.approx(
        [ended - 9 + seconds for seconds in elapsed], abs=1e-3
    )


def test_seeds_are_trials_of_one_set_of_hyper_parameters(whole: Path, tmp_path: Path):
    write_tensorboard(whole, tmp_path / "tb")
    groups, said = {}, {}
    for run in ("fedawe/seed-0", "fedawe/seed-1", "fedavg(eta0=0.25)/seed-0"):
        metadata = accumulated(tmp_path / "tb/digits/sine" / run).summary_metadata["_hparams_/session_start_info"]
        info = HParamsPluginData.FromString(metadata.plugin_data.content).session_start_info
        groups[run], said[run] = info.group_name, info.hparams
    assert groups["fedawe/seed-0"] == groups["fedawe/seed-1"] != groups["fedavg(eta0=0.25)/seed-0"]
    assert said["fedavg(eta0=0.25)/seed-0"]["local.rate.eta0"].number_value == 0.25
    assert said["fedawe/seed-0"]["label"].string_value == "fedawe"
    assert said["fedawe/seed-0"]["clients"].number_value == 30
    assert "local.clip_grad" not in said["fedawe/seed-0"]


def test_exporting_again_shows_what_is_there_now(own: Path, tmp_path: Path):
    tb, table = tmp_path / "tb", tmp_path / "x.csv"
    tb.mkdir()  # an empty folder is nobody's
    samples.interrupt(own / "digits" / "sine", "mifa", 0)
    shutil.rmtree(own / "digits" / "sine" / "mifa" / "seed-1")
    write_tensorboard(own, tb)
    write_csv(own, table)
    first = files(tb), table.read_bytes()
    write_tensorboard(own, tb)
    write_csv(own, table)
    assert (files(tb), table.read_bytes()) == first
    shutil.rmtree(own / "digits" / "sine" / "mifa")
    write_tensorboard(own, tb)
    write_csv(own, table)
    assert set(first[0]) - set(files(tb)) == {"digits/sine/mifa/seed-0/events.out.tfevents.fedawe"}
    assert "mifa" not in table.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "tb", "x.csv"}


def test_nothing_half_written(own: Path, tmp_path: Path, monkeypatch):
    """A crash in the middle leaves the export before it."""
    write_tensorboard(own, tmp_path / "tb")
    before = files(tmp_path / "tb")
    samples.interrupt(own / "digits" / "sine", "fedawe", 0)  # the first to be written
    written = []

    def crash(path: Path, content: bytes) -> None:
        written.append(path)
        path.write_bytes(content)
        if len(written) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("fedawe.results.events.write_atomically", crash)
    for out in ("tb", "new"):
        written.clear()
        with pytest.raises(KeyboardInterrupt):
            write_tensorboard(own, tmp_path / out)
    assert files(tmp_path / "tb") == before
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "tb"}


def test_what_a_link_leads_to_is_not_ours(own: Path, tmp_path: Path):
    write_tensorboard(own, tmp_path / "tb")
    (tmp_path / "photos").mkdir()
    (tmp_path / "tb" / "link").symlink_to(tmp_path / "photos")
    with pytest.raises(UserError, match="holds other files than"):
        write_tensorboard(own, tmp_path / "tb")


NOT_OURS = "exists and is not a table that `fedawe export` wrote; choose another --out"
OTHERS = "exists and holds other files than `fedawe export` writes; choose another --out"
MISTAKES = [
    ("export none", "none: no such folder"),
    ("export photos", "photos: holds no experiment"),
    ("export none --format tensorboard --out a/b", "none: no such folder"),
    ("export runs --out notes.csv", f"notes.csv {NOT_OURS}"),
    ("export runs --out photos", f"photos {NOT_OURS}"),
    ("export runs --format tensorboard --out photos", f"photos {OTHERS}"),
    ("export runs --format tensorboard --out notes.csv", f"notes.csv {OTHERS}"),
    ("export runs --format tensorboard --out tb", f"tb {OTHERS}"),
    ("export runs --out notes.csv/x.csv", "cannot make the folder notes.csv"),
    ("export runs --format tensorboard --out notes.csv/tb", "cannot make the folder"),
    ("export runs --format excel", "invalid choice 'excel'"),
]


@pytest.mark.parametrize(("arguments", "expected"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_mistakes_are_one_line_and_change_nothing(own: Path, tmp_path, monkeypatch, capsys, arguments, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    (tmp_path / "notes.csv").write_text("folder,task,mine\n")
    write_tensorboard(own, tmp_path / "tb")
    (tmp_path / "tb" / "q" / "notes.txt").write_text("mine")
    before = files(tmp_path)
    code, out, said = says(monkeypatch, capsys, *arguments.split())
    assert (code, out) == (2, "")
    assert expected in said
    assert said.count("\n") == 1
    assert files(tmp_path) == before
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "photos", "notes.csv", "tb"}


# models


def trained(out: Path, algorithm: str = "fedawe", **settings: object) -> Path:
    """The folder of a short run."""
    made = Settings(**{"clients": 8, "alpha": 1.0, "rounds": 6, "batch": 16, "evaluate_every": 3, **settings})
    experiment_of(made, [algorithm], (0,)).run(out, engine="stacked", workers=1, device="cpu")
    return out / algorithm / "seed-0"


def last(run: Path) -> dict[str, float]:
    return raw(run.parent.parent, run.parent.name, 0)[-1]  # type: ignore[return-value]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of every network on the digits."""
    out = tmp_path_factory.mktemp("models")
    return {
        model: trained(out / model, model=model, rounds=15, dynamics="stationary", p=(0.8,))
        for model in ("softmax", "mlp", "cnn", "paper")
    }


@pytest.mark.parametrize("model", ["softmax", "mlp", "cnn", "paper"])
def test_plain_pytorch_gets_the_recorded_accuracy(runs, model):
    net = fedawe.load_model(runs[model])
    data = fedawe.digits()
    with torch.no_grad():
        outputs = net(data.x_test)
    assert float((outputs.argmax(1) == data.y_test).double().mean()) == last(runs[model])["test_accuracy"] > 0.5
    assert float(nn.functional.cross_entropy(outputs, data.y_test)) == pytest.approx(
        last(runs[model])["test_loss"], 1e-5
    )
    assert not net.training
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_the_file_itself_or_text_will_do(runs):
    one, other = fedawe.load_model(str(runs["mlp"])), fedawe.load_model(runs["mlp"] / "model.safetensors")
    assert repr(one) == repr(other)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_loading_draws_no_random_numbers(runs):
    before = torch.random.get_rng_state()
    for run in runs.values():
        fedawe.load_model(run)
    assert torch.equal(torch.random.get_rng_state(), before)


class Mine(nn.Module):
    def __init__(self, hidden: int = 64):
        super().__init__()
        self.inner, self.outer = nn.Linear(64, hidden), nn.Linear(hidden, 10)

    def forward(self, x):
        return self.outer(self.inner(x.flatten(1)).relu())


def test_a_module_of_ones_own(runs):
    data, mine = fedawe.digits(), Mine().double()
    assert fedawe.load_model(runs["mlp"], mine) is mine
    hits = mine(data.x_test.double()).argmax(1) == data.y_test
    assert float(hits.double().mean()) == last(runs["mlp"])["test_accuracy"]


def test_a_module_that_does_not_fit_is_refused_and_untouched(runs, tmp_path):
    alone = shutil.copy(runs["mlp"] / "model.safetensors", tmp_path / "m.safetensors")  # without its record
    for path, module, said in (
        (runs["mlp"], Mine(32), r"inner.weight of the module has the shape \[32, 64\], expected \[64, 64\]"),
        (runs["mlp"], nn.Linear(64, 64), r"the module has 2 tensors, expected 4"),
        (runs["mlp"], nn.Linear(64, 74, bias=False), r"weight of the module has the shape \[74, 64\]"),
        (runs["mlp"], nn.Sequential(Mine(), nn.Linear(1, 1)), "the module has 6 tensors, expected 4"),
        (runs["mlp"], nn.LazyLinear(3), "parameters without a shape"),
        (runs["mlp"], Mine, "module is the class Mine; expected an object of torch.nn.Module"),
        (runs["mlp"], {}, "module is a dict; expected"),
        (alone, Mine(), r"has no inner\.weight, which the module has; it has 1\.bias, 1\.weight, 3\.bias, 3\.weight"),
    ):
        before = [parameter.clone() for parameter in module.parameters()] if isinstance(module, Mine) else []
        with pytest.raises(UserError, match=said):
            fedawe.load_model(path, module)
        if before:
            assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


def test_without_its_record_a_model_needs_a_module(runs, tmp_path):
    alone = shutil.copy(runs["mlp"] / "model.safetensors", tmp_path / "m.safetensors")
    with pytest.raises(
        UserError, match=r"the network of its 4810 numbers is not known; give the nn.Module they belong to"
    ):
        fedawe.load_model(alone)
    same = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    assert torch.equal(fedawe.load_model(alone, same)[1].weight, fedawe.load_model(runs["mlp"])[1].weight)


def test_a_vector_of_another_size_than_the_record_says_is_refused(runs, tmp_path: Path):
    copy = Path(shutil.copytree(runs["softmax"], tmp_path / "run"))
    safetensors.torch.save_file({"x": torch.zeros(7)}, copy / "other.safetensors")
    with pytest.raises(UserError, match="has 7 numbers, expected 650 as the record beside it says"):
        fedawe.load_model(copy / "other.safetensors")


def test_models_that_are_not_to_be_had(runs, tmp_path, whole):
    for said, spoil in (
        ("is not the model of the record beside it", lambda run: _flip(run / "model.safetensors")),
        ("no such file", lambda run: (run / "model.safetensors").unlink()),
        (
            "the run is unfinished, so it has no final model",
            lambda run: samples.interrupt(run.parent.parent, "fedawe", 0),
        ),
        ("the run is diverged, so it has no final model", lambda run: samples.diverge(run.parent.parent, "fedawe", 0)),
        (r"record.jsonl:4: the line is damaged", lambda run: samples.damage(run.parent.parent, "fedawe", 0)),
    ):
        copy = shutil.copytree(runs["softmax"].parent.parent, tmp_path / "x")
        spoil(copy / "fedawe" / "seed-0")
        with pytest.raises(UserError, match=said):
            fedawe.load_model(copy / "fedawe" / "seed-0")
        shutil.rmtree(copy)
    with pytest.raises(UserError, match=r"holds no model.safetensors; name the folder of one run, as in runs/x/fedawe"):
        fedawe.load_model(runs["softmax"].parent.parent)
    with pytest.raises(UserError, match="nowhere: no such file"):
        fedawe.load_model(tmp_path / "nowhere")
    for content in (b"", b"no tensors"):
        (tmp_path / "m.safetensors").write_bytes(content)
        with pytest.raises(UserError, match="cannot be read as safetensors"):
            fedawe.load_model(tmp_path / "m.safetensors", Mine())
    (tmp_path / "m.safetensors").write_bytes(safetensors.torch.save({"w": torch.zeros(2)}))
    with pytest.raises(UserError, match=r"has no inner\.weight, which the module has; it has w"):
        fedawe.load_model(tmp_path / "m.safetensors", Mine())


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_quadratic_has_no_network_of_its_own(tmp_path):
    run = trained(tmp_path / "q", task="quadratic", clients=2, alpha=None)
    with pytest.raises(UserError, match="the network of its 1 numbers is not known"):
        fedawe.load_model(run)
    x = fedawe.load_model(run, nn.Linear(1, 1, bias=False).double()).weight.item()
    assert abs(x - 50) == pytest.approx(last(run)["distance"], rel=1e-12)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "model"),
    [
        ("cifar10", (9, 13, 3), 7, "paper"),
        ("cinic10", (8, 8, 3), 10, "paper"),
        ("grey", (8, 16), 5, "cnn"),
        ("many", (8, 8, 4), 2, "cnn"),
        ("flat", (11,), 3, "mlp"),
        ("flat", (3, 5, 2), 4, "softmax"),
    ],
)
def test_the_network_is_known_without_the_data(tmp_path, monkeypatch, name, shape, classes, model):
    """The record says it, also where the data set is gone."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    y = np.arange(60) % classes
    x = (draw.normal(size=(60, *shape)) + y.reshape(60, *[1] * len(shape)) / 2).astype(np.float32)
    np.savez(f"{name}.npz", x_train=x, y_train=y, x_test=x[:40], y_test=y[:40])
    run = trained(Path("x"), "fedavg", task=f"{name}.npz", model=model, clients=2, rounds=2, eta0=0.01)
    Path(f"{name}.npz").unlink()
    net = fedawe.load_model(run)
    inputs = torch.from_numpy(x[:40])
    inputs = inputs[:, None] if len(shape) == 2 else inputs.permute(0, 3, 1, 2) if len(shape) == 3 else inputs
    hits = net(inputs).argmax(1) == torch.from_numpy(y[:40])
    assert float(hits.double().mean()) == last(run)["test_accuracy"]


def test_a_model_of_stored_images(tmp_path, monkeypatch, capsys):
    """Images are kept as bytes, and shrunk; the network saw floats."""
    x, y = np.random.default_rng(0).integers(256, size=(60, 16, 16, 3)).astype(np.uint8), np.arange(60) % 10
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:40], y_test=y[:40])
    monkeypatch.setenv("FEDAWE_DATA", str(tmp_path / "kept"))
    assert says(monkeypatch, capsys, "data", "add", "own", str(tmp_path / "own.npz"))[0] == 0
    run = trained(tmp_path / "x", "fedavg", task="own", image_size=8, clients=2, rounds=3)
    data = load("own").shrunk(8)
    with torch.no_grad():
        outputs = fedawe.load_model(run)(data.inputs(data.x_test, torch.arange(40)))
    assert float((outputs.argmax(1) == data.y_test).double().mean()) == last(run)["test_accuracy"]
    assert float(nn.functional.cross_entropy(outputs, data.y_test)) == pytest.approx(last(run)["test_loss"], rel=1e-5)


class Normed(nn.Module):
    def __init__(self, names: tuple[str, ...] = ("a", "norm", "b")):
        super().__init__()
        layers = {"a": nn.Linear(64, 12), "norm": nn.BatchNorm1d(12), "b": nn.Linear(12, 10)}
        for name in names:
            self.add_module(name, layers[name])

    def forward(self, x):
        return self.b(self.norm(self.a(x.flatten(1))).relu())


@pytest.fixture(scope="module")
def normed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a module with buffers of its own."""
    data = fedawe.digits()
    parts = np.array_split(np.arange(len(data.y_train)), 4)
    experiment = fedawe.Experiment(
        task=Classification(data, ModuleNetwork(Normed), parts),
        algorithms={"fedavg": fedawe.FedAvg()},
        availability=fedawe.Stationary(),
        p=0.8,
        local=fedawe.Local(batch=16, steps=4),
        rounds=3,
        seeds=(0,),
    )
    out = tmp_path_factory.mktemp("normed")
    experiment.run(out)
    return out / "fedavg" / "seed-0"


def test_a_module_with_buffers_gets_them_by_name(normed):
    """Also where the module's tensors are in another order."""
    data = fedawe.digits()
    for names in (("a", "norm", "b"), ("b", "norm", "a")):
        net = fedawe.load_model(normed, Normed(names))
        assert float((net(data.x_test).argmax(1) == data.y_test).double().mean()) == last(normed)["test_accuracy"]
        assert net.norm.running_mean.abs().sum() > 0
    with pytest.raises(UserError, match=r"numbers is not known; give the nn\.Module"):
        fedawe.load_model(normed)
    other = Normed()
    other.a = nn.Linear(64, 10)
    with pytest.raises(UserError, match=r"a\.weight of the module has the shape \[10, 64\], expected \[12, 64\]"):
        fedawe.load_model(normed, other)


def test_named_tensors_of_a_deployment_are_loaded_by_name(normed, tmp_path):
    net = fedawe.load_model(normed, Normed())
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors.torch.save(dict(reversed(net.state_dict().items()))))
    again = fedawe.load_model(path, Normed(("norm", "b", "a")))
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in net.state_dict().items())
    with pytest.raises(UserError, match=r"has no inner\.weight, which the module has"):
        fedawe.load_model(path, Mine())
    more = {**net.state_dict(), "more": torch.zeros(1)}
    path.write_bytes(safetensors.torch.save(more))
    with pytest.raises(UserError, match="has more, which the module does not have"):
        fedawe.load_model(path, Normed())


@pytest.mark.parametrize(("hidden", "dropout"), [((128,), 0.0), ((256, 64), 0.0), ((512, 256), 0.2)])
def test_the_papers_networks_as_modules(hidden, dropout):
    network = paper((3, 32, 32), hidden, 10, dropout)
    module, x = network.make(), network.initial(0)
    nn.utils.vector_to_parameters(x, module.parameters())
    inputs = torch.from_numpy(np.random.default_rng(1).normal(size=(6, 3, 32, 32))).float()
    with torch.no_grad():
        outputs = module.eval()(inputs)
        assert (torch.equal(module.train()(inputs), outputs)) == (dropout == 0)
    torch.testing.assert_close(outputs, network.outputs(x, inputs), rtol=1e-4, atol=1e-5)
    assert math.prod(outputs.shape) == 60
