//! Renders prompts to ids outside the actors. On a long prompt, template and tokenizer take
//! milliseconds, which would block an actor.
//!
//! Rendering is a function of the prompt, so it may run on any thread and in any order.
//! [`super::inbox`] passes the frames on in the order of their arrival.

use std::sync::{Arc, Mutex, Once, PoisonError};

use broker::ids::Digest;
use broker::protocol::turn::{Message, TurnPrompt};
use configs::History;
use futures_util::future::join_all;
use rollout::text::Speech;
use tokio::sync::Semaphore;

use super::recent::{Bounds, Recent};

/// Limits of the cache of rendered messages. The cache helps because a group's conversations begin
/// alike in every frame.
const REMEMBERED: Bounds = Bounds {
    entries: 4096,
    bytes: 16 << 20,
};
/// The amount of work, in bytes as [`work`] counts it, below which a frame is rendered inline. This
/// takes less than 0.1 ms; another thread costs more.
const TINY: usize = 1 << 10;
/// The amount of work, in the same bytes, below which a frame is rendered in one piece.
const SMALL: usize = 8 << 10;

/// The ids that a generation starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    pub ids: Arc<[u32]>,
    /// The length of the common beginning of `ids` and the prompt's held ids.
    pub kept: usize,
}

/// Renders on blocking threads, at most as many at once as there are cores.
pub struct Renderer {
    text: Arc<dyn Speech>,
    history: History,
    known: Mutex<Recent<Digest, Arc<[u32]>>>,
    cores: usize,
    free: Semaphore,
    /// Completed once the chat template was checked for tools.
    looked: Once,
}

impl Renderer {
    #[must_use]
    pub fn new(text: Arc<dyn Speech>, history: History) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Arc::new(Self {
            text,
            history,
            known: Mutex::new(Recent::new(REMEMBERED)),
            cores,
            free: Semaphore::new(cores),
            looked: Once::new(),
        })
    }

    /// Returns the ids of each prompt, or the reason it has none, in the order of the prompts.
    pub async fn render(self: &Arc<Self>, prompts: Arc<[TurnPrompt]>) -> Vec<Result<Rendered, String>> {
        let text: usize = prompts.iter().map(work).sum();
        if text < TINY {
            return prompts.iter().map(|prompt| self.one(prompt)).collect();
        }
        let parts = if text < SMALL { 1 } else { self.cores.min(prompts.len()) };
        let part = |part: usize| {
            let (this, prompts) = (self.clone(), prompts.clone());
            let range = part * prompts.len() / parts..(part + 1) * prompts.len() / parts;
            async move {
                let _core = this.free.acquire().await;
                let here = this.clone();
                let render = move || prompts[range].iter().map(|prompt| here.one(prompt)).collect::<Vec<_>>();
                // A panic in the task ends the process before the missing result matters.
                tokio::task::spawn_blocking(render).await.unwrap_or_default()
            }
        };
        join_all((0..parts).map(part)).await.into_iter().flatten().collect()
    }

    fn one(&self, prompt: &TurnPrompt) -> Result<Rendered, String> {
        if prompt
            .messages
            .first()
            .is_some_and(|first| first.role == Message::TOOLS)
        {
            self.looked.call_once(|| {
                if !self.text.lists_tools() {
                    tracing::warn!(
                        "the model's chat template lists no tools: the model must know its tools from training or from the prompt"
                    );
                }
            });
        }
        let new = self.new_ids(prompt.held.is_empty(), &prompt.messages)?;
        let ids: Arc<[u32]> = self.text.join(prompt, &new, self.history).into();
        let kept = if ids.starts_with(&prompt.held) {
            prompt.held.len()
        } else {
            ids.iter().zip(&prompt.held).take_while(|(a, b)| a == b).count()
        };
        Ok(Rendered { ids, kept })
    }

    fn new_ids(&self, first: bool, messages: &[Message]) -> Result<Arc<[u32]>, String> {
        let key = key(first, messages);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ids) = known().get(&key) {
            return Ok(ids.clone());
        }
        let made = self.text.render_new(first, messages);
        let ids: Arc<[u32]> = made.map_err(|error| error.to_string())?.into();
        known().put(key, ids.clone(), size_of_val(&*ids));
        Ok(ids)
    }
}

/// Returns the bytes of the messages plus 128, which stand for the fixed cost of a template.
fn work(prompt: &TurnPrompt) -> usize {
    128 + prompt.messages.iter().map(Message::bytes).sum::<usize>()
}

/// Returns a digest of `first` and the messages. The length of each text is part of the digest, so
/// different lists have different digests.
fn key(first: bool, messages: &[Message]) -> Digest {
    let mut bytes = vec![u8::from(first)];
    for Message { role, content, images } in messages {
        bytes.extend((images.len() as u64).to_le_bytes());
        bytes.extend(images.iter().flat_map(|image| image.at.to_le_bytes()));
        let urls = images.iter().map(|image| &image.url);
        for text in [role, content].into_iter().chain(urls) {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
    }
    Digest::of(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use configs::TokenizerConfig;
    use rollout::text::TextCodec;

    fn codec() -> TextCodec {
        let folder = tempfile::tempdir().unwrap();
        rollout::text::make::write_tokenizer(folder.path(), &TokenizerConfig::Bytes).unwrap();
        TextCodec::open(folder.path()).unwrap()
    }

    fn renderer(history: History) -> Arc<Renderer> {
        Renderer::new(Arc::new(codec()), history)
    }

    fn prompt(held: &[u32], messages: &[(&str, &str)]) -> TurnPrompt {
        TurnPrompt {
            held: held.to_vec(),
            // The prompt had two tokens.
            sampled: held.len().saturating_sub(2) as u32,
            messages: messages
                .iter()
                .map(|(role, content)| Message::new(*role, *content))
                .collect(),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rendering_matches_the_codec_whatever_was_rendered_before() {
        let (renderer, codec) = (renderer(History::Keep), codec());
        let long = "x".repeat(SMALL);
        let (spoken, other) = ([104, 105, 257], [7, 8, 9, 10]);
        let prompts: Arc<[TurnPrompt]> = [
            prompt(&[], &[("user", &long)]),
            prompt(&spoken, &[("user", &long)]),
            prompt(&other, &[("user", &long)]),
            prompt(&[], &[("user", "a"), ("user", "b")]),
            prompt(&[], &[("stranger", "a")]),
            prompt(&other, &[]),
            prompt(&[], &[("user", "ab")]),
        ]
        .into();
        for round in 0..2 {
            let rendered = renderer.render(prompts.clone()).await;
            assert_eq!(rendered.len(), prompts.len());
            for (prompt, rendered) in prompts.iter().zip(rendered) {
                let expected = codec.render(prompt, History::Keep);
                assert_eq!(rendered.clone().map(|r| r.ids.to_vec()).ok(), expected.ok(), "{round}");
                if let Ok(rendered) = rendered {
                    assert_eq!(rendered.kept, prompt.held.len());
                }
            }
        }
        assert!(renderer.render(Arc::from([])).await.is_empty());
    }

    #[tokio::test]
    async fn kept_counts_the_held_ids_that_remain() {
        let renderer = renderer(History::StripReasoning);
        let ids = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
        let held = ids("12<think>345</think>6");
        let prompts: Arc<[TurnPrompt]> = [prompt(&held, &[("user", "7")]), prompt(&ids("12"), &[("user", "7")])].into();
        let rendered: Vec<Rendered> = renderer.render(prompts).await.into_iter().map(Result::unwrap).collect();
        assert_eq!((rendered[0].kept, rendered[1].kept), (2, 2));
        assert_eq!(rendered[0].ids[..3], ids("126"));
    }
}
