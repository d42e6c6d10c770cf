//! The program `dyad`.

fn main() {
    agents::cli::main()
}
