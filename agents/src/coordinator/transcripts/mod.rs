//! Which of a finished group's conversations are written down.

pub mod builder;
pub mod compared;
use broker::ids::GroupId;
use configs::TranscriptPolicy;
use rollout::group::{Assembled, MemberEnd};

use crate::coordinator::actor::{Coordinator, Open, Purpose};
use crate::coordinator::transcripts::builder::{Comparisons, Teller};
use crate::run_folder::logs::Transcript;

impl Coordinator {
    /// Writes the transcripts of a group that is trained on, and was decided to be `assembled`.
    pub(in crate::coordinator) fn tell(&self, group: GroupId, open: &Open, members: &[MemberEnd], step: u64, assembled: &Assembled) {
        let told = self.told(group, open, members, step, Some(assembled));
        told.iter().for_each(|one| self.transcripts.write(one));
    }

    /// Writes those of the evaluation under way. They wait for as long as it may turn out that another coordinator has begun it too:
    /// who gives it up then writes none.
    pub(in crate::coordinator) fn tell_eval(&mut self, group: GroupId, open: &Open, members: &[MemberEnd], step: u64) {
        let told = self.told(group, open, members, step, None);
        let ours = self.eval_is_ours();
        let Some(current) = self.evals.current.as_mut() else {
            return;
        };
        current.untold.extend(told);
        if ours {
            current.untold.drain(..).for_each(|one| self.transcripts.write(&one));
        }
    }

    /// A group's conversations, as far as the configuration wants them written.
    fn told(
        &self,
        group: GroupId,
        open: &Open,
        members: &[MemberEnd],
        step: u64,
        assembled: Option<&Assembled>,
    ) -> Vec<Transcript> {
        let wanted = match (self.env.config.run.transcripts, open.purpose) {
            (_, Purpose::Eval | Purpose::Suite { greedy: true, .. }) | (TranscriptPolicy::All, _) => members.len(),
            (TranscriptPolicy::First, _) => 1,
            (TranscriptPolicy::None, _) => 0,
        };
        if wanted == 0 {
            return Vec::new();
        }
        let agents = &self.env.config.agents;
        let comparisons = assembled.map_or_else(Comparisons::default, |decided| Comparisons::of(agents, decided));
        let teller = Teller {
            config: &self.env.config.workflow,
            host: self.host_of(open.purpose),
            rules: &self.rules,
            comparisons: &comparisons,
        };
        let one = |(member, end): (usize, &MemberEnd)| {
            let about = Transcript {
                conversation: format!("{group}/{member}"),
                task: open.task_id.clone(),
                prompt: serde_json::to_value(&open.task.prompt).unwrap_or_default(),
                label: open.task.label.clone(),
                step,
                eval: open.purpose != Purpose::Train,
                ..Transcript::default()
            };
            teller.tell(about, member as u16, end)
        };
        members.iter().take(wanted).enumerate().map(one).collect()
    }
}
