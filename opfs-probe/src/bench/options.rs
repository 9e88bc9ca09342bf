//! The parameters of the OPFS benchmark, checked before a browser starts by the page's own rules
//! (`page/plan.js`), and handed to the page as its query.

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

/// A named set of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preset {
    /// A minute or two a browser.
    #[default]
    Quick,
    /// The numbers for publication.
    Full,
}

impl Preset {
    /// Its name in commands and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

impl FromStr for Preset {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        match text {
            "quick" => Ok(Self::Quick),
            "full" => Ok(Self::Full),
            _ => Err(OptionError(format!("no preset {text:?}: there are quick and full"))),
        }
    }
}

/// A parameter that makes no sense, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(String);

/// What the user wants other than the preset has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Small writes a pass.
    pub n: Option<u64>,
    /// Bytes of a small write.
    pub s: Option<u64>,
    /// Measured passes.
    pub runs: Option<u64>,
    /// Files of new-file a pass.
    pub m: Option<u64>,
    /// Bytes of the larger writes.
    pub chunks: Option<Vec<u64>>,
    /// Names of workloads; all if none are named.
    pub workloads: Vec<String>,
}

/// Parameters that the page will accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    preset: Preset,
    n: u64,
    s: u64,
    runs: u64,
    m: u64,
    chunks: Vec<u64>,
    workloads: Vec<String>,
}

const MEBIBYTE: u64 = 1024 * 1024;
const MAX_CALLS: u64 = 1_000_000;
const MAX_RUNS: u64 = 100;
const MAX_FILES: u64 = 100_000;
const MAX_WRITE_BYTES: u64 = 64 * MEBIBYTE;
const MAX_CHUNK_BYTES: u64 = 256 * MEBIBYTE;
const MAX_CHUNKS: usize = 8;
const MAX_FILE_BYTES: u64 = 4096 * MEBIBYTE;
/// The longest that a page waits before it starts.
pub const MAX_SETTLE: Duration = Duration::from_hours(1);

const CHUNKED: &str = "chunked-append";
const NEW_FILE: &str = "new-file";
const WORKLOADS: [&str; 5] = ["small-append", "small-overwrite", CHUNKED, "append+flush", NEW_FILE];

/// A workload's share in a progress bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadPlan {
    /// The name of its window.
    pub name: String,
    /// Passes, the warm-up included.
    pub passes: u64,
    /// Timed calls in a pass.
    pub calls: u64,
    /// Whether each call announces windows of its own (the steps of new-file).
    pub announces_calls: bool,
}

impl Parameters {
    /// A preset with changes, or why the page would refuse it.
    pub fn new(preset: Preset, overrides: &Overrides) -> Result<Self, OptionError> {
        let (n, runs, m) = match preset {
            Preset::Quick => (2000, 3, 200),
            Preset::Full => (10_000, 5, 1000),
        };
        let chunks = overrides.chunks.clone().unwrap_or_else(|| vec![64 * 1024, MEBIBYTE]);
        let parameters = Self {
            preset,
            n: within("--n", overrides.n.unwrap_or(n), MAX_CALLS)?,
            s: within("--s", overrides.s.unwrap_or(4096), MAX_WRITE_BYTES)?,
            runs: within("--runs", overrides.runs.unwrap_or(runs), MAX_RUNS)?,
            m: within("--m", overrides.m.unwrap_or(m), MAX_FILES)?,
            workloads: choose_workloads(&overrides.workloads, &chunks)?,
            chunks,
        };
        parameters.check()?;
        Ok(parameters)
    }

    fn check(&self) -> Result<(), OptionError> {
        let fail = |text| Err(OptionError(text));
        for (index, chunk) in self.chunks.iter().enumerate() {
            within("--chunks", *chunk, MAX_CHUNK_BYTES)?;
            if self.chunks[..index].contains(chunk) {
                return fail(format!("--chunks names {} twice", size(*chunk)));
            }
        }
        if self.chunks.len() > MAX_CHUNKS {
            return fail(format!("--chunks names {} sizes: {MAX_CHUNKS} are the most", self.chunks.len()));
        }
        if self.file_bytes() > MAX_FILE_BYTES {
            let (is, most) = (size(self.file_bytes()), size(MAX_FILE_BYTES));
            return fail(format!("--n times --s is {is} a file: {most} is the most; choose a smaller one"));
        }
        for plan in self.plan() {
            if plan.calls > MAX_CALLS {
                return fail(format!(
                    "{} would take {} calls a pass: {MAX_CALLS} are the most",
                    plan.name, plan.calls
                ));
            }
        }
        Ok(())
    }

    fn file_bytes(&self) -> u64 {
        self.n * self.s
    }

    /// The workloads in the order in which the page runs them.
    pub fn plan(&self) -> Vec<WorkloadPlan> {
        let calls = |name: &str| match self.chunks.iter().find(|chunk| name == chunked(**chunk)) {
            Some(chunk) => self.file_bytes().div_ceil(*chunk),
            None if name == NEW_FILE => self.m,
            None => self.n,
        };
        self.workloads
            .iter()
            .map(|name| WorkloadPlan {
                name: name.clone(),
                passes: self.runs + 1,
                calls: calls(name),
                announces_calls: name == NEW_FILE,
            })
            .collect()
    }

    /// The page's query: these parameters, started by itself after `settle`, its window closed at the end.
    pub fn query(&self, settle: Duration) -> String {
        let chunks: Vec<String> = self.chunks.iter().map(u64::to_string).collect();
        let mut query = format!(
            "preset={}&n={}&s={}&r={}&m={}&autorun=1&close=1&settle={}",
            self.preset.name(),
            self.n,
            self.s,
            self.runs,
            self.m,
            settle.min(MAX_SETTLE).as_secs()
        );
        for (name, value) in [("chunks", chunks.join(",")), ("workloads", self.workloads.join(","))] {
            let _ = write!(query, "&{name}={}", encode(&value));
        }
        query
    }
}

/// "4096", "4 KiB" or "1MiB" in bytes.
pub fn parse_size(text: &str) -> Result<u64, OptionError> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "kib" => Some(1024),
        "mib" => Some(MEBIBYTE),
        _ => None,
    };
    let value =
        text[..digits].parse().ok().zip(unit).and_then(|(count, unit): (u64, u64)| count.checked_mul(unit));
    value.ok_or_else(|| OptionError(format!("{text:?} is no size: write 4096, 4KiB or 1MiB")))
}

/// A size in the largest binary unit that divides it, as the page names chunked workloads.
pub fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= MEBIBYTE && bytes.is_multiple_of(MEBIBYTE) => format!("{} MiB", bytes / MEBIBYTE),
        _ if bytes >= 1024 && bytes.is_multiple_of(1024) => format!("{} KiB", bytes / 1024),
        _ => format!("{bytes} B"),
    }
}

fn chunked(bytes: u64) -> String {
    format!("{CHUNKED} ({})", size(bytes))
}

fn within(name: &str, value: u64, most: u64) -> Result<u64, OptionError> {
    if (1..=most).contains(&value) {
        return Ok(value);
    }
    Err(OptionError(format!("{name} {value}: it must be from 1 to {most}")))
}

fn choose_workloads(chosen: &[String], chunks: &[u64]) -> Result<Vec<String>, OptionError> {
    let expand = |name: &str| match name {
        CHUNKED => chunks.iter().copied().map(chunked).collect(),
        _ => vec![name.to_owned()],
    };
    let known: Vec<String> = WORKLOADS.into_iter().flat_map(expand).collect();
    if chosen.is_empty() {
        return Ok(known);
    }
    for name in chosen {
        if !expand(name).iter().all(|name| known.contains(name)) {
            return Err(OptionError(format!("no workload {name:?}: there are {}", WORKLOADS.join(", "))));
        }
    }
    let named: Vec<String> = chosen.iter().flat_map(|name| expand(name)).collect();
    Ok(known.into_iter().filter(|name| named.contains(name)).collect())
}

/// Percent-encodes what RFC 3986 doesn't leave unreserved; a bare `+` would be read as a space.
fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Overrides)) -> Result<Parameters, OptionError> {
        let mut overrides = Overrides::default();
        change(&mut overrides);
        Parameters::new(Preset::Quick, &overrides)
    }

    #[test]
    fn a_preset_is_handed_to_the_page_in_its_words() {
        let query = with(|_| {}).unwrap().query(Duration::from_secs(8));
        assert_eq!(
            query,
            "preset=quick&n=2000&s=4096&r=3&m=200&autorun=1&close=1&settle=8&chunks=65536%2C1048576\
             &workloads=small-append%2Csmall-overwrite%2Cchunked-append%20%2864%20KiB%29%2C\
             chunked-append%20%281%20MiB%29%2Cappend%2Bflush%2Cnew-file"
        );
    }

    #[test]
    fn workloads_keep_their_order_and_are_counted() {
        let chosen = with(|o| {
            o.workloads = vec!["new-file".into(), "chunked-append".into()];
            o.n = Some(20);
        });
        let plan = chosen.unwrap().plan();
        let names: Vec<&str> = plan.iter().map(|plan| plan.name.as_str()).collect();
        assert_eq!(names, ["chunked-append (64 KiB)", "chunked-append (1 MiB)", "new-file"]);
        assert_eq!(plan.iter().map(|plan| plan.calls).collect::<Vec<_>>(), [2, 1, 200]);
        assert!(plan[2].announces_calls && plan[2].passes == 4);
    }

    #[test]
    fn what_the_page_would_refuse_is_refused_before() {
        let says = |result: Result<Parameters, OptionError>, word: &str| {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        };
        says(with(|o| o.n = Some(0)), "--n 0");
        says(with(|o| o.runs = Some(101)), "100");
        says(with(|o| o.chunks = Some(vec![1024, 1024])), "twice");
        says(with(|o| o.chunks = Some((1..=9).collect())), "8 are the most");
        says(with(|o| (o.n, o.s) = (Some(1_000_000), Some(MEBIBYTE))), "a file");
        says(with(|o| o.chunks = Some(vec![1])), "calls a pass");
        says(with(|o| o.workloads = vec!["sort".into()]), "small-append");
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("4 KiB"), Ok(4096));
        assert_eq!(parse_size("1mib"), Ok(MEBIBYTE));
        assert_eq!(parse_size("17"), Ok(17));
        for wrong in ["", "KiB", "4 GB", "-1", "99999999999999999999", "18446744073709551615MiB", "1é"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!((size(MEBIBYTE), size(1000)), ("1 MiB".into(), "1000 B".into()));
    }
}
