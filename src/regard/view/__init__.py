"""What there is to see: pictures from plain data, and the viewer. Knows no model."""

from regard.view.chart import bars, lines
from regard.view.figure import Figure
from regard.view.graph import links
from regard.view.image import heatmap
from regard.view.payload import Sparsity
from regard.view.picture import Picture
from regard.view.plane import arrows
from regard.view.records import Compared, Explained, Layer, Method, Side, Text
from regard.view.viewer import View

__all__ = [
    "Compared",
    "Explained",
    "Figure",
    "Layer",
    "Method",
    "Picture",
    "Side",
    "Sparsity",
    "Text",
    "View",
    "arrows",
    "bars",
    "heatmap",
    "lines",
    "links",
]
