"""The six steps as data, and as text, HTML and LaTeX.

The package is not called `steps`: importing it would replace the function `regard.steps`.
"""

from regard.walkthrough.account import Account
from regard.walkthrough.calculation import steps
from regard.walkthrough.record import NAMES, Steps

__all__ = ["NAMES", "Account", "Steps", "steps"]
