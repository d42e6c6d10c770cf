use broker::protocol::engine::Hello;
use configs::Dtype;
use trainer::transfer::{Form, State};

use super::*;
use crate::engine::process::link;
use crate::engine::process::link::Secret;

fn driver() -> Driver {
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
    Driver::new(target, Arc::default(), Said::default())
}

fn state(step: u64, value: u8) -> State {
    let form = Form {
        dtype: Dtype::Bf16,
        elements: 4,
        model: [7; 32],
    };
    State::new(form, WeightVersion { lineage: 1, step }, vec![value; 8]).unwrap()
}

impl Driver {
    fn open_session(&mut self) -> UnboundedReceiver<Vec<EngineCommand>> {
        let (outbox, commands) = unbounded_channel();
        self.hear(News::Up(outbox));
        commands
    }

    fn is_told(&mut self, state: &State) {
        self.hear(News::Said(EngineEvent::Serving(state.id())));
    }

    fn publish(&mut self, state: &State) {
        self.shelf.put(state.clone());
        self.announce(Some(state.id()));
    }
}

/// The agent was started again while its engine lived: the engine says once what it serves, before the weights are published.
#[tokio::test]
async fn what_was_served_before_it_was_announced_counts() {
    let mut driver = driver();
    let _commands = driver.open_session();
    driver.is_told(&state(4, 1));
    assert!(!driver.ready(), "nothing was announced");
    driver.publish(&state(4, 1));
    assert!(driver.ready());
    assert_eq!(driver.said.version.borrow().step, 4);
}

/// Weights that are announced while the engine is away are not served by what it said when it was there.
#[tokio::test]
async fn an_engine_that_is_gone_serves_nothing_and_the_next_is_asked_again() {
    let mut driver = driver();
    let commands = driver.open_session();
    driver.publish(&state(4, 1));
    driver.is_told(&state(4, 1));
    assert!(driver.ready());
    driver.hear(News::Lost);
    drop(commands);
    driver.publish(&state(5, 2));
    assert!(!driver.ready(), "nobody is there");
    let _commands = driver.open_session();
    driver.is_told(&state(4, 1));
    assert!(!driver.ready(), "it has not got the newest yet");
    driver.is_told(&state(5, 2));
    assert!(driver.ready());
}

#[tokio::test]
async fn other_weights_of_the_same_version_or_later_ones_are_not_served() {
    for held in [state(4, 2), state(9, 1)] {
        let mut driver = driver();
        let mut commands = driver.open_session();
        driver.is_told(&held);
        driver.publish(&state(4, 1));
        assert!(!driver.ready(), "its engine holds others");
        assert_eq!(
            *driver.said.version.borrow(),
            WeightVersion::default(),
            "and nobody is told of them"
        );
        assert_eq!(
            commands.try_recv().unwrap(),
            [EngineCommand::Announce(state(4, 1).id())]
        );
        driver.is_told(&state(4, 1));
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
        assert!(driver.pause > last);
        last = driver.pause;
        driver.hear(News::Said(EngineEvent::Refused {
            version: state(4, 1).version(),
            reason: "away".into(),
        }));
        assert!(driver.again.take().is_some());
    }
    driver.is_told(&state(4, 1));
    assert_eq!((driver.again, driver.pause), (None, FIRST_PAUSE));
}

/// Each session of an engine process begins unpinned.
#[tokio::test]
async fn an_engine_that_comes_back_is_pinned_again() {
    let mut driver = driver();
    let mut first = driver.open_session();
    assert!(first.try_recv().is_err(), "nothing is asked of it");
    driver.take(Input::Pin(true));
    assert_eq!(first.try_recv().unwrap(), [EngineCommand::Pin(true)]);
    driver.hear(News::Lost);
    let mut second = driver.open_session();
    assert_eq!(second.try_recv().unwrap(), [EngineCommand::Pin(true)]);
    driver.take(Input::Pin(false));
    assert_eq!(second.try_recv().unwrap(), [EngineCommand::Pin(false)]);
    driver.hear(News::Lost);
    assert!(driver.open_session().try_recv().is_err());
}
