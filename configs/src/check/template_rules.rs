//! Rules for `agents.NAME.template_args`.

use super::below::Below;

/// Variables and functions that every chat template has.
const GIVEN: [&str; 14] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "raise_exception",
    "loop",
    "namespace",
    "range",
    "dict",
    "debug",
];

/// Checks that variables for a chat template have new names.
pub(super) fn args(args: &toml::Table, below: &mut Below) {
    for name in args.keys() {
        let key = format!("template_args.{name}");
        below.when(
            GIVEN.contains(&name.as_str()),
            &key,
            "is set for every chat template by dyad: remove it, or choose another variable of the template",
        );
        below.when(
            name == "strftime_now",
            &key,
            "is the function that returns the day: remove it, and write template_date = \"2026-11-23\" next to template_args",
        );
        let named = !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        below.when(
            !named,
            &key,
            "is not a name of a template variable: use a-z, A-Z, 0-9 and _, and no digit first",
        );
    }
}
