"""The settings of a mediator that runs within a test."""

from __future__ import annotations

from claw_mediate.settings import SETTINGS


def default_settings() -> dict[str, str]:
    """Return the default of each setting by name, but for how long a look at a file holds.

    A test that changes a file asks at once, so each request looks.
    """
    return {setting.name: setting.default for setting in SETTINGS} | {"file_look_ms": "0"}
