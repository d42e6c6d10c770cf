//! The program `dyad`.

fn main() {
    agents::cli::light::main()
}
