//! `llm`: the model, and how calls to it are made.

use scrubjay_llm::{LlmConfig, Secret};

use crate::loaded::Loaded;
use crate::problem::ConfigError;
use crate::section::section;
use crate::setting::{Count, Span};

section! {
    LlmConfig {
        api_key: Option<Secret>;
        base_url: String = "https://api.openai.com/v1";
        model: String = "gpt-4o-mini";
        timeout: Span<100> = "30s";
        retries: Count<0, 10, u32> = "2";
        concurrency: Count<1, 64> = "4";
        required: bool = "false";
        allow_insecure: bool = "false";
    }
}

impl Loaded {
    /// Returns how the model is reached.
    ///
    /// # Errors
    /// Its address cannot be used, or a key is required and there is none.
    pub fn llm_config(&self) -> Result<LlmConfig, ConfigError> {
        let config = &self.settings.llm;
        config.check().map_err(|wrong| self.wrong("llm.base_url", wrong.to_string()))?;
        if config.required && !config.is_usable() {
            let message = "asks for a key, and there is none: set OPENAI_API_KEY or llm.api_key";
            return Err(self.wrong("llm.required", message));
        }
        Ok(config.clone())
    }
}
