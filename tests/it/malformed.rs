//! Messages damaged in every way, on every queue of a live run: each is kept in the dead letters
//! byte for byte with its reason, and the run is unaffected.

use broker::bus::Bus;
use broker::bus::amqp::AmqpBus;
use broker::codec::{self, CodecError};
use broker::protocol::Kind;
use broker::protocol::bundle::{Bundle, BundleContent};
use broker::protocol::reserve::{ReserveAnswerFrame, ReserveFrame};
use broker::protocol::turn::{ResultFrame, TurnFrame, TurnOutcome};
use broker::topology::{Address, Queue, Speaker, Topology};
use configs::AgentName;
use tests::chaos::{Dice, World};
use tests::fleet::RUN;
use tests::letters::{connect, dead_letters, message, topology};
use tests::program::Program;

const TASKS: u64 = 40;
/// Bit flips of each message.
const FLIPS: usize = 8;

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(Program::root().join("broker/golden").join(name)).unwrap()
}

fn bomb() -> Vec<u8> {
    b"[".repeat(200_000)
}

/// Decodes as the receiver does.
type Reads = fn(&[u8]) -> Result<(), CodecError>;

/// A binary message and the places to damage.
struct Binary {
    kind: Kind,
    healthy: Vec<u8>,
    reads: Reads,
    /// The offset of the length of its first text.
    length_at: usize,
    /// The message with NaN in it, for types that have numbers.
    not_a_number: Option<Vec<u8>>,
}

impl Binary {
    fn damaged(&self, dice: &mut Dice) -> Vec<Vec<u8>> {
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = self.healthy.clone();
            change(&mut bytes);
            bytes
        };
        let text = self.length_at + 8;
        let mut all = vec![
            Vec::new(),
            changed(&|b| b.truncate(b.len() / 2)),
            changed(&|b| b.push(0)),
            changed(&|b| b[0] ^= 0xff),
            changed(&|b| b[self.length_at..text].fill(0xff)),
            changed(&|b| b[self.length_at + 3] = 1),
            changed(&|b| b[text] = 0xff),
            bomb(),
        ];
        all.extend(self.not_a_number.clone());
        let refused = all.len() + FLIPS;
        while all.len() < refused {
            let at = dice.below(self.healthy.len() as u64) as usize;
            let bit = dice.below(8);
            let flipped = changed(&|b| b[at] ^= 1 << bit);
            // A flip may give another valid message, which no receiver can detect.
            if (self.reads)(&flipped).is_err() {
                all.push(flipped);
            }
        }
        for bytes in &all {
            assert!((self.reads)(bytes).is_err(), "{:?} reads {bytes:?}", self.kind);
        }
        all
    }
}

fn turns() -> Binary {
    let mut frame: TurnFrame = codec::decode(&golden("turn-frame.bin")).unwrap();
    frame.samplings[0].temperature = f32::NAN;
    Binary {
        kind: Kind::TurnRequest,
        healthy: golden("turn-frame.bin"),
        reads: |bytes| codec::decode::<TurnFrame>(bytes)?.validate(),
        length_at: 2,
        not_a_number: Some(codec::encode(&frame)),
    }
}

fn results() -> Binary {
    let mut frame: ResultFrame = codec::decode(&golden("result-frame.bin")).unwrap();
    let TurnOutcome::Done(made) = &mut frame.results[0].result.outcome else {
        panic!("the golden frame's first result is a generation")
    };
    made.logprobs[0] = f32::NAN;
    Binary {
        kind: Kind::TurnResult,
        healthy: golden("result-frame.bin"),
        reads: |bytes| codec::decode::<ResultFrame>(bytes)?.validate(),
        length_at: 2,
        not_a_number: Some(codec::encode(&frame)),
    }
}

fn samples() -> Binary {
    let mut bundle: Bundle = codec::decode(&golden("bundle.bin")).unwrap();
    let BundleContent::Samples(content) = &mut bundle.content else {
        panic!("the golden bundle has samples")
    };
    content[0].reward = f32::NAN;
    Binary {
        kind: Kind::Bundle,
        healthy: golden("bundle.bin"),
        reads: |bytes| codec::decode::<Bundle>(bytes)?.validate(),
        // The offset follows the group's id.
        length_at: 18,
        not_a_number: Some(codec::encode(&bundle)),
    }
}

fn reservations() -> Binary {
    Binary {
        kind: Kind::Reserve,
        healthy: golden("reserve-frame.bin"),
        reads: |bytes| codec::decode::<ReserveFrame>(bytes).map(drop),
        length_at: 2,
        not_a_number: None,
    }
}

fn answers() -> Binary {
    Binary {
        kind: Kind::ReserveAnswer,
        healthy: golden("reserve-answers.bin"),
        reads: |bytes| codec::decode::<ReserveAnswerFrame>(bytes).map(drop),
        length_at: 2,
        not_a_number: None,
    }
}

fn tasks(dice: &mut Dice) -> Vec<Vec<u8>> {
    let healthy = golden("task.json");
    let mut all = vec![
        Vec::new(),
        healthy[..healthy.len() / 2].to_vec(),
        br#"{"prompt": "o1", "label": NaN}"#.to_vec(),
        br#"{"prompt": "o1", "label": "o1", "task_version": 99}"#.to_vec(),
        bomb(),
    ];
    all.extend((0..FLIPS).map(|_| {
        let mut bytes = healthy.clone();
        // The text is no UTF-8 any more.
        bytes[dice.below(healthy.len() as u64) as usize] |= 0x80;
        bytes
    }));
    all
}

async fn publish(bus: &AmqpBus, to: Address, kind: Kind, id: String, body: Vec<u8>) {
    let mut message = message(to, kind, &id, body);
    message.durable = kind != Kind::Heartbeat && kind != Kind::Command;
    bus.publish(message).await.unwrap();
}

/// Returns the results queue of the run's only coordinator.
fn results_queue(world: &World, topology: &Topology) -> Queue {
    let listed = world.rabbitmqctl(&["list_queues", "-q", "name"]);
    let incarnation = listed.lines().find_map(|name| {
        let rest = name.trim().strip_prefix(&format!("dyad.{RUN}."))?;
        rest.strip_suffix(".results.v1")
    });
    topology.results(incarnation.unwrap_or_else(|| panic!("no results queue in {listed}")))
}

#[test]
fn damaged_messages_on_every_queue_become_dead_letters() {
    let mut world = World::alone(crate::DYAD, 1, &[]);
    let topology = topology(RUN);
    let mut dice = Dice(7);
    let mut sent: Vec<(Queue, Kind, Vec<u8>)> = Vec::new();
    let mut aim = |queue: &Queue, kind, bodies: Vec<Vec<u8>>| {
        sent.extend(bodies.into_iter().map(|body| (queue.clone(), kind, body)));
    };
    aim(&topology.tasks(), Kind::Task, tasks(&mut dice));
    let own_results = results_queue(&world, &topology);
    for binary in [results(), answers()] {
        aim(&own_results, binary.kind, binary.damaged(&mut dice));
    }
    for agent in ["a", "b"].map(|name| AgentName::new(name).unwrap()) {
        for (queue, binary) in [
            (topology.turns(&agent), turns()),
            (topology.reserve(&agent), reservations()),
            (topology.samples(&agent), samples()),
        ] {
            aim(&queue, binary.kind, binary.damaged(&mut dice));
        }
    }

    let publisher = world.publish_in_background(TASKS);
    let found = world.servers.block_on(async {
        let bus = connect(&world.servers.rabbit.url()).await;
        for (n, (queue, kind, body)) in sent.iter().enumerate() {
            publish(&bus, topology.to(queue), *kind, format!("damaged-{n}"), body.clone()).await;
        }
        // Heartbeats and orders go to every process; receivers ignore malformed ones, because the
        // newest replaces them.
        for (n, kind) in [Kind::Heartbeat, Kind::Command].into_iter().enumerate() {
            for body in [Vec::new(), vec![0xff; 100], bomb(), b"{\"agent\": NaN}".to_vec()] {
                publish(
                    &bus,
                    topology.to_control(Speaker::Coordinator),
                    kind,
                    format!("control-{n}"),
                    body,
                )
                .await;
            }
        }
        let letters = dead_letters(&bus, &topology, sent.len()).await;
        bus.close().await;
        letters
    });
    publisher.join().unwrap();
    for (n, (queue, kind, body)) in sent.iter().enumerate() {
        let id = format!("damaged-{n}");
        let letter = found
            .iter()
            .find(|letter| letter.id == id)
            .unwrap_or_else(|| panic!("{id}"));
        assert_eq!(letter.queue, queue.name, "{id}");
        assert_eq!(&letter.body, body, "{id}, {kind}: byte for byte");
        assert!(!letter.reason.is_empty(), "{id}");
    }
    world.wait_closed(TASKS);
    world.fleet.all_started(1);
    println!("{} damaged messages among {TASKS} tasks", sent.len());
    world.end_well();
}

#[test]
fn task_files_of_a_test_are_refused_with_their_fault() {
    let program = crate::program();
    for (text, fault) in [
        ("\n", "t.jsonl has no task"),
        ("{\"prompt\": ", "line 1 of "),
        ("{\"prompt\": 7}", "line 1 of "),
    ] {
        let file = program.file("t.jsonl", text);
        let args = [
            "workflow",
            "test",
            "configs/signal.toml",
            "--task",
            &file,
            "--say",
            "speaker=s1",
        ];
        let refused = program.fail(2, &args);
        assert!(
            refused.contains(fault) && !refused.contains("was never used"),
            "{refused}"
        );
    }
    let file = program.file("t.jsonl", "{\"prompt\": \"o1\", \"label\": \"o1\"}\n");
    let refused = program.fail(
        2,
        &[
            "workflow",
            "test",
            "configs/signal.toml",
            "--task",
            &file,
            "--say",
            "speaker",
        ],
    );
    assert!(refused.contains("write ROLE=TEXT"), "{refused}");
    let unplayable = program.file("s.jsonl", "{\"prompt\": \"1+1\", \"label\": \"2\"}\n");
    let suite = format!("mine={unplayable}");
    let refused = program.fail(2, &["eval", "configs/signal.toml", "--suite", &suite]);
    assert!(
        refused.contains("suite mine: ") && refused.contains("cannot be played"),
        "{refused}"
    );
}
