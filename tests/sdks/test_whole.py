"""Members that few runners read: every member of the JSON answer is in the message
that an SDK assembles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sdks.cases import WHOLE
from tests.sdks.conftest import Speakers
from tests.sdks.hearing import Heard, hear

MESSAGES = ("every block", "stopped at a word", "paused")
COMPLETIONS = ("annotated", "function call")
EARS = [
    *(
        (case, sdk)
        for case in MESSAGES
        for sdk in ("anthropic-py stream", "anthropic-py async stream", "anthropic-js stream")
    ),
    *((case, sdk) for case in COMPLETIONS for sdk in ("openai-py stream", "openai-js stream")),
]


def missing(said: Any, heard: Any, at: str = "") -> Iterator[str]:
    """Yield the places of ``said`` that ``heard`` lacks or has differently.

    A null may be left out.
    """
    match said:
        case dict() if isinstance(heard, dict):
            for name, value in said.items():
                yield from missing(value, heard.get(name), f"{at}.{name}")
        case list() if isinstance(heard, list) and len(heard) == len(said):
            for index, value in enumerate(said):
                yield from missing(value, heard[index], f"{at}[{index}]")
        case _ if said != heard:
            yield at


def asked(case: str) -> dict[str, Any]:
    if case in MESSAGES:
        return {}
    functions: dict[str, Any] = {"tools": None, "functions": [{"name": "shell", "parameters": {}}]}
    return {
        "stream_options": {"include_usage": True},
        **(functions if case == "function call" else {}),
    }


@pytest.fixture(scope="module")
def heard(spoken: Speakers) -> dict[tuple[str, str], Heard]:
    jobs = [spoken.job(case, sdk, **asked(case)) for case, sdk in EARS]
    return dict(zip(EARS, hear(jobs), strict=True))


@pytest.mark.requirement("stream:sdks-hear-the-same", "stream:unknown-fields")
@pytest.mark.parametrize(("case", "sdk"), EARS)
def test_every_member_of_an_answer_arrives(
    heard: dict[tuple[str, str], Heard], case: str, sdk: str
) -> None:
    (answer,) = WHOLE[case]
    said = (answer.message if case in MESSAGES else answer.completion)().body
    assert "error" not in heard[case, sdk]
    assert list(missing(json.loads(said), heard[case, sdk]["whole"])) == []
