"""A complete runner: one question, one answer.

It knows nothing of the tools, nor of who runs them.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path

CONTRACT = Path(os.environ.get("CONTRACT", "/claw/AGENTS.md"))


def ask(question: str, contract: str) -> str:
    """Return the answer of the model that the environment names."""
    messages = [{"role": "system", "content": contract}, {"role": "user", "content": question}]
    request = urllib.request.Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps(
            {"model": os.environ.get("OPENAI_MODEL", "gpt-4o"), "messages": messages}
        ).encode(),
        {
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request) as response:
        answer: str = json.load(response)["choices"][0]["message"]["content"]
    return answer


if __name__ == "__main__":
    sys.stdout.write(ask(" ".join(sys.argv[1:]), CONTRACT.read_text(encoding="utf-8")) + "\n")
