//! The transports on which clients connect: standard input and output, or HTTP. A front carries messages; the gateway
//! answers them.

pub mod http;
pub mod stdio;
