//! Everything that needs libtorch: model, engine, losses, optimizer, checkpoints.
