//! Where clients come in: standard input and output, or HTTP. Fronts carry lines; the gateway answers them.

pub mod http;
pub mod stdio;
