"""Accounts in every form that they are printed in."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser

import pytest
import torch
from rich.console import Console

from regard.attention import window
from regard.walkthrough import Steps, steps
from regard.walkthrough.account import Account, Step, Table, brief, number, vector

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<b>",
    "&amp;",
    "\"double\" 'single'",
    "<!--",
    "]]>",
]
SPECIAL = ["\\", "&", "%", "$", "#", "_", "{", "}", "~", "^", "a_b^c", "\\end{document}"]


def told(words: list[str], n: int = 3) -> Steps:
    x = torch.randn(len(words), n, generator=torch.Generator().manual_seed(0))
    return steps(x, words=words)


def one_table(*rows: tuple, columns: tuple[str, ...] = ("word", "score")) -> Account:
    return Account("title", "", (Step("Scores", "q·k", Table(columns, rows)),))


# Numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (-0.0, "0.0000"),
        (-1e-17, "0.0000"),
        (1.0, "1.0000"),
        (-0.25, "-0.2500"),
        (0.00012345, "0.0001"),
        (0.0000999, "9.99e-05"),
        (-0.00001, "-1.00e-05"),
        (9999.0, "9999.0000"),
        (10000.0, "1.00e+04"),
        (float("inf"), "∞"),
        (float("-inf"), "-∞"),
    ],
)
def test_a_number_as_it_is_printed(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (2.0, "2"),
        (10.0, "10"),
        (100.0, "100"),
        (-0.0, "0"),
        (-1.25, "-1.25"),
        (1e-10, "1.00e-10"),
        (1e20, "1.00e+20"),
        (float("inf"), "∞"),
    ],
)
def test_a_number_inside_a_vector(value: float, text: str) -> None:
    assert brief(value) == text


def test_a_vector_says_how_long_it_is_if_it_is_not_whole() -> None:
    assert vector(()) == "[]"
    assert vector([1.0] * 6) == "[1 1 1 1 1 1]"
    assert vector([1.0] * 7) == "[1 1 1 1 1 1 … 7 numbers]"
    assert vector(list(map(float, range(64)))) == "[0 1 2 3 4 5 … 64 numbers]"


# Text


def test_text_to_the_letter() -> None:
    account = Account(
        "a title",
        "a preface",
        (
            Step("One", "a + b", Table(("", "x", "yy"), (("cat", 1.0, (1.0, 2.5)),)), "a note"),
            Step("Two", "c", Table(("", ""), (("a", 0.5), ("long", -0.25)))),
        ),
    )
    assert str(account) == (
        "a title\n"
        "\n"
        "a preface\n"
        "\n"
        "1. One: a + b\n"
        "             x       yy\n"
        "   cat  1.0000  [1 2.5]\n"
        "   a note\n"
        "\n"
        "2. Two: c\n"
        "   a      0.5000\n"
        "   long  -0.2500"
    )


def test_columns_stay_in_line_under_wide_characters() -> None:
    lines = str(one_table(("猫", 1.0), ("cat", 2.0))).splitlines()
    assert lines[-2:] == ["   猫    1.0000", "   cat   2.0000"]


def test_parts_are_numbered_each_from_one() -> None:
    table = Table(("",), (("a",),))
    parts = [Step(f"S{i}", "f", table, part=part) for i, part in enumerate("AABBC")]
    text = str(Account("t", "", tuple(parts)))
    assert re.findall(r"^(?:\d\. S\d|[ABC])", text, re.MULTILINE) == [
        *("A", "1. S0", "2. S1"),
        *("B", "1. S2", "2. S3"),
        *("C", "1. S4"),
    ]


# Rich


def in_terminal(what: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, record=True, force_terminal=True)
    console.print(what)
    return console.export_text()


def test_rich_shows_what_the_text_shows() -> None:
    account = told(["the", "cat", "sat"]).of("cat")
    shown = in_terminal(account)
    assert max(map(len, shown.splitlines())) <= 100
    assert account.title in shown
    assert account.preface in shown
    for i, step in enumerate(account.steps, 1):
        assert f"{i}. {step.title}  {step.formula}" in shown
        assert step.note in shown
    for text in re.findall(r"\[[^\]]*\]|-?\d+\.\d{4}", str(account)):
        assert text in shown
    assert in_terminal(told(["the", "cat", "sat"])).count("cat") >= 7


def test_rich_marks_the_word_in_the_spotlight() -> None:
    console = Console(file=io.StringIO(), width=100, record=True, force_terminal=True)
    console.print(told(["the", "cat", "sat"]).of("cat"))
    styled = console.export_text(styles=True)
    bold = [line for line in styled.splitlines() if re.search(r"\x1b\[1m\s*cat ←", line)]
    assert len(bold) == 5
    assert not re.search(r"\x1b\[1m\s*the\s", styled)


MARKUP = [
    "[bold]",
    "[/]",
    "[red]x[/red]",
    "[link=https://x]",
    ":cat:",
    "a\\",
    "\\[b]",
    "[@click=f]",
]


@pytest.mark.parametrize("word", MARKUP)
def test_rich_takes_words_as_they_are(word: str) -> None:
    account = Account(
        word,
        word,
        (Step(word, word, Table((word, "n"), ((word, 1.0), ("other", 2.0)), 0), word, word),),
    )
    shown = in_terminal(account).splitlines()
    texts = [" ".join(line.split()) for line in shown]
    for line in (word, f"1. {word} {word}", f"{word} n", f"{word} 1.0000"):
        assert line in texts
    assert texts.count(word) == 4, "title, preface, part and note"


# HTML


VOID = {"meta", "br", "hr", "img", "link", "input"}
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "section", "h2", "h3", "p", "b"),
    *("div", "table", "thead", "tbody", "tr", "th", "td", "small"),
}


class Reader(HTMLParser):
    """Tags must be closed in order; keeps the text of the page and every attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles: set[str] = set()
        self.text: list[str] = []
        self.cells: list[list[str]] = []
        self.comments: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles |= {value or "" for name, value in attrs if name == "style"}
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.text.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1][-1] += data


def parse(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == [], "tags that are never closed"
    return reader


@pytest.mark.parametrize("form", ["page", "html", "_repr_html_"])
def test_html_holds_words_as_text_only(form: str) -> None:
    account = told(HOSTILE).of(0)
    reader = parse(getattr(account, form)())
    assert reader.tags <= ALLOWED
    assert reader.attributes <= {"lang", "charset", "name", "content", "class", "style"}
    assert not [style for style in reader.styles if re.search(r"url|[^\w.,:;#%()\s-]", style)]
    assert reader.comments == []
    text = "".join(reader.text)
    for word in HOSTILE:
        assert word in text
    first = {row[0].removesuffix(" ←") for row in reader.cells}
    assert set(HOSTILE) <= first


def test_a_whole_page_holds_words_as_text_only() -> None:
    s = told(HOSTILE)
    reader = parse(s.html())
    assert reader.tags <= ALLOWED
    assert reader.comments == []
    headings = "".join(reader.text)
    for i, word in enumerate(HOSTILE, 1):
        assert f"{word}, word {i} of {len(HOSTILE)}" in headings


def test_hostile_titles_formulas_and_notes_are_text_too() -> None:
    bad = HOSTILE[0]
    account = Account(bad, bad, (Step(bad, bad, Table((bad, bad), ((bad, bad),)), bad, bad),))
    reader = parse(account.page())
    assert reader.tags <= ALLOWED
    # The title twice (head and body), preface, part, step, formula, note, two heads, two cells.
    assert "".join(reader.text).count(bad) == 11


def test_a_page_needs_nothing_else() -> None:
    text = told(["the", "cat"]).html()
    assert text.startswith("<!doctype html>\n<html")
    assert '<meta charset="utf-8">' in text
    assert not re.search(
        r"https?:|//|src\s*=|href|@import|url\(|<script|<link", text, re.IGNORECASE
    )


def printed(cell: str | float | tuple[float, ...]) -> str:
    if isinstance(cell, str):
        return cell
    return vector(cell) if isinstance(cell, tuple) else number(cell)


def test_html_shows_every_cell() -> None:
    account = told(["the", "cat", "sat"]).of("cat")
    rows = [row for step in account.steps for row in (step.table.columns, *step.table.rows)]
    assert parse(account.html()).cells == [[printed(cell) for cell in row] for row in rows]
    assert account.html().count("<tr class=marked>") == 5


# LaTeX


def balanced(tex: str) -> bool:
    depth = 0
    for bracket in re.findall(r"(?<!\\)(?:\\\\)*([{}])", tex):
        depth += 1 if bracket == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def test_latex_escapes_its_special_characters() -> None:
    wanted = {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "a_b^c": r"a\_b\textasciicircum{}c",
        "\\end{document}": r"\textbackslash{}end\{document\}",
    }
    assert list(wanted) == SPECIAL
    for word, escaped in wanted.items():
        tex = one_table((word, 1.0)).latex()
        assert f"    {escaped} & 1.0000 \\\\\n" in tex
        assert balanced(tex)
    bare = Account(*"&&", (Step("&", "&", Table(("&", "&"), (("&", "&"),), 0), "&", "&"),))
    assert re.findall(r"(?<!\\)&", bare.latex()) == ["&", "&"], "the two between the cells"


def test_latex_of_a_sentence_is_balanced() -> None:
    s = steps(
        torch.randn(len(SPECIAL), 4, generator=torch.Generator().manual_seed(0)),
        words=SPECIAL,
        heads=2,
        mask=window(before=1, after=1),
    )
    tex = s.latex()
    assert balanced(tex)
    begun, ended = (re.findall(rf"\\{which}\{{(\w+)\}}", tex) for which in ("begin", "end"))
    assert set(begun) == {"enumerate", "tabular"}
    assert sorted(begun) == sorted(ended)
    assert "document" not in begun
    for tabular in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", tex, re.DOTALL):
        columns = re.match(r"\{(l r*)\}", tabular.replace("{lr", "{l r"))
        assert columns
        for row in re.findall(r"^    (.*) \\\\$", tabular, re.MULTILINE):
            assert len(re.findall(r"(?<!\\)&", row)) == len(columns[1]) - 2
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\$", tex)) % 2 == 0, "math that is not closed"
    assert not re.search(r"(?<!\\)[%#~]", tex)


@pytest.mark.parametrize("word", ["[CLS]", "[SEP]", "*", "[2pt]"])
def test_latex_does_not_take_a_word_for_an_option(word: str) -> None:
    """``\\\\`` and ``\\midrule`` read on past the end of the line for a ``[`` or a ``*``."""
    tex = one_table((word, 1.0), (word, 2.0), ("x", 3.0), columns=(word, "n")).latex()
    assert not re.search(r"(?:\\\\|rule)\s*[\[*]", tex)
    assert tex.count(word) == 3


def test_latex_of_plain_words_is_plain_ascii() -> None:
    """So that every LaTeX and every font will do; only words bring characters of their own."""
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    weights = [torch.eye(4)] * 3
    forms = [
        steps(x, words=["the", "cat", "sat"]),
        steps(x, *weights, heads=2, w_o=torch.eye(4), mask=window(before=1, after=0)),
        steps(x * 100, *weights, mask=torch.tensor([[True], [False], [True]])),
    ]
    found = {character for one in forms for character in one.latex() if ord(character) > 126}
    assert sorted(found) == []
    assert "猫" in told(["猫", "cat"]).latex()


def test_latex_shows_what_the_text_shows() -> None:
    account = told(["the", "cat", "sat"]).of("cat")
    tex = account.latex()
    for text in re.findall(r"\[[^\]]*\]|-?\d+\.\d{4}", str(account)):
        assert text in tex
    assert tex.count(r"\toprule") == tex.count(r"\bottomrule") == 6
    assert len(re.findall(r"\\textbf\{cat", tex)) == 5
    assert tex.startswith("\\paragraph{cat, word 2 of 3: the cat sat}\nNo weights")
