"""The ids that OpenClaw gives to calls over Responses. Pure.

OpenClaw 2026.9.6 sends a call's id as it is only if the ids of the call and of its item are of
OpenAI's form. From others it makes one of its own, and leaves out that of the item:

    the provider's           call_id "call2", id "fc_0…02" of 51 characters
    what OpenClaw sends      call_id "call_call2_fc_0…0_11545078d8" of 64 characters

If such a call were not known again, the model would not know of the hidden calls before it, and
would make them once more.
"""

import hashlib
import re
from typing import Final

_CALL_ID: Final = re.compile(r"call_[A-Za-z0-9_-]{1,59}")
_ITEM_ID: Final = re.compile(r"fc_[A-Za-z0-9_-]{1,61}")
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_-]")
_PREFIX: Final = "call_"
_HASH_LENGTH: Final = 10
_MAX_TAIL: Final = 64 - len(_PREFIX) - 1 - _HASH_LENGTH


def openclaw_call_id(call_id: str, item_id: str) -> str:
    """Return the id that OpenClaw sends for a call.

    ``item_id``: "" if the item has none.

    >>> openclaw_call_id("call_2", "fc_2")
    'call_2'
    >>> openclaw_call_id("toolu_2", "")
    'call_toolu_2_f1a6b17c1e'
    """
    both = "|".join(part.strip() for part in (call_id, item_id) if part.strip())
    call, _, item = both.partition("|")
    if _CALL_ID.fullmatch(call) and (not item or _ITEM_ID.fullmatch(item)):
        return call

    digest = hashlib.sha256(both.encode(errors="replace")).hexdigest()[:_HASH_LENGTH]
    tail = _NOT_ALLOWED.sub("_", both.removeprefix(_PREFIX)).strip("_")
    return f"{_PREFIX}{tail[:_MAX_TAIL] or 'id'}_{digest}"
