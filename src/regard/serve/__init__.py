"""A model to look into, in the browser and by an API of JSON. Needs the extra `serve`."""

from regard.serve.application import make
from regard.serve.limits import Limits

__all__ = ["Limits", "make"]
