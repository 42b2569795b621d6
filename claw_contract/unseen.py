"""Characters that nobody sees in a log, and that a line of JSON may hold as they are."""

import json
import re

_DELETE = 0x7F
_UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that end a line, move a terminal's cursor or turn text around.

JSON escapes only those below the space.
"""


def escape_unseen(document: bytes) -> bytes:
    r"""Return the same JSON, with the characters that nobody sees as JSON's own escapes.

    >>> escape_unseen('{"model":"caf\u00e9\u2028"}'.encode()).decode()
    '{"model":"café\\u2028"}'
    """
    if document.isascii() and _DELETE not in document:
        return document
    return _UNSEEN.sub(_escape, document.decode(errors="replace")).encode()


def _escape(unseen: re.Match[str]) -> str:
    return json.dumps(unseen[0])[1:-1]
