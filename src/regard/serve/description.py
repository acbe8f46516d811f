"""The OpenAPI 3.1 description of the API, which requests are checked against."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from regard import __version__
from regard.serve.body import LONGEST_WORD
from regard.serve.limits import Limits

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FROM_0: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean", "default": False}
ANY: Schema = {"type": "object"}
UNKNOWN: Schema = {"type": ["number", "null"]}
PARTS = ("title", "vectors", "measures", "labels", "served", "texts", "layers", "sparse", "steps",
         "explained", "compared")  # fmt: skip
"""Other fields for the page, whose format may change."""


def describe(limits: Limits) -> Schema:
    """The OpenAPI document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "regard serve",
            "version": __version__,
            "description": (
                "What the words of a text attend to in a model, and whether it matters. Words are "
                "numbered from 0, without special tokens, unless stated otherwise. Nothing is "
                "stored."
            ),
        },
        "paths": {
            "/api/health": {
                "get": _get("Whether the server is up, and its limits", _reference("Health"))
            },
            "/api/openapi.json": {"get": _get("This description", ANY)},
            **{f"/api/{name}": {"post": _post(one)} for name, one in questions(limits).items()},
        },
        "components": {"schemas": _schemas()},
    }


class Question(NamedTuple):
    """A route below ``/api/``; its name is a method of `Answers`."""

    summary: str
    reply: str | None
    """The name of the reply's schema; None is HTML."""
    fields: Schema
    """An object, or one of two: of a word in one text, and of a word in two."""


def questions(limits: Limits) -> dict[str, Question]:
    """The questions of the API by name."""
    text = {**STRING, "minLength": 1, "maxLength": limits.text}
    spelled = {**STRING, "maxLength": LONGEST_WORD}
    word = {
        "oneOf": [spelled, FROM_0],
        "description": "as it is written (it#2 is the second it), or its number",
    }
    row = {**FROM_0, "description": "the six steps of which"}
    tokens = {**FLAG, "description": "treat every subword as a word"}
    each = {**FLAG, "description": "also cut the strongest links of all layers, one at a time"}
    links = {
        **_array({**_array(FROM_0), "minItems": 2, "maxItems": 2}),
        "minItems": 1,
        "maxItems": limits.links,
        "description": "[attending word, attended word] each",
    }
    about = {"text": text}
    alone, asked = _object(about), _object(about, word=word)
    link = _object({**about, "query": spelled, "key": spelled}, layer=FROM_0, head=FROM_0)
    pair = _object({"word": spelled, "one": text, "other": text})
    return {
        "words": Question("The words of a text", "Words", alone),
        "figure": Question(
            "What the page shows of a written word",
            "Page",
            _object(about, word=word, links=each),
        ),
        "attention": Question("The weights of all heads", "Page", _object(about, word=row)),
        "measures": Question(
            "The importance of each input word for a written one", "Measures", asked
        ),
        "why": Question(
            "Why the model wrote a word, as numbers",
            "Why",
            _object(about, word=word, instead=spelled),
        ),
        "explain": Question(
            "What a word attends to, by four measures, as numbers",
            "Explanation",
            _object({**about, "word": word}, tokens=tokens),
        ),
        "steps": Question("The six steps of one link of a written word", "Steps", link),
        "translate": Question("The translation of a text", "Translation", alone),
        "cut": Question(
            "What the model writes without some links", "Cut", _object({**about, "links": links})
        ),
        "heads": Question(
            "Which heads are sharp and which broad, and which words receive most attention",
            "Heads",
            _object(about, tokens=tokens),
        ),
        "compare": Question("One word in two texts", "Compared", pair),
        "page": Question(
            "A self-contained page, of a word or of one word in two texts",
            None,
            {"oneOf": [asked, pair]},
        ),
    }


def _schemas() -> dict[str, Schema]:
    strings = _array(STRING)
    table = _object(
        {
            "title": STRING,
            "rows": {**strings, "description": "words"},
            "columns": {**strings, "description": "methods"},
            "notes": strings,
            "values": _array(_array(UNKNOWN)),
            "footer": STRING,
        }
    )
    return {
        "Error": _object({"error": {**STRING, "description": "one sentence"}}),
        "Health": _object(
            {
                "status": {"const": "ok"},
                "regard": {**STRING, "description": "the version"},
                "model": STRING,
                "translates": {"type": "boolean"},
                "waiting": FROM_0,
                "limits": _object(
                    {
                        "text": {**INTEGER, "description": "characters"},
                        "tokens": {**INTEGER, "description": "of a text"},
                        "body": {**INTEGER, "description": "bytes"},
                        "seconds": {**NUMBER, "description": "of one request"},
                        "waiting": {**INTEGER, "description": "requests at once"},
                        "links": {**INTEGER, "description": "cut at once"},
                    }
                ),
            }
        ),
        "Words": _object({"words": strings}),
        "Page": _object(
            {"format": {"const": "regard.view"}, "version": INTEGER, "findings": _array(ANY)},
            **{part: {} for part in PARTS},
        ),
        "Measures": _object({"word": STRING, "table": table}),
        "Why": {**ANY, "required": ["word", "instead", "metric", "links", "words", "flip"]},
        "Steps": {**ANY, "required": ["query", "key", "product", "scaled", "weight"]},
        "Explanation": {
            **ANY,
            "required": ["text", "word", "words", "layers", "scores", "heads", "conclusion"],
        },
        "Translation": _object({"translation": STRING}),
        "Cut": _object({"before": STRING, "after": STRING, "note": STRING}),
        "Heads": {**ANY, "required": ["words", "special", "layers", "entropy", "received"]},
        "Compared": _object(
            {
                "comparison": {**ANY, "required": ["word", "cosine", "sides", "conclusion"]},
                "compared": ANY,
            }
        ),
    }


def _object(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **optional},
        "additionalProperties": False,
    }


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _post(question: Question) -> Schema:
    """A POST operation."""
    reply = (
        _json(_reference(question.reply)) if question.reply else {"text/html": {"schema": STRING}}
    )
    operation = _operation(question.summary, reply, REFUSED)
    return {**operation, "requestBody": {"required": True, "content": _json(question.fields)}}


def _get(summary: str, reply: Schema) -> Schema:
    return _operation(summary, _json(reply), ["421"])


def _operation(summary: str, reply: Schema, refused: Iterable[str]) -> Schema:
    """An operation; some refusals are possible, each with an error as its content."""
    error = _json(_reference("Error"))
    return {
        "summary": summary,
        "responses": {
            "200": {"description": summary, "content": reply},
            **{one: {"description": REFUSED[one], "content": error} for one in refused},
        },
    }


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


REFUSED = {
    "400": "The body is not JSON, or a field is missing, unknown or of another type",
    "408": "The body was not received in time",
    "413": "The body, a text or the number of links is beyond the limits",
    "415": "The Content-Type is not application/json",
    "421": "The Host header is not a name of this server",
    "422": "The request is valid, but has no answer: no such word, cell or translation",
    "500": "The server failed",
    "503": "Too many requests are waiting, or it took too long",
}
"""The refusals by status."""
