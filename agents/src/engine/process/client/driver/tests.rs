use broker::protocol::engine::Hello;
use configs::Dtype;
use trainer::transfer::{Form, State};

use super::*;
use crate::engine::process::link;
use crate::engine::process::link::Secret;

fn driver() -> EngineDriver {
    let target = Target {
        agent: broker::AgentName::new("a").unwrap(),
        url: "http://127.0.0.1:1".into(),
        hello: Hello {
            schema: broker::codec::SCHEMA,
            run: "r-1".into(),
            agent: "a".into(),
            weights: "http://127.0.0.1:1".into(),
            model: std::collections::BTreeMap::new(),
        },
        client: link::client(Some(Duration::from_secs(1))).unwrap(),
        secret: Secret::default(),
    };
    EngineDriver::new(target, Arc::default(), EngineStatus::default())
}

fn state(step: u64, value: u8) -> State {
    let form = Form {
        dtype: Dtype::Bf16,
        elements: 4,
        model: [7; 32],
    };
    State::new(form, WeightVersion { lineage: 1, step }, vec![value; 8]).unwrap()
}

impl EngineDriver {
    fn open_session(&mut self) -> UnboundedReceiver<Vec<EngineCommand>> {
        let (outbox, commands) = unbounded_channel();
        self.handle(News::Up(outbox));
        commands
    }

    fn reports(&mut self, state: &State) {
        self.handle(News::Event(EngineEvent::Serving(state.id())));
    }

    fn publish(&mut self, state: &State) {
        self.shelf.put(state.clone());
        self.announce(Some(state.id()));
    }
}

/// The agent restarted while its engine lived: the engine reports its weights once, before they are
/// published.
#[tokio::test]
async fn weights_served_before_their_announcement_count() {
    let mut driver = driver();
    let _commands = driver.open_session();
    driver.reports(&state(4, 1));
    assert!(!driver.ready(), "nothing was announced");
    driver.publish(&state(4, 1));
    assert!(driver.ready());
    assert_eq!(driver.status.version.borrow().step, 4);
}

/// The engine's earlier report does not cover weights announced while it was away.
#[tokio::test]
async fn a_lost_engine_serves_nothing_and_the_next_is_asked_again() {
    let mut driver = driver();
    let commands = driver.open_session();
    driver.publish(&state(4, 1));
    driver.reports(&state(4, 1));
    assert!(driver.ready());
    driver.handle(News::Lost);
    drop(commands);
    driver.publish(&state(5, 2));
    assert!(!driver.ready(), "no engine is present");
    let _commands = driver.open_session();
    driver.reports(&state(4, 1));
    assert!(!driver.ready(), "it does not have the newest weights yet");
    driver.reports(&state(5, 2));
    assert!(driver.ready());
}

#[tokio::test]
async fn other_weights_of_the_same_or_a_later_version_are_not_served() {
    for held in [state(4, 2), state(9, 1)] {
        let mut driver = driver();
        let mut commands = driver.open_session();
        driver.reports(&held);
        driver.publish(&state(4, 1));
        assert!(!driver.ready(), "its engine holds other weights");
        assert_eq!(
            *driver.status.version.borrow(),
            WeightVersion::default(),
            "and they are not reported"
        );
        assert_eq!(
            commands.try_recv().unwrap(),
            [EngineCommand::Announce(state(4, 1).id())]
        );
        driver.reports(&state(4, 1));
        assert!(driver.ready());
    }
}

#[tokio::test]
async fn refused_weights_are_announced_again_later_each_time() {
    let mut driver = driver();
    let _commands = driver.open_session();
    driver.publish(&state(4, 1));
    let mut last = Duration::ZERO;
    for _ in 0..4 {
        let pause = driver.pauses.clone().next_pause();
        assert!(pause > last);
        last = pause;
        driver.handle(News::Event(EngineEvent::Refused {
            version: state(4, 1).version(),
            reason: "away".into(),
        }));
        assert!(driver.again.take().is_some());
    }
    driver.reports(&state(4, 1));
    assert_eq!((driver.again, driver.pauses.next_pause()), (None, FIRST_PAUSE));
}

/// Each session of an engine process starts unpinned.
#[tokio::test]
async fn an_engine_that_comes_back_is_pinned_again() {
    let mut driver = driver();
    let mut first = driver.open_session();
    assert!(first.try_recv().is_err(), "nothing is asked of it");
    driver.take(EngineInput::Pin(true));
    assert_eq!(first.try_recv().unwrap(), [EngineCommand::Pin(true)]);
    driver.handle(News::Lost);
    let mut second = driver.open_session();
    assert_eq!(second.try_recv().unwrap(), [EngineCommand::Pin(true)]);
    driver.take(EngineInput::Pin(false));
    assert_eq!(second.try_recv().unwrap(), [EngineCommand::Pin(false)]);
    driver.handle(News::Lost);
    assert!(driver.open_session().try_recv().is_err());
}
