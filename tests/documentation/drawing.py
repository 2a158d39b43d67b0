"""Draws diagrams as SVG from boxes, labels, arrows and lanes; light or dark, as the reader's system is."""

from __future__ import annotations

import math
from html import escape

# One unit is about a pixel. On a phone 360 px wide a picture takes 330, so the text is four fifths of its size here.
WIDTH = 420
_SCALE = 1.25
_LINE = 16
_STYLE = """
svg { --paper: #fff; --text: #16211f; --muted: #4c5a56; --line: #5f6b75; --border: #c4cfcc; --lane: #f3f6f5;
  --accent: #0b6b66; --accent-soft: #e0f0ee; --ok: #22643d; --ok-soft: #dff1e6; --low: #8a5a00; --low-soft: #fdeec9;
  --high: #b3261e; --high-soft: #fbdedb; --idle: #5f6b75; --idle-soft: #e6eaed; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #17211f; --text: #e6eeec; --muted: #b4c1bd; --line: #a9b4bd; --border: #46544f; --lane: #1e2a28;
    --accent: #6fd0c8; --accent-soft: #173a37; --ok: #7fd3a0; --ok-soft: #17372a; --low: #f0c46a; --low-soft: #3d3011;
    --high: #ff9c93; --high-soft: #45201d; --idle: #a9b4bd; --idle-soft: #2a343a; }
}
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--text); }
.head { font-weight: 600; } .small { font-size: 12px; fill: var(--muted); }
.mono { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 12px; }
.paper { fill: var(--paper); stroke: var(--border); } .plain { fill: var(--paper); stroke: var(--line); }
.lane { fill: var(--lane); stroke: var(--border); } .accent { fill: var(--accent-soft); stroke: var(--accent); }
.ok { fill: var(--ok-soft); stroke: var(--ok); } .low { fill: var(--low-soft); stroke: var(--low); }
.high { fill: var(--high-soft); stroke: var(--high); } .idle { fill: var(--idle-soft); stroke: var(--idle); }
.dashed { stroke-dasharray: 5 4; } .line { fill: none; stroke: var(--line); stroke-width: 1.5; }
.tip { fill: var(--line); stroke: none; } .line.accent { stroke: var(--accent); fill: none; }
.tip.accent { fill: var(--accent); } .line.high { stroke: var(--high); fill: none; } .tip.high { fill: var(--high); }
.line.low { stroke: var(--low); fill: none; } .tip.low { fill: var(--low); } .line.thick { stroke-width: 3; }
text.ok, text.low, text.high, text.accent { stroke: none; } text.ok { fill: var(--ok); }
text.low { fill: var(--low); } text.high { fill: var(--high); } text.accent { fill: var(--accent); }
text.over { stroke: var(--paper); stroke-width: 5px; paint-order: stroke; }
"""


class Drawing:
    """A picture of a given height, 420 units wide."""

    def __init__(self, title: str, description: str, height: int) -> None:
        """Create a picture with a frame.

        Args:
            title: its name, for screen readers and as a tooltip.
            description: what it shows, for screen readers.
            height: in units.
        """
        self._title = title
        self._description = description
        self._height = height
        self._parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, text: str = "", style: str = "plain") -> None:
        """Draw a box with centred lines of text. A line that begins with # is bold, with ~ small, with ` monospaced."""
        self._parts.append(f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6"/>')
        lines = text.split("\n") if text else []
        top = y + h / 2 - (len(lines) - 1) * _LINE / 2 + 4.5
        for i, line in enumerate(lines):
            if line:
                self.label(x + w / 2, top + i * _LINE, line, anchor="middle")

    def label(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """Write one line of text, with its baseline at y; it may begin with #, ~ or ` as in a box."""
        marks = {"#": "head", "~": "small", "`": "mono"}
        if text[:1] in marks:
            style, text = f"{marks[text[0]]} {style}".strip(), text[1:]
        styled = f' class="{style}"' if style else ""
        self._parts.append(f'<text{styled} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>')

    def lane(self, x: float, y: float, w: float, h: float, title: str) -> None:
        """Draw an area with a title, below the boxes drawn later."""
        self.box(x, y, w, h, style="lane")
        self.label(x + w / 2, y + 18, f"#{title}", anchor="middle")

    def line(self, *points: tuple[float, float], style: str = "") -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(f'<polyline class="{" ".join(["line", *style.split()])}" points="{path}"/>')

    def arrow(self, *points: tuple[float, float], style: str = "") -> None:
        """Draw a line through points that ends in a tip."""
        (x0, y0), (x, y) = points[-2], points[-1]
        angle = math.atan2(y - y0, x - x0)
        end = x - 6 * math.cos(angle), y - 6 * math.sin(angle)
        self.line(*points[:-1], end, style=style)
        corners = [(x, y)] + [
            (
                x - 9 * math.cos(angle) + side * 4.5 * math.sin(angle),
                y - 9 * math.sin(angle) - side * 4.5 * math.cos(angle),
            )
            for side in (1, -1)
        ]
        tip = " ".join(f"{cx:.1f},{cy:.1f}" for cx, cy in corners)
        self._parts.append(f'<polygon class="{" ".join(["tip", *style.split()[:1]])}" points="{tip}"/>')

    def dot(self, x: float, y: float, text: str = "", style: str = "accent", radius: float = 11) -> None:
        """Draw a circle, such as a record, with a short text in it."""
        self._parts.append(f'<circle class="{style}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>')
        if text:
            self.label(x, y + 4.5, f"~{text}", anchor="middle")

    def svg(self) -> str:
        """Return the picture."""
        size = f'width="{WIDTH * _SCALE:g}" height="{self._height * _SCALE:g}" viewBox="0 0 {WIDTH} {self._height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">',
                f'<title id="title">{escape(self._title)}</title>',
                f'<desc id="description">{escape(self._description)}</desc>',
                f"<style>{_STYLE}</style>",
                f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{self._height - 1}" rx="8"/>',
                *self._parts,
                "</svg>\n",
            ]
        )
