"""What `--help` says: every algorithm, every default once, and the version."""

import contextlib
import re
import sys

import pytest

from fedawe.algorithms import ALGORITHMS
from fedawe.cli.main import VERBS, main

PAGES = [
    *((verb,) for verb in VERBS),
    *(("trace", part) for part in ("draw", "show", "check")),
    *(("flower", part) for part in ("up", "replay")),
    *(("data", part) for part in ("add", "list", "check", "download")),
]


def said(monkeypatch, capsys, *words: str) -> str:
    """The help without frames and line breaks."""
    monkeypatch.setattr(sys, "argv", ["fedawe", *words, "--help"])
    with contextlib.suppress(SystemExit):
        main()
    return " ".join(re.sub(r"[│╭╮╰╯─|+-]{2,}|[│|]", " ", capsys.readouterr().out.replace("--", "§")).split())


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_a_default_is_said_once_and_is_never_none(words, monkeypatch, capsys):
    text = said(monkeypatch, capsys, *words)
    assert "(default: None)" not in text
    assert "(default: )" not in text
    assert "None," not in text.partition("options")[2].partition("fedawe:eta_g")[0]
    for option in text.split("§")[1:]:
        assert len(re.findall(r"\(default: [^)]*\) \(default", option)) == 0, option


def test_the_help_of_run_lists_every_algorithm_with_its_options(monkeypatch, capsys):
    text = said(monkeypatch, capsys, "run")
    assert [name for name in ALGORITHMS if not re.search(rf" {re.escape(name)}(:\w+=| )", text)] == []
    assert " fedau:K=50,eta_g=1.0,clip=None " in text


def test_the_overview_has_the_version_and_a_sentence_for_every_verb(monkeypatch, capsys):
    text = said(monkeypatch, capsys)
    assert "§version" in text
    assert re.findall(rf" ({'|'.join(VERBS)}) [A-Z][^.]+\.", text) == VERBS
