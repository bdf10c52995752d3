"""How figures look: one template, and a fixed colour and dash for each drafter.

Colours are the Okabe-Ito set, which colour-blind readers tell apart; dash and marker repeat what the
colour says. Text and grid take their colour from the page's style sheet, so that figures follow it
into dark mode and onto paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import plotly.graph_objects as go

__all__ = ["PARTS", "TEMPLATE", "Style", "styles"]

GREY, BLUE, ORANGE, GREEN = "#7f7f7f", "#0072B2", "#E69F00", "#009E73"
VERMILION, PURPLE, SKY, OLIVE = "#D55E00", "#CC79A7", "#56B4E9", "#A6A000"

KNOWN = {
    "autoregressive": GREY,
    "hyflash": VERMILION,
    "full-context": BLUE,
    "prompt-lookup": GREEN,
    "suffix": ORANGE,
    "window": SKY,
    "eagle": PURPLE,
    "medusa": OLIVE,
}
"""Drafters people look for keep their colour from report to report."""

OTHERS = (PURPLE, SKY, OLIVE, ORANGE, BLUE, GREEN)
STROKES = {
    "solid": "none",
    "dash": "6 3",
    "dot": "2 2",
    "dashdot": "6 2 2 2",
    "longdash": "9 3",
    "longdashdot": "9 2 2 2",
}
DASHES = tuple(STROKES)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")
PATTERNS = ("", "/", "x", "-", ".", "+")

PARTS = {
    "prefill": "#5d6b78",
    "observe prompt": "#a3be9f",
    "first token": "#cfd4d9",
    "verify": "#5d6b78",
    "draft": "#c3a15f",
    "observe": "#a3be9f",
    "overhead": "#cfd4d9",
}
"""What time was spent on; muted, so that no part passes for a drafter."""

AXIS = {
    "gridcolor": "#d0d7de",
    "zeroline": False,
    "automargin": True,
    "title": {"font": {"size": 13}, "standoff": 12},
}
TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 12, "t": 8, "b": 48},
        "hovermode": "closest",
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0},
        "xaxis": AXIS,
        "yaxis": AXIS,
    }
)


@dataclass(frozen=True, slots=True)
class Style:
    """How one drafter is drawn."""

    colour: str
    dash: str
    symbol: str
    pattern: str = ""

    @property
    def strokes(self) -> str:
        """The dash as lengths of an SVG line, for the mark beside a name."""
        return STROKES[self.dash]

    @property
    def band(self) -> str:
        """The colour, thin enough for an interval behind a line."""
        red, green, blue = (int(self.colour[index : index + 2], 16) for index in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.16)"


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """One style per drafter label, the same for the same set of labels.

    Labels of one colour (a drafter with other options, or more drafters than colours) differ in
    dash and marker.
    """
    taken: dict[str, int] = {}
    chosen: dict[str, Style] = {}
    num_others = 0
    for label in sorted(set(labels)):
        colour = KNOWN.get(label.partition(":")[0])
        if colour is None:
            colour = OTHERS[num_others % len(OTHERS)]
            num_others += 1
        turn = taken.get(colour, 0) % len(DASHES)
        taken[colour] = taken.get(colour, 0) + 1
        chosen[label] = Style(colour, DASHES[turn], SYMBOLS[turn], PATTERNS[turn])
    return chosen
