"""What differs between the providers' protocols, for tests: one module a protocol, and the neutral words of both.

A wire builds what a runner and a model send, reads what they receive as strictly as the strictest SDK does, and holds every
request for the provider to the provider's own rules. It shares no code with the dialects that it tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

type Body = dict[str, Any]


@dataclass(frozen=True)
class Made:
    """A call that a model made; ``arguments`` is its JSON text, spelt as it was."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Said:
    """What a model said: its visible text, its calls, and what it thought before."""

    text: str = ""
    calls: tuple[Made, ...] = ()
    thought: str = ""


class Wire(Protocol):
    """One protocol. Modules satisfy it."""

    @property
    def PATH(self) -> str: ...  # noqa: N802 - constants of the module

    @property
    def MODEL(self) -> str: ...  # noqa: N802

    def request(self, messages: Sequence[Body], native: Sequence[str], *, stream: bool, more: Body) -> Body:
        """A runner's request, with its own tools."""

    def user(self, words: str) -> Body:
        """What a user says."""

    def results(self, given: Sequence[tuple[str, str]]) -> list[Body]:
        """What a runner sends back for its native calls: (call id, output)."""

    def choice(self, word: str, *, parallel: bool | None = None) -> Body:
        """The members that say how tools are to be used: ``auto``, ``required``, ``none``, or a tool's name."""

    def foreign(self, name: str) -> Body:
        """An entry of ``tools`` that is no function of the runner's."""

    def picture(self, words: str) -> Body:
        """What a user says, with an image."""

    def echoes(self, message: Body) -> dict[str, Body]:
        """An assistant's message as different runners send it back, by what they do to it."""

    def reply(self, text: str, calls: Sequence[Made], more: Body, *, thought: str = "", cut: bool = False) -> bytes:
        """A provider's response. ``thought``: what was thought before; ``cut``: the model ran out of tokens."""

    def ended(self, body: bytes) -> str:
        """Why a response ended, in the protocol's own word."""

    def error(self, code: str, message: str) -> Body:
        """A provider's error."""

    def said(self, body: bytes) -> Said:
        """What a response says. Raises ``LookupError``, ``TypeError`` or ``ValueError`` for what is none."""

    def kept(self, body: bytes) -> Body:
        """The assistant's message of a response, as a runner keeps it for its next request."""

    def usage(self, body: bytes) -> tuple[int, int]:
        """Tokens in and out."""

    def assembled(self, stream: bytes) -> bytes:
        """The response that a client puts together from a stream, which must be without fault."""

    def stream_error(self, stream: bytes) -> bytes | None:
        """The error that a stream ends with, as a body; None where it does not."""

    def code(self, error: bytes) -> str | None:
        """The code of an error body, which must have the protocol's shape; None where the shape has no place for it."""

    def parts(self, messages: Sequence[Body]) -> list[str]:
        """The messages as ``user``, ``assistant`` and ``tool``, one ``tool`` for each result."""

    def answers(self, messages: Sequence[Body]) -> list[tuple[str, str]]:
        """The results in messages: (call id, content)."""

    def called(self, request: Body) -> list[str]:
        """The names of the calls in a request's messages."""

    def tools(self, request: Body) -> dict[str, str]:
        """Tools offered in a request: name → description."""

    def chosen(self, request: Body) -> tuple[str | None, bool | None]:
        """How tools are to be used: the word or name of ``choice``, and whether calls may be made side by side."""

    def check(self, request: Body, replies: Mapping[str, bytes]) -> None:
        """Holds a request to the rules of the provider. ``replies``: what was said so far, by the ids of its calls."""
