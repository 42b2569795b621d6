"""Edge cases of descriptors, and of the addresses of services."""

from __future__ import annotations

from tests.compile.edge_cases.edge_case import REMEDY, EdgeCase

DESCRIPTORS: dict[str, EdgeCase] = {
    "11": EdgeCase(
        "`allow: all`, and the provider adds a tool that writes",
        "refused as lock-drift with the difference, +WRITE marked, until `claw lock --accept`",
        (
            "compile/cases/locked/claw-pod.yml",
            REMEDY,
            "cli/test_plan.py::test_who_gains_or_loses_what_is_told_by_agent_and_tool",
            "compile/policy/test_lock_drift.py::test_a_tool_that_changed_comes_or_goes_is_refused_until_its_service_is_accepted",
        ),
    ),
    "12": EdgeCase(
        "a descriptor of version 1 with `tools`",
        "descriptor-needs-v2, at the key inside the JSON",
        ("compile/cases/descriptors.yml",),
    ),
    "13": EdgeCase(
        "a descriptor without `version`", "descriptor-version", ("compile/cases/descriptors.yml",)
    ),
    "14": EdgeCase(
        "a tool with `http` where `mcp` is set",
        "http-forbidden",
        ("compile/cases/descriptors.yml",),
    ),
    "15": EdgeCase(
        "`/users/{id}` and no `id` in the schema, or one that is optional, or a list",
        "path-parameter, at the path or at the property",
        ("compile/cases/descriptor-rules.yml", "compile/cases/descriptor-checks.yml"),
        "docs/spec/compile.md: every parameter is in the schema and required",
    ),
    "16": EdgeCase(
        "a path or a schema with `claw_id`",
        (
            "the path needs no such property; the model does not see it, and what it sends "
            "for it reaches nobody"
        ),
        (
            "compile/cases/descriptor-rules.yml",
            "mediate/core/test_tool_call.py::test_claw_id_is_the_agents_and_never_the_models",
            "mediate/core/test_tool_call.py::test_the_model_does_not_see_claw_id_in_the_schema",
        ),
        "the proxy takes it out of the schema, since the schema tells it where to fill it in",
    ),
    "17": EdgeCase(
        "`x.a` and `x_a`, each with a tool `b`",
        "both are presented with a hash, and presented-name says so at both places",
        (
            "compile/cases/presented.yml",
            REMEDY,
            "contract/test_names.py::test_names_that_would_share_an_alias_differ_by_their_hash",
        ),
        "docs/spec/compile.md, Tools: a name that every provider takes",
    ),
    "18": EdgeCase(
        "a service and a tool whose names have more than 64 characters together",
        "cut, with a hash; presented-name says so",
        (
            "compile/cases/presented.yml",
            "contract/test_names.py::test_a_name_of_exactly_the_limit_is_kept_and_one_more_is_cut",
        ),
        "docs/spec/compile.md, Tools: a name that every provider takes",
    ),
    "19": EdgeCase(
        '`x-claw.terminalOnSuccess: "true"`',
        "bad-annotation",
        ("compile/cases/descriptor-shapes.yml",),
    ),
    "20": EdgeCase(
        "a DELETE that says it only reads",
        "read-only-delete, and it is a write",
        (
            "compile/cases/descriptor-rules.yml",
            "contract/test_manifest.py::test_the_effect_is_what_is_declared_and_a_delete_is_never_a_read",
        ),
    ),
    "21": EdgeCase(
        "a UDP port before a TCP port",
        "the TCP port",
        ("compile/policy/test_connect_base_url.py::test_a_base_url_is_made_of_the_first_tcp_port",),
    ),
    "22": EdgeCase(
        "a range of ports, or several ports",
        "port-range; several-ports, and the first is taken",
        ("compile/cases/port-range.yml", "compile/cases/several-ports.yml", REMEDY),
    ),
    "23": EdgeCase(
        "a port that is a variable",
        "filled in; unset-variable at the port",
        (
            "compile/policy/test_connect_base_url.py::test_a_base_url_is_made_of_the_first_tcp_port",
            "compile/cases/unset-port.yml",
        ),
    ),
    "33": EdgeCase(
        "bearer auth whose variable only the provider has; the agent has; nobody has",
        "projected; token-visible-to-agent; token-missing",
        (
            "compile/policy/test_credentials.py::test_a_providers_credential_is_projected_byte_for_byte",
            "compile/cases/token-visible-to-agent.yml",
            "compile/cases/token-missing.yml",
            REMEDY,
        ),
        "docs/spec/compile.md, Auth: a token that an agent sees is an error",
    ),
    "34": EdgeCase(
        "auth of type `header` or `basic`",
        "compiled as such",
        (
            "compile/policy/test_credentials.py::test_a_providers_credential_is_projected_byte_for_byte",
            "compile/policy/test_credentials.py::test_a_descriptors_basic_credential_is_the_providers_own",
        ),
    ),
    "label": EdgeCase(
        "the path of a label is not in the image, or the implied path is not",
        "bad-describe-label; nothing",
        (
            "cli/test_lock.py::test_a_labelled_file_must_be_in_its_image_and_an_unlabelled_one_need_not",
            "compile/cases/sources/claw-pod.yml",
        ),
    ),
    "stale": EdgeCase(
        "a stale snapshot of a stdio server, or of an image",
        "stale-snapshot, and used; stale-snapshot, and passed over",
        ("compile/cases/sources/claw-pod.yml",),
    ),
}
