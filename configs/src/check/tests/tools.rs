//! Tests of tools and of the roles that call them.

use super::expect;

const TOOLS: &str = "[tools.look]\nkind = \"process:look.py\"\ndescription = \"Looks.\"\nparameters = { type = \"object\" }\n[graders.answer]";

/// Expects these problems for the good file with a tool of the speaker, after these changes.
fn with(changes: &[(&str, &str)], expected: &[(&str, &str)]) {
    let mut all = vec![
        ("[graders.answer]", TOOLS),
        ("group_size = 8", "group_size = 8\ntools = { speaker = [\"look\"] }"),
    ];
    all.extend(changes);
    expect(&all, expected);
}

#[test]
fn a_tool_is_held_to_what_it_needs() {
    with(&[], &[]);
    let kind = "kind = \"process:look.py\"";
    with(&[(kind, "kind = \"look.py\"")], &[("tools.look.kind", "corpus:FOLDER")]);
    with(
        &[(kind, "kind = \"http://\"")],
        &[("tools.look.kind", "is not understood")],
    );
    with(&[(kind, "kind = \"http://host:1/call\"")], &[]);
    with(
        &[(kind, "kind = \"https://me:secret@host/call\"")],
        &[("tools.look.kind", "DYAD_TOOL_TOKEN_LOOK")],
    );
    with(
        &[(kind, "kind = \"corpus:docs\"")],
        &[
            ("tools.look", "\"search\" or \"visit\""),
            ("tools.look.parameters", "remove it"),
        ],
    );
    with(
        &[("description = \"Looks.\"\n", "")],
        &[("tools.look.description", "is empty")],
    );
    with(
        &[("parameters = { type = \"object\" }", "")],
        &[("tools.look.parameters", "JSON Schema")],
    );
    let given = |key: &str, value: &str| format!("{kind}\n{key} = {value}");
    for (key, value) in [
        ("timeout", "\"0s\""),
        ("workers", "0"),
        ("retries", "21"),
        ("memory", "\"1 MiB\""),
        ("answer", "\"1 MiB\""),
    ] {
        let path = format!("tools.look.{key}");
        with(&[(kind, &given(key, value))], &[(&path, "")]);
    }
}

#[test]
fn tools_without_a_role_and_unknown_tools_are_rejected() {
    let tools = "tools = { speaker = [\"look\"] }";
    with(&[(tools, "")], &[("tools.look", "called by no role")]);
    with(
        &[(tools, "tools = { speaker = [\"look\", \"fly\"], unknown = [\"look\"] }")],
        &[
            ("workflow.tools.speaker", "no [tools.fly]"),
            ("workflow.tools.unknown", "not a role"),
        ],
    );
    let limits = |text: &str| format!("{tools}\ntool_limits = {{ {text} }}");
    with(
        &[(tools, &limits("calls = 0"))],
        &[("workflow.tool_limits.calls", "1 to 256")],
    );
    with(
        &[(tools, &limits("context = 100"))],
        &[("workflow.tool_limits.reserve", "write less")],
    );
    with(
        &[(tools, &limits("hurry = \" \""))],
        &[("workflow.tool_limits.hurry", "is empty")],
    );
    with(
        &[(tools, &limits("turns = 5000"))],
        &[("workflow.tool_limits.turns", "0 to 1000")],
    );
}
