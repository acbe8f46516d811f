"""Pictures from plain data, and the interactive page. Independent of any model."""

from regard.view.chart import bars, lines
from regard.view.graph import links
from regard.view.image import heatmap
from regard.view.payload import Sparsity
from regard.view.picture import Picture
from regard.view.plane import arrows
from regard.view.records import Compared, Explained, Layer, Measures, Method, Side, Text
from regard.view.viewer import View
from regard.view.weights import attention_view

__all__ = [
    "Compared",
    "Explained",
    "Layer",
    "Measures",
    "Method",
    "Picture",
    "Side",
    "Sparsity",
    "Text",
    "View",
    "arrows",
    "attention_view",
    "bars",
    "heatmap",
    "lines",
    "links",
]
