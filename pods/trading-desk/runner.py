"""An agent's runner on a real SDK, streaming, with one tool of its own. It knows nothing of pods or proxies.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… python runner.py [--sdk openai] [--model …] [--json] [--notes FILE] ["a prompt" …]
    ANTHROPIC_BASE_URL=… ANTHROPIC_API_KEY=… python runner.py --sdk anthropic …

Without prompts it takes one a line from standard input, and keeps the conversation's history between them. It prints
what it saw; with `--json` also one line a turn that holds the text, the native calls, every tool name that came over the
wire and how many events did.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from runner_sdks import ERRORS, SDKS, Anthropic, Call, OpenAI

MOST_STEPS = 8
MODELS = {"openai": "gpt-4.1-mini", "anthropic": "claude-sonnet-4-5"}
show = partial(print, end="", flush=True)


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


class Runner:
    """One conversation."""

    def __init__(self, sdk: OpenAI | Anthropic, notes: Path) -> None:
        self._sdk = sdk
        self._notes = notes

    def run(self, prompt: str) -> Turn:
        """Asks, runs native calls and asks again until the model is done."""
        turn = Turn(prompt)
        self._sdk.says(prompt)
        try:
            for _ in range(MOST_STEPS):
                if not self._step(turn):
                    return turn
            turn.error = f"still calling tools after {MOST_STEPS} requests"
        except ERRORS as error:
            turn.error = f"{type(error).__name__}: {error}"
        return turn

    def _step(self, turn: Turn) -> bool:
        """One request; true when a native tool was run and the model must hear of it."""
        turn.requests += 1
        reply = self._sdk.stream(show)
        if reply.text:
            print(flush=True)
        turn.text += reply.text
        turn.events += reply.events
        for call in reply.calls:
            result = self._call_tool(call)
            turn.tool_names.append(call.name)
            turn.native_calls.append({"name": call.name, "arguments": call.arguments, "result": result})
            self._sdk.ran(call, result)
            print(f"[tool] {call.name}({call.arguments}) -> {result}", flush=True)
        return bool(reply.calls)

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


def main() -> None:
    parser = argparse.ArgumentParser(description="A small agent on the openai or the anthropic SDK.")
    parser.add_argument("prompts", nargs="*", help="what to ask; without any, one a line from standard input")
    parser.add_argument("--sdk", choices=sorted(SDKS), default="openai")
    parser.add_argument("--model", help="the model's name; default: a small one of the SDK's provider")
    parser.add_argument("--json", action="store_true", help="print what was seen, one JSON line a turn")
    parser.add_argument("--notes", type=Path, default=Path("notes.txt"), help="where write_note writes")
    options = parser.parse_args()
    runner = Runner(SDKS[options.sdk](options.model or MODELS[options.sdk]), options.notes)
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
