//! The table of `dyad recipes`.

use super::table::{Align, Table};
use crate::cli::recipes::outcome::{Ends, RecipeRow};

/// Formats the table. `left` has the recipes that were not run, with a reason if it is unusual.
pub fn render(rows: &[RecipeRow], left: &[(String, Option<String>)]) -> String {
    let mut table = Table::new(&[
        ("recipe", Align::Left),
        ("turns", Align::Right),
        ("agent", Align::Left),
        ("samples", Align::Right),
        ("reward", Align::Left),
        ("success", Align::Left),
        ("seconds", Align::Right),
    ]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.3}"));
    let arrow = |ends: &Ends| {
        let mark = if ends.training { " *" } else { "" };
        format!("{} -> {}{mark}", number(ends.before), number(ends.after))
    };
    for row in rows {
        if row.failed.is_some() || row.agents.is_empty() {
            let empty = || "-".to_owned();
            table.row(vec![
                row.recipe.clone(),
                empty(),
                empty(),
                empty(),
                if row.failed.is_some() {
                    "FAILED".into()
                } else {
                    "no agent trains".into()
                },
                empty(),
                format!("{:.0}", row.seconds),
            ]);
        }
        for (at, one) in row.agents.iter().enumerate() {
            let first = |text: String| if at == 0 { text } else { String::new() };
            table.row(vec![
                first(row.recipe.clone()),
                first(format!("{:.2}", row.turns)),
                one.agent.clone(),
                one.samples.to_string(),
                arrow(&one.reward),
                first(arrow(&row.success)),
                first(format!("{:.0}", row.seconds)),
            ]);
        }
    }
    let mut text = table.to_string();
    text += "\nturns: mean generations per conversation; samples: samples trained on; \
             reward and success: first and last evaluation\n";
    if rows.iter().flat_map(|row| &row.agents).any(|one| one.reward.training) {
        text += "* from training conversations: means over the first and the last tenth of the steps\n";
    }
    for row in rows {
        if let Some(reason) = &row.failed {
            text += &format!("{} FAILED: {reason}\n", row.recipe);
        }
    }
    for (recipe, why) in left.iter().filter_map(|(recipe, why)| Some((recipe, why.as_ref()?))) {
        text += &format!("{recipe} not run: {why}\n");
    }
    let needy: Vec<&str> = left
        .iter()
        .filter(|(_, why)| why.is_none())
        .map(|(recipe, _)| recipe.as_str())
        .collect();
    if !needy.is_empty() {
        text += &format!(
            "not run, because they need a model folder, or servers or programs that you start: {}\n",
            needy.join(", ")
        );
    }
    text
}
