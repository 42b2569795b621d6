"""How the demo looks: colours on a terminal, plain text elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

LONGEST_RESULT = 240


class Screen:
    """Prints steps, facts, turns in two columns, and what was expected."""

    def __init__(self) -> None:
        console = Console(highlight=False, soft_wrap=False)
        self._console = console if console.is_terminal else Console(highlight=False, width=118)
        self.failed: list[str] = []

    def title(self, text: str) -> None:
        self._console.print()
        self._console.print(Text(f"== {text}", style="bold cyan"))

    def fact(self, text: str, style: str = "") -> None:
        self._console.print(Text(f"   {text}", style=style), soft_wrap=True)

    def expect(self, holds: bool, text: str) -> None:
        """One expectation of the demo; every one that fails is named again at the end."""
        if not holds:
            self.failed.append(text)
        self._console.print(
            Text.assemble(("   ok   ", "green") if holds else ("   FAIL ", "bold red"), text), soft_wrap=True
        )

    def turn(self, prompt: str, runner: Sequence[str], hidden: Sequence[str]) -> None:
        """What the runner saw, beside what it did not."""
        table = Table(box=box.SQUARE, expand=True, title=Text(prompt, style="bold"), title_justify="left")
        table.add_column("what the runner saw", ratio=4, overflow="fold")
        table.add_column("what was hidden from it", ratio=6, overflow="fold", style="dim")
        table.add_row(Text("\n".join(runner)), Text("\n".join(hidden) or "nothing"))
        self._console.print(table)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table)


def runner_lines(turn: dict[str, Any]) -> list[str]:
    lines = [f"{call['name']}({call['arguments']}) -> {call['result']}" for call in turn["native_calls"]]
    lines += [f'"{turn["text"]}"'] if turn["text"] else []
    return [
        *lines,
        f"({turn['events']} stream events, {turn['requests']} request{'s' if turn['requests'] > 1 else ''})",
    ]


def call_lines(round_number: int, call: dict[str, Any]) -> list[str]:
    result = json.dumps(call["result"], ensure_ascii=False)
    short = result if len(result) <= LONGEST_RESULT else result[:LONGEST_RESULT] + " …"
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    return [f"round {round_number}: {call['name']} {arguments}", f"   = {short}  [{call['latency_ms']} ms]"]
