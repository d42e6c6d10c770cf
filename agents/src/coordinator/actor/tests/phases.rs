//! The phases of a run: its beginning, the news of it, and its end.

use super::*;

/// Two coordinators would each begin rounds.
#[tokio::test]
async fn a_synchronous_run_has_one_coordinator() {
    for (begun, ours) in [
        (RunPhase::Running, RunPhase::Starting),
        (RunPhase::Starting, RunPhase::Running),
    ] {
        let mut bench = Bench::new(|config| config.run.mode = configs::Mode::Sync).await;
        bench.coordinator.lifecycle.set_phase(ours);
        let other = CoordinatorBeat {
            phase: begun,
            ..coordinator_beat("another")
        };
        bench.coordinator.on_beat(Beat::Coordinator(other), &mut bench.ctx);
        let yields = ours == RunPhase::Starting;
        assert_eq!(
            bench.coordinator.lifecycle.is_stopping(),
            yields,
            "the one that has begun stays"
        );
        assert_eq!(bench.coordinator.lifecycle.has_ended(), yields);
        if yields {
            let error = bench.end.try_recv().unwrap().unwrap_err();
            assert_eq!(crate::cli::exit_code::code(&error), 2);
            assert!(error.to_string().contains("process 7"), "{error}");
        }
    }
}

/// A coordinator that starts again goes on in the state that the agents know.
#[tokio::test]
async fn a_new_coordinator_learns_the_runs_state_from_the_agents() {
    let mut bench = Bench::new(|_| {}).await;
    let paused = RunState {
        seq: 5,
        phase: RunPhase::Paused,
    };
    for (agent, run) in [("a", RunState::default()), ("b", paused)] {
        let mut beat = beat(&AgentName::new(agent).unwrap(), 0);
        beat.run = run;
        bench.coordinator.on_beat(Beat::Agent(beat), &mut bench.ctx);
    }
    bench.coordinator.advance_phase();
    assert_eq!(bench.coordinator.lifecycle.run(), paused);
    bench.coordinator.on_command(Command::Resume);
    assert_eq!(
        (
            bench.coordinator.lifecycle.run().seq,
            bench.coordinator.lifecycle.phase()
        ),
        (6, RunPhase::Running)
    );
}

/// A coordinator that was halted or cut off while the run ended receives no heartbeat that says so.
#[tokio::test(start_paused = true)]
async fn a_coordinator_notices_a_run_that_ended_without_it() {
    for phase in [RunPhase::Running, RunPhase::Paused, RunPhase::Draining] {
        let mut bench = Bench::new(|_| {}).await;
        bench.beats(2);
        bench.coordinator.lifecycle.set_phase(phase);
        let now = |bench: &mut Bench| {
            bench.coordinator.close_if_run_is_over();
            bench.coordinator.lifecycle.phase()
        };
        let lease = bench.env().config.run.lease.0;
        tokio::time::advance(lease * 2).await;
        assert_eq!(now(&mut bench), phase, "no agent has ended: they may start again");
        bench.end_agents();
        bench.beats_again();
        assert_eq!(now(&mut bench), phase, "the agents are alive");
        tokio::time::advance(lease * 2).await;
        assert_eq!(now(&mut bench), RunPhase::Closed);
        bench.coordinator.advance_phase();
        assert!(bench.coordinator.lifecycle.has_ended(), "it waits for no agent");
    }
}

/// A drained run has nothing left in its queues, here or reserved, twice in succession.
#[tokio::test]
async fn a_run_is_drained_when_nothing_is_left_twice_in_succession() {
    let mut bench = Bench::new(|_| {}).await;
    bench.beats(0);
    bench.coordinator.lifecycle.set_phase(RunPhase::Draining);
    assert!(!bench.coordinator.drained(), "the queues were not looked at");
    for (depth, drained) in [
        (Some(0), false),
        (Some(1), false),
        (Some(0), false),
        (None, false),
        (Some(0), false),
        (Some(0), true),
    ] {
        bench.coordinator.on_depth(depth);
        assert_eq!(bench.coordinator.drained(), drained, "{depth:?}");
    }
    bench.open("t").await;
    assert!(!bench.coordinator.drained(), "a group is open");
}
