"""The user's own words in a message, without what runners put around them. Pure.

Claude Code and qwen-code put notes between ``REMINDER_START`` and ``REMINDER_END``. When they try
again, or their user goes on after a failure, the notes say other things.

OpenClaw 2026.9.6 sends the first text, and the second one when it tries again:

    [Sat 2026-11-28 19:20 UTC] Buy

    Runtime: agent=main | session=…

    [Sat 2026-11-28 19:21 UTC] [Queued user message from a previous active turn; …]
    Buy

    Continue the current task from the existing transcript, …

    Runtime: agent=main | session=…

Both are the same words at the same place of the conversation. If they were taken for others, a turn
that failed behind a write would begin anew, and write again.
"""

import re
from typing import Final

REMINDER_START: Final = "<system-reminder>"
REMINDER_END: Final = "</system-reminder>"

_TIME: Final = re.compile(r"\[[A-Z][a-z]{2} \d{4}-\d{2}-\d{2} \d{2}:\d{2} [^\]\n]{1,40}\] ")
_QUEUED: Final = re.compile(r"\[Queued user message[^\]\n]{0,400}\]\n")
_RUNTIME: Final = "\n\nRuntime: agent="
_CONTINUE: Final = "\n\nContinue the current task"


def own_words(text: str) -> str:
    """Return what the user said in a message's text; the text itself if OpenClaw did not send it.

    >>> own_words("[Sat 2026-11-28 19:20 UTC] Buy")
    'Buy'
    """
    time = _TIME.match(text)
    if time is None:
        return text

    queued = _QUEUED.match(text, time.end())
    start = time.end() if queued is None else queued.end()

    # The last one: the user's own words may have the same ones in them.
    runtime = text.rfind(_RUNTIME, start)
    end = len(text) if runtime < 0 else runtime
    if queued is not None:
        instruction = text.rfind(_CONTINUE, start, end)
        end = end if instruction < 0 else instruction

    return text[start:end]


def without_reminders(text: str) -> str:
    """Return a text without the notes in it; the text itself if it has none, or nothing else.

    >>> without_reminders("<system-reminder>Monday</system-reminder> Buy")
    'Buy'
    """
    own: list[str] = []
    place = 0
    while (start := text.find(REMINDER_START, place)) >= 0:
        end = text.find(REMINDER_END, start)
        if end < 0:
            break
        own.append(text[place:start].strip())
        place = end + len(REMINDER_END)

    own.append(text[place:].strip())
    words = "\n".join(filter(None, own))
    return words if place and words else text
