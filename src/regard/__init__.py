"""Self-attention you can see through."""

from regard.lazy import exports

__version__ = "0.1.0"

__getattr__, __dir__ = exports(__name__, __file__)
__all__ = __dir__()
