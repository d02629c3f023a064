//! Chat templates: messages to the text of a prompt.
//!
//! `message` is what goes in, `template` compiles and renders, `jinja` bounds
//! what that may cost, `python` makes Jinja values
//! behave as the Python ones that templates are written for, `time` is the clock they may
//! read, and `named` holds the usual template of each family.

mod jinja;
mod message;
mod named;
mod python;
mod template;
mod time;

pub use message::{Content, ContentPart, Message};
pub use named::{NamedTemplate, default_template, named_template, named_templates};
pub use template::{ChatTemplate, RenderOptions};
pub use time::LocalTime;
