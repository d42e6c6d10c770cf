use super::*;
use crate::dashboard::runs::tests::odd_paths;
use crate::run_folder::logs::Transcripts;
use crate::run_folder::tests::config_in;

const GROUP: &str = "ab010000000000000000000000000000";

fn transcript(member: u64, step: u64, reward: f64) -> Transcript {
    Transcript {
        conversation: format!("{GROUP}/{member}"),
        task: format!("task {step}"),
        step,
        eval: step == 0,
        status: "completed".into(),
        turns: vec![TranscriptTurn {
            role: "speaker".into(),
            agent: "a".into(),
            text: format!("said s{member}"),
            ..TranscriptTurn::default()
        }],
        rewards: [("speaker".to_owned(), [("total".to_owned(), reward)].into())].into(),
        ..Transcript::default()
    }
}

fn folder(base: &std::path::Path, files: &[&[Transcript]]) -> RunFolder {
    let folder = RunFolder::create(base, &config_in(base), None).unwrap();
    for (at, written) in files.iter().enumerate() {
        let transcripts = Transcripts::open(&folder.transcripts(&format!("coordinator-{at}"))).unwrap();
        written.iter().for_each(|one| transcripts.write(one));
        transcripts.flush();
    }
    folder
}

fn ids(page: &Page) -> Vec<&str> {
    let ids = page.conversations.iter().map(|one| one.conversation.as_str());
    ids.filter_map(|id| Some(id.split_once('/')?.1)).collect()
}

#[test]
fn pages_go_on_where_the_last_one_ended() {
    let base = tempfile::tempdir().unwrap();
    let one: Vec<_> = [0, 2, 4].map(|step| transcript(step, step, 1.0)).into();
    let two: Vec<_> = [1, 3, 5].map(|step| transcript(step, step, 1.0)).into();
    let folder = folder(base.path(), &[&one, &two]);
    let mut query = Query {
        limit: Some(2),
        ..Query::default()
    };
    let mut found: Vec<String> = Vec::new();
    loop {
        let page = page(&folder, &query).unwrap();
        found.extend(ids(&page).into_iter().map(str::to_owned));
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, ["5", "4", "3", "2", "1", "0"]);
    query.cursor = Some("../../etc/passwd@9".into());
    assert!(page(&folder, &query).unwrap().conversations.is_empty());
    query.cursor = Some("nonsense".into());
    assert_eq!(page(&folder, &query).unwrap_err().status, 400);
}

#[test]
fn filters_select_by_text_reward_role_and_kind() {
    let base = tempfile::tempdir().unwrap();
    let written: Vec<_> = (0..4).map(|step| transcript(step, step, step as f64 / 4.0)).collect();
    let folder = folder(base.path(), &[&written]);
    let found = |change: fn(&mut Query)| {
        let mut query = Query::default();
        change(&mut query);
        ids(&page(&folder, &query).unwrap()).join("")
    };
    assert_eq!(found(|_| {}), "3210");
    assert_eq!(found(|query| query.q = Some("SAID S2".into())), "2");
    assert_eq!(found(|query| query.q = Some("task 1".into())), "1");
    assert_eq!(found(|query| query.reward = Some(">=0.5".into())), "32");
    assert_eq!(found(|query| query.role = Some("listener".into())), "");
    assert_eq!(found(|query| query.kind = Some(Kind::Eval)), "0");
    assert_eq!(found(|query| query.status = Some("failed".into())), "");
    let wrong = Query {
        reward: Some("half".into()),
        ..Query::default()
    };
    assert_eq!(page(&folder, &wrong).unwrap_err().status, 400);
}

#[test]
fn filters_select_by_agent_success_step_and_verdict() {
    let base = tempfile::tempdir().unwrap();
    let mut written: Vec<_> = (0..4).map(|step| transcript(step, step, 0.5)).collect();
    for (one, success) in written.iter_mut().zip([0.0, 1.0, 0.5]) {
        one.metrics.insert("success".into(), success);
    }
    written[3].turns[0].agent = "b".into();
    let folder = folder(base.path(), &[&written]);
    let found = |change: fn(&mut Query)| {
        let mut query = Query::default();
        change(&mut query);
        ids(&page(&folder, &query).unwrap()).join("")
    };
    assert_eq!(found(|query| query.agent = Some("b".into())), "3");
    let of_a = |query: &mut Query| {
        query.agent = Some("a".into());
        query.role = Some("speaker".into());
    };
    assert_eq!(found(of_a), "210");
    assert_eq!(found(|query| query.success = Some(">=0.5".into())), "21");
    assert_eq!(found(|query| query.success = Some("1".into())), "1");
    assert_eq!(found(|query| query.step = Some("2".into())), "2");
    assert_eq!(found(|query| query.step = Some("<=1".into())), "10");
    assert_eq!(found(|query| query.sort = Some(Sort::Oldest)), "0123");
    assert_eq!(
        found(|query| query.verdict = Some("trained".into())),
        "",
        "its ledgers are not here"
    );
}

#[test]
fn conversation_has_its_group_and_its_ledgers() {
    let base = tempfile::tempdir().unwrap();
    let written: Vec<_> = [10, 9].map(|member| transcript(member, 1, 0.5)).into();
    let folder = folder(base.path(), &[&written]);
    let whole = one(&folder, GROUP, "10").unwrap();
    assert_eq!(whole.transcript, written[0]);
    let members: Vec<u16> = whole.members.iter().map(|one| one.member).collect();
    assert_eq!(members, [9, 10], "by number");
    let json = serde_json::to_value(&whole).unwrap();
    assert!(json["custody"]["agents"]["a"].is_null(), "its ledger is not here");
    assert_eq!(group(&folder, GROUP).unwrap().members.len(), 2);
    for (id, member) in [(GROUP, "3"), (GROUP, "x"), ("ab01", "0"), ("../..", "0")] {
        assert_eq!(one(&folder, id, member).unwrap_err().status, 404, "{id}/{member}");
    }
}

#[test]
fn hundred_thousand_ids_lead_to_no_conversation() {
    let base = tempfile::tempdir().unwrap();
    let folder = folder(base.path(), &[&[transcript(0, 1, 0.5)]]);
    assert!(one(&folder, GROUP, "0").is_ok());
    let status = |failed: Option<ApiError>| failed.map(|error| error.status);
    // Six of these names never make the 32 digits of an id.
    for path in odd_paths(&["ab01", "0", "-", "transcripts"]).take(100_000) {
        assert_eq!(status(one(&folder, &path, "0").err()), Some(404), "{path:?}");
        assert_eq!(status(group(&folder, &path).err()), Some(404), "{path:?}");
        assert_eq!(status(tokens(&folder, &path, "0").err()), Some(404), "{path:?}");
    }
    for member in odd_paths(&["7", "-", "x"])
        .take(1000)
        .filter(|path| path.parse::<u16>().is_err())
    {
        assert_eq!(status(one(&folder, GROUP, &member).err()), Some(404), "{member:?}");
    }
}
