//! Random numbers by counter: the same (key, stream, position) gives the same bits, whatever the
//! batch, thread or machine.
//!
//! Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
//! 2011). Nothing is stored between draws, so a generation that is resumed, moved or batched
//! differently has the same random numbers.

const ROUNDS: usize = 10;

/// Four random words of one counter under one key.
fn philox(key: u64, counter: [u32; 4]) -> [u32; 4] {
    let (mut k0, mut k1) = (key as u32, (key >> 32) as u32);
    let mut c = counter;
    for _ in 0..ROUNDS {
        let low = u64::from(c[0]) * 0xD251_1F53;
        let high = u64::from(c[2]) * 0xCD9E_8D57;
        c = [
            (high >> 32) as u32 ^ c[1] ^ k0,
            high as u32,
            (low >> 32) as u32 ^ c[3] ^ k1,
            low as u32,
        ];
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    c
}

/// 53 random bits as a number in [0, 1).
fn unit(high: u32, low: u32) -> f64 {
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

fn words(key: u64, stream: u64, position: u64) -> [u32; 4] {
    philox(
        key,
        [
            position as u32,
            (position >> 32) as u32,
            stream as u32,
            (stream >> 32) as u32,
        ],
    )
}

/// A uniform number in [0, 1).
#[must_use]
pub fn uniform(key: u64, stream: u64, position: u64) -> f64 {
    let w = words(key, stream, position);
    unit(w[0], w[1])
}

/// Two independent standard normal numbers (Box and Muller 1958), from software logarithm and
/// cosine: the same bits on every machine.
#[must_use]
pub fn normal_pair(key: u64, stream: u64, position: u64) -> [f64; 2] {
    let w = words(key, stream, position);
    let radius = (-2.0 * libm::log(1.0 - unit(w[0], w[1]))).sqrt();
    let angle = std::f64::consts::TAU * unit(w[2], w[3]);
    [radius * libm::cos(angle), radius * libm::sin(angle)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_vectors() {
        // Known answers of the authors' Random123 1.14 (kat_vectors, philox4x32 10).
        assert_eq!(philox(0, [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox(u64::MAX, [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                0x299f_31d0_a409_3822,
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let n = 200_000u64;
        let (mut sum, mut square, mut mean) = (0.0, 0.0, 0.0);
        for i in 0..n / 2 {
            for x in normal_pair(7, 3, i) {
                sum += x;
                square += x * x;
            }
            mean += (uniform(7, 1, i) + uniform(7, 2, i)) / n as f64;
        }
        assert!((sum / n as f64).abs() < 0.01);
        assert!((square / n as f64 - 1.0).abs() < 0.02);
        assert!((mean - 0.5).abs() < 0.005);
    }

    #[test]
    fn streams_and_positions_differ() {
        let draws = [uniform(1, 0, 0), uniform(1, 0, 1), uniform(1, 1, 0), uniform(2, 0, 0)];
        for (i, a) in draws.iter().enumerate() {
            assert!(draws.iter().skip(i + 1).all(|b| a != b));
        }
    }
}
