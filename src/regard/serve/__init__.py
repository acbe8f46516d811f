"""A web page and a JSON API around a lens. Needs the extra `serve`."""

from regard.serve.application import make
from regard.serve.limits import Limits

__all__ = ["Limits", "make"]
