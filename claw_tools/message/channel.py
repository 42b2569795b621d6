"""The channels of ``message``, and how one fails."""

from abc import ABC, abstractmethod

from claw_contract.base import JsonObject
from claw_tools.errors import ErrorCode, ToolError


class Channel(ABC):
    """A place that messages go to. It keeps no connection between them."""

    @abstractmethod
    async def send(self, message: JsonObject) -> None:
        """Send a message ``{channel, chat_id, content}`` once, and never again.

        Raise ``ToolError``.
        """


def refused(why: str) -> ToolError:
    """Return the error of a message that was certainly not delivered."""
    return ToolError(ErrorCode.EXECUTION_FAILED, f"the channel {why}.")


def unknown_outcome(why: str) -> ToolError:
    """Return the error of a message that may have been delivered."""
    return ToolError(
        ErrorCode.EXECUTION_FAILED,
        (
            f"the channel {why}: whether the message was delivered is unknown. Find out "
            "before you send it again."
        ),
    )
