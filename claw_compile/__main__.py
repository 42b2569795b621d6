"""``python -m claw_compile [POD] [-o DIR] [--target T]``: the compile verb without the rest of the command line."""

import argparse
import sys
from pathlib import Path

from claw_compile.compiler import run
from claw_compile.diagnostics.report import plain_streams


def main() -> int:
    """Compile, and return the exit code: 0, or 1 with errors; argparse exits 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m claw_compile", description="Compile a pod.")
    parser.add_argument("pod", nargs="?", type=Path, default=Path("claw-pod.yml"), help="the pod file")
    parser.add_argument("-o", "--output", type=Path, help="where to write (default: .claw-runtime beside the pod)")
    parser.add_argument("--target", choices=("compose", "kubernetes"), default="compose", help="what is to run it")
    options = parser.parse_args()
    plain_streams()
    return run(options.pod, options.output, options.target)


if __name__ == "__main__":
    sys.exit(main())
