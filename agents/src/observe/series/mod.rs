//! Every series of a process, by subject. Labels hold names of the configuration and words of the
//! code: no task, group, conversation or text.

pub(crate) mod engine;
mod idle;
pub(crate) mod messages;
pub(crate) mod play;
pub(crate) mod process;
pub(crate) mod standing;
pub(crate) mod training;

use super::table::SeriesTable;
use engine::EngineSeries;
use messages::{BusSeries, HttpSeries};
use play::PlaySeries;
use process::ProcessSeries;
use standing::StandingSeries;
use training::TrainingSeries;

/// The series of a process. A process of `dyad run` has those of agents and coordinator.
pub(crate) struct AllSeries {
    pub(crate) process: ProcessSeries,
    pub(crate) standing: StandingSeries,
    pub(crate) training: TrainingSeries,
    pub(crate) engine: EngineSeries,
    pub(crate) play: PlaySeries,
    pub(crate) bus: BusSeries,
    pub(crate) http: HttpSeries,
}

impl AllSeries {
    pub(crate) fn register(table: &mut SeriesTable) -> Self {
        Self {
            process: ProcessSeries::register(table),
            standing: StandingSeries::register(table),
            training: TrainingSeries::register(table),
            engine: EngineSeries::register(table),
            play: PlaySeries::register(table),
            bus: BusSeries::register(table),
            http: HttpSeries::register(table),
        }
    }
}
