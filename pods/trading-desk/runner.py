"""An agent's runner: the real `openai` SDK, streaming, with one tool of its own. It knows nothing of pods or proxies.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… [OPENAI_MODEL=…] python runner.py [--json] [--notes FILE] ["a prompt" …]

Without prompts it takes one a line from standard input, and keeps the conversation's history between them. It prints
what it saw; with `--json` also one line a turn that holds the text, the native calls, every tool name that came over the
wire and how many events did.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import openai

WRITE_NOTE: Any = {
    "type": "function",
    "function": {
        "name": "write_note",
        "description": "Write a note to the agent's own notebook.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "The note's text"}},
            "required": ["text"],
        },
    },
}
MOST_STEPS = 8


@dataclasses.dataclass
class Turn:
    """All that one prompt made the runner see."""

    prompt: str
    text: str = ""
    native_calls: list[dict[str, str]] = dataclasses.field(default_factory=list)
    tool_names: list[str] = dataclasses.field(default_factory=list)
    requests: int = 0
    events: int = 0
    error: str | None = None


@dataclasses.dataclass
class Call:
    """A tool call as it arrives: in parts."""

    id: str = ""
    name: str = ""
    arguments: str = ""


class Runner:
    """One conversation."""

    def __init__(self, model: str, notes: Path) -> None:
        self._client = openai.OpenAI()
        self._model = model
        self._notes = notes
        self._history: list[Any] = [
            {"role": "system", "content": "You are an agent of a trading desk. Use your tools."}
        ]

    def run(self, prompt: str) -> Turn:
        """Asks, runs native calls and asks again until the model is done."""
        turn = Turn(prompt)
        self._history.append({"role": "user", "content": prompt})
        try:
            for _ in range(MOST_STEPS):
                if not self._step(turn):
                    return turn
            turn.error = f"still calling tools after {MOST_STEPS} requests"
        except openai.APIError as error:
            turn.error = f"{type(error).__name__}: {error}"
        return turn

    def _step(self, turn: Turn) -> bool:
        """One request; true when a native tool was run and the model must hear of it."""
        text, calls = self._stream(turn)
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
        self._history.append(message)
        for call in calls:
            result = self._call_tool(call)
            turn.native_calls.append({"name": call.name, "arguments": call.arguments, "result": result})
            self._history.append({"role": "tool", "tool_call_id": call.id, "content": result})
            print(f"[tool] {call.name}({call.arguments}) -> {result}", flush=True)
        return bool(calls)

    def _stream(self, turn: Turn) -> tuple[str, list[Call]]:
        text, calls = "", dict[int, Call]()
        turn.requests += 1
        stream = self._client.chat.completions.create(
            model=self._model,
            messages=self._history,
            tools=[WRITE_NOTE],
            stream=True,
            stream_options={"include_usage": True},
        )
        with stream:
            for event in stream:
                turn.events += 1
                for choice in event.choices:
                    if choice.delta.content:
                        text += choice.delta.content
                        print(choice.delta.content, end="", flush=True)
                    for part in choice.delta.tool_calls or []:
                        _add(calls.setdefault(part.index, Call()), part)
        if text:
            print(flush=True)
            turn.text += text
        turn.tool_names += [call.name for call in calls.values()]
        return text, list(calls.values())

    def _call_tool(self, call: Call) -> str:
        if call.name != "write_note":
            return f"error: this runner has no tool {call.name!r}"
        try:
            note = str(json.loads(call.arguments)["text"])
        except (ValueError, KeyError, TypeError):
            return "error: write_note wants {text: string}"
        with self._notes.open("a", encoding="utf-8") as file:
            file.write(note + "\n")
        return "the note is written"


def _add(call: Call, part: Any) -> None:
    call.id += part.id or ""
    call.name += part.function.name or ""
    call.arguments += part.function.arguments or ""


def main() -> None:
    parser = argparse.ArgumentParser(description="A small agent on the openai SDK.")
    parser.add_argument("prompts", nargs="*", help="what to ask; without any, one a line from standard input")
    parser.add_argument("--json", action="store_true", help="print what was seen, one JSON line a turn")
    parser.add_argument("--notes", type=Path, default=Path("notes.txt"), help="where write_note writes")
    options = parser.parse_args()
    runner = Runner(os.environ.get("OPENAI_MODEL", "gpt-4.1-mini"), options.notes)
    prompts: Iterable[str] = options.prompts or (line.strip() for line in sys.stdin)
    failed = False
    for prompt in prompts:
        turn = runner.run(prompt)
        failed = failed or turn.error is not None
        if turn.error is not None:
            print(f"[error] {turn.error}", flush=True)
        if options.json:
            print(json.dumps(dataclasses.asdict(turn)), flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
