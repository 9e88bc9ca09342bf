//! Moments and lengths of time as people write them.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::{SignedDuration, Span, Timestamp, Zoned};

/// What a moment may look like, for messages.
const MOMENTS: &str = "write 10m (ago), today, yesterday, 14:30, 2026-03-01, or 2026-03-01T14:30:00Z";

/// A moment: RFC 3339; a local date, time of today, or both; `today`, `yesterday`, `now`; or how long
/// ago, such as `10m` or `2h 30m ago`.
pub fn moment(text: &str) -> Result<Timestamp, String> {
    moment_at(text.trim(), &Zoned::now())
}

fn moment_at(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let local = |moment: DateTime| moment.to_zoned(now.time_zone().clone()).map(|zoned| zoned.timestamp());
    let found = match text {
        "now" => return Ok(now.timestamp()),
        "today" => local(now.date().to_datetime(Time::midnight())),
        "yesterday" => now.date().yesterday().and_then(|date| local(date.to_datetime(Time::midnight()))),
        _ => {
            if let Ok(timestamp) = text.parse::<Timestamp>() {
                return Ok(timestamp);
            }
            if let Ok(span) = text.parse::<Span>() {
                // Both `10m` and `10m ago` mean the past.
                now.checked_sub(span.abs()).map(|zoned| zoned.timestamp())
            } else if let Ok(moment) = text.parse::<DateTime>() {
                local(moment)
            } else if let Ok(date) = text.parse::<Date>() {
                local(date.to_datetime(Time::midnight()))
            } else if let Some(time) = text.contains(':').then(|| text.parse::<Time>().ok()).flatten() {
                // `10` would be ten o'clock: more likely a unit was forgotten.
                local(now.date().to_datetime(time))
            } else {
                return Err(format!("it is no moment; {MOMENTS}"));
            }
        }
    };
    found.map_err(|error| format!("there is no such moment: {error}; {MOMENTS}"))
}

/// How long: `500ms`, `30s`, `5m`, `1h`, `1h 30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let how = "write a time such as 500ms, 30s, 5m or 1h";
    let parsed: SignedDuration =
        text.trim().parse().map_err(|_| format!("it is no length of time; {how}"))?;
    match Duration::try_from(parsed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(format!("it must be longer than nothing; {how}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In Berlin, two hours ahead of UTC.
    fn now() -> Zoned {
        "2026-07-15T12:34:56+02:00[Europe/Berlin]".parse().unwrap()
    }

    #[test]
    fn moments() {
        let at = |text: &str| moment_at(text, &now()).unwrap().to_string();
        assert_eq!(at("2026-03-01T12:00:00Z"), "2026-03-01T12:00:00Z");
        assert_eq!(at("2026-03-01T12:00:00+01:00"), "2026-03-01T11:00:00Z");
        assert_eq!(at("now"), "2026-07-15T10:34:56Z");
        assert_eq!(at("10m"), "2026-07-15T10:24:56Z");
        assert_eq!(at("10m ago"), "2026-07-15T10:24:56Z");
        assert_eq!(at("1h 30m"), "2026-07-15T09:04:56Z");
        assert_eq!(at("2d"), "2026-07-13T10:34:56Z");
        assert_eq!(at("today"), "2026-07-14T22:00:00Z");
        assert_eq!(at("yesterday"), "2026-07-13T22:00:00Z");
        assert_eq!(at("08:15"), "2026-07-15T06:15:00Z");
        assert_eq!(at("2026-07-01"), "2026-06-30T22:00:00Z");
        assert_eq!(at("2026-07-01 10:00"), "2026-07-01T08:00:00Z");
        for wrong in ["", "soon", "10", "2026-13-01", "25:00", "-", "9999999999999y"] {
            assert!(moment_at(wrong, &now()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("5m"), Ok(Duration::from_mins(5)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_mins(90)));
        for wrong in ["", "5", "0s", "-5s", "5s ago", "5 parsecs"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
