"""Planted secrets: whoever sends them, in whatever form, they reach nobody else
(docs/spec/mediation.md section 2).

One turn over real sockets: the runner's words and headers, the model's words and arguments, the
service's result and headers, and the provider's last answer, each may hold any secret in any form.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import raw
from tests.failures.clocked_pod import TOKEN, ClockedPod, TurnOutput
from tests.failures.planted import AGENT_SECRET, ALL, FORMS, PROVIDER_KEY, TOOL_TOKEN, found
from tests.wires import MadeCall, Wire, anthropic, openai

FORM = st.sampled_from(sorted(FORMS))
LEAK = st.builds(
    lambda form, secret: f"<{FORMS[form](secret)}>", FORM, st.sampled_from(ALL)
) | st.just("nothing")
"""A secret in one of the forms that it takes between the quotes of a JSON string."""
OWN = st.builds(lambda form: FORMS[form](AGENT_SECRET), FORM)
STATUS = st.sampled_from([200, 200, 200, 302, 400, 404, 500])


@dataclass(frozen=True)
class SentTexts:
    """The text that each side sends in one turn."""

    runner: str
    argument: str
    service_status: int
    service: str
    json: bool
    last_status: int
    last: str
    stream: bool


SAID = st.builds(
    SentTexts,
    runner=OWN,
    argument=LEAK,
    service_status=STATUS,
    service=LEAK,
    json=st.booleans(),
    last_status=STATUS,
    last=LEAK,
    stream=st.booleans(),
)


def quoted(text: str) -> bytes:
    return f'{{"words": "{text}"}}'.encode()


async def play(home: Path, dialect: Wire, said: SentTexts) -> TurnOutput:
    pod = ClockedPod(home, dialect, said.stream)
    async with pod.open() as mediator:
        calls = [
            MadeCall("c1", "desk__trade", "@"),
            MadeCall("c2", "invented", "@"),
            MadeCall("c3", "desk__balance", '{"broken":'),
        ]
        first = dialect.reply("thinking <@@>", calls[:2] if dialect is anthropic else calls, {})
        first = first.replace(b'"@"', _arguments(dialect, said.argument)).replace(
            b"@@", said.argument.encode()
        )
        last = dialect.reply("done <@@>", (), {}).replace(b"@@", said.last.encode())
        error = (
            json.dumps(dialect.error("code", "no <@@>")).encode().replace(b"@@", said.last.encode())
        )
        header = f"x-said: {TOOL_TOKEN}"
        pod.provider.script = [
            raw.answers(200, first, "application/json", header, f"set-cookie: k={PROVIDER_KEY}"),
            raw.answers(
                said.last_status,
                last if said.last_status == 200 else error,
                f"text/json; {said.last}",
                header,
            ),
        ]
        # In a result that is not JSON, "\u0041" is no escape, and is not read as one.
        service = (
            quoted(said.service) if said.json or "\\u" in said.service else said.service.encode()
        )
        location = f"location: http://127.0.0.1:1/{PROVIDER_KEY}"
        pod.service.script = [
            raw.answers(said.service_status, service, "application/json", header, location)
        ]
        shown = [("x-own", TOKEN), ("cookie", f"k={AGENT_SECRET}")]
        request = pod.request("@@", headers=shown)
        body = request.body.replace(b"@@", said.runner.encode())
        return await pod.ask(
            mediator, type(request)(request.method, request.path, request.headers, body)
        )


def _arguments(dialect: Wire, text: str) -> bytes:
    """Return the arguments of a call: a JSON string in OpenAI's dialect, a JSON
    object in Anthropic's.
    """
    arguments = quoted(text)
    return json.dumps(arguments.decode()).encode() if dialect is openai else arguments


@pytest.mark.requirement("attack:planted-secrets")
@pytest.mark.parametrize("dialect", [openai, anthropic], ids=["openai", "anthropic"])
@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(said=SAID)
async def test_no_secret_reaches_anybody_who_did_not_have_it(
    dialect: Wire, said: SentTexts
) -> None:
    with tempfile.TemporaryDirectory() as home:
        seen = await play(Path(home), dialect, said)
    assert found(seen.told) == []
    assert seen.to_service
    assert [found(sent) for sent in seen.to_service] == [[TOOL_TOKEN]] * len(seen.to_service)
    for sent in seen.to_provider:
        head, _, body = sent.partition(b"\r\n\r\n")
        assert found(head) == [PROVIDER_KEY]
        assert found(body) == []
    assert len(seen.history) == 1
