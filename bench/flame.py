"""Draw where a turn's time goes: ``python bench/flame.py [--py-spy PROGRAM] [--svg
FILE] [--page FILE]``.

py-spy samples a proxy that does turns of one round for 16 kept connections. The stacks become a
picture, from the thread at its top down to what ran, in which what is ours has a colour; and a
table by part: a sample belongs to the innermost part of ours that is on the stack, or else to
mitmproxy, or else to Python.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import page
import wire
from load import Load
from markdown import grid
from stage import ROOT, generator, site

WIDTH, HEIGHT = 1200, 16
NARROWEST = 2.5
"""Boxes that are narrower than so many of the picture's 1200 points are left out."""
SHORTEST = 5
"""Names of which fewer letters would be seen are left out."""
COLOURS = (
    ("claw_", "#f4a261"),
    ("mitmproxy/", "#8ecae6"),
    ("asyncio/", "#cfe8c6"),
    ("", "#dddddd"),
)
LOOP = "Handle._run "
"""The frame above which each stack of the loop is the same."""

type Stack = tuple[str, ...]


@dataclass
class Box:
    """A function as it was called by those above it, with the number of samples
    that it was on the stack.
    """

    name: str
    samples: int = 0
    below: dict[str, Box] = field(default_factory=dict)

    def add(self, stack: Stack, samples: int) -> None:
        self.samples += samples
        if stack:
            self.below.setdefault(stack[0], Box(stack[0])).add(stack[1:], samples)


def record(program: str, operations: int) -> Counter[Stack]:
    """Return how often each stack was found while a proxy did so many turns, after
    as many that were not looked at.
    """
    with tempfile.TemporaryDirectory(prefix="claw-bench-") as place, generator() as generate:
        home = Path(place)
        with site(home, {"analyst": "http"}) as at, at.proxy("ours") as process:
            request = wire.http("POST", wire.CHAT, "analyst", wire.question(1, stream=False))
            load, raw = Load(16, operations, [(process.port, request)]), home / "stacks"
            generate.run(load)
            options = [
                "--pid",
                str(process.pid),
                "--rate",
                "250",
                "--format",
                "raw",
                "--threads",
                "--function",
                "-o",
                str(raw),
            ]
            with subprocess.Popen([program, "record", *options], stderr=subprocess.DEVNULL) as spy:
                generate.run(load)
                spy.send_signal(signal.SIGINT)
            return read(raw.read_text(encoding="utf-8"))


def read(raw: str) -> Counter[Stack]:
    """Return the stacks of py-spy's lines; those of the loop begin at what the loop calls."""
    stacks: Counter[Stack] = Counter()
    for line in raw.splitlines():
        frames, _, samples = line.rpartition(" ")
        thread, *rest = (re.sub(r":\d+\)$", ")", frame) for frame in frames.split(";"))
        calls = [place for place, frame in enumerate(rest) if frame.startswith(LOOP)]
        name = (
            "the loop"
            if "MainThread" in thread
            else re.sub(r"[-_]?\d+$", "", thread.partition(": ")[2]) or "a thread"
        )
        stacks[name, *rest[calls[0] + 1 if calls else 0 :]] += int(samples)
    return stacks


def by_part(stacks: Counter[Stack]) -> Iterator[tuple[str, str]]:
    """Yield each part with its share, the largest first."""
    parts: Counter[str] = Counter()
    for stack, samples in stacks.items():
        parts[part(stack)] += samples
    for name, samples in parts.most_common():
        if (share := 100 * samples / stacks.total()) >= 0.5:
            yield name, f"{share:.1f} %"


def part(stack: Stack) -> str:
    files = [frame.rpartition("(")[2].rstrip(")") for frame in stack]
    ours = [file for file in files if file.startswith("claw_") and "fast_dispatch" not in file]
    if ours:
        return "/".join(ours[-1].split("/")[:2]).removesuffix(".py")
    return (
        "mitmproxy"
        if any(file.startswith("mitmproxy/") for file in files)
        else "Python's loop and threads"
    )


def picture(stacks: Counter[Stack]) -> str:
    """Return the stacks as SVG."""
    root = Box("a turn of one round")
    for stack, samples in stacks.items():
        root.add(stack, samples)
    boxes = list(_boxes(root, 0.0, 0, WIDTH / root.samples))
    height = HEIGHT * (max(depth for _, _, depth, _ in boxes) + 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="10">',
        '<rect width="100%" height="100%" fill="white"/>',
        *(
            _drawn(box, left, depth, width, 100 * box.samples / root.samples)
            for box, left, depth, width in boxes
        ),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _boxes(
    box: Box, left: float, depth: int, scale: float
) -> Iterator[tuple[Box, float, int, float]]:
    yield box, left, depth, box.samples * scale
    for each in sorted(box.below.values(), key=lambda below: -below.samples):
        if each.samples * scale >= NARROWEST:
            yield from _boxes(each, left, depth + 1, scale)
        left += each.samples * scale


def _drawn(box: Box, left: float, depth: int, width: float, percent: float) -> str:
    colour = next(colour for start, colour in COLOURS if f"({start}" in box.name or not start)
    name = box.name.partition(" (")[0]
    letters = max(int((width - 3) / 6), 0)
    shown = (
        name
        if len(name) <= letters
        else name.rpartition(".")[2][: letters if letters >= SHORTEST else 0]
    )
    rect = f'<rect x="{left:.1f}" y="{depth * HEIGHT}" width="{width:.1f}" height="{HEIGHT - 1}" fill="{colour}"/>'
    text = (
        f'<text x="{left + 2:.1f}" y="{depth * HEIGHT + 11}">{escape(shown)}</text>'
        if shown
        else ""
    )
    return f"<g><title>{escape(box.name)}, {percent:.1f} %</title>{rect}{text}</g>"


def main() -> None:
    parser = argparse.ArgumentParser(description="Shows where a turn's time goes.")
    parser.add_argument("--py-spy", default="py-spy", help="the program, if it is not on the PATH")
    parser.add_argument("--turns", type=int, default=2_000)
    parser.add_argument("--svg", type=Path, default=ROOT / "docs" / "turn.svg")
    parser.add_argument("--page", type=Path, help="the page into which the table is written")
    options = parser.parse_args()
    if (program := shutil.which(options.py_spy)) is None:
        raise SystemExit(
            f"{options.py_spy} is not there: pip install py-spy, in an environment of its "
            "own, and name it with --py-spy"
        )
    stacks = record(program, options.turns)
    options.svg.write_text(picture(stacks), encoding="utf-8")
    table = "\n".join(grid(("part", "share of the samples"), by_part(stacks)))
    print(table)
    if options.page:
        page.replace(options.page, "parts", table)


if __name__ == "__main__":
    main()
