//! What `agents.NAME.template_args` may say wrongly.

use super::below::Below;

/// Variables and functions that a chat template has anyway.
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

/// Variables for a chat template have names of their own.
pub(super) fn args(args: &toml::Table, below: &mut Below) {
    for name in args.keys() {
        let key = format!("template_args.{name}");
        below.when(
            GIVEN.contains(&name.as_str()),
            &key,
            "is given to every chat template by what is rendered: remove it, or choose a name that the template has beside those",
        );
        below.when(
            name == "strftime_now",
            &key,
            "is the function that tells the day: remove it, and write template_date = \"2026-11-23\" beside template_args",
        );
        let named = !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        below.when(
            !named,
            &key,
            "is no name of a template's variable: use a-z, A-Z, 0-9 and _, and no digit first",
        );
    }
}
