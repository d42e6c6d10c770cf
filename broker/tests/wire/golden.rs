//! Golden files: the exact bytes of every message type, so that every change of the wire is
//! noticed.
//!
//! A changed binary type needs a new `codec::SCHEMA`; a JSON type may gain fields with defaults.
//! After an intended change, run `DYAD_GOLDEN=write cargo test -p broker --test wire` and commit
//! the files with it.

use std::fmt::Debug;
use std::path::PathBuf;

use bincode::{Decode, Encode};
use broker::RoleName;
use broker::codec;
use broker::ids::{self, Digest, GroupId, RequestId, RunId, TurnKey};
use broker::protocol::bundle::Bundle;
use broker::protocol::control::{Beat, Command};
use broker::protocol::inference::{SharedEnd, SharedTurn};
use broker::protocol::task::Task;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::sample;

/// Compares with the file, or writes it.
fn check(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os("DYAD_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let golden = std::fs::read(&path).unwrap_or_else(|error| panic!("broker/golden/{name}: {error}"));
    assert!(
        golden == bytes,
        "the bytes of broker/golden/{name} have changed: peers and runs in progress will not read them.\nIf that is meant, \
         raise codec::SCHEMA (binary) and run DYAD_GOLDEN=write cargo test -p broker --test wire\nis:     {}\ngolden: {}",
        String::from_utf8_lossy(bytes).escape_debug(),
        String::from_utf8_lossy(&golden).escape_debug(),
    );
    golden
}

fn binary<T: Encode + Decode<()> + PartialEq + Debug>(name: &str, value: &T) {
    let golden = check(&format!("{name}.bin"), &codec::encode(value));
    assert_eq!(&codec::decode::<T>(&golden).unwrap(), value, "{name}");
}

/// `text` has every optional field.
fn json<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, text: &str) {
    let value: T = serde_json::from_str(text).unwrap();
    let golden = check(&format!("{name}.json"), &codec::encode_json(&value));
    assert_eq!(codec::decode_json::<T>(&golden).unwrap(), value, "{name}");
}

#[test]
fn binary_messages_keep_their_bytes() {
    binary("turn-frame", &sample::turn_frame());
    binary("result-frame", &sample::result_frame());
    binary("bundle", &sample::bundle());
    binary("bundle-empty", &sample::empty_bundle());
    binary("bundle-dead", &sample::dead_bundle());
    binary("failures", &sample::failures());
    binary("reserve-frame", &sample::reserve_frame());
    binary("reserve-answers", &sample::reserve_answers());
    binary("train-commands", &sample::train_commands());
    binary("train-replies", &sample::train_replies());
    binary("engine-commands", &sample::engine_commands());
    binary("engine-events", &sample::engine_events());
}

/// The digests are those of the golden files of schema 11.
#[test]
fn bundles_of_schema_11_keep_their_digest() {
    let digest = |bundle: Bundle| {
        let content = (bundle.group, bundle.task, bundle.conversations, bundle.content);
        Digest::of(&codec::encode_for_digest(&content)).to_string()
    };
    assert_eq!(digest(sample::bundle()), "c30cc892e5fd585bffccf973ff4b7b32");
    assert_eq!(digest(sample::empty_bundle()), "915851660ec54123fa5805925c83da00");
}

#[test]
fn json_messages_keep_their_bytes() {
    json::<Task>(
        "task",
        r#"{"id":"t-1","workflow":"solo","prompt":[{"role":"user","content":"2+2?"}],"label":4,"metadata":{"level":1}}"#,
    );
    json::<Task>("task-minimal", r#"{"prompt":"say hi"}"#);
    json::<SharedTurn>(
        "shared-turn",
        r#"{"group":"11111111111111111111111111111111","task":"t-1","member":3,"role":"solver","seat":1,"turn":2,"agent":"a",
            "text":"4","finish":"length","tokens":3,"mean_logprob":-0.5,"version":{"lineage":2,"step":40}}"#,
    );
    json::<SharedEnd>(
        "shared-end",
        r#"{"group":"11111111111111111111111111111111","member":3,"status":"completed",
            "rewards":{"solver":0.5,"verifier/1":-1.0}}"#,
    );
    json::<Beat>(
        "beat-agent",
        r#"{"kind":"agent","agent":"a","incarnation":"i-1","seq":5,"phase":"running","version":{"lineage":2,"step":40},
            "step":40,"capacity":-3,"ready":8,"reserved":2,"closed":50,"serving":true,"reward":0.5,"pid":77}"#,
    );
    json::<Beat>(
        "beat-coordinator",
        r#"{"kind":"coordinator","incarnation":"c-7","seq":5,"phase":"draining","open_groups":1,"finished_groups":2,
            "finished_conversations":16,"dead_tasks":1,"turns":40,"pid":78}"#,
    );
    json::<Command>("command", r#""drain""#);
}

#[test]
fn ids_keep_their_derivation() {
    let run = RunId::new("golden-0a1b2c3d").unwrap();
    let group = GroupId::new(&run, "jsonl/0/12");
    let key = TurnKey {
        member: 3,
        role: RoleName::new("solver").unwrap(),
        seat: 1,
        turn: 2,
    };
    let derived = serde_json::json!({
        "group": group,
        "request": RequestId::new(group, sample::ATTEMPT, &key),
        "seed": ids::seed(7, "jsonl/0/12", &key).to_string(),
        "digest": ids::Digest::of(b"content"),
    });
    check("ids.json", derived.to_string().as_bytes());
}
