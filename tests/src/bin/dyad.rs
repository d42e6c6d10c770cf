//! `dyad`, for the tests.

fn main() -> std::process::ExitCode {
    agents::cli::main()
}
