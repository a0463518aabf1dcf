//! When a call is retried, and after how long. Pure: it knows neither the time nor the network.

use std::time::Duration;

/// The wait before the first retry; each later one doubles it.
const FIRST: Duration = Duration::from_millis(250);
/// The longest of our own waits.
const LONGEST: Duration = Duration::from_secs(8);

/// Returns how long to wait before the next attempt, or nothing if there is to be none.
///
/// `attempt` counts from 0. What the endpoint asked for (`Retry-After`) is honoured in full: an earlier attempt would
/// only be refused again. `jitter` takes up to a quarter off our own waits, so that processes that failed together do
/// not retry together.
pub(crate) fn wait(
    attempt: u32,
    retries: u32,
    retry_after: Option<Duration>,
    left: Duration,
    jitter: u8,
) -> Option<Duration> {
    if attempt >= retries {
        return None;
    }
    let ours = FIRST.saturating_mul(1 << attempt.min(16)).min(LONGEST);
    let ours = ours - ours / 1024 * u32::from(jitter);
    let wait = retry_after.unwrap_or(ours);
    // A wait beyond the deadline would end in a time-out; the error that we have says more.
    (wait < left).then_some(wait)
}

/// Parses `retry-after-ms`, which OpenAI sends, or else `Retry-After`; a date there counts as absent.
pub(crate) fn retry_after(milliseconds: Option<&str>, seconds: Option<&str>) -> Option<Duration> {
    let number = |text: Option<&str>, unit: f64| {
        let seconds = text?.trim().parse::<f64>().ok()? * unit;
        Duration::try_from_secs_f64(seconds).ok()
    };
    number(milliseconds, 0.001).or_else(|| number(seconds, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn waits_double_up_to_a_limit() {
        let ms = |attempt| wait(attempt, 99, None, MINUTE, 0).unwrap().as_millis();
        assert_eq!([ms(0), ms(1), ms(2), ms(5), ms(40)], [250, 500, 1000, 8000, 8000]);
        let least = wait(0, 1, None, MINUTE, 255).unwrap().as_millis();
        assert!((187..200).contains(&least), "{least}");
    }

    #[test]
    fn retries_end_with_their_number_and_with_the_time() {
        assert_eq!(wait(2, 2, None, MINUTE, 0), None);
        assert_eq!(wait(0, 2, None, Duration::from_millis(250), 0), None);
        assert_eq!(wait(0, 2, Some(MINUTE), MINUTE, 0), None);
        let asked = Duration::from_secs(30);
        assert_eq!(wait(0, 2, Some(asked), MINUTE, 200), Some(asked));
    }

    #[test]
    fn the_requested_wait_is_parsed() {
        assert_eq!(retry_after(None, Some("2")), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(Some("20"), Some("2")), Some(Duration::from_millis(20)));
        for odd in ["", "-1", "NaN", "inf", "1e300", "Fri, 31 Dec 1999 23:59:59 GMT"] {
            assert_eq!(retry_after(Some(odd), Some(odd)), None, "{odd}");
        }
    }
}
