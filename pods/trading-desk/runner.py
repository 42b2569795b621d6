"""An agent's runner on a real SDK, streaming, with one tool of its own.

It knows nothing of pods or proxies.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… python runner.py openai notes.txt "a prompt" …
    OPENAI_BASE_URL=… OPENAI_API_KEY=… python runner.py responses notes.txt "a prompt" …
    ANTHROPIC_BASE_URL=… ANTHROPIC_API_KEY=… python runner.py anthropic notes.txt "a prompt" …

All prompts belong to one conversation. After each it prints one JSON line: everything that it
received, and each part of the text with its time. OPENAI_MODEL and ANTHROPIC_MODEL name the model.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SYSTEM = "You are an agent of a trading desk. Use your tools."
NAME, DESCRIPTION = "write_note", "Write a note to the agent's own notebook."
SCHEMA: Any = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@dataclass
class Call:
    """A tool call of the model, whose arguments are JSON text, and its result."""

    id: str
    name: str
    arguments: str
    result: str = ""


@dataclass
class Turn:
    """One prompt, and everything that the runner received for it."""

    prompt: str
    text: str = ""
    native_calls: list[Call] = field(default_factory=list)
    requests: int = 0
    events: int = 0
    asked_at: float = field(default_factory=time.time)
    parts: list[tuple[float, str]] = field(default_factory=list)
    """Each part of the text as it came, with the seconds since 1970."""
    repeated_tools: list[str] = field(default_factory=list)
    """Names of the tools that responses repeated: those of OpenAI Responses repeat
    their request.
    """

    def note(self, text: str) -> None:
        """Note a part of the text that has just come."""
        self.parts.append((time.time(), text))


class OpenAI:
    """A conversation in OpenAI chat completions (OPENAI_BASE_URL, OPENAI_API_KEY)."""

    def __init__(self) -> None:
        import openai  # the one SDK that is asked for: each takes a second

        self._client = openai.OpenAI()
        self._model = os.environ.get("OPENAI_MODEL", "gpt-4.1-mini")
        self.messages: list[Any] = [{"role": "system", "content": SYSTEM}]

    def stream(self, turn: Turn) -> list[Call]:
        """Ask the model once, and return its tool calls."""
        tool: Any = {
            "type": "function",
            "function": {"name": NAME, "description": DESCRIPTION, "parameters": SCHEMA},
        }
        with self._client.chat.completions.stream(
            model=self._model, messages=self.messages, tools=[tool]
        ) as stream:
            for event in stream:
                turn.events += event.type == "chunk"
                if event.type == "content.delta":
                    turn.note(event.delta)
            message = stream.get_final_completion().choices[0].message
        turn.text += message.content or ""
        members = {"id": True, "type": True, "function": {"name", "arguments"}}
        include: Any = {"role": True, "content": True, "tool_calls": {"__all__": members}}
        self.messages.append(message.model_dump(include=include, exclude_none=True))
        return [
            Call(call.id, call.function.name, call.function.arguments)
            for call in message.tool_calls or []
        ]

    def add_results(self, calls: list[Call]) -> None:
        self.messages += [
            {"role": "tool", "tool_call_id": call.id, "content": call.result} for call in calls
        ]


class Responses:
    """A conversation in OpenAI Responses, which the provider is to keep nothing of
    (OPENAI_BASE_URL, OPENAI_API_KEY).
    """

    def __init__(self) -> None:
        import openai

        self._client = openai.OpenAI()
        self._model = os.environ.get("OPENAI_MODEL", "gpt-4.1-mini")
        self.messages: list[Any] = []

    def stream(self, turn: Turn) -> list[Call]:
        """Ask the model once, and return its tool calls."""
        tool: Any = {
            "type": "function",
            "name": NAME,
            "description": DESCRIPTION,
            "parameters": SCHEMA,
            "strict": False,
        }
        with self._client.responses.stream(
            model=self._model, instructions=SYSTEM, input=self.messages, tools=[tool], store=False
        ) as stream:
            for event in stream:
                turn.events += 1
                if event.type == "response.output_text.delta":
                    turn.note(event.delta)
            response = stream.get_final_response()
        said = [item for item in response.output if item.type == "message"]
        texts = ["".join(getattr(part, "text", "") for part in item.content) for item in said]
        turn.text += (text := "\n\n".join(texts))
        turn.repeated_tools += [tool.name for tool in response.tools if tool.type == "function"]
        calls = [
            Call(item.call_id, item.name, item.arguments)
            for item in response.output
            if item.type == "function_call"
        ]
        if text:
            self.messages.append({"role": "assistant", "content": text})
        self.messages += [
            {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            }
            for call in calls
        ]
        return calls

    def add_results(self, calls: list[Call]) -> None:
        self.messages += [
            {"type": "function_call_output", "call_id": call.id, "output": call.result}
            for call in calls
        ]


class Anthropic:
    """A conversation in Anthropic messages (ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY)."""

    def __init__(self) -> None:
        import anthropic

        self._client = anthropic.Anthropic()
        self._model = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-4-5")
        self.messages: list[Any] = []

    def stream(self, turn: Turn) -> list[Call]:
        """Ask the model once, and return its tool calls."""
        tool: Any = {"name": NAME, "description": DESCRIPTION, "input_schema": SCHEMA}
        with self._client.messages.stream(
            model=self._model, max_tokens=1024, system=SYSTEM, messages=self.messages, tools=[tool]
        ) as stream:
            for event in stream:
                turn.events += 1
                if event.type == "text":
                    turn.note(event.text)
            content = stream.get_final_message().content
        turn.text += "".join(block.text for block in content if block.type == "text")
        self.messages.append({"role": "assistant", "content": content})
        return [
            Call(block.id, block.name, json.dumps(block.input))
            for block in content
            if block.type == "tool_use"
        ]

    def add_results(self, calls: list[Call]) -> None:
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": call.result}
            for call in calls
        ]
        self.messages.append({"role": "user", "content": results})


def run_turn(sdk: OpenAI | Responses | Anthropic, prompt: str, notes: Path) -> Turn:
    """Ask, run the native calls, and ask again until the model makes none."""
    turn = Turn(prompt, requests=1)
    sdk.messages.append({"role": "user", "content": prompt})
    while calls := sdk.stream(turn):
        for call in calls:
            call.result = call_tool(call, notes)
        sdk.add_results(calls)
        turn.native_calls += calls
        turn.requests += 1
    return turn


def call_tool(call: Call, notes: Path) -> str:
    if call.name != NAME:
        return f"error: this runner has no tool {call.name!r}"
    with notes.open("a", encoding="utf-8") as file:
        file.write(json.loads(call.arguments)["text"] + "\n")
    return "the note is written"


def main() -> None:
    sdk, notes, *prompts = sys.argv[1:]
    conversation = {"openai": OpenAI, "responses": Responses, "anthropic": Anthropic}[sdk]()
    for prompt in prompts:
        print(json.dumps(asdict(run_turn(conversation, prompt, Path(notes)))), flush=True)


if __name__ == "__main__":
    main()
