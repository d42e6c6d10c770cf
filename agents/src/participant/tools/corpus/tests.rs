//! Tests of searching and reading documents.

use super::*;
use serde_json::json;

fn corpus(files: &[(&str, &str)]) -> Result<Corpus, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    Corpus::open(folder.path())
}

fn stones() -> Corpus {
    corpus(&[
        ("b/jade.md", "# Jade\n\nA hard green stone."),
        ("amber.txt", "\nAmber\nResin of old trees. It floats in salt water."),
        ("more.jsonl", "\u{feff}{\"id\": \"opal\", \"title\": \"Opal\", \"text\": \"White, with water in it.\"}\n\n{\"contents\": \"jade again\"}\n"),
        ("picture.png", "not read"),
    ])
    .unwrap()
}

fn search(corpus: &Corpus, query: &str) -> String {
    corpus.answer("search", &json!({ "query": query }), 8000).unwrap()
}

#[test]
fn documents_are_ranked_and_shown_with_the_best_passage() {
    let stones = stones();
    let found = search(&stones, "Which stone floats in WATER?");
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines[0], "1. [amber.txt] Amber");
    assert!(lines[1].contains("floats in salt water"), "{found}");
    assert_eq!(lines[2], "2. [opal] Opal");
    assert!(
        search(&stones, "jade").starts_with("1. [b/jade.md] Jade"),
        "a title counts twice"
    );
    assert!(search(&stones, "again").starts_with("1. [more.jsonl:3] jade again"));
    for nothing in ["zirconium", "?!", "\u{0}", "title:jade AND ("] {
        let found = search(&stones, nothing);
        assert!(
            found == "nothing was found" || found.contains("jade"),
            "{nothing}: {found}"
        );
    }
    assert_eq!(
        stones
            .answer("search", &json!({"query": "water", "top": 1}), 8000)
            .unwrap()
            .lines()
            .count(),
        2
    );
}

#[test]
fn equal_documents_keep_the_order_of_their_paths() {
    let files: Vec<(String, String)> = (0..50)
        .map(|n| (format!("{n:02}.txt"), "the same words".to_owned()))
        .collect();
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let ids = |corpus: &Corpus| {
        let found = corpus
            .answer("search", &json!({"query": "same words", "top": 20}), 8000)
            .unwrap();
        let heads = found
            .lines()
            .step_by(2)
            .map(|line| line.split(['[', ']']).nth(1).unwrap().to_owned());
        heads.collect::<Vec<_>>()
    };
    let expected: Vec<String> = (0..20).map(|n| format!("{n:02}.txt")).collect();
    for _ in 0..3 {
        assert_eq!(ids(&corpus(&files).unwrap()), expected);
    }
}

#[test]
fn a_document_is_read_page_by_page_to_its_end() {
    let text = "äöü wörter ".repeat(900);
    let long = corpus(&[("long.txt", &text)]).unwrap();
    let page = |page: usize| long.answer("visit", &json!({"id": " long.txt ", "page": page}), 1500);
    let first = page(1).unwrap();
    assert!(first.starts_with("äöü") && first.contains("(page 1 of "), "{first}");
    let pages: usize = first
        .split("of ")
        .nth(1)
        .unwrap()
        .split(')')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let read: Vec<String> = (1..=pages)
        .map(|n| page(n).unwrap().split_once('\n').unwrap().1.to_owned())
        .collect();
    assert!(read.iter().all(|page| page.len() <= 1500));
    assert_eq!(
        read.join(" ").split_whitespace().count(),
        text.split_whitespace().count()
    );
    assert!(page(pages + 1).unwrap_err().contains("there is no page"));
    assert!(page(0).is_err());
    assert!(
        long.answer("visit", &json!({"id": "x"}), 1500)
            .unwrap_err()
            .contains("no document \"x\"")
    );
    assert_eq!(
        stones().answer("visit", &json!({"id": "opal"}), 1500).unwrap(),
        "Opal\nWhite, with water in it."
    );
}

#[test]
fn problems_with_a_folder_are_named() {
    for (files, says) in [
        (&[("a.png", "x")][..], "no documents"),
        (
            &[("a.jsonl", "{\"text\": \"x\"}\n{\"title\": 5}")],
            "a.jsonl:2: has no text",
        ),
        (&[("a.jsonl", "oops")], "a.jsonl:1: is not JSON"),
        (
            &[("a.txt", "x"), ("b.jsonl", "{\"id\": \"a.txt\", \"text\": \"y\"}")],
            "second document",
        ),
    ] {
        let error = corpus(files).map(|_| ()).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    assert!(
        Corpus::open(Path::new("/nowhere"))
            .map(|_| ())
            .unwrap_err()
            .contains("cannot be read")
    );
}
