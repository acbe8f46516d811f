"""The files that accounts are written to: whole, or as they were before."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.errors import FileError, OptionError
from regard.files import write_text
from regard.walkthrough import Steps, steps
from regard.walkthrough.account import Account, page, save


def told(words: list[str], n: int = 3) -> Steps:
    x = torch.randn(len(words), n, generator=torch.Generator().manual_seed(0))
    return steps(x, words=words)


def test_save_writes_what_the_ending_says(tmp_path: Path) -> None:
    account = told(["the", "cät"]).of(1)
    for name in ("a.html", "a.tex", "a.txt", "B.HTML"):
        account.save(tmp_path / name)
    account.save(str(tmp_path / "text.txt"))
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == account.page()
    assert (tmp_path / "B.HTML").read_text(encoding="utf-8") == account.page()
    assert (tmp_path / "a.tex").read_text(encoding="utf-8") == account.latex()
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == f"{account}\n"
    assert (tmp_path / "text.txt").read_text(encoding="utf-8") == f"{account}\n"
    names = ["B.HTML", "a.html", "a.tex", "a.txt", "text.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_steps_are_saved_with_every_word(tmp_path: Path) -> None:
    s = told(["the", "cat", "sat"])
    every = [s.matrices(), *(s.of(i) for i in range(3))]
    for name in ("a.html", "a.tex", "a.txt"):
        s.save(tmp_path / name)
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == page(s.title, every) == s.html()
    assert (tmp_path / "a.tex").read_text(encoding="utf-8") == s.latex()
    text = (tmp_path / "a.txt").read_text(encoding="utf-8")
    assert text == "\n\n\n".join(map(str, every)) + "\n"
    assert [text.count(f"{word}, word") for word in s.words] == [1, 1, 1]


def test_a_file_is_as_open_as_any_other(tmp_path: Path) -> None:
    told(["a", "b"]).save(tmp_path / "a.html")
    (tmp_path / "plain").write_text("")
    modes = {(tmp_path / name).stat().st_mode & 0o777 for name in ("a.html", "plain")}
    assert len(modes) == 1


@pytest.mark.parametrize("name", ["a.pdf", "a", "html", ".html", "a.html.gz"])
def test_an_ending_that_is_unknown(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError) as error:
        told(["a", "b"]).of(0).save(tmp_path / name)
    ending = Path(name).suffix or "nothing"
    assert str(error.value) == (
        f"save: {tmp_path / name} ends in {ending!r}, expected .html or .tex or .txt"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    target = tmp_path / "none" / "a.html"
    with pytest.raises(FileError) as error:
        told(["a", "b"]).save(target)
    assert str(error.value) == f"save: cannot write {target}: No such file or directory"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    target = tmp_path / "a.html"
    target.mkdir()
    with pytest.raises(FileError, match=re.escape(f"save: cannot write {target}: ")):
        told(["a", "b"]).save(target)
    assert list(tmp_path.iterdir()) == [target]
    assert list(target.iterdir()) == []


def out_of_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_an_existing_file_survives_a_failing_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.txt"
    target.write_text("what was there")
    monkeypatch.setattr(os, "replace", out_of_space)
    with pytest.raises(FileError) as error:
        write_text(target, {".txt": lambda: "new"}, "save")
    assert str(error.value) == (
        f"save: cannot write {target}: the disk is full; make room and run the same again"
    )
    assert target.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [target]


def failing() -> str:
    raise ZeroDivisionError


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("form", "kind"),
    [(failing, ZeroDivisionError), (lambda: "half \ud800 half", Exception)],
    ids=["no-text", "no-utf-8"],
)
def test_nothing_is_left_of_what_could_not_be_written(
    tmp_path: Path, form: Callable[[], str], kind: type[BaseException]
) -> None:
    target = tmp_path / "a.txt"
    target.write_text("what was there")
    with pytest.raises(kind):
        write_text(target, {".txt": form}, "save")
    assert target.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [target]


def test_nothing_is_left_of_what_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "a.txt", {".txt": lambda: "new"}, "save")
    assert list(tmp_path.iterdir()) == []


def test_a_text_that_is_no_utf_8_is_our_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="save: cannot write"):
        Account("caf\udce9", "", ()).save(tmp_path / "a.txt")


def test_save_takes_several_accounts(tmp_path: Path) -> None:
    save(tmp_path / "a.txt", "both", [Account("one", "", ()), Account("two", "", ())])
    assert (tmp_path / "a.txt").read_text() == "one\n\n\ntwo\n"
