"""The places of a transcript at which hidden messages are put back, and what is put there.

Pure. Hidden rounds of a buffered turn go before the answer that they led to. Those of a turn that
streamed live go into it: the runner's message is split, and what is left of it goes behind them
(docs/spec/live.md section 6).
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, assert_never

import msgspec


class Insert(msgspec.Struct, frozen=True):
    """Hidden messages that go before a message of the runner's, which stays as it is."""

    hidden: bytes  # JSON, comma separated


class Replace(msgspec.Struct, frozen=True):
    """Messages that take the place of one of the runner's."""

    hidden: bytes  # JSON, comma separated; b"" for none
    rest: bytes  # What is left of the runner's message; b"" if nothing is

    @property
    def messages(self) -> bytes:
        """Return all of it, comma separated; b"" if the runner's message only leaves."""
        return join_messages((self.hidden, self.rest))


type Weave = Insert | Replace
type Weaves = Mapping[int, Weave]
"""The weaves of a request, by the index of the runner's message."""
NO_WEAVES: Final[Weaves] = MappingProxyType({})


def join_messages(messages: Iterable[bytes]) -> bytes:
    """Return messages, comma separated, without those that are empty."""
    return b",".join(filter(None, messages))


def change_hidden(weaves: Weaves, change: Callable[[bytes], bytes]) -> dict[int, Weave]:
    """Return the weaves with their hidden messages changed; what is the runner's stays.

    ``change`` may leave out all of them.
    """
    changed: dict[int, Weave] = {}
    for index, weave in weaves.items():
        hidden = change(weave.hidden) if weave.hidden else b""
        match weave:
            case Insert():
                if hidden:
                    changed[index] = Insert(hidden)
            case Replace(rest=rest):
                changed[index] = Replace(hidden, rest)
            case _:
                assert_never(weave)

    return changed


def hidden_messages(weaves: Weaves) -> bytes:
    """Return all hidden messages of a request, comma separated, in their order."""
    return join_messages(weaves[index].hidden for index in sorted(weaves))
