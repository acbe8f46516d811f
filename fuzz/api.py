"""The JSON API, asked by schemathesis whatever its own description allows, and what it does not."""

from __future__ import annotations

from functools import cache
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from schemathesis import checks

from fuzz import small
from regard import Lens
from regard.serve import Limits, make

HOST = {"Host": "localhost"}
"""The server answers who calls it by one of its names."""
TIMEOUT = 120
"""Seconds after which a reply counts as missing; a machine may be busy with other things."""
EXAMPLES = 8
"""Requests of one case."""
CHECKS = [
    checks.not_a_server_error,
    *(
        check
        for check in checks.CHECKS.get_all()
        if check.__name__
        in ("status_code_conformance", "content_type_conformance", "response_schema_conformance")
    ),
]


@cache
def operations() -> list[Any]:
    """What the API can be asked, by its description."""
    app = make(Lens.open(str(small.model())), limits=Limits(text=300, tokens=128))
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=HOST)
    return [one.ok() for one in schema.get_all_operations()]


def one(seed: int) -> list[str]:
    """Try some requests of one operation; which, and how many of each status."""
    operation = operations()[seed % len(operations())]
    found: list[str] = []

    @hypothesis_seed(seed)
    @settings(
        max_examples=EXAMPLES, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        response = case.call(headers=HOST, timeout=TIMEOUT)
        found.append(f"status {response.status_code}")
        case.validate_response(response, checks=CHECKS)

    ask()
    return [operation.path, *found]
