#!/usr/bin/env python3
"""Draw the pictures of the pages, docs/pictures/*.svg.

    make docs

The house is drawn from the packages' imports and from the layers in pyproject.toml, the way of a
request from the ten steps in ARCHITECTURE.md. The other two are drawn by hand, here. A test holds
the committed files to what this script draws.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"

# A picture in a page can't ask for the page's theme, only for the system's. So it brings its own
# background, and is legible on any page.
STYLE = """
.page { fill: #ffffff; stroke: #d1d9e0; }
.box { fill: #f6f8fa; stroke: #818b98; }
.ours { fill: #ddf4ff; stroke: #0969da; }
.hidden { fill: #fff8c5; stroke: #9a6700; stroke-dasharray: 5 3; }
.line { fill: none; stroke: #59636e; stroke-width: 1.5; }
.head { fill: #59636e; }
text { fill: #1f2328; font: 14px -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.title { font-weight: 600; }
.small { font-size: 12px; fill: #59636e; }
.code { font: 11px ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; stroke: #3d444d; }
  .box { fill: #151b23; stroke: #656c76; }
  .ours { fill: #0c2d52; stroke: #4493f8; }
  .hidden { fill: #2e2406; stroke: #d29922; }
  .line { stroke: #9198a1; }
  .head { fill: #9198a1; }
  text { fill: #f0f6fc; }
  .small { fill: #9198a1; }
}
"""

HEAD_OF_ARROW = """\
<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">
  <path class="head" d="M0,0 L8,4 L0,8 z"/>
</marker></defs>"""

PURPOSES = {
    "addons": "the addon that mitmproxy loads",
    "claw_cli": "the verbs of claw",
    "claw_mediate": "what happens to a request",
    "claw_tools": "the tools host",
    "claw_compile": "pod file to manifests",
    "claw_mcp": "the protocol of MCP",
    "claw_state": "all persistence",
    "claw_audit": "what agents did",
    "claw_contract": "the files that cross a process border",
    "claw_certs": "the pod's CA",
}


class Size(NamedTuple):
    width: int
    height: int


class Picture:
    """The elements of one SVG, in the order in which they are drawn."""

    def __init__(self, size: Size, title: str) -> None:
        self.size, self.title = size, title
        self.elements: list[str] = []

    def box(self, x: float, y: float, size: Size, kind: str = "box") -> None:
        self.elements.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" '
            f'width="{size.width}" height="{size.height}" rx="6"/>'
        )

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        self.elements.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">'
            f"{escape(words, quote=False)}</text>"
        )

    def arrow(self, path: str) -> None:
        """Draw a line along an SVG path, with a head at its end."""
        self.elements.append(f'<path class="line" d="{path}" marker-end="url(#head)"/>')

    def labelled(self, x: float, y: float, size: Size, words: list[str], kind: str = "box") -> None:
        """Draw a box with lines of text in it; the first line is its title."""
        self.box(x, y, size, kind)
        first = y + size.height / 2 - (len(words) - 1) * 9 + 5
        for number, line in enumerate(words):
            style = "title" if number == 0 else "small"
            self.text(x + size.width / 2, first + 18 * number, line, style, "middle")

    def svg(self) -> str:
        width, height = self.size
        title = escape(self.title)
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"',
            f'  viewBox="0 0 {width} {height}" role="img" aria-label="{title}">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            HEAD_OF_ARROW,
            f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
            *self.elements,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


# The house


def imported_packages(package: str, packages: list[str]) -> set[str]:
    """Return the packages of ours that a package imports."""
    found: set[str] = set()
    for file in sorted((ROOT / package).rglob("*.py")):
        if "addons" in file.relative_to(ROOT / package).parts:
            continue  # the installed copy of addons/cllama.py

        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            found |= {name.partition(".")[0] for name in names}
    return (found & {*packages}) - {package}


def floors(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the packages by floor, the lowest first: each stands on those that it imports."""
    left, built, below = dict(imports), list[list[str]](), set[str]()
    while left:
        floor = [package for package in left if left[package] <= below]
        if not floor:
            raise ValueError(f"these packages import each other: {sorted(left)}")
        built.append(floor)
        below |= {*floor}
        left = {package: its for package, its in left.items() if package not in floor}
    return built


def draw_house() -> Picture:
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    linter = configuration["tool"]["importlinter"]
    packages = [package for package in PURPOSES if package in {*linter["root_packages"], "addons"}]
    imports = {package: imported_packages(package, packages) for package in packages}
    built = floors(imports)

    picture = Picture(Size(1180, 500), "The packages, and the layers inside the two largest")
    picture.text(24, 36, "Packages: each imports only from the floors below it", "title")
    for number, floor in enumerate(reversed(built)):
        width = (616 - 12 * (len(floor) - 1)) // len(floor)
        for place, package in enumerate(floor):
            x, y = 24 + place * (width + 12), 56 + number * 108
            below = {each for lower in built[: built.index(floor)] for each in lower}
            words = [package, PURPOSES[package], _say_imports(imports[package], below)]
            picture.labelled(x, y, Size(width, 92), words, "ours")

    layers = {
        contract["containers"][0]: contract["layers"]
        for contract in linter["contracts"]
        if contract["type"] == "layers"
    }
    _draw_layers(picture, Column(672, 190), "claw_mediate", layers["claw_mediate"])
    _draw_layers(picture, Column(878, 278), "claw_compile", layers["claw_compile"])
    return picture


def _say_imports(imported: set[str], below: set[str]) -> str:
    if not imported:
        return "imports nothing of ours"

    said = f"imports {_short(imported)}"
    left_out = f"imports all below but {_short(below - imported)}"
    return min(said, left_out, key=len) if below > imported else said


def _short(packages: set[str]) -> str:
    return ", ".join(sorted(package.removeprefix("claw_") for package in packages))


class Column(NamedTuple):
    x: int
    width: int


def _draw_layers(picture: Picture, column: Column, package: str, layers: list[str]) -> None:
    x, width = column
    picture.text(x, 36, f"Inside {package}", "title")
    height = 424 // len(layers)
    for number, layer in enumerate(layers):
        y = 56 + number * height
        picture.box(x, y, Size(width, height - 4))
        middle = y + (height - 4) / 2 + 4
        picture.text(x + width / 2, middle, layer.replace(" | ", " · "), "code", "middle")


# The way of a request


class Step(NamedTuple):
    number: int
    title: str
    files: list[str]


def steps_of_a_request() -> list[Step]:
    """Return the steps of ARCHITECTURE.md, each with the files that it names."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = page.partition("### The way of a request")[2].partition("\n### ")[0]
    found = re.findall(r"^(\d+)\. \*\*(.+?)\.\*\* (.+)$", section, re.MULTILINE)
    return [
        Step(int(number), title, list(dict.fromkeys(re.findall(r"`([\w/]+\.py)`", text))))
        for number, title, text in found
    ]


def draw_request() -> Picture:
    steps = steps_of_a_request()
    size, across, row = Size(212, 96), 226, 190
    picture = Picture(Size(1196, 444), "The way of a request in ten steps")
    end = Size(212, 32)
    picture.labelled(40, 22, end, ["runner"])
    picture.arrow("M146,54 V82")

    places: dict[int, tuple[int, int]] = {}
    for place, step in enumerate(steps):
        x, y = 40 + place % 5 * across, 84 + place // 5 * row
        places[step.number] = x, y
        picture.box(x, y, size, "ours")
        picture.text(x + 12, y + 26, f"{step.number}  {step.title}", "title")
        for line, file in enumerate(step.files[:3]):
            picture.text(x + 12, y + 48 + 18 * line, file, "code")

    for number, (x, y) in places.items():
        if number + 1 in places and number % 5:
            picture.arrow(f"M{x + size.width},{y + 40} h{across - size.width - 1}")
    (five, high), (six, low) = places[5], places[6]
    picture.arrow(f"M{five + 106},{high + 96} V230 H{six + 106} V{low - 2}")

    seven, eight, ten = places[7][0], places[8][0], places[10][0]
    picture.arrow(f"M{eight + 24},{low + 96} v24 H{seven + 188} v-22")
    picture.text(seven + 8, low + 124, "until the model answers", "small")
    picture.arrow(f"M{eight + 106},{low + 96} V396")
    picture.labelled(eight, 398, end, ["provider and services"])
    picture.arrow(f"M{ten + 106},{low + 96} V396")
    picture.labelled(ten, 398, end, ["runner"])

    picture.text(places[3][0] + 12, high + 114, "no tools: forwarded", "small")
    picture.text(places[4][0] + 12, high + 114, "known: the stored answer", "small")
    return picture


# Hidden rounds in a conversation


class Part(NamedTuple):
    who: str
    words: str
    is_hidden: bool = False
    is_answer: bool = False


CONVERSATION = [
    Part("user", "Buy 10 NVDA."),
    Part("assistant", "calls get_quote", is_hidden=True),
    Part("tool", "135.25", is_hidden=True),
    Part("assistant", "calls execute_trade", is_hidden=True),
    Part("tool", "order 1 is filled", is_hidden=True),
    Part("assistant", "Done: 10 NVDA at $135.25.", is_answer=True),
    Part("user", "What did I pay?"),
]


def draw_continuity() -> Picture:
    picture = Picture(Size(900, 432), "Hidden rounds are woven into the conversation")
    picture.text(40, 36, "What the runner has, and sends", "title")
    picture.text(500, 36, "What the model is sent in the second turn", "title")
    size, height = Size(360, 38), 48

    for number, part in enumerate(CONVERSATION):
        y = 56 + number * height
        _draw_part(picture, 500, y, size, part)
        if part.is_hidden:
            continue
        _draw_part(picture, 40, y, size, part)
        picture.arrow(f"M400,{y + 19} H498")

    picture.box(40, 108, Size(360, 182), "page")
    picture.text(220, 184, "The proxy stored these two rounds in its state.", "small", "middle")
    picture.text(220, 204, "The answer below them is the anchor", "small", "middle")
    picture.text(220, 224, "by which they are found again.", "small", "middle")
    picture.arrow("M402,200 H498")
    picture.text(
        40, 412, "The runner never sees a hidden round, and the model never misses one.", "small"
    )
    return picture


def _draw_part(picture: Picture, x: int, y: int, size: Size, part: Part) -> None:
    kind = "hidden" if part.is_hidden else "ours" if part.is_answer else "box"
    picture.box(x, y, size, kind)
    picture.text(x + 12, y + 24, part.who, "small")
    picture.text(x + 90, y + 24, part.words)


# The three entrances


class Entrance(NamedTuple):
    name: str
    runner: list[str]
    way: str
    port: str


ENTRANCES = [
    Entrance("base URL", ["asks http://cllama:8080/v1"], "plain HTTP", ":8080"),
    Entrance(
        "forward proxy",
        ["asks https://api.openai.com,", "with HTTPS_PROXY, and trusts the CA"],
        "CONNECT, then TLS",
        ":8082",
    ),
    Entrance(
        "transparent",
        ["asks https://api.openai.com,", "and trusts the CA"],
        "TLS, redirected by the kernel",
        ":8083",
    ),
]


def draw_entrances() -> Picture:
    picture = Picture(Size(1060, 372), "The three entrances of the proxy")
    for number, entrance in enumerate(ENTRANCES):
        y = 28 + number * 108
        picture.text(24, y + 44, entrance.name, "title")
        picture.labelled(140, y, Size(264, 84), ["runner", *entrance.runner])
        picture.arrow(f"M404,{y + 42} H610")
        picture.text(507, y + 32, entrance.way, "small", "middle")

    picture.box(612, 28, Size(216, 300), "ours")
    for number, entrance in enumerate(ENTRANCES):
        picture.text(622, 28 + number * 108 + 46, entrance.port, "code")
    for place, (line, kind) in enumerate(
        [
            ("cllama", "title"),
            ("whose token is it?", "small"),
            ("+ the granted tools", "small"),
            ("− the token", "small"),
            ("+ the provider's key", "small"),
        ]
    ):
        picture.text(740, 138 + 22 * place, line, kind, "middle")

    picture.labelled(900, 80, Size(136, 60), ["provider", "the model"])
    picture.labelled(900, 214, Size(136, 60), ["services", "the pod's tools"])
    picture.arrow("M828,110 H898")
    picture.arrow("M828,244 H898")
    picture.text(24, 356, "One process serves all three, and the same rules hold at each.", "small")
    return picture


DRAWN: dict[str, Callable[[], Picture]] = {
    "continuity": draw_continuity,
    "entrances": draw_entrances,
    "house": draw_house,
    "request": draw_request,
}


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, draw in DRAWN.items():
        (PICTURES / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
