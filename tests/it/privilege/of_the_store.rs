//! Redis serves coordinators, each only for its own run.

use tests::fleet::RUN;
use tests::secured::{OTHER, Secured};

pub(super) fn only_coordinators_and_only_their_own_run(servers: &Secured) {
    let credentials = |url: &str| {
        let (user, password) = url
            .split_once("://")
            .unwrap()
            .1
            .split_once('@')
            .unwrap()
            .0
            .split_once(':')
            .unwrap();
        format!("AUTH {user} {password}")
    };
    let own = credentials(&servers.environment("coordinator")["DYAD_STATE"]);
    let key = format!("dyad:{{{RUN}}}:group:00");
    assert_eq!(servers.redis(&[&own, &format!("HSET {key} beat 1")]), ":1");
    for forbidden in [
        format!("HSET dyad:{{{OTHER}}}:group:00 beat 1"),
        "HSET else beat 1".to_owned(),
        "FLUSHALL".to_owned(),
        "KEYS *".to_owned(),
        "CONFIG GET requirepass".to_owned(),
        "ACL LIST".to_owned(),
        "EVAL x 0".to_owned(),
    ] {
        let answer = servers.redis(&[&own, &forbidden]);
        assert!(answer.starts_with("-NOPERM"), "a coordinator and {forbidden}: {answer}");
    }
    for name in [
        "agent-a",
        "agent-b",
        "publisher",
        "operator",
        "onlooker",
        "participant-judge",
    ] {
        assert!(
            !servers.environment(name).contains_key("DYAD_STATE"),
            "{name} has the URL of Redis"
        );
        let answer = servers.redis(&[&credentials(&servers.broker(name))]);
        assert!(answer.starts_with("-WRONGPASS"), "{name}: {answer}");
    }
    let answer = servers.redis(&[&format!("HGETALL {key}")]);
    assert!(answer.starts_with("-NOAUTH"), "without a user: {answer}");
}
