//! Weights on their way to an engine process.

use trainer::transfer::OfferCounts;

use super::*;
use crate::base::ports::HeldPort;
use crate::observe::Observer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_weights_arrive_by_delta_and_late_ones_are_ignored() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let shelf: Arc<Shelf> = Arc::default();
    let observer = Observer::new(&RunId::new("r-1").unwrap());
    scene.sent = Some(observer.series().unwrap().training.sent_weights("a"));
    let (engine, mut sink) = scene.agent_with("r-1", &[serving.address], false, shelf.clone());
    let trained = scene.trained();
    for step in 1..4 {
        let _ = trained.flat().narrow(0, 5, 1).fill_(step as f64);
        sink.publish(&trained, version(step)).unwrap();
        serves(&*engine, version(step)).await;
        let said = play(&*engine, vec![job(1, 3)], false).await;
        assert!(said[0].3.iter().all(|made| *made == version(step)));
    }
    sink.publish(&trained, version(3)).unwrap();
    assert!(sink.publish(&trained, version(2)).is_err());
    assert_eq!(play(&*engine, vec![job(1, 3)], false).await[0].3[0], version(3));
    assert_eq!(shelf.offer_counts(), OfferCounts { whole: 1, deltas: 2 });
    let page = observer.page();
    let sent = |form: &str| -> f64 {
        let name = format!("dyad_weight_transfer_bytes_total{{run=\"r-1\",agent=\"a\",form=\"{form}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap().parse().unwrap()
    };
    assert!(0.0 < sent("delta") && sent("delta") < sent("whole"), "{page}");
    let whole = scene.prepared.form().unwrap().bytes() + 128;
    assert_eq!(sent("whole"), whole as f64, "not packed for this host");
    serving.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pinned_engine_process_reuses_nothing_of_earlier_weights() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let (engine, mut sink) = scene.agent("r-1", &[serving.address]);
    // The oldest weights in its cache, and true if it started from kept values.
    let made = async |id: u8| {
        let (done, mut finished) = unbounded_channel();
        let long = GenerationJob {
            prompt_ids: vec![65; 60].into(),
            keep: true,
            ..job(id, 2)
        };
        engine.submit(vec![long], false, done);
        let made = finished.recv().await.unwrap().remove(0).result.unwrap();
        (made.oldest_kv, made.reused > 0)
    };
    let trained = scene.trained();
    let mut publish = async |step: u64| {
        let _ = trained.flat().narrow(0, 5, 1).fill_(step as f64);
        sink.publish(&trained, version(step)).unwrap();
        serves(&*engine, version(step)).await;
    };
    publish(1).await;
    assert_eq!(made(1).await, (version(1), false));
    assert_eq!(made(2).await, (version(1), true));
    publish(2).await;
    assert_eq!(made(3).await, (version(1), true), "as training has it");
    engine.pin(true);
    assert_eq!(made(4).await, (version(2), false));
    assert_eq!(
        made(5).await,
        (version(2), true),
        "values of the same weights are reused"
    );
    publish(3).await;
    assert_eq!(made(6).await, (version(3), false), "weights that arrive in between");
    engine.pin(false);
    // Weights and requests take different ways: an answer proves that the engine has the weights.
    assert_eq!(made(7).await, (version(3), true));
    publish(4).await;
    assert_eq!(made(8).await, (version(3), true));
    serving.close().await;
}

/// Happens for a restarted frozen agent, or after a repair of the ledger: the engine lives, and
/// holds the same version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_with_the_announced_weights_is_asked_at_once() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let (first, mut sink) = scene.agent("r-1", &[serving.address]);
    sink.publish(&scene.prepared.served().unwrap(), version(4)).unwrap();
    serves(&*first, version(4)).await;
    drop((first, sink));
    until(async || health(&serving).await["session"] == false).await;
    let shelf: Arc<Shelf> = Arc::default();
    let (again, mut sink) = scene.agent_with("r-1", &[serving.address], false, shelf.clone());
    // The session opens before the weights are there.
    until(async || health(&serving).await["session"] == true).await;
    sink.publish(&scene.prepared.served().unwrap(), version(4)).unwrap();
    assert_eq!(play(&*again, vec![job(1, 3)], false).await[0].3[0], version(4));
    assert_eq!(
        shelf.offer_counts(),
        OfferCounts { whole: 0, deltas: 0 },
        "nothing was fetched"
    );
    serving.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_with_later_or_other_weights_loads_its_agents() {
    for held in [version(9), version(4), WeightVersion { lineage: 7, step: 1 }] {
        let mut scene = scene();
        let serving = scene.engine("127.0.0.1:0").await;
        let (first, mut sink) = scene.agent("r-1", &[serving.address]);
        let other = scene.trained();
        let _ = other.flat().shallow_clone().fill_(0.01);
        sink.publish(&other, held).unwrap();
        serves(&*first, held).await;
        drop((first, sink));
        let (again, mut sink) = scene.agent("r-1", &[serving.address]);
        sink.publish(&scene.prepared.served().unwrap(), version(4)).unwrap();
        let said = play(&*again, wave(), true).await;
        assert!(said.iter().all(|one| one.3.iter().all(|made| *made == version(4))));
        let bits = |said: Vec<Said>| said.into_iter().map(|one| (one.1, one.2)).collect::<Vec<_>>();
        assert_eq!(bits(said), bits(play(&*scene.embedded(), wave(), true).await));
        serves(&*again, version(4)).await;
        // And continues from there.
        sink.publish(&scene.prepared.served().unwrap(), version(5)).unwrap();
        serves(&*again, version(5)).await;
        serving.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_agents_engine_gets_its_weights_after_failed_fetches() {
    let mut scene = scene();
    let serving = scene.engine("127.0.0.1:0").await;
    let held = HeldPort::new();
    let weights = held.address();
    let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", door.local_addr().unwrap());
    // More failures than the engine's own retries.
    tokio::spawn(async move {
        for turn in 0.. {
            let (mut near, _) = door.accept().await.unwrap();
            if turn >= 6 {
                let mut far = tokio::net::TcpStream::connect(weights).await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
            }
        }
    });
    let settings = &mut scene.prepared.settings.engine;
    settings.weights_listen = weights.to_string();
    settings.weights_url = Some(url);
    let (engine, _sink) = scene.agent_with("r-1", &[serving.address], true, Arc::default());
    let mut refused = engine.refusals();
    let said = play(&*engine, vec![job(1, 3)], false).await;
    assert_eq!(said[0].3[0], WeightVersion::default());
    assert!(refused.borrow_and_update().is_some(), "the rejection was reported");
    serving.close().await;
}
