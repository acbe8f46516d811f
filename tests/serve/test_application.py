"""The API: each answer is the lens's and fits the description, each refusal says what is wrong."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from regard.errors import OptionError
from regard.lens import Lens
from regard.lens.views import compared_of
from regard.serve import Limits, guard, make
from regard.serve.guard import POLICY
from regard.translate import Translator
from regard.view import page, payload

TEXT = "The animal didn't cross the street because it was too tired."
OTHER = "because the bat hit it"
SHORT = "because it was too tired"
TWICE = "it was it"
WORDS = [*TEXT[:-1].split(), "."]


CELL = {"text": SHORT, "query": "becauselll", "key": "it", "layer": 0, "head": 0}
QUESTIONS: dict[str, dict[str, Any]] = {
    "words": {"text": SHORT},
    "figure": {"text": SHORT, "word": 0},
    "attention": {"text": SHORT},
    "measures": {"text": SHORT, "word": 0},
    "why": {"text": SHORT, "word": 0, "instead": "was"},
    "explain": {"text": SHORT, "word": 1, "tokens": True},
    "steps": CELL,
    "translate": {"text": SHORT},
    "cut": {"text": SHORT, "links": [[1, 0]]},
    "heads": {"text": SHORT},
    "compare": {"word": "it", "one": SHORT, "other": OTHER},
    "page": {"text": SHORT, "word": 0},
}


def test_words(client: Any) -> None:
    assert client.post("/api/words", {"text": TEXT}).json() == {"words": WORDS}


def same(reply: Any, made: Any) -> bool:
    return bool(reply.json() == json.loads(json.dumps(made)))


def test_figure_and_attention_make_the_page(client: Any, lens: Lens) -> None:
    view = lens.view(SHORT, every=False, layers=False, links=False)
    assert same(client.post("/api/figure", {"text": SHORT}), view.payload())
    with_links = lens.view(SHORT, every=False, layers=False)
    assert same(client.post("/api/figure", {"text": SHORT, "links": True}), with_links.payload())
    found = client.post("/api/figure", {"text": SHORT, "word": 2}).json()["findings"]
    assert [one["position"] for one in found] == [2]
    made = client.post("/api/attention", {"text": SHORT}).json()
    whole = json.loads(json.dumps(lens.view(SHORT, every=False).payload()))
    assert (made["layers"], made["texts"]) == (whole["layers"], whole["texts"])
    assert len(made["layers"]) == 4


def test_why_and_measures(client: Any, lens: Lens) -> None:
    reply = client.post("/api/why", {"text": SHORT, "word": 0, "instead": "was"}).json()
    assert (reply["position"], reply["instead"]) == (0, "was")
    exact = lens.why(SHORT, 0, instead="was")
    assert reply["probability"] == pytest.approx(exact.probability, abs=1e-4)
    assert [one["word"] for one in reply["words"]] == [one.word for one in exact.words]
    measures = lens.measures(SHORT, 0)
    made = client.post("/api/measures", {"text": SHORT, "word": 0})
    assert same(made, payload.measures_data(measures))
    assert measures.methods[0].name == "knockout"


def test_explain(client: Any, lens: Lens) -> None:
    reply = client.post("/api/explain", {"text": TWICE, "word": "it#2"}).json()
    assert reply == lens.explain(TWICE, "it#2").to_data()
    assert (reply["word"], reply["position"]) == ("it", 2)
    apart = client.post("/api/explain", {"text": "zebra", "word": 1, "tokens": True}).json()
    assert apart == lens.explain("zebra", 1, tokens=True).to_data()
    assert len(apart["words"]) > 2  # more subwords than one, and the end


def test_steps(client: Any, lens: Lens) -> None:
    reply = client.post("/api/steps", CELL)
    exact = lens.steps(SHORT, query="becauselll", key="it", layer=0, head=0)
    assert same(reply, exact.to_data())
    assert reply.json()["weight"] == pytest.approx(exact.weight)
    strongest = client.post("/api/steps", {"text": SHORT, "query": "becauselll", "key": "it"})
    assert same(strongest, lens.steps(SHORT, query="becauselll", key="it").to_data())


def test_translate(client: Any, lens: Lens, translator: Translator) -> None:
    reply = client.post("/api/translate", {"text": SHORT}).json()
    assert reply == {"translation": lens.translate(SHORT).text}
    assert reply["translation"] == translator.translate([SHORT])[0].text


def test_cut(client: Any, lens: Lens) -> None:
    reply = client.post("/api/cut", {"text": SHORT, "links": [[1, 0], [1, 4]]}).json()
    found = lens.without(SHORT, [("it", "because"), ("it", "tired")])
    assert reply == {"before": found.before, "after": found.after, "note": found.note}
    assert reply["note"].startswith("it moves by ")


def test_heads(client: Any, lens: Lens) -> None:
    reply = client.post("/api/heads", {"text": SHORT}).json()
    assert reply == lens.summary(SHORT).to_data()
    assert len(reply["entropy"]) == 2


def test_compare(client: Any, lens: Lens) -> None:
    question = {"word": "it", "one": SHORT, "other": OTHER}
    reply = client.post("/api/compare", question).json()
    found = lens.compare(SHORT, OTHER, "it")
    assert reply["comparison"] == {**found.to_data(), "conclusion": found.conclusion}
    assert reply["compared"] == json.loads(json.dumps(payload.compared_data(compared_of(found))))
    assert client.post("/api/page", question).text == found.view().html()


def test_page(client: Any, lens: Lens) -> None:
    reply = client.post("/api/page", {"text": SHORT, "word": 1})
    assert reply.text == lens.view(SHORT, 1).html()
    assert reply.headers["content-disposition"] == 'attachment; filename="regard.html"'


def test_health(client: Any) -> None:
    reply = client.get("/api/health").json()
    assert (reply["model"], reply["translates"], reply["waiting"]) == ("tiny", True, 0)
    assert reply["limits"]["text"] == 2000


def test_every_route_is_described_and_answers_so(client: Any) -> None:
    described = client.get("/api/openapi.json").json()
    assert described == json.loads(json.dumps(client.description))
    routes = {
        (route.path, method.lower())
        for route in client.plain.app.routes
        if isinstance(route, Route) and route.path.startswith("/api/")
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert routes == {(path, how) for path, one in described["paths"].items() for how in one}
    asked = set()
    for path, question in QUESTIONS.items():
        assert client.post(f"/api/{path}", question).status_code == 200
        asked.add((f"/api/{path}", "post"))
    assert routes == asked | {("/api/health", "get"), ("/api/openapi.json", "get")}


class Counting(Lens):
    """A lens that counts how often it summarises."""

    count = 0

    def summary(self, *given: Any, **options: Any) -> Any:
        self.count += 1
        return super().summary(*given, **options)


def test_recent_replies_are_kept(translator: Translator, checked: Callable[..., Any]) -> None:
    lens = Counting(translator)
    client = checked(lens)
    first = client.post("/api/heads", {"text": SHORT})
    again = client.post("/api/heads", {"text": SHORT})
    assert lens.count == 1
    assert again.content == first.content
    assert again.headers["content-type"] == first.headers["content-type"]
    client.post("/api/words", {"text": SHORT})  # another question about the same
    client.post("/api/heads", {"text": SHORT, "tokens": True})
    client.post("/api/heads", {"text": OTHER})
    assert lens.count == 3
    forgets = checked(lens, Limits(kept=1, seconds=600))
    for _ in range(2):
        forgets.post("/api/heads", {"text": SHORT})
    assert lens.count == 5


REFUSED: list[tuple[str, Any, int, str]] = [
    ("explain", {"word": "it"}, 400, "text is missing"),
    ("explain", {"text": TEXT}, 400, "word is missing"),
    ("explain", {"text": TEXT, "word": None}, 400, "word is missing"),
    ("explain", {"text": 5, "word": "it"}, 400, "text is a number, expected a string"),
    ("explain", {"text": " \n", "word": 0}, 400, "text is empty; give it at least one word"),
    ("explain", {"text": "\ud800", "word": 0}, 400, "text has characters that are not Unicode"),
    ("explain", {"text": TEXT, "word": "\udfff"}, 400, "word has characters that are not Unicode"),
    ("explain", {"text": TEXT, "word": True}, 400,
     "word is a boolean, expected a word or its number from 0"),
    ("explain", {"text": TEXT, "word": 1.5}, 400,
     "word is a number, expected a word or its number from 0"),
    ("explain", {"text": TEXT, "word": "it", "wrod": 1}, 400,
     "'wrod' is unknown, expected text, word, tokens"),
    ("explain", {"text": TEXT, "word": "dog"}, 422, "the text has no word 'dog'; it has The, anim"),
    ("explain", {"text": TWICE, "word": "it"}, 422,
     "the text has 'it' 2 times; say which: it#1 or it#2"),
    ("explain", {"text": TEXT, "word": 12}, 422, "word 12, but the text has 12, numbered from 0"),
    ("explain", {"text": TEXT, "word": -1}, 422, "word -1, but the text has 12, numbered from 0"),
    ("explain", {"text": TEXT, "word": 10**30}, 422, f"word {10**30}, but the text has 12"),
    ("explain", {"text": TEXT, "word": 1, "tokens": "yes"}, 400,
     "tokens is a string, expected true or false"),
    ("explain", {"text": "a" * 2001, "word": 0}, 413,
     "text has 2,001 characters, but the limit is 2,000"),
    ("explain", {"text": TEXT, "word": "a" * 201}, 413,
     "word has 201 characters, but the limit is 200"),
    ("steps", {**CELL, "layer": -1}, 400, "layer is -1, expected a whole number from 0"),
    ("steps", {**CELL, "layer": "0"}, 400, "layer is a string, expected a whole number from 0"),
    ("steps", {**CELL, "layer": 9}, 422, "steps: layer 9"),
    ("steps", {**CELL, "key": "dog"}, 422, "steps: no word"),
    ("steps", {**CELL, "key": 1}, 400, "key is a number, expected a string"),
    ("figure", {"text": TEXT, "word": 99}, 422, "word 99, but there are "),
    ("figure", {"text": TEXT, "word": "zebra"}, 422, "why: "),
    ("why", {"text": TEXT, "word": 0, "instead": 3}, 400,
     "instead is a number, expected a string"),
    ("cut", {"text": TEXT, "links": [[0, 99]]}, 422,
     "word 99, but the text has 12, numbered from 0"),
    ("cut", {"text": TEXT, "links": []}, 400, "links expected pairs of word numbers, [["),
    ("cut", {"text": TEXT, "links": [[0, -1]]}, 400, "links expected pairs of word numbers"),
    ("cut", {"text": TEXT, "links": {"0": 1}}, 400, "links expected pairs of word numbers"),
    ("cut", {"text": TEXT, "links": [[0, 1]] * 65}, 413,
     "links has 65 links, but no more than 64 are cut at once"),
    ("compare", {"word": 1, "one": TEXT, "other": OTHER}, 400,
     "word is a number, expected a string"),
    ("compare", {"word": "it", "one": TEXT, "other": ""}, 400, "other is empty"),
    ("compare", {"word": "bat", "one": TEXT, "other": OTHER}, 422, "the text has no word 'bat'"),
    ("page", {"one": TEXT, "word": "it"}, 400, "other is missing"),
    ("page", {"text": TEXT, "wrod": 1}, 400, "'wrod' is unknown, expected text, word"),
    ("heads", [TEXT], 400, "the body is an array, expected a JSON object"),
    ("heads", "text", 400, "the body is a string, expected a JSON object"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "question", "status", "sentence"), REFUSED, ids=lambda value: str(value)[:30]
)
def test_refusals(client: Any, path: str, question: Any, status: int, sentence: str) -> None:
    body = {"content": json.dumps(question), "headers": {"Content-Type": "application/json"}}
    assert client.refused(f"/api/{path}", status, **body).startswith(sentence)


@pytest.mark.parametrize(
    ("content", "status", "sentence"),
    [
        (b"", 400, "the body is not JSON: Expecting value at line 1, column 1"),
        (b'{"text": "a', 400, "the body is not JSON: Unterminated string"),
        (b'{"text": NaN}', 400, "the body is not JSON: "),
        (b'{"text": "\xff"}', 400, "the body is not JSON: not UTF-8"),
        (b"[" * 60_000, 400, "the body is not JSON: nested too deeply"),
        (b'{"text": ' + b"1" * 5000 + b"}", 400, "the body is not JSON: a number is too long"),
        (b" " * 65_537, 413, "the body has more than 65,536 bytes, which is the limit"),
        (b" " * 3_000_000, 413, "the body has more than 65,536 bytes, which is the limit"),
    ],
    ids=["empty", "cut", "nan", "utf-8", "nested", "digits", "large", "larger"],
)
def test_bodies(client: Any, content: bytes, status: int, sentence: str) -> None:
    kind = {"Content-Type": "application/json; charset=utf-8"}
    said = client.refused("/api/heads", status, content=content, headers=kind)
    assert said.startswith(sentence)
    assert client.get("/api/health").status_code == 200


def test_a_body_of_unsaid_length_is_limited(client: Any) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"text": "'
        for _ in range(100):
            yield b"a" * 1000
        yield b'"}'

    kind = {"Content-Type": "application/json"}
    said = client.refused("/api/heads", 413, content=chunks(), headers=kind)
    assert said == "the body has more than 65,536 bytes, which is the limit"


def test_only_json_is_taken(client: Any) -> None:
    """A form of another site can send text/plain without asking; its answers cost work."""
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        said = client.refused(
            "/api/heads", 415, content=b'{"text": "a"}', headers={"Content-Type": kind}
        )
        assert said == f"Content-Type expected application/json, got {kind}"


def test_long_errors_are_shortened(client: Any) -> None:
    text = " ".join(f"word{'x' * 150}{i}" for i in range(12))
    said = client.refused("/api/explain", 422, json={"text": text, "word": "dog"})
    assert len(said) == 401
    assert said.endswith("…")


@pytest.mark.parametrize("path", ["/nowhere", "/api/why/", "/static/page.js",
                                  "/static/%2e%2e/page.py", "/%2e%2e%2fapplication.py",
                                  "/%2fetc%2fpasswd"])  # fmt: skip
def test_unknown_addresses(client: Any, path: str) -> None:
    reply = client.plain.get(path)
    assert reply.status_code == 404
    assert reply.json() == {"error": "there is nothing at this address"}


def test_other_methods(client: Any) -> None:
    reply = client.plain.get("/api/why")
    assert reply.status_code == 405
    assert reply.json() == {"error": "this address does not accept this method"}
    assert reply.headers["allow"] == "POST"


HOSTS = [
    ("localhost", True), ("LOCALHOST:80", True), ("127.0.0.1:8421", True), ("[::1]:8421", True),
    ("[::1]", True), ("attention.example:443", True), ("evil.example", False), ("", False),
    ("localhost.evil.example", False), ("localhost:evil", False), ("0.0.0.0:8421", False),
    ("127.0.0.1:1:2", False), ("::1", False), ("[::]", False),
]  # fmt: skip


@pytest.mark.parametrize(("host", "welcome"), HOSTS)
def test_the_host_is_checked(lens: Lens, host: str, welcome: bool) -> None:
    app = make(lens, hosts=["0.0.0.0", "Attention.example"])
    reply = TestClient(app).get("/api/health", headers={"Host": host})
    assert reply.status_code == (200 if welcome else 421)
    if not welcome:
        assert reply.json()["error"] == (
            "Host expected one of 127.0.0.1, [::1], attention.example, localhost; if this server "
            "has another name, start it with --allow-host NAME"
        )
        assert reply.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize("path", ["/", "/api/health", "/nowhere", "/page.js"])
def test_headers(client: Any, path: str) -> None:
    headers = client.plain.get(path, headers={"Origin": "https://evil.example"}).headers
    assert headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'; ")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    kept = "no-store" if path in ("/api/health", "/nowhere") else "no-cache"
    assert headers["cache-control"] == kept
    assert not [name for name in headers if name.startswith("access-control")]


def test_another_site_is_not_let_in(client: Any) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    reply = client.plain.options("/api/why", headers=asked)
    assert reply.status_code == 405
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_the_page_is_served_as_it_is(client: Any) -> None:
    for path, text, kind in (
        ("/page.js", page.script(), "text/javascript"),
        ("/page.css", page.style(), "text/css"),
    ):
        reply = client.plain.get(path)
        assert reply.text == text
        assert reply.headers["content-type"] == f"{kind}; charset=utf-8"
    document = client.plain.get("/").text
    assert re.findall(r'<script[^>]*src="([^"]+)"', document) == ["page.js"]
    assert not re.search(r"<style|\sstyle=|\son\w+=|https?:", document)
    assert '"model":"tiny"' in document


def test_nothing_that_is_typed_is_logged(
    lens: Lens, checked: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "regard.serve")
    quiet = checked(lens)
    quiet.post("/api/words", {"text": "zebra"})
    quiet.refused("/api/explain", 422, json={"text": "zebra", "word": "unzebra"})
    quiet.plain.get("/zebra", params={"text": "zebra"})
    quiet.plain.get("/", params={"text": "zebra"}, headers={"Host": "zebra"})
    lines = [record.getMessage() for record in caplog.records if record.name == "regard.serve"]
    assert [line.split(",")[0] for line in lines] == [
        "POST /api/words 200",
        "POST /api/explain 422",
        "GET (unknown path) 404",
        "GET (unknown path) 421",
    ]
    assert "zebra" not in str(lines)
    checked(lens, log_texts=True).post("/api/words", {"text": "zebra"})
    assert '/api/words {"text": "zebra"}' in caplog.text


class Broken(Lens):
    """A lens with a fault."""

    def summary(self, text: str, **options: Any) -> Any:
        raise RuntimeError(f"cannot digest {text}")


def test_a_fault_of_the_server_is_said_and_its_message_is_not(
    translator: Translator, checked: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    client = checked(Broken(translator))
    said = client.refused("/api/heads", 500, json={"text": "zebra"})
    assert said == "the server failed (RuntimeError); its log says where"
    assert "/api/heads failed, RuntimeError\n" in caplog.text
    assert "in summary" in caplog.text
    assert "zebra" not in caplog.text
    assert client.get("/api/health").status_code == 200
    told = checked(Broken(translator), log_texts=True)
    told.refused("/api/heads", 500, json={"text": "zebra"})
    assert "RuntimeError: cannot digest zebra" in caplog.text


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="Limits: seconds expected above 0, got -1"):
        Limits(seconds=-1)
    with pytest.raises(ValueError, match="Limits: waiting expected a number, got True"):
        Limits(waiting=True)


@pytest.mark.parametrize("name", ["", "attention.example:8421", "a b:c"])
def test_names_that_cannot_be_called(name: str) -> None:
    with pytest.raises(OptionError, match=r"--allow-host .* expected a name without a port"):
        guard.names([name])
