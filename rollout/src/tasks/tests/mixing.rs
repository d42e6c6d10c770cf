//! Several sources at once.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A file of `tasks` lines with labels (name, number).
fn write(folder: &tempfile::TempDir, name: &str, tasks: u64) -> String {
    let line = |n| json!({"prompt": format!("{name} {n}"), "label": n}).to_string() + "\n";
    let path = folder.path().join(format!("{name}.jsonl"));
    std::fs::write(&path, (0..tasks).map(line).collect::<String>()).unwrap();
    format!("[[mix]]\nsource = \"jsonl:{}\"\n", path.display())
}

fn from(task: &Task) -> String {
    task.metadata["task_source"].as_str().unwrap().to_owned()
}

/// A mix writes its source's name into a task's metadata, over the row's own value.
#[test]
fn pass_rates_know_tasks_of_a_mix_by_their_rows() {
    let row =
        |n: u64| json!({"prompt": n.to_string(), "label": n, "metadata": {"task_source": "mine", "n": n}}).to_string();
    let (_folder, source) = file(&(0..3).map(|n| row(n) + "\n").collect::<String>());
    let alone = open(&source, 0)
        .rows()
        .map(|task| task_key(&task.unwrap()))
        .collect::<Vec<_>>();
    let mut mix = open(&format!("source = \"mix\"\n[[mix]]\nname = \"sums\"\n{source}"), 0);
    let each: Vec<(Task, String)> = mix.each().map(Result::unwrap).collect();
    assert!(each.iter().all(|(task, _)| task.metadata["task_source"] == "sums"));
    assert_eq!(each.into_iter().map(|(_, key)| key).collect::<Vec<_>>(), alone);
}

#[test]
fn sources_are_mixed_by_weight_and_go_on_in_the_next_pass() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "source = \"mix\"\nepochs = 3\nshuffle = true\n{}weight = 2\n{}",
        write(&folder, "big", 9),
        write(&folder, "small", 2)
    );
    let mut source = open(&text, 5);
    assert_eq!(source.per_pass(), 5, "small is through with its second");
    let tasks = take(&mut source, 100);
    let of = |name: &str| -> Vec<u64> {
        let own = tasks.iter().filter(|(_, task)| from(task) == name);
        own.map(|(_, task)| task.label.as_u64().unwrap()).collect()
    };
    let (big, small) = (of("big"), of("small"));
    assert_eq!((big.len(), small.len()), (9, 6));
    assert_eq!(
        big.iter().collect::<BTreeSet<_>>().len(),
        9,
        "none comes again before all have come"
    );
    assert!(small.chunks(2).all(|round| round[0] != round[1]));
    let names: BTreeSet<&str> = ids(&tasks).into_iter().collect();
    assert_eq!(names.len(), 15, "ids are unique: {names:?}");
    assert!(names.contains("small/2/1") && names.contains("big/0/8"));
    let all = format!("stopping = \"all_exhausted\"\n{text}");
    assert_eq!(open(&all, 5).per_pass(), 13);
    let stock = open(&all, 5).stock();
    assert_eq!(
        stock.iter().map(|one| (one.tasks, one.in_pass)).collect::<Vec<_>>(),
        [(9, 9), (2, 4)]
    );
}

#[test]
fn each_source_of_a_mix_has_its_own_keys_filter_and_slice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gsm.jsonl");
    let line = |n: u64| json!({"question": format!("{n}?"), "answer": n, "uid": format!("q{n}")}).to_string() + "\n";
    std::fs::write(&path, (0..10).map(line).collect::<String>()).unwrap();
    let shown = path.display();
    let text = format!(
        "source = \"mix\"\nstopping = \"all_exhausted\"\nepochs = 1\n[[mix]]\nsource = \"jsonl:{shown}\"\nname = \"gsm\"\nprompt = \"question\"\nlabel = \"answer\"\nid = \"uid\"\nslice = \"5:\"\nfilter = \"answer % 2 == 0\"\n[[mix]]\nsource = \"generator:arithmetic\"\nparams = {{ min = 1, max = 2, held_out = 0.0 }}\n"
    );
    let tasks = take(&mut open(&text, 0), 100);
    let gsm: Vec<&str> = ids(&tasks).into_iter().filter(|id| id.starts_with("gsm/")).collect();
    assert_eq!(gsm, ["gsm/q6", "gsm/q8", "gsm/q6#1", "gsm/q8#1"]);
    let made = tasks.iter().filter(|(_, task)| from(task) == "arithmetic");
    let problems: BTreeSet<&str> = made.map(|(_, task)| task.prompt.text()).collect();
    assert_eq!(problems.len(), 4);
}

#[test]
fn what_cannot_be_mixed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (write(&folder, "one", 3), write(&folder, "two", 9));
    for (text, key, says) in [
        (
            format!("{one}{one}"),
            "tasks.mix.1.name",
            "\"one\" is no name that this source has alone",
        ),
        (format!("{one}{two}weight = 0.01"), "tasks.mix", "two gets none"),
        (
            format!("{one}slice = \"7:\""),
            "tasks.mix.0.slice",
            "leaves none of the 3 rows of one",
        ),
        (String::new(), "tasks.mix", "0 sources"),
    ] {
        let error = TaskSource::open(&config(&format!("source = \"mix\"\n{text}")), 0);
        let error = error.err().unwrap().to_string();
        assert!(
            error.starts_with(&format!("{key}: ")) && error.contains(says),
            "{error}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// For every mix: a source resumed at any place continues with the next task, ids are unique,
    /// and every source gives each of its tasks once before it repeats any.
    #[test]
    fn a_mix_goes_on_anywhere_and_its_rounds_are_permutations(
        sources in prop::collection::vec((1u64..12, 0.3f64..3.0), 1..4),
        all in any::<bool>(),
        shuffle in any::<bool>(),
        limit in prop::option::of(1u64..20),
        seed in any::<u64>(),
        at in any::<prop::sample::Index>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let stopping = if all { "all_exhausted" } else { "first_exhausted" };
        let mut text = format!("source = \"mix\"\nepochs = 4\nshuffle = {shuffle}\nstopping = \"{stopping}\"\n");
        if let Some(limit) = limit {
            text += &format!("limit = {limit}\n");
        }
        for (index, (tasks, weight)) in sources.iter().enumerate() {
            text += &format!("{}weight = {weight:?}\n", write(&folder, &format!("s{index}"), *tasks));
        }
        let config = config(&text);
        // A source that would get no place is rejected.
        let mut source = match TaskSource::open(&config, seed) {
            Ok(source) => source.unwrap(),
            Err(error) => {
                let error = error.to_string();
                prop_assert!(error.contains("gets none of") || error.contains("tasks.limit is"), "{error}");
                return Ok(());
            }
        };
        let whole = take(&mut source, 10_000);
        prop_assert_eq!(whole.len() as u64, 4 * source.per_pass());
        let names: BTreeSet<&str> = ids(&whole).into_iter().collect();
        prop_assert_eq!(names.len(), whole.len());

        let mut given: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (_, task) in &whole {
            given.entry(from(task)).or_default().push(task.label.as_u64().unwrap());
        }
        for (name, labels) in given {
            let tasks = sources[name[1..].parse::<usize>().unwrap()].0;
            for round in labels.chunks(tasks as usize) {
                let distinct: BTreeSet<&u64> = round.iter().collect();
                prop_assert_eq!(distinct.len(), round.len());
                prop_assert!(shuffle || round.iter().copied().eq(0..round.len() as u64));
            }
        }

        let place = at.index(whole.len());
        let mut resumed = TaskSource::open(&config, seed).unwrap().unwrap();
        prop_assert_eq!(resumed.order(whole[place].0), place as u64);
        resumed.seek(whole[place].0);
        prop_assert_eq!(take(&mut resumed, 10_000), &whole[place..]);
    }
}
