"""Pictures of every kind, and what is read from their SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import numpy as np

from regard.view import Picture

SVG = "{http://www.w3.org/2000/svg}"
IT = "The animal didn't cross the street because it was too tired"
WORDS = IT.split()


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def noise(*sizes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=sizes)


def parsed(picture: Picture) -> ET.Element:
    return ET.fromstring(picture.svg())


def of_class(picture: Picture, kind: str) -> list[ET.Element]:
    return [element for element in parsed(picture).iter() if element.get("class") == kind]


def shown(element: ET.Element) -> str:
    """The text of an element, without what it says on hover."""
    parts = [element.text or ""] + [child.tail or "" for child in element]
    return "".join(parts)


def hover(element: ET.Element) -> str | None:
    title = element.find(f"{SVG}title")
    return None if title is None else title.text


def texts(picture: Picture, kind: str) -> list[str]:
    return [shown(element) for element in of_class(picture, kind)]


def number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))


Point = tuple[float, float]


def points(d: str) -> Iterator[Point]:
    x = y = 0.0
    for command, values in re.findall(r"([A-Za-z])([^A-Za-z]*)", d):
        numbers = [float(value) for value in re.findall(r"-?[\d.]+", values)]
        if command in "MLC":
            for x, y in zip(numbers[::2], numbers[1::2], strict=True):
                yield x, y
            continue
        if command == "l":
            x, y = x + numbers[0], y + numbers[1]
        elif command in "Hh":
            x = numbers[0] + (x if command == "h" else 0)
        elif command in "Vv":
            y = numbers[0] + (y if command == "v" else 0)
        else:
            assert command in "Zz"
        yield x, y
