"""Text: subwords, sentence pairs and batches."""

from regard.lazy import exports

__getattr__, __dir__ = exports(__name__, __file__)
__all__ = __dir__()
