"""The models that come with regard, a folder each."""

from pathlib import Path

BUNDLED = Path(__file__).parent
POCKET = "pocket-en-de"
"""The model that is used if none is named."""
