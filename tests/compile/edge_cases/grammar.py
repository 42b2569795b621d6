"""Edge cases of grants, defaults, names, counts, and the values that an agent is given."""

from __future__ import annotations

from tests.compile.edge_cases.edge_case import REMEDY, EdgeCase

GRANTS = (
    "compile/policy/test_project.py::test_grants_are_united_in_descriptor_order_and_denied_last"
)
EXPLAINED = "cli/test_explain.py::test_each_reason_has_its_place"
GRAMMAR: dict[str, EdgeCase] = {
    "1": EdgeCase(
        "`...` twice in one list",
        "spread-twice at the second, with the first",
        ("compile/cases/spread.yml", REMEDY),
    ),
    "2": EdgeCase(
        "`...` and no defaults",
        "spread-without-defaults, which names the key",
        ("compile/cases/spread-without-defaults.yml", REMEDY),
    ),
    "3": EdgeCase(
        "`tools: []`, or `null`, where the pod has defaults",
        "no tools.json; `claw explain` says where the defaults are suppressed",
        (
            GRANTS,
            "compile/policy/test_project.py::test_an_agent_without_tools_has_no_tools_json",
            EXPLAINED,
        ),
    ),
    "4": EdgeCase(
        "`allow: [all, get_quote]`", "all-mixed-with-names at `all`", ("compile/cases/allow.yml",)
    ),
    "5": EdgeCase(
        "a bare service name, or no `allow`",
        "allow-missing, which offers `allow: all`",
        ("compile/cases/allow.yml", REMEDY),
    ),
    "6": EdgeCase(
        "a default grants one tool, the service `all`",
        "every tool once, sorted; both are told",
        (GRANTS, EXPLAINED),
    ),
    "7": EdgeCase("two grants on one service", "united, without a word", (GRANTS,)),
    "8": EdgeCase(
        "a misspelt tool",
        "unknown-tool at the name, with the near one and the provider's list",
        ("compile/cases/unknown-tool.yml", REMEDY),
    ),
    "9": EdgeCase(
        "two typos in two services",
        "both in one run, sorted; exit 1, and nothing written",
        (
            "compile/cases/two-services-two-typos.yml",
            "compile/diagnostics/test_diagnostic.py::test_diagnostics_are_sorted_by_place",
            "cli/test_compile.py::test_an_error_writes_nothing_and_leaves_the_old_tree",
        ),
    ),
    "10": EdgeCase(
        "tools without a proxy, its own or inherited",
        "tools-without-cllama; where inherited, with the default as a second place",
        ("compile/cases/tools-without-cllama.yml", REMEDY),
    ),
    "24": EdgeCase(
        "a provider with `count`",
        "counted-provider, with its names",
        ("compile/cases/count.yml", REMEDY),
    ),
    "25": EdgeCase(
        "a counted service, and another with an ordinal's name",
        "ordinal-collision, with both places",
        ("compile/cases/count.yml", REMEDY),
    ),
    "26": EdgeCase(
        "`depends_on`, `links`, `network_mode` of a counted service",
        "each ordinal instead, the condition kept; counted-reference for what is one container's",
        (
            "compile/output/compose/test_edits.py::test_who_waits_for_a_counted_agent_waits_for_each_with_its_condition",
            "compile/cases/reach.yml",
        ),
    ),
    "27": EdgeCase(
        "an agent with `scale` or `deploy.replicas`",
        "count-conflict",
        ("compile/cases/count.yml", REMEDY),
    ),
    "29": EdgeCase(
        "services called `..`, `cllama`, `clawdash`, or like another but for capitals",
        "bad-service-name or bad-agent-id; reserved-name; same-host",
        ("compile/cases/reserved-names.yml", "compile/cases/names.yml", REMEDY),
    ),
    "36": EdgeCase(
        "two values for one variable of the proxy",
        "proxy-env-conflict, with both places and no value",
        (
            "compile/cases/proxies.yml",
            REMEDY,
            "compile/diagnostics/test_report.py::test_no_report_holds_the_value_of_a_variable",
        ),
    ),
    "ambiguous-feed": EdgeCase(
        "a feed that two services declare",
        "ambiguous-feed, with both candidates",
        (
            "compile/cases/feeds.yml",
            "compile/policy/test_resolve.py::test_an_ambiguous_feed_is_told_with_its_candidates",
        ),
    ),
    "many-feeds": EdgeCase(
        "feeds of more than 64 KiB in total",
        "the proxy leaves out what has no room, and says so in its place",
        (
            "mediate/prompt/test_feeds.py::test_feeds_beyond_the_total_are_left_out_with_a_line_each",
        ),
        "no descriptor says how long a feed is",
    ),
    "no-models": EdgeCase(
        "`models: {}`",
        "no models: the pod's are suppressed, and labels of images are not asked",
        (
            "compile/policy/test_resolve.py::test_models_are_the_pods_slot_by_slot_and_fallbacks_are_replaced_as_one",
        ),
        "a compile needs no image",
    ),
    "unreachable": EdgeCase(
        "a runner of one protocol, and a fallback of another",
        "the proxy asks only who speaks the request's protocol, and tells the others",
        (
            "mediate/core/test_model_policy.py::test_only_providers_that_speak_the_requests_protocol_are_asked",
        ),
        "which protocol a runner speaks shows in its requests",
    ),
    "handles": EdgeCase(
        "handles of the pod and of a service",
        "not-acted-on, and both are carried as they are written",
        (
            "compile/test_compiler_original_pod.py::test_what_is_carried_is_as_it_is_written",
            "compile/cases/not-acted-on.yml",
        ),
        "docs/spec/compile.md, Grammar: handles are known, and not acted on",
    ),
}
