"""The OpenAPI 3.1 description of the API."""

from __future__ import annotations

from typing import Any

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
            "/api/health": {"get": _get("Whether the server is up, and its limits", "Health")},
            "/api/openapi.json": {"get": _get("This description", None)},
            **{f"/api/{name}": {"post": one} for name, one in _questions(limits).items()},
        },
        "components": {"schemas": _schemas()},
    }


def _questions(limits: Limits) -> dict[str, Schema]:
    text = {**STRING, "minLength": 1, "maxLength": limits.text}
    spelled = {**STRING, "maxLength": LONGEST_WORD}
    word = {
        "oneOf": [spelled, FROM_0],
        "description": "as it is written (it#2 is the second it), or its number",
    }
    tokens = {**FLAG, "description": "treat every subword as a word"}
    each = {**FLAG, "description": "also cut the strongest links of all layers, one at a time"}
    cell = dict.fromkeys(("layer", "head"), FROM_0)
    link = {**_array(FROM_0), "minItems": 2, "maxItems": 2}
    links = {
        **_array(link),
        "minItems": 1,
        "maxItems": limits.links,
        "description": "[attending word, attended word] each",
    }
    alone, asked = _object({"text": text}), _object({"text": text}, {"word": word})
    pair = _object({"word": spelled, "one": text, "other": text})
    return {
        "words": _post("The words of a text", alone, "Words"),
        "figure": _post(
            "What the page shows of a written word",
            _object({"text": text}, {"word": word, "links": each}),
            "Page",
        ),
        "attention": _post(
            "The weights of all heads",
            _object({"text": text}, {"word": {**FROM_0, "description": "the six steps of which"}}),
            "Page",
        ),
        "measures": _post("The importance of each input word for a written one", asked, "Measures"),
        "why": _post(
            "Why the model wrote a word, as numbers",
            _object({"text": text}, {"word": word, "instead": spelled}),
            "Why",
        ),
        "explain": _post(
            "What a word attends to, by four measures, as numbers",
            _object({"text": text, "word": word}, {"tokens": tokens}),
            "Explanation",
        ),
        "steps": _post(
            "The six steps of one link of a written word",
            _object({"text": text, "query": spelled, "key": spelled}, cell),
            "Steps",
        ),
        "translate": _post("The translation of a text", alone, "Translation"),
        "cut": _post(
            "What the model writes without some links",
            _object({"text": text, "links": links}),
            "Cut",
        ),
        "heads": _post(
            "Which heads are sharp and which broad, and which words receive most attention",
            _object({"text": text}, {"tokens": tokens}),
            "Heads",
        ),
        "compare": _post("One word in two texts", pair, "Compared"),
        "page": _post(
            "A self-contained page, of a word or of one word in two texts",
            {"oneOf": [asked, pair]},
            None,
            "text/html",
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
            {part: {} for part in PARTS},
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


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
        "additionalProperties": False,
    }


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _post(summary: str, body: Schema, reply: str | None, kind: str = "application/json") -> Schema:
    """A POST operation."""
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {
                "description": summary,
                "content": {kind: {"schema": _reference(reply) if reply else STRING}},
            },
            **{status: _refused(reason) for status, reason in REFUSED.items()},
        },
    }


def _get(summary: str, reply: str | None) -> Schema:
    schema = _reference(reply) if reply else ANY
    return {
        "summary": summary,
        "responses": {
            "200": {"description": summary, "content": {"application/json": {"schema": schema}}},
            "421": _refused(REFUSED["421"]),
        },
    }


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


def _refused(reason: str) -> Schema:
    content = {"application/json": {"schema": _reference("Error")}}
    return {"description": reason, "content": content}
