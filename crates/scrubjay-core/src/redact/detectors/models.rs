//! Keys of model providers.

use super::{Detector, random, token};
use crate::redact::shape::ByteClass;

pub(super) const ALL: &[Detector] = &[
    token("anthropic-key", &["sk-ant-"], ByteClass::Dashed, 20..256),
    random("openai-key", &["sk-"], ByteClass::Dashed, 20..256),
    token("huggingface-token", &["hf_", "api_org_"], ByteClass::Alnum, 30..45),
    token("replicate-token", &["r8_"], ByteClass::Alnum, 37..41),
    token("groq-key", &["gsk_"], ByteClass::Alnum, 48..60),
    token("xai-key", &["xai-"], ByteClass::Alnum, 70..90),
    token("perplexity-key", &["pplx-"], ByteClass::Alnum, 40..64),
    token("tavily-key", &["tvly-"], ByteClass::Dashed, 28..64),
    token("langsmith-key", &["lsv2_pt_", "lsv2_sk_"], ByteClass::Word, 40..64),
];
