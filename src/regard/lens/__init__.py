"""What models attend to, and whether it matters."""

from regard.lens.cutting import Cut, cut
from regard.lens.watching import Seen, watch

__all__ = ["Cut", "Seen", "cut", "watch"]
