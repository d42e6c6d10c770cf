//! Named faults, each injected into a run of separate processes over a real RabbitMQ and Redis.
//! Nothing is lost, nothing is counted twice, and the run continues on its own after the fault.

mod machines;
mod processes;
mod servers;

use std::time::Duration;

use tests::chaos::World;

const PATIENCE: Duration = Duration::from_secs(120);

fn world(coordinators: usize) -> World {
    World::with(crate::DYAD, coordinators, &[])
}

fn world_with_own_rabbit() -> World {
    World::alone(crate::DYAD, 2, &[])
}
