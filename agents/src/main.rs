//! The program `dyad`. It must not name the crate `agents`, which would link it with libtorch.

fn main() {
    light::main()
}
