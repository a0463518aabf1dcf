//! `llm`: the model that is asked, and how.

use scrubjay_llm::LlmConfig;

use crate::loaded::Loaded;
use crate::problem::ConfigError;
use crate::section::section;
use crate::setting::{Count, Span, Token};

section! {
    /// `llm`.
    Llm {
        api_key: Option<Token>;
        base_url: String = "https://api.openai.com/v1";
        model: String = "gpt-4o-mini";
        timeout: Span<100> = "30s";
        retries: Count<0, 10> = "2";
        concurrency: Count<1, 64> = "4";
        required: bool = "false";
        allow_insecure: bool = "false";
    }
}

impl Loaded {
    /// Returns how the model is reached.
    ///
    /// # Errors
    /// Its address or the key is of no use, or there is no key where one is required.
    pub fn llm_config(&self) -> Result<LlmConfig, ConfigError> {
        let llm = &self.settings.llm;
        let config = LlmConfig {
            api_key: llm.api_key.as_ref().map(|key| key.0.clone()),
            base_url: llm.base_url.clone(),
            model: llm.model.clone(),
            timeout: llm.timeout.0,
            retries: u32::try_from(llm.retries.0).expect("the key's range ends at 10"),
            concurrency: llm.concurrency.0,
            required: llm.required,
            allow_insecure: llm.allow_insecure,
        };
        config.check().map_err(|wrong| self.wrong("llm.base_url", wrong.to_string()))?;
        if config.required && !config.is_usable() {
            let message = "asks for a key, and there is none: set OPENAI_API_KEY or llm.api_key";
            return Err(self.wrong("llm.required", message));
        }
        Ok(config)
    }
}
