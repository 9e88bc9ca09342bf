//! How many instructions each kernel's verifier looked at per program, held against a committed budget.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::programs::Programs;
use super::{series, this_release};
use crate::command::Root;
use crate::workspace::Workspace;

/// The instructions verified under one kernel, by program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Of kernels, as [`series`] has it.
    series: String,
    programs: BTreeMap<String, u64>,
}

impl Counts {
    /// From the output of `opfs-probe doctor --json`.
    pub fn parse(release: &str, doctor: &[u8]) -> Result<Self> {
        let found: Value = serde_json::from_slice(doctor).context("the doctor's answer is no JSON")?;
        let programs = found["programs"].as_array().into_iter().flatten().filter_map(|program| {
            Some((program["name"].as_str()?.to_owned(), program["verified_instructions"].as_u64()?))
        });
        let programs: BTreeMap<String, u64> = programs.collect();
        if programs.is_empty() {
            bail!("the doctor could load no program: {}", found["probes_problem"]);
        }
        Ok(Self { series: series(release), programs })
    }
}

/// The counts under the kernel that runs here, if programs may be loaded.
pub fn of_this_kernel(programs: &Programs) -> Result<Option<Counts>> {
    let root = Root::find();
    if root == Root::No {
        eprintln!("this kernel's verifier is not asked: neither root nor a usable sudo");
        return Ok(None);
    }
    let mut doctor = root.command(&programs.probe.to_string_lossy())?;
    let output = doctor.args(["doctor", "--json"]).stderr(Stdio::inherit()).output();
    let output = output.context("opfs-probe did not start")?;
    Counts::parse(&this_release()?, &output.stdout).map(Some)
}

/// How many instructions may be verified: by program, then by series of kernels.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Budget {
    programs: BTreeMap<String, BTreeMap<String, u64>>,
}

const FILE: &str = "xtask/verifier-budget.txt";

const HEADER: &str = "\
# How many instructions the verifier may look at, by kernel program and series of kernels.
# `cargo xtask test-kernels` fails on more, and with --update-budget writes what it saw and a tenth more.
";

impl Budget {
    /// Prints the counts beside their budget, and gives what is over it, in words.
    pub fn check(workspace: &Workspace, counts: &[Counts], update: bool) -> Result<Vec<String>> {
        let file: PathBuf = workspace.root.join(FILE);
        let mut budget = Self::parse(&fs::read_to_string(&file).unwrap_or_default())
            .with_context(|| format!("{FILE} can't be read"))?;
        if update {
            budget.update(counts);
            fs::write(&file, budget.render()).with_context(|| format!("{FILE} can't be written"))?;
        }
        println!("\nInstructions verified, of how many budgeted:\n{}", budget.table(counts));
        Ok(budget.exceeded(counts))
    }

    /// A header line of series, then a line a program; `-` where there is none.
    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let all_series: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().skip(1).collect();
        let mut programs: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for line in lines {
            let mut words = line.split_whitespace();
            let limits = programs.entry(words.next().unwrap_or_default().to_owned()).or_default();
            for (series, word) in all_series.iter().zip(words).filter(|(_, word)| *word != "-") {
                let limit = word.parse().with_context(|| format!("`{word}` is no number in `{line}`"))?;
                limits.insert((*series).to_owned(), limit);
            }
        }
        Ok(Self { programs })
    }

    fn render(&self) -> String {
        let all = sorted(self.programs.values().flat_map(BTreeMap::keys));
        HEADER.to_owned()
            + &columns(self.programs.keys(), &all, |program, series| shown(self.limit(program, series)))
    }

    /// Programs that are gone lose their line; kernels that were not asked keep their column.
    fn update(&mut self, counts: &[Counts]) {
        let seen: BTreeSet<&String> = counts.iter().flat_map(|counts| counts.programs.keys()).collect();
        self.programs.retain(|program, _| seen.contains(program));
        for Counts { series, programs } in counts {
            for (program, count) in programs {
                let limits = self.programs.entry(program.clone()).or_default();
                limits.insert(series.clone(), with_headroom(*count));
            }
        }
    }

    fn limit(&self, program: &str, series: &str) -> Option<u64> {
        self.programs.get(program)?.get(series).copied()
    }

    /// Whether a series has any budget. The kernel that runs here may be one that nobody measured.
    fn knows(&self, series: &str) -> bool {
        self.programs.values().any(|limits| limits.contains_key(series))
    }

    fn exceeded(&self, counts: &[Counts]) -> Vec<String> {
        let mut over = Vec::new();
        for Counts { series, programs } in counts.iter().filter(|counts| self.knows(&counts.series)) {
            for (program, count) in programs {
                match self.limit(program, series) {
                    Some(limit) if *count <= limit => {}
                    Some(limit) => over.push(format!(
                        "{program} on {series}: {count} instructions verified, {limit} budgeted; make it \
                         cheaper, or give it more by --update-budget"
                    )),
                    None => over.push(format!(
                        "{program} on {series}: {count} instructions verified, none budgeted; see --update-budget"
                    )),
                }
            }
        }
        over
    }

    fn table(&self, counts: &[Counts]) -> String {
        let by_series: BTreeMap<&str, &BTreeMap<String, u64>> =
            counts.iter().map(|counts| (counts.series.as_str(), &counts.programs)).collect();
        let programs: BTreeSet<&String> = by_series.values().flat_map(|programs| programs.keys()).collect();
        columns(programs, &sorted(counts.iter().map(|counts| &counts.series)), |program, series| {
            let count = by_series[series].get(program).copied();
            format!("{} of {}", shown(count), shown(self.limit(program, series)))
        })
    }
}

fn shown(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// What was seen and a tenth more, to the next ten: room for another compiler, not for another loop.
fn with_headroom(count: u64) -> u64 {
    (count + count / 10).next_multiple_of(10)
}

/// Oldest first: 6.1, 6.12, 6.18.
fn sorted<'a>(series: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut all: Vec<&String> = series.collect::<BTreeSet<_>>().into_iter().collect();
    all.sort_by_key(|series| {
        series.split('.').filter_map(|number| number.parse().ok()).collect::<Vec<u32>>()
    });
    all
}

fn columns<'a>(
    programs: impl IntoIterator<Item = &'a String>,
    all_series: &[&String],
    cell: impl Fn(&str, &str) -> String,
) -> String {
    let mut text = format!("{:<24}", "program");
    // Writing to a string can't fail, here and below.
    for series in all_series {
        let _ = write!(text, " {series:>16}");
    }
    text.push('\n');
    for program in programs {
        let _ = write!(text, "{program:<24}");
        for series in all_series {
            let _ = write!(text, " {:>16}", cell(program, series));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(release: &str, programs: &[(&str, u64)]) -> Counts {
        let programs = programs.iter().map(|(name, count)| ((*name).to_owned(), *count));
        Counts { series: series(release), programs: programs.collect() }
    }

    #[test]
    fn counts_are_read_from_the_doctor() {
        let doctor = br#"{"programs": [{"name": "a", "verified_instructions": 12},
            {"name": "b", "verified_instructions": null}]}"#;
        assert_eq!(Counts::parse("6.1.0-57-cloud-amd64", doctor).unwrap(), counts("6.1", &[("a", 12)]));
        assert!(Counts::parse("6.1", br#"{"programs": []}"#).is_err());
    }

    #[test]
    fn growth_over_the_budget_is_named() {
        let mut budget = Budget::default();
        budget.update(&[counts("6.1.0-57", &[("a", 100), ("b", 7)]), counts("6.12.1", &[("a", 200)])]);
        assert_eq!(budget.limit("a", "6.1"), Some(110));
        assert!(budget.exceeded(&[counts("6.1", &[("a", 110)])]).is_empty());
        let over = budget.exceeded(&[counts("6.1", &[("a", 111), ("new", 1)])]);
        assert!(over[0].starts_with("a on 6.1: 111 instructions verified, 110 budgeted"));
        assert!(over[1].starts_with("new on 6.1"));
        // Nobody measured this one.
        assert!(budget.exceeded(&[counts("5.15", &[("a", 9_999)])]).is_empty());
    }

    #[test]
    fn a_budget_is_read_as_it_is_written() {
        let mut budget = Budget::default();
        budget.update(&[counts("6.12", &[("a", 100), ("b", 7)]), counts("6.1", &[("a", 200)])]);
        let written = budget.render();
        assert_eq!(Budget::parse(&written).unwrap(), budget);
        assert!(written.starts_with(HEADER));
        let header = written.lines().nth(2).unwrap();
        assert_eq!(header.split_whitespace().collect::<Vec<_>>(), ["program", "6.1", "6.12"]);
        // What is gone goes, and what was not asked stays.
        budget.update(&[counts("6.1", &[("a", 10)])]);
        assert_eq!((budget.limit("b", "6.12"), budget.limit("a", "6.12")), (None, Some(110)));
        assert!(Budget::parse("program 6.1\na many").is_err());
    }
}
