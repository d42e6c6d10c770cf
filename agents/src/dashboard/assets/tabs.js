// The curated charts: six questions, and the figures that answer them.

const chart = (title, names, about) => ({ title, names: names.split(" "), about });

export const TABS = {
  learning: ["Learning", [
    chart("Reward in training", "train:reward/mean", "mean over the samples of a batch"),
    chart("Evaluated success", "eval:success eval:*/success", "mean over tasks"),
    chart("Evaluated reward", "eval:reward/*", "mean over tasks"),
    chart("Groups without a difference in reward", "train:advantage/zero_share", "share of groups"),
    chart("Size of advantages", "train:advantage/abs"), chart("Loss", "train:loss"),
    chart("Entropy", "train:loss/entropy", "nats per token"),
    chart("KL to the reference", "train:loss/reference_kl", "nats"),
    chart("Spread of rewards", "train:reward/std")]],
  game: ["Game", [
    chart("Success in training", "conversations:success"),
    chart("Reward by role", "conversations:reward/avg/*", "mean over seats"),
    chart("Parts of rewards", "train:part/*", "before their weights"),
    chart("Turns", "conversations:multi_agent/avg_turns", "mean per conversation"),
    chart("Tokens of a conversation", "conversations:multi_agent/conversation_token_count"),
    chart("Ended early", "conversations:multi_agent/early_termination_rate", "share of conversations"),
    chart("Cut off by a token limit", "conversations:multi_agent/truncation_rate", "share of conversations"),
    chart("Trained tokens by role", "conversations:loss_mask/role_split/*", "share"),
    chart("Failed conversations", "coordinator:conversations/failed", "total")]],
  stability: ["Stability", [
    chart("Gradient norm", "train:optim/grad_norm", "before clipping"),
    chart("Clipped tokens", "train:loss/clipped", "share"),
    chart("Largest ratio", "train:loss/ratio_max"),
    chart("KL to the weights that sampled", "train:mismatch/behaviour_kl", "nats"),
    chart("Engine against trainer, equal weights", "train:mismatch/on_policy_gap", "below 1e-4"),
    chart("Engine against trainer, other weights", "train:mismatch/off_policy_gap"),
    chart("Learning rate", "train:optim/lr"),
    chart("Skipped optimizer steps", "train:optim/skipped", "the gradient was not finite")]],
  staleness: ["Staleness", [
    chart("Mean staleness", "train:staleness/mean", "age of a sample's oldest token, steps"),
    chart("Largest staleness", "train:staleness/max", "steps"),
    chart("Stale tokens", "train:tokens/stale", "per batch"),
    chart("Discarded samples", "train:discarded/*", "per batch, by reason"),
    chart("Results that came too late", "coordinator:results/stale", "total")]],
  throughput: ["Throughput", [
    chart("Conversations per second", "coordinator:time/conversations_per_s", "since the start"),
    chart("Turns per second", "coordinator:time/turns_per_s", "since the start"),
    chart("Time of a step", "train:time/wait_s train:time/train_s", "seconds: waiting, training"),
    chart("Parts of a step", "train:time/old_logprobs_s train:time/forward_backward_s train:time/optimizer_s"
      + " train:time/publish_s train:time/checkpoint_s train:time/ledger_s", "seconds"),
    chart("Groups that waited for the batch", "train:time/groups_waiting"),
    chart("Tokens of a batch", "train:tokens"), chart("Trained tokens of a batch", "train:tokens/trained"),
    chart("Samples of a batch", "train:samples"),
    chart("Agents held for evaluations", "eval:time/held_s", "seconds")]],
  collapse: ["Collapse", [
    chart("Repetition within answers", "train:collapse/repetition", "share"),
    chart("Equal answers within a group", "train:collapse/sameness", "share"),
    chart("Figures outside train.alarms", "train:collapse/alarms"),
    chart("Figures below eval.floors", "eval:collapse/alarms"),
    chart("Tokens of a sample", "train:tokens/per_sample", "mean"),
    chart("Truncated samples", "train:samples/truncated", "per batch"),
    chart("Entropy", "train:loss/entropy", "nats per token")]],
};
