use anyhow::Context;

use super::*;

#[test]
fn exit_code_follows_the_kind_of_error() {
    let connect = BusError::Connect {
        url: "amqp://127.0.0.1:5672".into(),
        reason: "refused".into(),
    };
    let error = Err::<(), _>(connect)
        .context("connecting to the message broker")
        .unwrap_err();
    assert_eq!(code(&error), 75);
    let text = render(&error);
    assert!(
        text.starts_with("error: connecting to the message broker\n  because: cannot reach RabbitMQ"),
        "{text}"
    );
    assert!(text.contains("\nhint: start it with"), "{text}");
    let not_found = FolderError::NotFound {
        base: "runs".into(),
        which: "x".into(),
    };
    assert_eq!(code(&not_found.into()), 2);
    assert_eq!(code(&Usage::new("no").into()), 2);
    assert_eq!(code(&Interrupted("stopped".into()).into()), 130);
    assert_eq!(code(&anyhow::anyhow!("it broke")), 1);
}

#[test]
fn models_and_devices_that_will_not_change_are_wrong_configuration() {
    let io = |kind| std::io::Error::from(kind);
    let model = |kind| ModelError::Io {
        doing: "reading",
        path: "m".into(),
        source: io(kind),
    };
    let text = |kind| TextError::Read {
        path: "m".into(),
        source: io(kind),
    };
    let no_template = TextError::NoTemplate { folder: "m".into() };
    let template = TextError::Template {
        message: "syntax error".into(),
    };
    let folder = |kind| FolderError::Io {
        doing: "make",
        path: "runs".into(),
        source: io(kind),
    };
    let redis = StoreError::Login {
        url: "redis://h".into(),
        reason: "no".into(),
    };
    let small = EngineError::CacheTooSmall {
        mib: 1,
        tokens: 2,
        needed: 3,
    };
    let login = BusError::Login {
        url: "amqp://h".into(),
        reason: "no".into(),
    };
    for (error, wanted) in [
        (anyhow::Error::from(model(ErrorKind::NotFound)), USAGE),
        (model(ErrorKind::PermissionDenied).into(), FAILED),
        (model(ErrorKind::InvalidData).into(), USAGE),
        (text(ErrorKind::NotFound).into(), USAGE),
        (text(ErrorKind::Interrupted).into(), FAILED),
        (no_template.into(), USAGE),
        (folder(ErrorKind::PermissionDenied).into(), USAGE),
        (folder(ErrorKind::NotADirectory).into(), USAGE),
        (folder(ErrorKind::StorageFull).into(), FAILED),
        (redis.into(), USAGE),
        (TasksError::Empty { path: "t.jsonl".into() }.into(), USAGE),
        (template.into(), USAGE),
        (DeviceError::NoGpu { index: 0, count: 0 }.into(), USAGE),
        (small.into(), USAGE),
        (login.into(), USAGE),
    ] {
        assert_eq!(code(&error.context("starting agent a")), wanted);
    }
}

#[test]
fn a_service_may_end_for_good_after_a_wrong_configuration() {
    assert_eq!((of_service(USAGE, Some("0")), of_service(USAGE, None)), (0, USAGE));
    assert_eq!(
        (of_service(FAILED, Some("0")), of_service(USAGE, Some("x"))),
        (FAILED, USAGE)
    );
}

#[test]
fn cause_in_the_message_is_not_repeated() {
    let error = anyhow::anyhow!("disk full").context("cannot write: disk full");
    assert_eq!(render(&error), "error: cannot write: disk full\n");
    let error = anyhow::anyhow!("disk full").context("cannot write");
    assert_eq!(render(&error), "error: cannot write\n  because: disk full\n");
}

#[test]
fn full_disk_has_a_hint() {
    let full = anyhow::Error::from(std::io::Error::from_raw_os_error(28)).context("cannot write x");
    assert!(render(&full).contains("\nhint: make room"), "{}", render(&full));
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
    let full = LedgerError::Storage {
        doing: "written",
        source: std::sync::Arc::new(rusqlite::Error::SqliteFailure(code, None)),
    };
    let text = render(&anyhow::Error::from(full).context("agent a"));
    assert!(text.contains("\nhint: make room"), "{text}");
}

#[test]
fn closed_output_ends_as_sigpipe_does() {
    let output = |kind| anyhow::Error::from(std::io::Error::from(kind));
    assert_eq!(tell(&output(std::io::ErrorKind::BrokenPipe)), BROKEN_PIPE);
    assert_eq!(tell(&output(std::io::ErrorKind::StorageFull)), 1);
}

#[test]
fn command_for_a_container_has_no_url_and_starts_no_run() {
    let with = |args: &str, run| in_containers(args.split(' ').map(str::to_owned), run);
    let hint = |args: &str| with(args, None);
    let hint_of_tasks = hint("tasks dead --broker amqp://u:p@h/v --run signal --runs=x --state=redis://:p@h --all");
    let command =
        "if the run is in containers: `docker compose run --rm --no-deps coordinator tasks dead --run signal --all`";
    assert!(hint_of_tasks.unwrap().ends_with(command));
    let command = "coordinator conversations --reward '<0.5' --run=x`";
    assert!(hint("conversations --reward <0.5 --run=x").unwrap().ends_with(command));
    assert!(
        hint("compare one two")
            .unwrap()
            .ends_with("coordinator compare one two`")
    );
    for writing in [
        "samples x --out file",
        "export x --out folder",
        "compare one two --json file",
        "compare --json=file one two",
    ] {
        let copy = "`docker compose cp coordinator:/var/lib/dyad/runs .`";
        assert!(hint(writing).unwrap().ends_with(copy), "{writing}");
    }
    assert_eq!(hint("run --resume x"), None);
    for (given, command) in [
        ("status", "coordinator status --run second`"),
        ("status --run=x", "coordinator status --run=x`"),
        ("compare one two", "coordinator compare one two`"),
    ] {
        let hint = with(given, Some("second".to_owned())).unwrap();
        assert!(hint.ends_with(command), "{hint}");
    }
    assert!(hint("publish tasks.jsonl").unwrap().contains("--config FILE"));
}

#[test]
fn rejected_certificate_has_its_own_advice_and_no_hint() {
    let reason = "its certificate ...: set DYAD_CA=FILE".to_owned();
    let bus = BusError::Tls {
        url: "amqps://h:5671/v".into(),
        reason: reason.clone(),
    };
    let url = "rediss://h".to_owned();
    let store = StoreError::Tls { url, reason };
    for error in [anyhow::Error::from(bus), store.into()] {
        assert_eq!(code(&error), 75);
        let text = render(&error);
        assert!(text.contains("DYAD_CA") && !text.contains("hint:"), "{text}");
    }
    let half = TlsError::Half {
        set: "DYAD_CLIENT_CERT",
        missing: "DYAD_CLIENT_KEY",
    };
    assert_eq!(code(&half.into()), 2);
}

#[test]
fn only_a_forbidden_declaration_asks_for_the_right_user() {
    for (forbidden, advice) in [(true, "has its own user"), (false, "start a new run")] {
        let (what, reason) = ("queue q".to_owned(), "ACCESS_REFUSED".to_owned());
        let error = anyhow::Error::from(BusError::Declare {
            what,
            reason,
            forbidden,
        });
        let text = render(&error);
        assert!(text.contains(advice), "{forbidden}: {text}");
        assert_eq!(code(&error), 75);
    }
}

#[test]
fn a_store_without_tls_has_the_text_of_an_unusable_one() {
    let (url, reason) = ("rediss://h".to_owned(), "no".to_owned());
    let error = StoreError::Tls { url, reason };
    assert_eq!(
        error.to_string(),
        "the store cannot be used: cannot speak TLS with Redis at rediss://h: no"
    );
}
