//! Random faults over every process and both servers; `make chaos` runs more of them.

use std::time::Duration;

use tests::chaos::{BATCH, GROUP, Plan, run};

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        _ => default,
    }
}

#[test]
fn nothing_is_lost_and_nothing_counted_twice_under_chaos() {
    let plan = Plan {
        conversations: number("DYAD_CHAOS_CONVERSATIONS", 300),
        faults: number("DYAD_CHAOS_FAULTS", 30),
        seed: number("DYAD_CHAOS_SEED", 1),
        pause: Duration::from_secs(number("DYAD_CHAOS_PAUSE", 0)),
    };
    println!("{plan:?}");
    let report = run(crate::DYAD, plan);
    println!("{report}");
    assert!(report.audit_passed, "{}", report.audit);
    assert_eq!((report.lost(), report.double()), (0, 0), "{report}");
    assert_eq!(report.tasks % BATCH, 0);
    for agent in ["a", "b"] {
        assert_eq!(report.decided(agent), report.tasks * GROUP, "{agent}: {report}");
    }
    assert_eq!(report.audit["books"]["published"], report.tasks);
    assert_eq!(report.audit["books"]["finished"], report.tasks);
}
