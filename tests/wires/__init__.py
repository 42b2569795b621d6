"""The differences between the providers' protocols, for tests: one module for each,
and the neutral words of both.

A wire builds the messages of a runner and of a model, reads what they receive as strictly as the
strictest SDK does, and checks every request for the provider by the provider's own rules. It shares
no code with the dialects that it tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

type Body = dict[str, Any]
_WORD = re.compile(r"\S+\s*|\s+")


def in_words(text: str) -> list[str]:
    """Return the parts of a text as a model streams them: its words, with the space behind."""
    return _WORD.findall(text)


def in_halves(text: str) -> list[str]:
    """Return the parts of a call's arguments as a model streams them."""
    half = len(text) // 2
    return [part for part in (text[:half], text[half:]) if part]


@dataclass(frozen=True)
class MadeCall:
    """A call that a model made; ``arguments`` is its JSON text in its own spelling."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ReplyContent:
    """The content of a model's reply: its visible text, its calls, and its thought before."""

    text: str = ""
    calls: tuple[MadeCall, ...] = ()
    thought: str = ""


class Wire(Protocol):
    """One protocol; each module of this package is one."""

    @property
    def PATH(self) -> str: ...  # noqa: N802 - constants of the module

    @property
    def MODEL(self) -> str: ...  # noqa: N802

    @property
    def TRANSCRIPT(self) -> str: ...  # noqa: N802 - the member of a request that holds its messages

    def request(
        self, messages: Sequence[Body], native: Sequence[str], *, stream: bool, more: Body
    ) -> Body:
        """Return a runner's request, with its native tools."""

    def user(self, words: str) -> Body:
        """Return a user's message."""

    def results(self, given: Sequence[tuple[str, str]]) -> list[Body]:
        """Return the messages in which a runner sends the results of native calls:
        (call id, output).
        """

    def choice(self, word: str, *, parallel: bool | None = None) -> Body:
        """Return the members that set the choice of tools: ``auto``, ``required``,
        ``none``, or a tool's name.
        """

    def foreign(self, name: str) -> Body:
        """Return an entry of ``tools`` that is no function of the runner."""

    def picture(self, words: str) -> Body:
        """Return a user's message with an image."""

    def echoes(self, message: Body) -> dict[str, Body]:
        """Return an assistant's message as different runners send it back, by the
        changes that they make.
        """

    def reply(
        self,
        text: str,
        calls: Sequence[MadeCall],
        more: Body,
        *,
        thought: str = "",
        cut: bool = False,
    ) -> bytes:
        """Return a provider's response.

        ``thought``: the thought before it; ``cut``: the model ran out of tokens.
        """

    def streamed(self, body: bytes) -> bytes:
        """Return a provider's response as the stream that it sends: texts word by word, and the
        arguments of calls in two parts.
        """

    def ended(self, body: bytes) -> str:
        """Return why a response ended, in the protocol's own word."""

    def error(self, code: str, message: str) -> Body:
        """Return a provider's error."""

    def said(self, body: bytes) -> ReplyContent:
        """Return the content of a response.

        Raises ``LookupError``, ``TypeError`` or ``ValueError`` if it is none.
        """

    def kept(self, body: bytes) -> Body:
        """Return the assistant's message of a response, as a runner keeps it for
        its next request.
        """

    def usage(self, body: bytes) -> tuple[int, int]:
        """Return the tokens in and out."""

    def assembled(self, stream: bytes) -> bytes:
        """Return the response that a client assembles from a stream; the stream must be valid."""

    def stream_error(self, stream: bytes) -> bytes | None:
        """Return the error at the end of a stream as a body, or None if there is none."""

    def code(self, error: bytes) -> str | None:
        """Return the code of an error body, which must have the protocol's form;
        None if the form has no place for it.
        """

    def parts(self, messages: Sequence[Body]) -> list[str]:
        """Return the messages as ``user``, ``assistant`` and ``tool``, one ``tool``
        for each result.
        """

    def answers(self, messages: Sequence[Body]) -> list[tuple[str, str]]:
        """Return the results in messages: (call id, content)."""

    def called(self, request: Body) -> list[str]:
        """Return the names of the calls in a request's messages."""

    def tools(self, request: Body) -> dict[str, str]:
        """Return the tools that a request offers: name → description."""

    def chosen(self, request: Body) -> tuple[str | None, bool | None]:
        """Return the choice of tools (the word or name of ``choice``), and True if
        calls may be made side by side.
        """

    def check(self, request: Body, replies: Mapping[str, bytes]) -> None:
        """Check a request by the provider's rules.

        ``replies``: the replies so far, by the ids of their calls.
        """
