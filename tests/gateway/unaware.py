"""A runner that knows of no proxy: the SDKs as their makers ship them, with nothing
but the runner's environment.

Each turn streams. It prints, for each turn, the text and the calls that the runner got.
"""

import json
from typing import Any

import anthropic
import openai

GO: Any = [{"role": "user", "content": "Go"}]
SHELL: Any = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}
BASH: Any = {"name": "bash", "input_schema": {"type": "object"}}


def chat(client: openai.OpenAI, messages: Any) -> dict[str, Any]:
    with client.chat.completions.stream(
        model="gpt-test", messages=messages, tools=[SHELL]
    ) as events:
        events.until_done()
        message = events.get_final_completion().choices[0].message
    return {
        "text": message.content,
        "calls": [call.function.name for call in message.tool_calls or []],
    }


def talk(client: anthropic.Anthropic, messages: Any) -> dict[str, Any]:
    with client.messages.stream(
        model="claude-test", max_tokens=9, messages=messages, tools=[BASH]
    ) as events:
        blocks = events.get_final_message().content
    text = "".join(block.text for block in blocks if block.type == "text") or None
    return {"text": text, "calls": [block.name for block in blocks if block.type == "tool_use"]}


def main() -> None:
    with openai.OpenAI() as one, anthropic.Anthropic() as other:
        said = [chat(one, GO), chat(one, [{"role": "user", "content": "List"}])]
        called = {"id": "n1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
        answered = {"role": "tool", "tool_call_id": "n1", "content": "a file"}
        said.append(chat(one, [GO[0], {"role": "assistant", "tool_calls": [called]}, answered]))
        said += [talk(other, GO), talk(other, [{"role": "user", "content": "List"}])]
    print(json.dumps(said))


main()
