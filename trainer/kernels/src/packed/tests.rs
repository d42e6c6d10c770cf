use proptest::prelude::*;

use super::*;
use crate::processors::each;

fn values(count: usize, salt: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.73 + salt).sin()).collect()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

/// Checks every row against sums in f64, and against the same row alone.
fn check(arch: Arch, packed: &Packed, weight: &[f32], x: &[f32]) -> Result<(), TestCaseError> {
    let (outputs, inputs) = (packed.outputs(), packed.inputs());
    let mut y = vec![f32::NAN; x.len() / inputs * outputs];
    packed.multiply_on(arch, x, &mut y);
    for (row, got) in x.chunks_exact(inputs).zip(y.chunks_exact(outputs)) {
        for (weights, got) in weight.chunks_exact(inputs).zip(got) {
            let products = row.iter().zip(weights).map(|(a, b)| f64::from(*a) * f64::from(*b));
            let (wanted, size): (f64, f64) = (products.clone().sum(), products.map(f64::abs).sum());
            prop_assert!(
                (f64::from(*got) - wanted).abs() < 1e-6 * (1.0 + size),
                "{got} for {wanted}"
            );
        }
        let mut alone = vec![f32::NAN; outputs];
        packed.multiply_on(arch, row, &mut alone);
        prop_assert_eq!(bits(&alone), bits(got));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn products_are_those_of_f64_and_the_same_bits_alone(
        rows in prop_oneof![8 => 1usize..20, 1 => 90usize..210],
        outputs in 1usize..80,
        inputs in prop_oneof![8 => 1usize..90, 1 => Just(1300)],
    ) {
        let (x, weight) = (values(rows * inputs, 0.1), values(outputs * inputs, 0.2));
        let halves: Vec<bf16> = weight.iter().copied().map(bf16::from_f32).collect();
        let widened: Vec<f32> = halves.iter().copied().map(f32::from).collect();
        for arch in each() {
            let packed = Packed::new_on(arch, &weight, inputs);
            prop_assert_eq!((packed.outputs(), packed.inputs()), (outputs, inputs));
            check(arch, &packed, &weight, &x)?;
            let packed = Packed::of_bf16_on(arch, &halves, inputs);
            prop_assert_eq!((packed.outputs(), packed.inputs()), (outputs, inputs));
            check(arch, &packed, &widened, &x)?;
        }
    }
}

#[test]
fn bf16_numbers_are_all_read_as_they_are() {
    let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).filter(|x| x.is_finite()).collect();
    for arch in each() {
        let packed = Packed::of_bf16_on(arch, &all, 1);
        let mut y = vec![f32::NAN; all.len()];
        packed.multiply_on(arch, &[1.0], &mut y);
        // A sum begins with +0, so -0 becomes +0, and == accepts both.
        assert!(y.iter().zip(&all).all(|(y, x)| *y == f32::from(*x)), "{arch:?}");
    }
}

#[test]
fn nothing_is_no_row() {
    Packed::new(&[1.0, 2.0], 2).multiply(&[], &mut []);
}

#[test]
#[should_panic(expected = "x and y of one number of rows")]
fn rows_of_another_length_are_refused() {
    Packed::new(&[1.0; 6], 3).multiply(&[1.0; 6], &mut [0.0; 3]);
}
