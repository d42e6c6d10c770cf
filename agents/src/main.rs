//! `dyad`

fn main() {
    agents::cli::main()
}
