//! Opens a folder's tokenizer and chat template.

use std::path::Path;

use configs::{AgentConfig, Date};
use tokenizers::Tokenizer;

use super::TextCodec;
use crate::reasoning::Mark;
use crate::text::folder::Folder;
use crate::text::guard::Guard;
use crate::text::opening::Opening;
use crate::text::skeletons::SkeletonCache;
use crate::text::template::{CLOCK, ChatTemplate};
use crate::text::{TextError, loaded};

impl TextCodec {
    /// Opens a folder with tokenizer.json and tokenizer_config.json (or chat_template.jinja). A
    /// generation_config.json is read too if it exists.
    pub fn open(folder: &Path) -> Result<Self, TextError> {
        Self::open_with(folder, None, &toml::Table::new())
    }

    /// Opens a folder with an agent's settings for its chat template: the file of `chat_template`,
    /// the variables of `template_args` and the day of `template_date`.
    pub fn open_for(folder: &Path, agent: &AgentConfig) -> Result<Self, TextError> {
        let date = agent.template_date.map(Date::seconds);
        let own = agent.chat_template.as_deref();
        let codec = Self::open_own(folder, own, date, &agent.template_args)?;
        if date.is_some() && !codec.template.names(CLOCK)? {
            tracing::warn!("the model's chat template never asks for the date: template_date has no effect");
        }
        Ok(codec)
    }

    /// Opens a folder for templates that write today's date. `now` is that time, in seconds since
    /// 1970.
    pub fn open_at(folder: &Path, now: i64) -> Result<Self, TextError> {
        Self::open_with(folder, Some(now), &toml::Table::new())
    }

    pub(in crate::text) fn open_with(folder: &Path, now: Option<i64>, args: &toml::Table) -> Result<Self, TextError> {
        Self::open_own(folder, None, now, args)
    }

    /// Opens a folder. The file `own`, if given, replaces its chat templates.
    fn open_own(folder: &Path, own: Option<&Path>, now: Option<i64>, args: &toml::Table) -> Result<Self, TextError> {
        let (mut tokenizer, alphabet) = loaded::tokenizer(folder)?;
        let files = Folder::read(folder, own)?;
        loaded::complete(&mut tokenizer, folder, &files)?;
        let Folder {
            template,
            tool_use,
            texts,
            eos,
            ..
        } = files;
        let named: Vec<u32> = texts
            .eos
            .iter()
            .filter_map(|text| tokenizer.token_to_id(text))
            .collect();
        let template = ChatTemplate::new(&template, texts.clone(), now)?;
        let template = template.with_tool_use(tool_use.as_deref())?.with_args(args)?;
        let added = tokenizer.get_added_tokens_decoder();
        let mut control: Vec<u32> = added
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| *id)
            .collect();
        control.extend(eos.iter().chain(&named));
        let spelled = |id: &u32| tokenizer.id_to_token(*id);
        let (all, special) = (
            added.values().map(|t| t.content.clone()),
            control.iter().filter_map(spelled),
        );
        let (all, special) = (Guard::new(all.chain(special.clone())), Guard::new(special));
        let vocab = tokenizer
            .get_vocab(true)
            .values()
            .max()
            .map_or(0, |id| *id as usize + 1);
        let close = spell(&tokenizer, Mark::Close.text()).unwrap_or_default();
        let mut codec = Self {
            tokenizer,
            template,
            control,
            stop: Vec::new(),
            end_of_turn: None,
            vocab,
            alphabet,
            all,
            special,
            opening: Opening::default(),
            close,
            marks: Vec::new(),
            skeletons: SkeletonCache::default(),
        };
        let unknown = texts.unk.as_deref().and_then(|text| codec.tokenizer.token_to_id(text));
        codec.control.retain(|id| Some(*id) != unknown);
        codec.control.sort_unstable();
        codec.control.dedup();
        codec.end_of_turn = codec
            .bridge(&[], false)?
            .first()
            .copied()
            .filter(|id| codec.is_control(*id));
        for id in codec.end_of_turn.into_iter().chain(named).chain(eos) {
            if !codec.stop.contains(&id) {
                codec.stop.push(id);
            }
        }
        codec.marks = codec.control_marks();
        // Some templates reject a lone question. Then no opening is known.
        codec.opening = codec.find_opening().unwrap_or_default();
        Ok(codec)
    }
}

/// Returns the ids of a text, if they decode to exactly that text.
fn spell(tokenizer: &Tokenizer, text: &str) -> Option<Vec<u32>> {
    let ids = tokenizer.encode_fast(text, false).ok()?.get_ids().to_vec();
    (tokenizer.decode(&ids, false).ok()? == text).then_some(ids)
}
