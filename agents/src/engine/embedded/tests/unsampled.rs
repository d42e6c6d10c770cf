//! Tests of logits that are not finite: the blamed requests, and the fate of their neighbours.

use trainer::engine::EngineError;

use super::*;
use crate::engine::embedded::failure::failure_of;

/// Returns a job that cannot be sampled: such a temperature makes the logits infinite.
fn cold(id: u8) -> GenerationJob {
    let mut job = job(id, 3);
    Arc::make_mut(&mut job.sampling).temperature = 1e-44;
    job
}

/// Checks the code by which an agent knows that a retry does not help.
fn blames_weights(failure: &EngineFailure) {
    assert!(failure.retry);
    let version = WeightVersion { lineage: 1, step: 0 };
    assert_eq!(failure.cause.code, FailureCode::NotFinite { version }, "{failure}");
}

async fn ids_of(engine: &EmbeddedEngine, jobs: Vec<GenerationJob>) -> Vec<(u8, Vec<u32>)> {
    let sampled = wave(engine, jobs).await.into_iter();
    sampled.map(|(id, result)| (id, result.unwrap())).collect()
}

#[tokio::test]
async fn an_unsampled_job_is_reported_and_the_wave_goes_without_it() {
    let (engine, _) = engine();
    let rest = || [2, 4, 5].map(|id| job(id, 4)).to_vec();
    let jobs = [vec![cold(1)], rest(), vec![cold(3)]].concat();
    let (blamed, sampled): (Vec<_>, Vec<_>) = wave(&engine, jobs)
        .await
        .into_iter()
        .partition(|(_, result)| result.is_err());
    assert_eq!(blamed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3]);
    blamed
        .iter()
        .for_each(|(_, result)| blames_weights(result.as_ref().unwrap_err()));
    let sampled: Vec<_> = sampled.into_iter().map(|(id, result)| (id, result.unwrap())).collect();
    assert_eq!(sampled, ids_of(&engine, rest()).await);
    for (_, result) in wave(&engine, vec![cold(6), cold(7), cold(8)]).await {
        blames_weights(&result.unwrap_err());
    }
    assert!(
        wave(&engine, vec![job(9, 3)]).await[0].1.is_ok(),
        "and the engine continues"
    );
}

/// Each job is answered once, and a visitor receives the tokens that it would receive alone.
#[tokio::test]
async fn without_waves_neighbours_restart_and_visits_continue() {
    let undisturbed = {
        let engine = lasting();
        let (long, mut updates) = visit(1, 300, true);
        engine.visit(vec![long]);
        (visited(&mut updates).await.0, ids_of(&engine, vec![job(2, 5)]).await)
    };
    let engine = lasting();
    let (long, mut updates) = visit(1, 300, true);
    engine.visit(vec![long]);
    let mut begun = updates.recv().await.unwrap().ids;
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    let (mut bad, bad_id) = (visit(4, 9, false), 3);
    bad.0.job = cold(4);
    engine.visit(vec![bad.0]);
    engine.submit(vec![job(2, 5), cold(bad_id)], false, done);
    let mut answers = Vec::new();
    while answers.len() < 2 {
        answers.extend(finished.recv().await.unwrap());
    }
    answers.sort_by_key(|one| one.job.request);
    let failure = answers.pop().unwrap().result.unwrap_err();
    blames_weights(&failure);
    let sampled = answers.pop().unwrap().result.unwrap();
    assert_eq!(vec![(2, sampled.output_ids)], undisturbed.1);
    let Some(Err(failure)) = bad.1.recv().await.unwrap().end else {
        panic!("it cannot be sampled")
    };
    blames_weights(&failure);
    begun.extend(visited(&mut updates).await.0);
    assert_eq!(begun, undisturbed.0);
    idle(&engine).await;
    assert!(finished.try_recv().is_err(), "nothing is answered twice");
}

/// Weights at fault are blamed by every request, even if requests start one after the other.
#[tokio::test]
async fn every_job_of_an_unsampled_wave_blames_the_weights() {
    let (engine, _) = engine();
    // Each has a different prompt, and a step starts as many as it may compute.
    let jobs: Vec<_> = (0..40)
        .map(|id| GenerationJob {
            prompt_ids: vec![u32::from(id); 14].into(),
            ..cold(id)
        })
        .collect();
    let blamed = wave(&engine, jobs).await;
    assert_eq!(blamed.len(), 40);
    blamed
        .iter()
        .for_each(|(_, result)| blames_weights(result.as_ref().unwrap_err()));
    idle(&engine).await;
}

#[test]
fn other_failures_of_an_engine_blame_no_weights() {
    let failure = failure_of(&EngineError::Busy { pending: 1 });
    assert_eq!(failure.cause.code, FailureCode::Engine);
    assert!(failure.retry);
}
