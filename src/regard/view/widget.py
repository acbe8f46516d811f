"""A view in a notebook: the same module as in a file, asked and answered by messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.view import html, payload

if TYPE_CHECKING:
    from regard.view.viewer import View

MOST_ERROR = 400


def bundle(view: View, **options: Any) -> Any:
    """What a notebook shows of a view; text alone where anywidget is not installed."""
    try:
        made = widget(view)
    except ImportError:
        hint = "(pip install 'regard[notebook]' to see it, or save(\"view.html\") and open that)"
        return {"text/plain": f"{view}\n{hint}"}
    found = made._repr_mimebundle_(**options)
    data, metadata = found if isinstance(found, tuple) else (found or {}, {})
    return {**data, "text/plain": str(view)}, metadata


def widget(view: View) -> Any:
    """The view as an anywidget; a new one for every time it is shown."""
    import anywidget
    import traitlets

    class Viewer(anywidget.AnyWidget):
        """Attention, to look at."""

        _esm = html.module()
        payload = traitlets.Unicode().tag(sync=True)
        live = traitlets.List(traitlets.Unicode()).tag(sync=True)
        state = traitlets.Unicode("").tag(sync=True)

    made = Viewer(payload=payload.text_of(view.payload(steps=())), live=view.live)
    made.on_msg(lambda _, message, __: made.send(answered(view, message)))
    return made


def answered(view: View, message: Any) -> dict[str, Any]:
    """The message that answers one of the viewer: ``{id, reply}``, or ``{id, error}``."""
    question = message if isinstance(message, dict) else {}
    given = question.get("arguments")
    try:
        reply = view.answer(str(question.get("kind")), given if isinstance(given, dict) else {})
    except RegardError as error:
        return {"id": question.get("id"), "error": str(error)[:MOST_ERROR]}
    except Exception as error:  # a question must not stay without answer
        return {"id": question.get("id"), "error": f"{type(error).__name__}: {error}"[:MOST_ERROR]}
    return {"id": question.get("id"), "reply": reply}
