"""The paths of each dialect, and how the body of a request at one is read."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from claw_mediate.core.api_paths import Endpoint
from claw_mediate.core.known_paths import PathMatch
from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.base import Dialect, RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.model_only import read_model
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.dialects.responses import DIALECT as OPENAI_RESPONSES


class DialectEndpoint(NamedTuple):
    """A path of a dialect, and what its requests are for."""

    dialect: Dialect
    only_counts: bool = False  # True if the tokens are to be counted, and no model is asked
    side_request: str | None = None
    """The rule by which its requests are side requests; None if they are not."""
    may_name_kept: bool = False
    """True if a request may name a kept object.

    Then one that can't be read is refused: the id in it could be anybody's.
    """


DIALECTS: Final[Mapping[Endpoint, DialectEndpoint]] = {
    "/chat/completions": DialectEndpoint(OPENAI_CHAT),
    "/messages": DialectEndpoint(ANTHROPIC_MESSAGES),
    "/messages/count_tokens": DialectEndpoint(ANTHROPIC_MESSAGES, only_counts=True),
    "/responses": DialectEndpoint(OPENAI_RESPONSES, may_name_kept=True),
    "/responses/compact": DialectEndpoint(
        OPENAI_RESPONSES, side_request="compact", may_name_kept=True
    ),
    "/responses/input_tokens": DialectEndpoint(
        OPENAI_RESPONSES, only_counts=True, may_name_kept=True
    ),
}
"""The dialects by the end of the path of a POST."""


def find_endpoint(match: PathMatch | None) -> DialectEndpoint | None:
    """Return the endpoint of a known path; None for a path of no dialect."""
    if match is None or match.row.endpoint is None:
        return None
    return DIALECTS[match.row.endpoint]


def read_request(endpoint: DialectEndpoint, body: bytes, *, has_tools: bool) -> RunnerRequest:
    """Return the view of a request at an endpoint.

    ``has_tools``: True if its agent has managed tools. Raise ``UnreadableRequestError``; without
    tools only for a request that may name a kept object.
    """
    try:
        view = endpoint.dialect.read_request(body)
    except UnreadableRequestError:
        if has_tools or endpoint.may_name_kept:
            raise
        return read_model(body)

    if not endpoint.only_counts and endpoint.side_request is None:
        return view
    # What comes back is no response that a later request may name.
    kept = None if view.kept is None else replace(view.kept, keeps_response=False)
    return replace(view, kept=kept, side_request=endpoint.side_request)
