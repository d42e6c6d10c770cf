//! The program `dyad-full`.

fn main() {
    agents::cli::main()
}
