"""Views from Python: as text, as pictures, as files, and what is said when something is wrong."""

from __future__ import annotations

import re
import struct
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.errors import OptionError, ShapeError, WordError
from regard.view import Compared, Explained, Layer, Method, Side, Text, View, heatmap, links
from regard.view.choice import WHICH, chosen

SVG = "{http://www.w3.org/2000/svg}"


def by_words(layer: Layer, queries: Text, keys: Text) -> np.ndarray:
    """The weights (h, words, words): written out in loops, apart from the code under test."""
    weights = layer.look.weights()[0].numpy().astype(np.float64)
    rows, columns = queries.units(), keys.units()
    merged = np.zeros((len(weights), len(rows), len(columns)))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            for query in row.tokens:
                for key in column.tokens:
                    merged[:, i, j] += weights[:, query, key] / len(row.tokens)
    return merged


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"\d\.\d+", text)]


def test_units_are_words_and_special_tokens(samples: Any) -> None:
    text = samples.sentence()
    assert [unit.label for unit in text.units()] == [*text.words, "</s>"]
    assert text.units()[2].tokens == (2, 3)
    assert text.units()[-1].place == -1
    assert [unit.label for unit in text.units(tokens=True)] == list(text.tokens)
    # Two special tokens are two, and a word may be in pieces that are apart.
    apart = Text("", ("<s>", "a", "b", "c", "<s>"), ("ac", "b"), (-1, 0, 1, 0, -1))
    assert [unit.tokens for unit in apart.units()] == [(0,), (1, 3), (2,), (4,)]


def test_text_of_the_head_view_has_the_weights(view: View) -> None:
    exact = by_words(view.layers[0], view.texts["source"], view.texts["source"])[[1, 3]].mean(0)[7]
    told = view.text("head", heads=[1, 3], word="it", threshold=0)
    lines = told.split("\n")
    assert lines[0] == "encoder 1, heads 1, 3 (self attention, words)"
    assert [line.split()[0] for line in lines[1:]] == [*view.texts["source"].words, "</s>"]
    assert numbers("\n".join(lines[1:])) == pytest.approx(exact.tolist(), abs=6e-4)


def test_text_of_the_head_view_of_all_words(view: View) -> None:
    told = view.text("head", layer="cross 1", heads=0).split("\n")
    exact = by_words(view.layers[3], view.texts["target"], view.texts["source"])[0]
    for line, row in zip(told[2:], exact, strict=True):
        assert numbers(line) == pytest.approx(row.tolist(), abs=6e-4)


def test_text_of_the_matrix_has_the_weights(view: View) -> None:
    exact = by_words(view.layers[1], view.texts["source"], view.texts["source"])[2]
    lines = view.text("matrix", layer=1, heads=2).split("\n")
    found = [numbers(line) for line in lines[2:]]
    np.testing.assert_allclose(found, exact, atol=6e-4)
    tokens = view.text("matrix", layer=1, heads=2, tokens=True)
    assert len(tokens.split("\n")) == 16


def test_text_of_the_overview_has_the_entropies(view: View) -> None:
    lines = view.text("overview").split("\n")
    assert lines[1].split() == ["0", "1", "2", "3"]
    for line, layer in zip(lines[2:], view.layers, strict=True):
        entropy = layer.look.entropy()[0].mean(-1) / np.log(layer.sizes[1])
        assert numbers(line.removeprefix(layer.name)) == pytest.approx(entropy.tolist(), abs=6e-3)


def test_text_of_explain_and_compare(view: View) -> None:
    told = view.text("explain")
    assert str(view) == told
    lines = told.split("\n")
    assert lines[0] == "What “it” depends on"
    assert lines[1].split() == ["attention", "norm", "rollout", "knockout"]
    assert view.explained is not None
    found = np.array([[float(x.strip("*").replace("−", "-")) for x in line.split()[1:]]
                      for line in lines[2:13]])  # fmt: skip
    for column, method in zip(found.T, view.explained.methods, strict=True):
        np.testing.assert_allclose(column, np.asarray(method.scores), atol=5.1e-3)
    assert [line.split(":")[0] for line in lines[13:17]] == lines[1].split()
    assert lines[14].endswith("agrees with cutting −0.20")
    assert lines[17] == "Cutting it changes most."
    compared = view.text("compare")
    for piece in ("with the [bat]", "pulled by\nball  0.410", "Fledermaus", "layer 2  0.440  ████"):
        assert piece in compared


def test_words_cannot_steer_a_terminal() -> None:
    x = torch.eye(2)
    text = Text.of(["\x1b[31mred", "\u202eturned"])
    view = View({"t": text}, [Layer("a", "self", "t", "t", regard.look(x, x, x))])
    told = view.text("head")
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert "␛[31mred" in told


@pytest.mark.parametrize("which", WHICH[2:])
def test_every_view_is_a_picture(view: View, which: str) -> None:
    root = ET.fromstring(view.svg(which, heads=1, word="it"))
    assert root.tag == f"{SVG}svg"
    wide, high = (float(root.get(name, "0")) for name in ("width", "height"))
    assert 300 < wide < 1100
    assert 200 < high < 1100
    png = view.png(which, heads=1, word="it", scale=1)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    pixels = struct.unpack(">II", png[16:24])
    assert pixels == pytest.approx((wide, high), abs=1.5)
    pdf = view.pdf(which, heads=1, word="it")
    assert pdf.startswith(b"%PDF-")


def test_pictures_have_the_numbers(view: View) -> None:
    root = ET.fromstring(view.svg("head", heads=2, word="it"))
    shown = [float(e.text or "") for e in root.iter() if e.get("class") == "value"]
    exact = by_words(view.layers[0], view.texts["source"], view.texts["source"])[2, 7]
    assert shown == pytest.approx(exact[exact > 0.02].tolist(), abs=6e-3)
    root = ET.fromstring(view.svg("overview"))
    told = [float(e.text or "") for e in root.iter() if e.get("class") == "value"]
    shares = [layer.look.entropy()[0].mean(-1) / np.log(layer.sizes[1]) for layer in view.layers]
    assert told == pytest.approx(torch.cat(shares).tolist(), abs=6e-3)


def test_pictures_name_the_heads_that_they_show(view: View) -> None:
    root = ET.fromstring(view.svg("head", heads=[1, 3]))
    legend = [e.text for e in root.iter() if e.get("class") == "legend" and e.text]
    assert legend == ["head 1", "head 3"]
    with pytest.raises(ShapeError, match="links: heads has 1 labels but weights has h=2"):
        links(np.ones((2, 1, 1)), ["a"], heads=["x"])


def test_the_matrix_of_a_masked_layer_is_hatched(view: View) -> None:
    root = ET.fromstring(view.svg("matrix", layer="decoder 1"))
    told = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert sum("masked" in title for title in told) == 15


def test_right_to_left_words_stay_in_their_column_as_png() -> None:
    """The program that draws PNG does not turn anchors by itself."""
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    import io

    picture = heatmap([[0.5]], rows=["שלום עולם"], numbers=False)
    drawn = pillow.open(io.BytesIO(picture.png(2))).convert("RGBA")
    paper = pillow.new("RGBA", drawn.size, "white")  # the corners are clear
    paper.alpha_composite(drawn)
    dark = np.argwhere(np.asarray(paper.convert("L")) < 120)[
        :, 1
    ]  # columns that have ink: the word, and the cell
    assert len(dark)
    assert dark.min() < 60, "the word begins at the left, and does not lie over the cell"


def test_without_typst_it_is_said_what_to_install(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "typst", None)
    with pytest.raises(OptionError, match=r"pdf: expected typst, .* 'regard\[pictures\]', or save"):
        view.pdf("head")


def test_a_scale_that_makes_too_many_pixels_is_refused(view: View) -> None:
    with pytest.raises(OptionError, match=r"png: scale expected > 0 and at most [\d.]+ .*got 999"):
        view.png("head", scale=999)


def test_long_texts_as_pictures_and_text(samples: Any) -> None:
    text = Text.of([f"w{i}" for i in range(300)])
    view = View({"t": text}, [Layer("one", "self", "t", "t", samples.looked(300))])
    with pytest.raises(OptionError, match=r"picture: word expected for lines between 300 and 300"):
        view.picture("head")
    root = ET.fromstring(view.svg("head", word="w3", heads=0))
    assert len([e for e in root.iter() if e.get("class") == "right"]) == 40
    assert "300 × 300 words" in view.svg("matrix")
    assert view.text("matrix").endswith("300 × 300 words, each cell the mean of 19 × 19")
    assert view.text("head", word="w3", threshold=0).endswith("The top 24 of 300 words.")


def test_pooling_is_the_mean_of_blocks(samples: Any) -> None:
    look = samples.looked(30, 45)
    texts = {"a": Text.of(["a"] * 30), "b": Text.of(["b"] * 45)}
    choice = chosen(texts, [Layer("one", "cross", "a", "b", look)], "test", {"heads": 2})
    found = choice.pooled(15)
    exact = look.weights()[0, 2].numpy().reshape(15, 2, 15, 3).mean((1, 3))
    np.testing.assert_allclose(found, exact, atol=1e-6)


def test_save_by_ending(view: View, tmp_path: Path) -> None:
    for name in ("a.html", "a.svg", "a.png", "a.pdf", "a.txt"):
        view.save(tmp_path / name, None if name == "a.html" else "overview")
    assert (tmp_path / "a.txt").read_text("utf-8") == view.text("overview") + "\n"
    assert (tmp_path / "a.svg").read_text("utf-8") == view.svg("overview") + "\n"
    assert (tmp_path / "a.html").read_text("utf-8") == view.html()
    with pytest.raises(OptionError, match=r"save: .*a\.doc ends in '\.doc', expected \.html or"):
        view.save(tmp_path / "a.doc")


def test_what_is_in_hand_is_a_view_and_a_frame_in_one_call(samples: Any) -> None:
    look, words, keys = samples.looked(3, 4), list("abc"), list("wxyz")
    view = look.view(words, keys)
    assert repr(view) == "View(1 layers, text, keys; .save('view.html') opens it)"
    assert view.layers[0].kind == "cross"
    frame = look.to_frame(words, keys)
    assert list(frame.columns) == ["entry", "head", "query", "key", "weight"]
    one = frame[(frame["head"] == 2) & (frame["query"] == "b") & (frame["key"] == "y")]
    assert one["weight"].item() == pytest.approx(float(look.weights()[0, 2, 1, 2]), abs=1e-6)
    plain = regard.view.attention_view(look.weights(), words, keys)
    np.testing.assert_allclose(plain.layers[0].look.weights(), look.weights(), atol=1e-6)
    assert plain.text("head", word="b") == view.text("head", word="b")
    model = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(1, 3, 8)
    with regard.watch(model) as seen:
        model(x, x, x)
    assert [layer.look for layer in seen.view(words).layers] == list(seen.values())
    assert len(seen.to_frame()) == 2 * 3 * 3
    with pytest.raises(OptionError, match="view: 4 words and 4 keys given, but no module attends"):
        seen.view(keys)


def test_weights_that_are_none() -> None:
    attention_view = regard.view.attention_view
    with pytest.raises(OptionError, match="view: words expected a list, got one text; split it"):
        attention_view(torch.eye(2)[None, None], "ab")
    with pytest.raises(OptionError, match="view: weights expected rows that sum to 1; give them"):
        attention_view(torch.ones(1, 1, 2, 2), ["a", "b"])
    with pytest.raises(
        ShapeError, match=r"view: weights .*\(2,1,1,2,2\), expected \(layers, heads"
    ):
        attention_view(torch.ones(2, 1, 1, 2, 2), ["a", "b"])
    with pytest.raises(ShapeError, match="expected one text; take one entry of the batch"):
        attention_view([torch.ones(2, 1, 2, 2)], ["a", "b"])


def test_a_view_of_a_comparison_alone(samples: Any) -> None:
    view = View({}, compared=samples.compared())
    assert str(view).startswith("They part after layer 1.\nHe hit")
    assert view.payload()["layers"] == []
    assert "<title>bat</title>" in view.html()
    with pytest.raises(OptionError, match=r'picture: "head" expected View\(…, layers=…\)'):
        view.picture("head")


def test_what_may_not_be(samples: Any) -> None:
    text, look = samples.sentence(), samples.looked(14)
    with pytest.raises(OptionError, match="View: expected layers, findings, explained or compared"):
        View({"source": text})
    with pytest.raises(OptionError, match="View: layer 'a' has queries='t', expected one of the"):
        View({"source": text}, [Layer("a", "self", "t", "source", look)])
    with pytest.raises(ShapeError, match="'a' has 14 keys but text 's' has 2 tokens; give one"):
        View({"source": text, "s": Text.of(["a", "b"])}, [Layer("a", "self", "source", "s", look)])
    with pytest.raises(OptionError, match="Layer: kind expected self, masked, cross, got 'odd'"):
        Layer("a", "odd", "source", "source", look)
    two = torch.randn(2, 4, 3, 8)
    with pytest.raises(ShapeError, match=r"Layer: look of 'a' expected one text, .*\(2,4,3,8\)"):
        Layer("a", "self", "source", "source", regard.look(two, two, two))
    with pytest.raises(ShapeError, match="Text: places has 1 but there are 2 tokens"):
        Text("", ("a", "b"), ("ab",), (0,))
    with pytest.raises(OptionError, match=r"Text: places expected -1 … 0 .*got 1; number"):
        Text("", ("a", "b"), ("ab",), (0, 1))
    with pytest.raises(ShapeError, match="Text: tokens expected at least one, got none"):
        Text("", (), (), ())
    with pytest.raises(OptionError, match="Text: tokens expected a list of texts, got one text"):
        Text("ab", "ab", ("ab",), (0, 0))
    with pytest.raises(WordError, match="Side: place 1 asked for, but there are 1 words"):
        Side(("a",), 1)


def test_what_may_not_be_explained(samples: Any) -> None:
    texts = {"source": samples.sentence()}

    def made(*methods: Method, word: int = 7) -> View:
        return View(texts, explained=Explained(word, "source", "source", methods))

    with pytest.raises(ShapeError, match="'attention' has 3 scores but the text has 11 words"):
        made(Method("attention", (1, 2, 3)))
    with pytest.raises(OptionError, match="scores of 'norm' expected finite, got inf; drop it"):
        made(Method("norm", [float("inf")] * 11))
    with pytest.raises(WordError, match="Explained: word 11 asked for, but there are 11"):
        made(Method("norm", [1.0] * 11), word=11)
    with pytest.raises(ShapeError, match="Explained: methods expected at least one, got none"):
        made()
    side = Side(("a",), 0)
    with pytest.raises(OptionError, match="Compared: cosine expected finite, got inf"):
        View({}, compared=Compared("a", side, side, [float("inf")]))


def test_what_may_not_be_asked(view: View) -> None:
    with pytest.raises(OptionError, match=r'text: "figure" expected View\(…, findings'):
        view.text("figure")
    with pytest.raises(
        OptionError, match=r"text: which expected figure, ribbon, head, .*, got 'heat'"
    ):
        view.text("heat")
    with pytest.raises(OptionError, match=r"text: layer expected one of 'encoder 1', .*, got 'x'"):
        view.text("head", layer="x")
    with pytest.raises(OptionError, match="text: layer 4 asked for, but there are 4"):
        view.text("head", layer=4)
    with pytest.raises(OptionError, match="text: head 4 asked for, but 'encoder 1' has 4"):
        view.text("head", heads=4)
    with pytest.raises(
        WordError, match="picture: 'anmal' is not in the text; did you mean 'animal"
    ):
        view.picture("head", word="anmal")
    with pytest.raises(WordError, match="save: steps: 'dog' is not in the text"):
        view.payload(["dog"])
    with pytest.raises(OptionError, match="save: steps expected a list of words, got one text"):
        view.payload("it")


def test_what_is_not_known_is_a_dot(view: View) -> None:
    assert view.explained is not None
    *others, last = view.explained.methods
    scores = np.asarray(last.scores, float).copy()
    scores[1] = np.nan
    methods = [*others, replace(last, scores=scores)]
    unsure = View(view.texts, view.layers, explained=replace(view.explained, methods=methods))
    row = next(line for line in unsure.text("explain").split("\n") if line.startswith("animal"))
    assert row.split()[-1] == "·"
    assert unsure.payload()["explained"]["table"]["values"][1][-1] is None
    assert ">·<" in unsure.svg("explain")
    scores[:] = np.nan
    with pytest.raises(OptionError, match="at least one that is known"):
        replace(last, scores=scores).values(len(scores))


def test_steps_of_a_word_in_any_case_and_in_any_text(view: View) -> None:
    first = next(iter(view.texts.values()))
    word = first.words[0]
    made = view.payload(steps=[word.upper()])
    assert any(layer is not None and layer["queries"] for layer in made["steps"])
    with pytest.raises(WordError, match="not in the text"):
        view.payload(steps=["nowhere"])
