//! Which of a finished group's conversations are written down.

use broker::ids::GroupId;
use configs::TranscriptPolicy;
use rollout::group::{Assembled, MemberEnd};

use super::actor::{Coordinator, Open, Purpose};
use crate::logs::Transcript;
use crate::telling::{Comparisons, Teller};

impl Coordinator {
    /// Writes the transcripts of a group's conversations, as far as the configuration wants them. `assembled` is what a group
    /// that is trained on was decided to be.
    pub(super) fn tell(
        &self,
        group: GroupId,
        open: &Open,
        members: &[MemberEnd],
        step: u64,
        assembled: Option<&Assembled>,
    ) {
        let wanted = match (self.env.config.run.transcripts, open.purpose) {
            (_, Purpose::Eval | Purpose::Suite { greedy: true, .. }) | (TranscriptPolicy::All, _) => members.len(),
            (TranscriptPolicy::First, _) => 1,
            (TranscriptPolicy::None, _) => 0,
        };
        if wanted == 0 {
            return;
        }
        let agents = &self.env.config.agents;
        let comparisons = assembled.map_or_else(Comparisons::default, |decided| Comparisons::of(agents, decided));
        let teller = Teller {
            config: &self.env.config.workflow,
            host: self.host_of(open.purpose),
            rules: &self.rules,
            comparisons: &comparisons,
        };
        for (member, end) in members.iter().take(wanted).enumerate() {
            let about = Transcript {
                conversation: format!("{group}/{member}"),
                task: open.task_id.clone(),
                prompt: serde_json::to_value(&open.task.prompt).unwrap_or_default(),
                label: open.task.label.clone(),
                step,
                eval: open.purpose != Purpose::Train,
                ..Transcript::default()
            };
            self.transcripts.write(&teller.tell(about, member as u16, end));
        }
    }
}
