//! The list of all series, `observe/series.txt`, generated from what processes register.

use std::path::Path;

use super::watch::WatchSeries;
use crate::observe::series::AllSeries;
use crate::observe::table::SeriesTable;

const HEAD: &str = "\
# Series that Prometheus reads. Generated from the types; do not edit:
# DYAD_GOLDEN=write cargo test -p agents series_reference
#
# name  type  labels besides run  meaning
";

fn reference() -> String {
    let (mut own, mut watched) = (SeriesTable::new("r"), SeriesTable::of_several_runs());
    AllSeries::register(&mut own);
    WatchSeries::register(&mut watched);
    let list = |table: &SeriesTable| -> String {
        let rows = table.rows().iter().map(|row| {
            let labels: Vec<&str> = row.labels.iter().copied().filter(|label| *label != "run").collect();
            let labels = if labels.is_empty() {
                "-".into()
            } else {
                labels.join(",")
            };
            format!("{}  {}  {labels}  {}\n", row.name, row.kind, row.meaning)
        });
        rows.collect()
    };
    format!(
        "{HEAD}\n# of each process\n\n{}\n# of the dashboard, for each live run\n\n{}",
        list(&own),
        list(&watched)
    )
}

#[test]
fn series_reference_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("observe/series.txt");
    if std::env::var_os("DYAD_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, reference()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == reference(),
        "series.txt is stale: run DYAD_GOLDEN=write cargo test -p agents series_reference"
    );
}

#[test]
fn names_are_unique_and_have_our_prefix() {
    let text = reference();
    let mut names: Vec<&str> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split("  ").next())
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("dyad_") || name.starts_with("process_"))
    );
}
