"""A process that is killed at any moment leaves a folder that can be resumed: every I/O point is tried in turn.

A point is a file opened for writing, a rename, a removal, a new folder or a line appended to a record, as Python's
audit hooks see them. The child process kills itself at the n-th point; the next one resumes; the result is compared.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from children import fork

import fedawe
from fedawe.cli.main import parse
from fedawe.core.errors import UserError
from fedawe.results import record as records

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def experiment(rounds: int = 3) -> fedawe.Experiment:
    return fedawe.Experiment(
        task=fedawe.Quadratic(torch.tensor([[0.0], [100.0]])),
        algorithms={"fedawe": fedawe.FedAWE()},
        availability=fedawe.Stationary(),
        p=[0.9, 0.5],
        rounds=rounds,
        seeds=(0,),
        evaluate_every=2,
    )


def run(out: Path, rounds: int = 3) -> None:
    experiment(rounds).run(out, checkpoint_every=1, engine="stacked", workers=1, warn=lambda _: None)


def files(out: Path) -> dict[str, Any]:
    """Everything that must be the same, and what other files there are."""
    found: dict[str, Any] = {}
    for path in sorted(each for each in out.rglob("*") if each.is_file()):
        name = str(path.relative_to(out))
        if path.name == records.NAME:
            record = records.read(path)
            lines = [record.header, *record.evaluations, record.end]
            found[name] = [{k: v for k, v in (line or {}).items() if not k.endswith("_seconds")} for line in lines]
        elif path.name != ".lock":
            found[name] = path.read_bytes()
    return found


def killed_at(n: int, out: Path, rounds: int) -> bool:
    """Run in a child that kills itself at the n-th I/O point in the folder; whether there was such a point."""
    child = fork()
    if child == 0:
        left = n

        def point() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            writes = event != "open" or (isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"))
            if event in ("open", "os.rename", "os.remove", "os.mkdir") and writes and str(out) in str(arguments[0]):
                point()

        write = records.Writer.write

        def half_a_line(self: records.Writer, line: records.Line) -> None:
            if left == 1:
                text = records.seal(line)
                self.file.write(text[: len(text) // 2])
                self.file.flush()
            point()
            write(self, line)

        records.Writer.write = half_a_line  # type: ignore[method-assign]
        sys.addaudithook(hook)
        try:
            run(out, rounds)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_a_kill_at_any_point_is_resumed_exactly(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    expected = files(tmp_path / "whole")
    for n in range(1, 1000):
        out = tmp_path / str(n)
        if not killed_at(n, out, 3):
            break
        run(out)
        assert files(out) == expected, f"killed at point {n}"
    assert n > 25, "the hooks saw too little"


def test_a_kill_at_any_point_of_an_extension_is_resumed_exactly(tmp_path: Path) -> None:
    run(tmp_path / "whole", rounds=5)
    expected = files(tmp_path / "whole")
    for n in range(1, 1000):
        out = tmp_path / str(n)
        run(out, rounds=3)
        if not killed_at(n, out, 5):
            break
        run(out, rounds=5)
        assert files(out) == expected, f"killed at point {n}"
    assert n > 15, "the hooks saw too little"


@pytest.mark.parametrize("name", ["experiment.json", "traces/seed-0.npz", "clients/seed-0.npz"])
def test_a_damaged_file_is_noticed_and_written_again(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out)
    expected, path = files(out), out / name
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", _flipped(content)):
        path.write_bytes(damaged)
        said: list[str] = []
        experiment().run(out, checkpoint_every=1, engine="stacked", workers=1, warn=said.append)
        assert any(str(path) in line for line in said), said
        assert files(out) == expected


def _flipped(content: bytes) -> bytes:
    """One bit of the compressed data, or of the text, is another."""
    middle = len(content) // 3
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def test_check_names_every_damaged_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    run(out)
    parse(["check", str(out)]).run()
    assert "everything is as it was written" in capsys.readouterr().out
    for path in [each for each in out.rglob("*") if each.is_file() and each.name != ".lock"]:
        content = path.read_bytes()
        path.write_bytes(_flipped(content))
        with pytest.raises(UserError, match="1 file is not as written"):
            parse(["check", str(out)]).run()
        assert str(path) in capsys.readouterr().out
        path.write_bytes(content)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no experiment"):
        parse(["check", str(tmp_path / "empty")]).run()
