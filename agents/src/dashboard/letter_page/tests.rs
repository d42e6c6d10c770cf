use super::*;

fn letter(number: usize, body: impl Into<Bytes>) -> DeadLetter {
    DeadLetter {
        facts: LetterFacts {
            id: format!("t{number}"),
            class: if number.is_multiple_of(2) { "content" } else { "version" }.into(),
            ..LetterFacts::default()
        },
        body: body.into(),
    }
}

fn queue(count: usize) -> Vec<DeadLetter> {
    (0..count).map(|number| letter(number, "{}")).collect()
}

fn read(letters: &[DeadLetter], query: &LettersQuery) -> Result<Letters, ApiError> {
    let mut page = LetterPage::new(query)?;
    letters.iter().for_each(|letter| page.see(letter));
    page.finish(Ok(letters.len() as u64))
}

fn ids(found: &Letters) -> Vec<&str> {
    found.letters.iter().map(|one| one.facts.id.as_str()).collect()
}

fn pages(order: LetterOrder) -> Vec<Vec<String>> {
    let letters = queue(7);
    let mut query = LettersQuery {
        limit: Some(3),
        order,
        ..LettersQuery::default()
    };
    let mut pages = Vec::new();
    loop {
        let page = read(&letters, &query).unwrap();
        assert_eq!((page.total, page.classes["content"]), (7, 4));
        pages.push(ids(&page).into_iter().map(str::to_owned).collect());
        query.cursor = page.next;
        if query.cursor.is_none() {
            return pages;
        }
    }
}

#[test]
fn pages_of_both_orders_hold_every_letter_once() {
    let oldest = [vec!["t0", "t1", "t2"], vec!["t3", "t4", "t5"], vec!["t6"]];
    assert_eq!(pages(LetterOrder::Oldest), oldest);
    let newest = [vec!["t6", "t5", "t4"], vec!["t3", "t2", "t1"], vec!["t0"]];
    assert_eq!(pages(LetterOrder::Newest), newest);
}

#[test]
fn cursor_follows_its_letter_and_says_when_it_is_gone() {
    let mut letters = queue(6);
    let mut query = LettersQuery {
        limit: Some(3),
        ..LettersQuery::default()
    };
    query.cursor = read(&letters, &query).unwrap().next;
    letters.remove(0);
    assert_eq!(ids(&read(&letters, &query).unwrap()), ["t3", "t4", "t5"]);
    letters.remove(1);
    let gone = read(&letters, &query).unwrap_err();
    assert_eq!(gone.status, 410);
    query.cursor = Some("nonsense".into());
    assert_eq!(read(&letters, &query).unwrap_err().status, 400);
}

#[test]
fn one_letter_is_whole_and_in_a_list_it_is_cut() {
    let letters = [letter(1, vec![b'x'; 6000]), letter(2, "{}")];
    let listed = read(&letters, &LettersQuery::default()).unwrap();
    let first = &listed.letters[0];
    assert_eq!((first.bytes, first.body.len(), first.cut), (6000, BEGINNING, true));
    let by_id = LettersQuery {
        id: Some("t1".into()),
        ..LettersQuery::default()
    };
    let found = read(&letters, &by_id).unwrap();
    assert_eq!((found.letters.len(), found.total), (1, 2));
    assert_eq!((found.letters[0].body.len(), found.letters[0].cut), (6000, false));
}

/// Each control character takes six bytes as JSON.
#[test]
fn hostile_letters_never_make_an_answer_too_large() {
    let body = Bytes::from(vec![1; WHOLE + 1]);
    let hostile = |number| {
        let mut letter = letter(number, body.clone());
        let text = "\u{1}".repeat(TEXT + 1);
        letter.facts.reason.clone_from(&text);
        letter.facts.key.clone_from(&text);
        letter.facts.class = format!("{number}{text}");
        letter.facts.id = "same".into();
        letter
    };
    let letters: Vec<_> = (0..250).map(hostile).collect();
    for id in [None, Some("same".to_owned())] {
        for order in [LetterOrder::Oldest, LetterOrder::Newest] {
            let query = LettersQuery {
                limit: Some(1_000_000),
                order,
                id: id.clone(),
                cursor: None,
            };
            let page = read(&letters, &query).unwrap();
            assert!(!page.letters.is_empty() && page.letters.len() <= MOST && page.next.is_some());
            assert_eq!(
                (page.classes.len(), page.classes["other"]),
                (CLASSES + 1, 250 - CLASSES as u64)
            );
            let size = serde_json::to_vec(&page).unwrap().len();
            assert!(size <= LARGEST, "{size} bytes");
        }
    }
}

#[test]
fn queue_that_cannot_be_read_says_why() {
    let page = LetterPage::new(&LettersQuery::default()).unwrap();
    let answer = page.finish(Err("no broker".into())).unwrap();
    assert_eq!(answer.offline.as_deref(), Some("no broker"));
}
