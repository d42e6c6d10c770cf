//! Greek letters as characters and as names.

/// Names of the letters from alpha to omega, with the final sigma in its place.
const NAMES: [&str; 25] = [
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi",
    "omicron", "pi", "rho", "sigma", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
];
/// Capital letters that LaTeX has.
const CAPITALS: [(char, &str); 10] = [
    ('Γ', "Gamma"),
    ('Δ', "Delta"),
    ('Θ', "Theta"),
    ('Λ', "Lambda"),
    ('Ξ', "Xi"),
    ('Σ', "Sigma"),
    ('Φ', "Phi"),
    ('Ψ', "Psi"),
    ('Ω', "Omega"),
    ('Π', "Pi"),
];

/// Returns the name of a Greek letter.
pub(crate) fn name(c: char) -> Option<&'static str> {
    match c {
        'α'..='ω' => NAMES.get(u32::from(c) as usize - u32::from('α') as usize).copied(),
        'ϕ' => Some("phi"),
        'ϵ' => Some("epsilon"),
        'µ' => Some("mu"),
        c => CAPITALS.iter().find(|(sign, _)| *sign == c).map(|(_, name)| *name),
    }
}

/// Returns true for the name of a small Greek letter.
pub(crate) fn is_name(word: &str) -> bool {
    NAMES.contains(&word)
}
