//! Runs `dyad` for the tests.

fn main() {
    agents::cli::main()
}
