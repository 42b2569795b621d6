"""Globs over the names of tools: ``*`` and ``?``, and every other character is itself."""

from collections.abc import Iterable


def matches_any(globs: Iterable[str], name: str) -> bool:
    """Return True if one of the globs is the whole name. No globs match nothing."""
    return any(matches(glob, name) for glob in globs)


def matches(glob: str, name: str) -> bool:
    """Return True if a glob is the whole name.

    It takes one step for each character of both, whatever the glob.

    >>> matches("memory_*", "memory_read"), matches("read_?ile", "read_file"), matches("[a-z]*",
    "a") (True, True, False)
    """
    length, stars, marks, signs = 0, 0, 0, dict.fromkeys(name, 0)
    for sign in glob:
        if sign == "*":
            stars |= 1 << length
            continue
        if sign == "?":
            marks |= 1 << length
        elif sign in signs:
            signs[sign] |= 1 << length
        length += 1
    beginnings = (
        1  # Bit n: the first n characters of the glob, without its stars, are the name so far
    )
    for sign in name:
        beginnings = (beginnings & (signs[sign] | marks)) << 1 | beginnings & stars
    return bool(beginnings >> length)
