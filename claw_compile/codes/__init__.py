"""Every code that the compiler can report, by area; ``codes.UNKNOWN_KEY`` is one of them."""
# ruff: noqa: F403 - the modules are the areas of one registry, and a code is known by its name alone

from claw_compile.codes.descriptors import *
from claw_compile.codes.grammar import *
from claw_compile.codes.kubernetes import *
from claw_compile.codes.policy import *
