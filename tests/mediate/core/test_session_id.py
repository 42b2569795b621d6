"""The session that a request names, runner by runner."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.core.session_id import SessionHints, read_session_id
from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT

ID = "0f9e2b1c-5d4e-4a6b-9c8d-7e6f5a4b3c2d"
CLAUDE = json.dumps({"device_id": "d", "account_uuid": "", "session_id": ID})


@pytest.mark.requirement("continuity:session")
@pytest.mark.parametrize(
    ("headers", "hints", "named"),
    [
        pytest.param({"X-Claude-Code-Session-Id": ID}, SessionHints(), ID, id="claude-code"),
        pytest.param({}, SessionHints({"user_id": CLAUDE}), ID, id="claude-code, by its metadata"),
        pytest.param(
            {},
            SessionHints({"user_id": f"user_1_account__session_{ID}"}),
            ID,
            id="claude-code, older",
        ),
        pytest.param(
            {"x-openclaw-session-id": "s1"}, SessionHints(None, "s1:0"), "s1", id="openclaw"
        ),
        pytest.param(
            {},
            SessionHints({"openclaw_session_id": "s1"}, "s1:0"),
            "s1",
            id="openclaw, by its metadata",
        ),
        pytest.param({"session-id": ID, "thread-id": "t"}, SessionHints(None, "k"), ID, id="codex"),
        pytest.param({"session_id": ID}, SessionHints(), ID, id="codex, older"),
        pytest.param({"X-Mux-Workspace-Id": "w"}, SessionHints(), "w", id="mux"),
        pytest.param({"x-interaction-id": "i"}, SessionHints(), "i", id="copilot in vs code"),
        pytest.param({"X-Client-Session-Id": "c"}, SessionHints(), "c", id="copilot cli"),
        pytest.param({"X-KILOCODE-TASKID": "k"}, SessionHints(), "k", id="kilo"),
        pytest.param({"X-Coder-Chat-Id": "c"}, SessionHints(), "c", id="coder"),
        pytest.param({}, SessionHints(None, "key"), "key", id="a key for the prompt cache"),
        pytest.param({"x-session-id": "o"}, SessionHints(None, "key"), "o", id="opencode"),
        pytest.param(
            {}, SessionHints(None, "key", {"thread_id": ID}), ID, id="codex, by its metadata"
        ),
        pytest.param(
            {},
            SessionHints(None, "key", None, "conv_1"),
            "conv_1",
            id="a conversation that the provider keeps",
        ),
    ],
)
def test_what_a_runner_names_its_session(
    headers: dict[str, str], hints: SessionHints, named: str
) -> None:
    assert read_session_id(headers.items(), hints).endswith(f":{named}")


@pytest.mark.requirement("continuity:session")
@pytest.mark.parametrize(
    "hints",
    [
        SessionHints(),
        SessionHints({"user_id": "somebody"}),
        SessionHints({"user_id": "{}"}),
        SessionHints({"user_id": '{"session_id": 7}'}),
        SessionHints({"user_id": '["session_id"]'}),
        SessionHints({"user_id": "[" * 100_000}),
        SessionHints({"session_id": ""}),
        SessionHints({"session_id": {}}),
        SessionHints(["session_id"], 7),
        SessionHints("session_id", {}),
        SessionHints(None, f"agents-sdk:run:{ID}"),
    ],
)
def test_a_runner_that_names_none_has_none(hints: SessionHints) -> None:
    """Roo, Zed, Cursor, nanobot and pi name none, and the Agents SDK a single run;
    the other values are hostile.
    """
    assert read_session_id([("user-agent", "pi"), ("x-claude-code-session-id", "  ")], hints) == ""


@pytest.mark.requirement("continuity:session")
def test_names_of_different_kinds_are_different_sessions_and_a_header_is_believed_first() -> None:
    by_header, by_body = (
        read_session_id([("session-id", "a")], SessionHints()),
        read_session_id([], SessionHints(None, "a")),
    )
    assert by_header != by_body
    assert (
        read_session_id([("session-id", "a")], SessionHints({"session_id": "b"}, "c")) == by_header
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["session_id", "user_id"]), inner)
    ),
    max_leaves=8,
)


@given(JSON, JSON, st.text())
def test_whatever_stands_there_a_session_is_a_short_text(
    metadata: Any, key: Any, text: str
) -> None:
    assert len(read_session_id([("session-id", text)], SessionHints(metadata, key))) < 300


@pytest.mark.requirement("continuity:session")
@pytest.mark.parametrize("dialect", [OPENAI_CHAT, ANTHROPIC_MESSAGES])
def test_every_dialect_reads_what_the_body_says_of_it(dialect: Any) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "metadata": {"session_id": "s"},
    }
    assert (
        read_session_id([], dialect.read_request(json.dumps(body).encode()).session_hints)
        == "session_id:s"
    )
