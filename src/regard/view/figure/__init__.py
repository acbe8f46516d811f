"""The finding about one written word, as a figure and as a page in which links can be cut."""

from regard.view.figure.figure import Figure

__all__ = ["Figure"]
