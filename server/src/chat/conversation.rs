//! Messages so far, and the next answer.

use std::path::Path;

use kvant_engine::sampler::SamplerOptions;
use kvant_text::{Content, Message};

use super::prompt::ChatPrompt;
use super::stop::StopFlag;
use crate::error::CliError;
use crate::generate::{Answer, Ask, Timings, generate};
use crate::sampling::{SamplerArgs, fresh_seed};
use crate::session::Session;
use crate::terminal;

/// A conversation with a model. Nothing of it is ever dropped but by [`Conversation::clear`].
pub(super) struct Conversation {
    session: Session,
    prompt: ChatPrompt,
    /// What the model's files recommend.
    recommended: SamplerOptions,
    /// What the user says instead.
    pub(super) sampler: SamplerArgs,
    system: Option<String>,
    messages: Vec<Message>,
    max_tokens: Option<usize>,
    last: Option<Timings>,
}

impl Conversation {
    pub(super) fn new(
        session: Session,
        prompt: ChatPrompt,
        recommended: SamplerOptions,
        sampler: SamplerArgs,
        system: Option<String>,
        max_tokens: Option<usize>,
    ) -> Self {
        Self {
            session,
            prompt,
            recommended,
            sampler,
            system,
            messages: Vec::new(),
            max_tokens,
            last: None,
        }
    }

    /// Asks and answers. The turn is kept, with an answer that was stopped as far as it came; a turn
    /// that failed leaves no trace.
    pub(super) fn ask(
        &mut self,
        question: String,
        on_text: &mut dyn FnMut(&str) -> Result<(), CliError>,
        stop: &StopFlag,
    ) -> Result<Answer, CliError> {
        self.messages.push(Message::new("user", question));
        let answer = self.answer(on_text, stop);
        match &answer {
            Ok(answer) => {
                self.messages
                    .push(Message::new("assistant", answer.text.trim()));
                self.last = Some(answer.timings);
            }
            Err(_) => {
                self.messages.pop();
            }
        }
        answer
    }

    fn answer(
        &mut self,
        on_text: &mut dyn FnMut(&str) -> Result<(), CliError>,
        stop: &StopFlag,
    ) -> Result<Answer, CliError> {
        let prompt = self
            .prompt
            .tokens(&self.session.tokenizer, &self.all_messages())?;
        let context_len = self.session.engine.options().context_len;
        let Some(room) = context_len
            .checked_sub(prompt.len())
            .filter(|room| *room > 0)
        else {
            let error = CliError::PromptTooLong {
                prompt_tokens: prompt.len(),
                context_len,
            };
            if self.messages.len() == 1 {
                return Err(error);
            }
            return Err(CliError::Failed(format!(
                "{error}, or type /clear to forget the conversation"
            )));
        };
        let ask = Ask {
            prompt,
            sampler: self.sampler_options()?,
            stop_tokens: self.session.tokenizer.end_of_generation().to_vec(),
            stops: Vec::new(),
            max_tokens: self.max_tokens.map_or(room, |max| max.min(room)),
        };
        generate(&mut self.session, ask, on_text, &|| stop.is_set())
    }

    /// The system message and all turns.
    fn all_messages(&self) -> Vec<Message> {
        let system = self.system.iter().map(|text| Message::new("system", text));
        system.chain(self.messages.iter().cloned()).collect()
    }

    fn sampler_options(&self) -> Result<SamplerOptions, CliError> {
        let mut options = self.recommended.clone();
        self.sampler.apply(&mut options)?;
        options.seed = options.seed.or_else(|| Some(fresh_seed()));
        Ok(options)
    }

    /// The sampler's settings, for people.
    pub(super) fn settings(&self) -> String {
        let mut options = self.recommended.clone();
        if let Err(error) = self.sampler.apply(&mut options) {
            return error.to_string();
        }
        let seed = options
            .seed
            .map_or_else(|| "new each time".to_owned(), |seed| seed.to_string());
        format!(
            "temperature {}, top_k {}, top_p {}, min_p {}, typical_p {}, repetition_penalty {}, presence_penalty {}, frequency_penalty {}, dry_multiplier {}, seed {seed}",
            options.temperature,
            options.top_k,
            options.top_p,
            options.min_p,
            options.typical_p,
            options.repetition_penalty,
            options.presence_penalty,
            options.frequency_penalty,
            options.dry.multiplier,
        )
    }

    /// Forgets all turns, not the system message.
    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.last = None;
    }

    /// Sets or removes the system message and forgets all turns: they were made under another one.
    pub(super) fn set_system(&mut self, text: &str) {
        self.system = Some(text.to_owned()).filter(|text| !text.is_empty());
        self.clear();
    }

    /// Numbers of the last answer, and how full the context is.
    pub(super) fn stats(&self) -> String {
        let context_len = self.session.engine.options().context_len;
        let Some(last) = self.last else {
            return format!("no answer yet; the context holds {context_len} tokens");
        };
        format!(
            "prompt {} tokens at {:.1} a second, answer {} tokens at {:.1} a second; {} of {context_len} tokens of context in use",
            last.prompt_tokens,
            last.prefill_rate(),
            last.decode_tokens + 1,
            last.decode_rate(),
            last.prompt_tokens + last.decode_tokens + 1,
        )
    }

    /// Writes the conversation as a JSON list of messages.
    pub(super) fn save(&self, path: &Path) -> Result<usize, CliError> {
        let messages = self.all_messages();
        let text = serde_json::to_string_pretty(&messages)
            .map_err(|error| CliError::Failed(format!("cannot write JSON: {error}")))?;
        std::fs::write(path, text + "\n")
            .map_err(|source| CliError::file("write", path, source))?;
        Ok(messages.len())
    }

    /// Goes on with a conversation that was saved. This one stays as it is on error.
    pub(super) fn load(&mut self, path: &Path) -> Result<usize, CliError> {
        let text = terminal::read_text(path)?;
        let mut messages: Vec<Message> = serde_json::from_str(&text).map_err(|error| {
            CliError::Failed(format!(
                "{} is not a JSON list of messages with role and content: {error}",
                path.display()
            ))
        })?;
        let n_messages = messages.len();
        let system = match messages.first() {
            Some(Message {
                role,
                content: Content::Text(text),
                ..
            }) if role == "system" => Some(text.clone()),
            _ => None,
        };
        if system.is_some() {
            messages.remove(0);
        }
        self.clear();
        self.system = system;
        self.messages = messages;
        Ok(n_messages)
    }
}
