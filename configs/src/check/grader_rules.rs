//! Rules for `[graders]`.

use super::judge_rules::judge;
use super::kind_checks::{is_external, memory, remote, unknown};
use super::report::Report;
use crate::{JUDGE, OwnKinds, RunConfig, Take};

/// The only grader that uses `take`.
const TAKING: &str = "integer";

/// Checks `[graders]`.
pub(super) fn all(config: &RunConfig, report: &mut Report) {
    let known = OwnKinds::installed().known_graders();
    for (name, grader) in &config.graders {
        let kind = &grader.kind;
        let listed = [&known[..], &[JUDGE]].concat();
        report.when(
            !known.contains(&kind.as_str()) && !is_external(kind) && kind != JUDGE,
            format!("graders.{name}.kind"),
            &[],
            unknown(kind, &listed),
        );
        remote(kind, &format!("graders.{name}.kind"), report);
        judge(config, name, grader, report);
        report.when(
            grader.take != Take::Last && kind != TAKING,
            format!("graders.{name}.take"),
            &[&format!("graders.{name}.kind")],
            format!("works only with kind = {TAKING:?}: remove it, or write that kind"),
        );
        report.when(
            grader.timeout.0.is_zero(),
            format!("graders.{name}.timeout"),
            &[],
            "is 0: write for example \"2s\"",
        );
        report.when(
            grader.workers == 0,
            format!("graders.{name}.workers"),
            &[],
            "is 0, so no answer would be graded: write 1 or more",
        );
        memory(grader.memory, format!("graders.{name}.memory"), report);
    }
}
