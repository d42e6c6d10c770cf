//! Output of a run for people: JSON lines of logs and transcripts, and their readers.

mod appender;
mod earned;
mod growing;
pub(crate) mod lines;
mod newest;
pub(crate) mod numbers;
mod oldest;
mod printable;
mod prompt_text;
mod reader;
mod reward_bound;
mod token_records;
mod transcripts;
mod view;

pub use appender::Appender;
pub use earned::{Compared, Credited, Earned, EarnedPart};
pub(crate) use growing::Growing;
pub(crate) use newest::Newest;
pub(crate) use oldest::Oldest;
pub use printable::{one_line, printable};
pub use prompt_text::prompt_text;
pub use reader::{Tail, read_json_lines};
pub use reward_bound::RewardBound;
pub use token_records::{
    RecordedTurn, TokenOutcome, TokenRecord, TokenRecords, TokenSpan, TokenTraining, TurnTraining, tokens_of,
};
pub use transcripts::{Transcript, TranscriptTurn, Transcripts, TurnTime, conversations_of, find_conversation};
pub use view::{CONVERSATION, LogFilter, LogLine, render_line};
