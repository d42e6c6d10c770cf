//! Numbers of a group, and parts that the page of a conversation has too.

use serde_json::{Value, json};

use super::Drawn;
use super::rounding::{figure, real, same, signed};

/// Compares the group of a conversation: the rewards and advantages of its members, and their
/// spread. Advantages of this kind differ, and their sum is 0.
pub(super) fn group(drawn: &mut Drawn<'_>, one: &Value, kind: &str) {
    let (group, _) = one["conversation"].as_str().unwrap().split_once('/').unwrap();
    let members = group_of(drawn, group);
    assert!(members.len() > 1, "{members:?}");
    drawn.open(&format!("g/{group}"), "Tick two members");
    let seats = seats(drawn);
    let rows = drawn.table("Members");
    assert_eq!(rows.len(), members.len());
    for (row, one) in rows.iter().zip(&members) {
        let (_, member) = one["conversation"].as_str().unwrap().split_once('/').unwrap();
        assert_eq!(row[1]["text"], member);
        for (at, seat) in seats.iter().enumerate() {
            let place = format!("group {group}, member {member}, {seat}");
            let (reward, advantage) = (
                &one["rewards"][seat.as_str()]["total"],
                &compared(one, seat)["advantage"],
            );
            assert!(reward.is_number() && advantage.is_number(), "{place}: {one}");
            same(&place, &row[2 + 2 * at], reward, real);
            same(&place, &row[3 + 2 * at], advantage, signed);
        }
        let turns = one["turns"].as_array().unwrap().iter();
        let tokens: u64 = turns.filter_map(|turn| turn["tokens"].as_u64()).sum();
        let place = format!("group {group}, tokens of member {member}");
        same(&place, &row[2 + 2 * seats.len()], &json!(tokens), figure);
    }

    let cards = drawn.rows("section.seat dl.grid");
    for (seat, card) in seats.iter().zip(&cards) {
        let first = compared(&members[0], seat);
        let advantage = |one: &Value| compared(one, seat)["advantage"].as_f64().unwrap();
        let sum: f64 = members.iter().map(advantage).sum();
        let sum = if sum.abs() < 1e-9 { 0.0 } else { sum };
        let names: Vec<&Value> = card.iter().step_by(2).map(|cell| &cell["text"]).collect();
        assert_eq!(names, ["mean", "std", "compared", "advantages", "sum of advantages"]);
        let place = |what: &str| format!("group {group}, {what} of {seat}");
        same(&place("mean"), &card[1], &first["mean"], real);
        same(&place("std"), &card[3], &first["std"], real);
        same(&place("compared"), &card[5], &first["conversations"], figure);
        assert_eq!((&card[7]["text"], &first["kind"]), (&json!(kind), &json!(kind)));
        same(&place("sum of advantages"), &card[9], &json!(sum), real);
        assert_eq!(card[9]["text"], "0.000", "{}", place("sum of advantages"));
        assert!(
            members.iter().any(|one| advantage(one) > 0.0),
            "no advantages of {seat}"
        );
    }
    let mean = |seat: &str| compared(&members[0], seat)["mean"].as_f64();
    strips(drawn, &members, &seats, mean);
}

/// Returns the conversations of a group by member.
pub(super) fn group_of(drawn: &Drawn<'_>, group: &str) -> Vec<Value> {
    drawn.command(&["conversation", &format!("{group}/")])
}

fn compared<'a>(one: &'a Value, seat: &str) -> &'a Value {
    &one["earned"][seat]["compared"]
}

/// Returns the seats in the order of their panels.
pub(super) fn seats(drawn: &mut Drawn<'_>) -> Vec<String> {
    let names = drawn.rows("section.seat h3");
    let name = |row: &Vec<Value>| row[0]["text"].as_str().unwrap().to_owned();
    names.iter().map(name).collect()
}

/// Compares the dots of each seat's drawing with the members' rewards, and its ends with the
/// smallest and the largest. `mark` returns the number at which a seat has a line.
pub(super) fn strips(drawn: &mut Drawn<'_>, members: &[Value], seats: &[String], mark: impl Fn(&str) -> Option<f64>) {
    let all = drawn.rows("section.seat svg.strip");
    assert_eq!(all.len(), if members.len() > 1 { seats.len() } else { 0 });
    for (seat, shown) in seats.iter().zip(all) {
        let reward = |one: &Value| one["rewards"][seat.as_str()]["total"].as_f64().unwrap();
        let expected: Vec<f64> = members.iter().map(reward).collect();
        let texts: Vec<&str> = shown.iter().filter_map(|one| one["text"].as_str()).collect();
        let texts: Vec<&str> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        let (dots, ends) = texts.split_at(expected.len());
        for (member, (dot, reward)) in dots.iter().zip(&expected).enumerate() {
            let shown = dot.strip_prefix(&format!("member {member}: reward "));
            let shown = shown.unwrap_or_else(|| panic!("{dot:?} is not member {member}"));
            assert_eq!(shown.parse::<f64>(), Ok(*reward), "{seat}");
        }
        let numbers: Vec<f64> = expected.iter().copied().chain(mark(seat)).collect();
        let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if low == high {
            (low - 0.5, high + 0.5)
        } else {
            (low, high)
        };
        assert_eq!(ends, [figure(low), figure(high)], "{seat}");
    }
}
