"""Every code that the compiler can report, by area; ``codes.UNKNOWN_KEY`` is one of them."""
# ruff: noqa: F403 - the modules are the areas of one registry, and a code is known by its name alone

from claw_compile.codes.credential_leaks import *
from claw_compile.codes.descriptors import *
from claw_compile.codes.files import *
from claw_compile.codes.grammar import *
from claw_compile.codes.kubernetes import *
from claw_compile.codes.policy import *
from claw_compile.codes.providers import *
from claw_compile.codes.reach import *
from claw_compile.codes.relations import *
from claw_compile.codes.sources import *
