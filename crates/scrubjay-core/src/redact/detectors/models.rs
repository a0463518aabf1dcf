//! Keys of model providers.

use super::{Detector, random, token};
use crate::redact::shape::Class;

pub(super) const ALL: &[Detector] = &[
    token("anthropic-key", &["sk-ant-"], Class::Dashed, 20..256),
    random("openai-key", &["sk-"], Class::Dashed, 20..256),
    token("huggingface-token", &["hf_", "api_org_"], Class::Alnum, 30..45),
    token("replicate-token", &["r8_"], Class::Alnum, 37..41),
    token("groq-key", &["gsk_"], Class::Alnum, 48..60),
    token("xai-key", &["xai-"], Class::Alnum, 70..90),
    token("perplexity-key", &["pplx-"], Class::Alnum, 40..64),
    token("tavily-key", &["tvly-"], Class::Dashed, 28..64),
    token("langsmith-key", &["lsv2_pt_", "lsv2_sk_"], Class::Word, 40..64),
];
