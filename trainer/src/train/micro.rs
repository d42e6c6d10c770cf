//! Rows packed into micro-batches under a token budget.

use super::rows::Row;

/// Indices of rows that are computed together, padded to the longest of them.
pub(crate) type MicroBatch = Vec<usize>;

/// Packs rows so that `rows x longest` stays within `budget` tokens; a row above the budget stands alone. Rows of like
/// length go together (padding is work). A function of the rows and the budget alone.
pub(crate) fn pack(rows: &[Row], budget: usize) -> Vec<MicroBatch> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|i| rows[*i].input.len());
    let mut batches: Vec<MicroBatch> = Vec::new();
    for index in order {
        // Ascending order: this row is the longest so far.
        let longest = rows[index].input.len();
        match batches.last_mut() {
            Some(batch) if (batch.len() + 1) * longest <= budget => batch.push(index),
            _ => batches.push(vec![index]),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_row_once_and_within_the_budget(lengths in prop::collection::vec(1usize..50, 0..40), budget in 1usize..200) {
            let rows: Vec<Row> = lengths.iter().map(|n| Row { input: vec![0; *n], trained: vec![] }).collect();
            let batches = pack(&rows, budget);
            let mut seen: Vec<usize> = batches.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..rows.len()).collect::<Vec<_>>());
            for batch in batches {
                let longest = batch.iter().map(|i| lengths[*i]).max().unwrap_or(0);
                prop_assert!(batch.len() == 1 || batch.len() * longest <= budget);
            }
        }
    }
}
