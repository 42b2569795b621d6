"""An agent's runner on a real SDK, streaming, with one tool of its own. It knows nothing of pods or proxies.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… python runner.py [--model …] [--notes FILE] "a prompt" …
    ANTHROPIC_BASE_URL=… ANTHROPIC_API_KEY=… python runner.py --sdk anthropic …

All prompts belong to one conversation. It prints what it receives, and one JSON line after each prompt.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import openai

MAX_REQUESTS = 8
SYSTEM = "You are an agent of a trading desk. Use your tools."
NAME, DESCRIPTION = "write_note", "Write a note to the agent's own notebook."
TEXT = {"type": "string", "description": "The note's text"}
SCHEMA: Any = {"type": "object", "properties": {"text": TEXT}, "required": ["text"]}

show = partial(print, end="", flush=True)


class Call(NamedTuple):
    """A tool call of the model; its arguments are JSON text."""

    id: str
    name: str
    arguments: str


@dataclass
class Turn:
    """One prompt, and everything that the runner received for it."""

    prompt: str
    text: str = ""
    native_calls: list[dict[str, str]] = field(default_factory=list)
    requests: int = 0
    events: int = 0
    error: str | None = None


class OpenAI:
    """A conversation in OpenAI chat completions (OPENAI_BASE_URL, OPENAI_API_KEY)."""

    default_model = "gpt-4.1-mini"

    def __init__(self, model: str) -> None:
        self._client = openai.OpenAI()
        self._model = model
        self._messages: list[Any] = [{"role": "system", "content": SYSTEM}]

    def add_prompt(self, prompt: str) -> None:
        self._messages.append({"role": "user", "content": prompt})

    def add_result(self, call: Call, result: str) -> None:
        self._messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    def stream(self, turn: Turn) -> list[Call]:
        """Ask the model once, show its text as it arrives, and return its tool calls."""
        tool: Any = {"type": "function", "function": {"name": NAME, "description": DESCRIPTION, "parameters": SCHEMA}}
        with self._client.chat.completions.stream(model=self._model, messages=self._messages, tools=[tool]) as stream:
            for event in stream:
                turn.events += event.type == "chunk"
                if event.type == "content.delta":
                    show(event.delta)
            message = stream.get_final_completion().choices[0].message
        turn.text += message.content or ""
        calls = [Call(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []]
        members = {"id": True, "type": True, "function": {"name", "arguments"}}
        include = {"role": True, "content": True, "tool_calls": {"__all__": members}}
        self._messages.append(message.model_dump(include=include, exclude_none=True))
        return calls


class Anthropic:
    """A conversation in Anthropic messages (ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY)."""

    default_model = "claude-sonnet-4-5"

    def __init__(self, model: str) -> None:
        self._client = anthropic.Anthropic()
        self._model = model
        self._messages: list[Any] = []

    def add_prompt(self, prompt: str) -> None:
        self._messages.append({"role": "user", "content": prompt})

    def add_result(self, call: Call, result: str) -> None:
        if self._messages[-1]["role"] != "user":
            self._messages.append({"role": "user", "content": []})
        self._messages[-1]["content"].append({"type": "tool_result", "tool_use_id": call.id, "content": result})

    def stream(self, turn: Turn) -> list[Call]:
        """Ask the model once, show its text as it arrives, and return its tool calls."""
        tool: Any = {"name": NAME, "description": DESCRIPTION, "input_schema": SCHEMA}
        with self._client.messages.stream(
            model=self._model, max_tokens=1024, system=SYSTEM, messages=self._messages, tools=[tool]
        ) as stream:
            for event in stream:
                turn.events += 1
                if event.type == "text":
                    show(event.text)
                    turn.text += event.text
            content = stream.get_final_message().content
        self._messages.append({"role": "assistant", "content": content})
        return [Call(block.id, block.name, json.dumps(block.input)) for block in content if block.type == "tool_use"]


SDKS: dict[str, type[OpenAI | Anthropic]] = {"openai": OpenAI, "anthropic": Anthropic}


def run_turn(sdk: OpenAI | Anthropic, prompt: str, notes: Path) -> Turn:
    """Ask, run the native calls and ask again until the model makes none."""
    turn = Turn(prompt)
    sdk.add_prompt(prompt)
    try:
        while turn.requests < MAX_REQUESTS:
            turn.requests += 1
            calls = sdk.stream(turn)
            print(flush=True)
            if not calls:
                return turn
            for call in calls:
                result = call_tool(call, notes)
                sdk.add_result(call, result)
                turn.native_calls.append({"name": call.name, "arguments": call.arguments, "result": result})
                print(f"[tool] {call.name}({call.arguments}) -> {result}", flush=True)
        turn.error = f"still calling tools after {MAX_REQUESTS} requests"
    except (openai.OpenAIError, anthropic.AnthropicError) as error:
        turn.error = f"{type(error).__name__}: {error}"
    return turn


def call_tool(call: Call, notes: Path) -> str:
    if call.name != NAME:
        return f"error: this runner has no tool {call.name!r}"
    try:
        text = str(json.loads(call.arguments)["text"])
    except (ValueError, KeyError, TypeError):
        return f"error: {NAME} needs {{text: string}}"
    with notes.open("a", encoding="utf-8") as file:
        file.write(text + "\n")
    return "the note is written"


def main() -> None:
    parser = argparse.ArgumentParser(description="A small agent on the openai or the anthropic SDK.")
    parser.add_argument("prompts", nargs="+", metavar="prompt", help="what to ask")
    parser.add_argument("--sdk", choices=sorted(SDKS), default="openai")
    parser.add_argument("--model", help="the model's name; default: a small one of the SDK's provider")
    parser.add_argument("--notes", type=Path, default=Path("notes.txt"), help="the file to which write_note appends")
    options = parser.parse_args()
    conversation = SDKS[options.sdk](options.model or SDKS[options.sdk].default_model)
    for prompt in options.prompts:
        turn = run_turn(conversation, prompt, options.notes)
        print(json.dumps(asdict(turn)), flush=True)
        if turn.error is not None:
            sys.exit(f"[error] {turn.error}")


if __name__ == "__main__":
    main()
