use super::*;

#[test]
fn missing_server_is_a_problem_only_if_required() {
    let missing = |url: Option<&str>| server("no-such-server-anywhere", &[], url).standing;
    assert_eq!(missing(Some("local:")), Standing::Bad);
    assert_eq!(missing(Some("memory:")), Standing::Absent);
    assert_eq!(missing(None), Standing::Absent);
}

#[test]
fn memory_that_cannot_suffice_is_bad_and_names_the_change() {
    let base = tempfile::tempdir().unwrap();
    let config = crate::run_folder::tests::config_in(base.path());
    let mut report = devices::reports(&config, Processes::One).remove(0);
    assert_eq!(memory_finding(&report, "").standing, Standing::Good);
    report.total = Some(1 << 10);
    let finding = memory_finding(&report, "");
    assert_eq!(finding.standing, Standing::Bad);
    let text = render(&[finding]);
    assert!(
        text.contains("cannot suffice") && text.contains("try a smaller model"),
        "{text}"
    );
}

#[test]
fn driver_older_than_the_cuda_libraries_is_bad() {
    let gpu = |driver| Gpu {
        line: format!("NVIDIA H100, 81559 MiB, {driver}.90"),
        memory: None,
        driver: Some(driver),
        uuid: String::new(),
    };
    for (drivers, has_cuda) in [(vec![580, 590], true), (vec![550], false)] {
        let gpus: Vec<Gpu> = drivers.into_iter().map(gpu).collect();
        assert_eq!(listed(&gpus, has_cuda).standing, Standing::Good);
    }
    let text = render(&[listed(&[gpu(590), gpu(550)], true)]);
    assert!(
        text.starts_with("FIX  GPU") && text.contains("driver 550 is too old") && text.contains("580 or newer"),
        "{text}"
    );
}

#[test]
fn unwritable_folder_is_a_finding() {
    let base = tempfile::tempdir().unwrap();
    let (new, file) = (base.path().join("runs"), base.path().join("file"));
    assert_eq!(writable(&new).standing, Standing::Good);
    assert!(!new.exists(), "the new folder is removed again");
    std::fs::write(&file, b"").unwrap();
    let finding = writable(&file.join("runs"));
    assert_eq!(finding.standing, Standing::Bad);
    let text = render(&[finding]);
    assert!(
        text.starts_with("FIX  run folder") && text.contains("set run.folder"),
        "{text}"
    );
}

#[test]
fn findings_on_unreachable_servers_show_no_password() {
    let findings = select::block_on(async {
        Ok([
            try_broker(Some("amqp://user:hunter2@127.0.0.1:1/%2f")).await.unwrap(),
            try_store(Some("redis://:hunter2@127.0.0.1:1/0")).await.unwrap(),
        ])
    });
    for finding in findings.unwrap() {
        assert_eq!(finding.standing, Standing::Bad);
        assert!(
            !render(std::slice::from_ref(&finding)).contains("hunter2"),
            "{finding:?}"
        );
    }
}

#[test]
fn damaged_or_absent_model_is_bad_and_named() {
    let base = tempfile::tempdir().unwrap();
    let mut config = crate::run_folder::tests::config_in(base.path());
    assert_eq!(data(&config), []);
    let a = configs::AgentName::new("a").unwrap();
    let absent = base.path().join("absent");
    for (path, wanted) in [
        (base.path(), "agents.a.model: reading "),
        (&absent, "agents.a.model: there is no folder "),
        (Path::new("dyad-test/none"), "or run hf download dyad-test/none"),
    ] {
        config.agents.get_mut(&a).unwrap().model = configs::ModelConfig::Path(path.into());
        let text = render(&data(&config));
        assert!(text.starts_with("FIX  data") && text.contains(wanted), "{text}");
        assert_eq!(text.matches("FIX").count(), 1, "{text}");
    }
}
