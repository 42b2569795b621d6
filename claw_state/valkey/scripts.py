"""The Lua scripts that the server runs, from the files in ``lua/``."""

from importlib.resources import files


def load_script(*names: str) -> str:
    """Return the text of one script: its parts in ``lua/``, joined."""
    directory = files(__package__) / "lua"
    return "\n".join((directory / f"{name}.lua").read_text(encoding="utf-8") for name in names)
