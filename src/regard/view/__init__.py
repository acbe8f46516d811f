"""What there is to see: pictures from plain data. Knows no model."""

from regard.view.chart import bars, lines
from regard.view.graph import links
from regard.view.image import heatmap
from regard.view.picture import Picture
from regard.view.plane import arrows

__all__ = ["Picture", "arrows", "bars", "heatmap", "lines", "links"]
