"""What an agent may have, as JSON Schema: each as its key of a service takes it, and the pod's default of it."""

from __future__ import annotations

from claw_compile.grammar.pod import MODES
from claw_compile.grammar.read_context import LONGEST_ID, PLACEMENTS
from claw_compile.grammar.read_models import BEHAVIORS
from claw_compile.grammar.read_relations import LONGEST_NAME
from claw_compile.grammar.relations import MEMORY_TIMEOUT_MS
from claw_compile.schema.shapes import (
    NULL,
    Schema,
    choice,
    described,
    flag,
    limit,
    listed,
    mapping,
    named,
    nullable,
    or_variable,
    prose,
    text,
)
from claw_contract.context_files import MAX_BLOCK_CHARS
from claw_contract.manifest import (
    MAX_PARALLEL,
    MAX_ROUNDS,
    MAX_TOOL_RESULT_BYTES,
    TIMEOUT_PER_TOOL_MS,
    TOTAL_TIMEOUT_MS,
)

SPREAD: Schema = {"const": "...", "description": "The pod's defaults belong here; once."}
_NO_SPREAD: Schema = {"not": {"const": "..."}}
_PROXY = "[a-z0-9][a-z0-9-]*"
_MODEL = r"(?:[a-z0-9][a-z0-9._-]*/)?[!-.0-~](?:[!-~]*[!-.0-~])?"
_MODE = r"(?:\s+(?:ro|rw|read-only|read-write))?\s*"
_SURFACE = "|".join(
    (
        r"service://\S+\s*",
        rf"volume://[A-Za-z0-9][A-Za-z0-9_.-]*{_MODE}",
        rf"host:///(?!\S*(?:/\.\.|^\.\.)(?:/|\s|$))(?!\.\.(?:/|\s|$))\S*{_MODE}",
        r"channel://\S+\s*",
        r"egress://\S*\s*",
    )
)


def spread(item: Schema, *, default: bool) -> Schema:
    """A list that may hold the pod's defaults; these themselves take none."""
    return listed({"allOf": [_NO_SPREAD, item]} if default else {"anyOf": [SPREAD, item]})


def grant() -> Schema:
    """One entry of ``tools``."""
    names: Schema = {"type": "array", "minItems": 1, "items": {"allOf": [text(), {"not": {"const": "all"}}]}}
    return mapping(
        {
            "service": described("The service that provides the tools.", text()),
            "allow": described(
                "Which of its tools: all, or their names.", {"anyOf": [*choice(["all"])["anyOf"], names]}
            ),
            "deny": described("Tools that are not granted; beats every 'allow'.", listed(text())),
        },
        "service",
        "allow",
    )


def surface() -> Schema:
    """One entry of ``surfaces``; the map form configures a channel."""
    keys: dict[str, Schema] = {
        "allow_from_handles": described("Whether those with a handle may write to the agent.", flag()),
        "allow_from_services": described("Which services may write to the agent.", listed(text())),
        "guilds": described("Guilds of the channel, as its runner takes them.", nullable({"type": "object"})),
        "dm": described("Direct messages, as the runner takes them.", nullable({"type": "object"})),
    }
    channel: Schema = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "propertyNames": {"pattern": r"^channel://\S+\s*$"},
        "additionalProperties": nullable(mapping(keys)),
    }
    return {"anyOf": [text(_SURFACE), channel]}


def feed() -> Schema:
    """One entry of ``feeds``."""
    own = mapping(
        {
            "name": described("What the model knows it by.", {"allOf": [text(), {"maxLength": LONGEST_NAME}]}),
            "source": described("The service that has it.", text()),
            "path": described(
                "Where the service has it; {claw_id} is the agent.", text(r"/(?!(?:[^?]*/)?\.\.(?:[/?]|$))[^\s#\\]*")
            ),
            "ttl": described("For how many seconds it is good.", limit()),
            "description": described("What it is.", prose()),
        },
        "name",
        "source",
        "path",
    )
    return {"anyOf": [text(), own]}


def models() -> Schema:
    """``models``."""
    model = text(_MODEL)
    slots = {"pattern": "^[A-Za-z0-9][A-Za-z0-9_-]*$", "not": {"pattern": "^fallback-[0-9]+$"}}
    return {
        "type": ["object", "null"],
        "properties": {
            "primary": described("The model that any other is replaced by: provider/model.", nullable(model)),
            "fallback": described(
                "Models to go on with when a provider fails, in order.", {"anyOf": [model, listed(model)]}
            ),
        },
        "propertyNames": slots,
        "additionalProperties": described("A model of this slot; null takes the pod's away.", nullable(model)),
    }


def budget() -> Schema:
    """``budget``."""
    amount = r"^(?!0*\.?0*$)[0-9]{1,9}(?:\.[0-9]{1,9})?$"
    usd = or_variable({"type": ["number", "string"], "exclusiveMinimum": 0, "pattern": amount})
    duration = r"\+?(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:ns|us|µs|μs|ms|s|m|h))+"
    caps = mapping(
        {
            "limit-usd": described("US dollars in a window.", usd),
            "max-requests": described("Requests in a window.", limit()),
            "window": described("How long a window is, such as 90s, 30m or 24h.", text(rf"(?=.*[1-9]){duration}")),
            "behavior": described("What happens at the cap.", choice(BEHAVIORS), default="hard_stop"),
        },
        "window",
        anyOf=[{"required": ["limit-usd"]}, {"required": ["max-requests"]}],
    )
    return nullable(caps)


def memory() -> Schema:
    """``memory``."""
    keys = {
        "service": described("The service that remembers; its descriptor declares 'memory'.", text()),
        "timeout-ms": described("How long a turn waits for it.", limit(), default=MEMORY_TIMEOUT_MS),
    }
    return nullable(mapping(keys, "service"))


def context() -> Schema:
    """``context``."""
    block = mapping(
        {
            "id": described("Its name, once in a list.", {"allOf": [text(), {"maxLength": LONGEST_ID}]}),
            "text": described("What is put into the system prompt.", text()),
            "kind": described("What it is, for the model.", text(), default="context_block"),
            "enabled": described("Whether it is shown.", flag(), default=True),
            "cadence": described("When it is shown.", choice(("every_turn",)), default="every_turn"),
            "placement": described("Where it stands.", choice(PLACEMENTS), default="after_feeds"),
            "max-chars": described("How much of it is shown.", limit(), default=MAX_BLOCK_CHARS),
        },
        "id",
        "text",
    )
    blocks = described("Texts of the operator's for the system prompt.", listed(block))
    channel = described("A key of the original system: carried, and not acted on.", {}, deprecated=True)
    return nullable(mapping({"blocks": blocks, "channel": channel}))


def policy() -> Schema:
    """``tool-policy``."""
    keys = {
        "max-rounds": described("How often tools are run in a turn.", limit(), default=MAX_ROUNDS),
        "timeout-per-tool-ms": described("How long a call may take.", limit(), default=TIMEOUT_PER_TOOL_MS),
        "total-timeout-ms": described("How long a turn may take.", limit(), default=TOTAL_TIMEOUT_MS),
        "max-tool-result-bytes": described(
            "How much of a result the model sees.", limit(), default=MAX_TOOL_RESULT_BYTES
        ),
        "max-parallel": described("How many calls run at once.", limit(), default=MAX_PARALLEL),
        "on-budget": described(
            "At the end of rounds or time: one last answer without tools, or an error.",
            choice(("finalize", "error")),
            default="finalize",
        ),
    }
    return nullable(mapping(keys))


def cllama(*, default: bool) -> Schema:
    """``cllama``, or ``cllama-defaults``, which also holds the proxy's environment."""
    proxy = text(_PROXY)
    proxies: Schema = {"anyOf": [proxy, listed(proxy)]}
    keys = {
        "proxy": described("The type of the proxy.", proxies),
        "mode": described("By which entrance the runner comes to it.", choice(MODES), default="base-url"),
    }
    if not default:
        return {"anyOf": [*proxies["anyOf"], mapping(keys, "proxy")]}
    keys["env"] = described("The environment of the proxy; provider keys belong here.", env())
    only_env = {"required": ["env"], "not": {"required": ["mode"]}}
    return {"anyOf": [*proxies["anyOf"], mapping(keys, anyOf=[{"required": ["proxy"]}, only_env])]}


def env() -> Schema:
    """Variables; without a value, that of the process."""
    return named({"type": ["string", "number", "boolean", NULL["type"]]}, "[A-Za-z_][A-Za-z0-9_]*")
