//! Logs on standard error: for a person on a terminal, as JSON lines for a program.
//!
//! Every line passes one writer, which hides the secrets of the configuration, redacts, and escapes characters that
//! could control a terminal or forge a line. If nobody reads the log, lines are dropped instead of blocking the
//! conversation, and the next line says how many.

mod hidden_secrets;
mod log_writer;
mod mirror;

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use scrubjay_core::redact::Redactor;
use scrubjay_tape::clock;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::{Layer, Registry};

pub(crate) use self::hidden_secrets::HiddenSecrets;
use self::log_writer::{ByteSink, Format, LogWriter, Stderr};
use self::mirror::Mirror;
use scrubjay_config::{Loaded, LogLevel};

/// The logs of this process, whose level and secrets can still change.
pub(crate) struct Log {
    level: reload::Handle<Targets, Registry>,
    mirrored: reload::Handle<Targets, Registry>,
    mirror: Arc<Mirror>,
    hidden: HiddenSecrets,
}

/// Starts logging as configured, and logs the configuration's notices.
///
/// # Errors
/// Logging was started before.
pub(crate) fn init(config: &Loaded) -> anyhow::Result<Log> {
    let format = if io::stderr().is_terminal() { Format::Human } else { Format::Json };
    let (log, subscriber) = build(format, Box::new(Stderr), config);
    tracing::subscriber::set_global_default(subscriber)?;
    log.tell(config);
    Ok(log)
}

impl Log {
    /// Takes over the level and the secrets of another configuration, and logs its notices.
    pub(crate) fn adopt(&self, config: &Loaded) {
        // It fails only if the subscriber is gone, and then no line is written anyway.
        let _ = self.level.reload(targets(config.log_level()));
        if self.mirror.is_on() {
            let _ = self.mirrored.reload(targets(config.log_level()));
        }
        self.hidden.adopt(config);
        self.tell(config);
    }

    /// Passes every later line to a receiver, too, as JSON. Only the first call has an effect.
    pub(crate) fn mirror(&self, config: &Loaded, to: Box<dyn Fn(&str) + Send + Sync>) {
        if self.mirror.begin(to) {
            // It fails only if the subscriber is gone.
            let _ = self.mirrored.reload(targets(config.log_level()));
        }
    }

    /// Returns the secrets that no text may show.
    pub(crate) fn hidden(&self) -> &HiddenSecrets {
        &self.hidden
    }

    #[expect(clippy::unused_self, reason = "lines are logged only once a `Log` exists")]
    fn tell(&self, config: &Loaded) {
        for notice in &config.notices {
            tracing::warn!("{notice}");
        }
    }
}

type Subscriber = Box<dyn tracing::Subscriber + Send + Sync>;

fn build(format: Format, sink: Box<dyn ByteSink>, config: &Loaded) -> (Log, Subscriber) {
    let (hidden, redactor) = (HiddenSecrets::of(config), redactor(config));
    let writer = Arc::new(Mutex::new(LogWriter::new(format, hidden.clone(), redactor.clone(), sink)));
    let mirror = Arc::new(Mirror::new(hidden.clone(), redactor));
    let (level, handle) = reload::Layer::new(targets(config.log_level()));
    // No colours, because the writer escapes control characters. No internal errors, because they would be printed past it.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(LineWriters(writer))
        .with_ansi(false)
        .log_internal_errors(false);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        Format::Human => lines.with_timer(LocalTime).with_filter(level).boxed(),
        Format::Json => lines.json().flatten_event(true).with_timer(UtcTime).with_filter(level).boxed(),
    };
    // Silent until `mirror` is called, so that lines without a receiver cost nothing.
    let (nothing, mirrored) = reload::Layer::new(targets(LogLevel::Silent));
    let copies = tracing_subscriber::fmt::layer()
        .with_writer(LineWriters(mirror.clone()))
        .with_ansi(false)
        .log_internal_errors(false)
        .json()
        .flatten_event(true)
        .with_timer(UtcTime)
        .with_filter(nothing)
        .boxed();
    let log = Log { level: handle, mirrored, mirror, hidden };
    (log, Box::new(Registry::default().with(vec![lines, copies])))
}

/// Sets the level for each crate: our own as configured; libraries warnings and errors at most, because their lower levels
/// log headers and whole messages. `rmcp` logs messages in warnings, too, so it is limited to errors.
fn targets(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Trace => LevelFilter::TRACE,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error | LogLevel::Fatal => LevelFilter::ERROR,
        LogLevel::Silent => LevelFilter::OFF,
    };
    Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("scrubjay", level)
        .with_target("rmcp", level.min(LevelFilter::ERROR))
}

/// Makes the redactor of log lines.
fn redactor(config: &Loaded) -> Arc<Redactor> {
    // A key that cannot be read is reported where recordings need it. The log, which reports it, must work without.
    config.redactor(None).unwrap_or_else(|_| Arc::new(Redactor::standard()))
}

struct LocalTime;

impl FormatTime for LocalTime {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        let Some(now) = timestamp() else { return Ok(()) };
        write!(w, "{}", now.to_zoned(TimeZone::system()).strftime("%H:%M:%S%.3f"))
    }
}

struct UtcTime;

impl FormatTime for UtcTime {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        let Some(now) = timestamp() else { return Ok(()) };
        write!(w, "{}", now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"))
    }
}

fn timestamp() -> Option<Timestamp> {
    Timestamp::from_nanosecond(i128::from(clock::now().wall_ns)).ok()
}

/// Takes the line of an event.
trait LineSink: Send + Sync {
    fn take(&self, line: &str);
}

impl LineSink for Mutex<LogWriter> {
    fn take(&self, line: &str) {
        self.lock().unwrap_or_else(PoisonError::into_inner).write(line);
    }
}

/// Makes a writer for each event.
struct LineWriters<T>(Arc<T>);

impl<'a, T: LineSink + 'a> MakeWriter<'a> for LineWriters<T> {
    type Writer = LineBuffer<T>;

    fn make_writer(&'a self) -> LineBuffer<T> {
        LineBuffer { to: Arc::clone(&self.0), text: Vec::new() }
    }
}

/// The line of one event. The subscriber writes it in pieces; it is passed on as a whole when this is dropped.
struct LineBuffer<T: LineSink> {
    to: Arc<T>,
    text: Vec<u8>,
}

impl<T: LineSink> Write for LineBuffer<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<T: LineSink> Drop for LineBuffer<T> {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.text);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        if !text.is_empty() {
            self.to.take(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::log_writer::tests::TestSink;
    use super::*;
    use crate::cli::tests::loaded;

    fn lines(format: Format, level: &str, log: impl FnOnce(&Log)) -> Vec<String> {
        let config = loaded(&format!("log_level: {level}\nserve: {{ auth_token: canary-123456 }}"));
        let sink = TestSink::default();
        let (handle, subscriber) = build(format, Box::new(sink.clone()), &config);
        tracing::subscriber::with_default(subscriber, || log(&handle));
        sink.text().lines().map(str::to_owned).collect()
    }

    fn at_every_level() {
        tracing::trace!("a trace");
        tracing::debug!("a debug");
        tracing::info!("an info");
        tracing::warn!("a warn");
        tracing::error!("an error");
    }

    #[test]
    fn each_level_includes_the_more_severe_ones() {
        for (level, count) in
            [("trace", 5), ("debug", 4), ("info", 3), ("warn", 2), ("error", 1), ("fatal", 1), ("silent", 0)]
        {
            assert_eq!(lines(Format::Human, level, |_| at_every_level()).len(), count, "{level}");
        }
    }

    #[test]
    fn libraries_log_only_warnings_and_rmcp_only_errors() {
        let logged = lines(Format::Human, "trace", |_| {
            tracing::warn!(target: "rmcp::transport", "a whole message");
            tracing::error!(target: "rmcp::transport", "broken");
            tracing::info!(target: "hyper::proto", "headers");
            tracing::warn!(target: "hyper::proto", "odd");
            tracing::trace!(target: "scrubjay_gateway::relay", "ours");
        });
        assert_eq!(logged.len(), 3, "{logged:?}");
    }

    #[test]
    fn json_lines_are_flat_and_inert() {
        let logged = lines(Format::Json, "info", |_| {
            tracing::warn!(backend = "a\u{1b}[31m\nb\u{9b}\u{202e}\u{e0041}", "it \r\nbroke");
        });
        assert_eq!(logged.len(), 1, "{logged:?}");
        assert!(!logged[0].chars().any(char::is_control), "{logged:?}");
        let value: serde_json::Value = serde_json::from_str(&logged[0]).unwrap();
        assert_eq!(value["level"], "WARN");
        assert_eq!(value["message"], "it \r\nbroke");
        assert_eq!(value["backend"], "a\u{1b}[31m\nb\u{9b}\u{202e}\u{e0041}");
        assert!(value["timestamp"].as_str().unwrap().ends_with('Z'), "{value}");
    }

    #[test]
    fn a_value_cannot_forge_a_line() {
        let logged = lines(Format::Human, "info", |_| {
            tracing::info!(name = %"x\n12:00:00 ERROR forged", "said \u{1b}[2J{}", "y\rz");
        });
        assert_eq!(logged.len(), 1, "{logged:?}");
        assert!(!logged[0].chars().any(char::is_control), "{logged:?}");
    }

    #[test]
    fn secrets_of_the_configuration_are_hidden() {
        for format in [Format::Human, Format::Json] {
            let logged =
                lines(format, "info", |_| tracing::info!(header = "Bearer canary-123456", "canary-123456"));
            assert!(logged[0].contains("***") && !logged[0].contains("canary"), "{logged:?}");
        }
    }

    #[test]
    fn other_secrets_are_hidden() {
        for format in [Format::Human, Format::Json] {
            let logged = lines(format, "info", |_| {
                tracing::info!(
                    url = "https://user:c4n4ry@example.com/",
                    password = "c4n4ry",
                    "DB_PASSWORD=c4n4ry"
                );
            });
            assert!(logged[0].contains("[redacted:") && !logged[0].contains("c4n4ry"), "{logged:?}");
        }
    }

    #[test]
    fn a_new_configuration_is_adopted() {
        let logged = lines(Format::Human, "silent", |log| {
            at_every_level();
            log.adopt(&loaded("log_level: error\nserve: { auth_token: other-123456 }"));
            tracing::error!("now other-123456 is hidden");
        });
        assert_eq!(logged.len(), 1);
        assert!(logged[0].ends_with("now *** is hidden"), "{logged:?}");
    }

    #[test]
    fn a_mirror_gets_every_line() {
        let copies = Arc::new(Mutex::new(Vec::new()));
        let logged = lines(Format::Human, "info", |log| {
            tracing::info!("before");
            let kept = copies.clone();
            let config = loaded("log_level: info\nserve: { auth_token: canary-123456 }");
            log.mirror(&config, Box::new(move |line| kept.lock().unwrap().push(line.to_owned())));
            tracing::info!(password = "c4n4ry", backend = "a\u{202e}", "canary-123456");
            tracing::debug!("too little");
            log.adopt(&loaded("log_level: debug\nserve: { auth_token: other-123456 }"));
            tracing::debug!("other-123456 now");
        });
        assert_eq!(logged.len(), 3, "{logged:?}");
        let copies = copies.lock().unwrap();
        assert_eq!(copies.len(), 2, "{copies:?}");
        assert!(!copies.concat().contains("canary") && !copies.concat().contains("c4n4ry"), "{copies:?}");
        assert!(!copies[0].contains('\u{202e}') && copies[1].contains("*** now"), "{copies:?}");
        let value: serde_json::Value = serde_json::from_str(&copies[0]).unwrap();
        assert_eq!((&value["level"], &value["message"]), (&"INFO".into(), &"***".into()));
    }
}
