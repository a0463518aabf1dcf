//! The commands with which people read recordings: lists, conversations, errors, totals.

mod listing;
mod removing;
mod showing;
mod terminal;
