//! Reading recordings as a person does: conversations, what was asked, what went wrong, and how much there is.

mod listing;
mod removing;
mod showing;
mod terminal;
