//! Tests of `[workflow.shaping.ROLE]` and `[workflow.credit]`.

use super::{check, expect};
use crate::{CreditConfig, RoleName};

const AT: &str = "[graders.answer]";

fn with(tables: &str) -> String {
    format!("{tables}\n{AT}")
}

#[test]
fn shaping_and_credit_are_read() {
    let tables = with(
        "[workflow.shaping.speaker]\noverlong = { from = 3, to = 4 }\nlength_penalty = 0.5\n\
         [workflow.credit]\nspeaker = \"zero_sum\"\nlistener = { difference = \"speaker\" }",
    );
    let config = check(&super::GOOD.replacen(AT, &tables, 1)).unwrap();
    let role = |name: &str| RoleName::new(name).unwrap();
    let shaping = &config.workflow.shaping[&role("speaker")];
    let overlong = shaping.overlong.unwrap();
    assert_eq!((overlong.from, overlong.to, overlong.penalty), (3, 4, 1.0));
    assert_eq!((shaping.length, shaping.length_penalty), (None, Some(0.5)));
    let credit = &config.workflow.credit;
    assert_eq!(credit[&role("speaker")], CreditConfig::ZeroSum);
    assert_eq!(credit[&role("listener")], CreditConfig::Difference(role("speaker")));
}

#[test]
fn lengths_weights_and_roles_must_make_sense() {
    let tables = with(
        "[workflow.shaping.speaker]\noverlong = { from = 4, to = 4, penalty = -1.0 }\n\
         length = { target = 0, weight = nan }\nlength_penalty = -0.5\n\
         [workflow.shaping.judge]\nlength_penalty = 1.0\n\
         [workflow.shaping.listener]\n\
         [workflow.credit]\nteacher = \"shared\"\nspeaker = { difference = \"unknown\" }",
    );
    expect(
        &[(AT, &tables)],
        &[
            ("workflow.shaping.speaker.overlong.from", "fewer tokens than `to`"),
            ("workflow.shaping.speaker.overlong.penalty", "0 or more"),
            ("workflow.shaping.speaker.length.target", "1 or more"),
            ("workflow.shaping.speaker.length.weight", "0 or more"),
            ("workflow.shaping.speaker.length_penalty", "0 or more"),
            ("workflow.shaping.judge", "\"judge\" is not a role"),
            ("workflow.shaping.listener", "is empty"),
            ("workflow.credit.teacher", "\"teacher\" is not a role"),
            ("workflow.credit.speaker.difference", "\"unknown\" is not a role"),
        ],
    );
}
