//! What this process may do, by its effective capabilities: being root is neither needed nor enough.

use std::collections::HashSet;
use std::fs;

use anyhow::{Result, bail};
use caps::{CapSet, Capability};

/// A capability, what it is for, and whether this process has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// `CAP_BPF`
    pub name: &'static str,
    /// What it is needed for.
    pub purpose: &'static str,
    /// Whether nothing is counted without it; others only make reports better.
    pub vital: bool,
    /// Whether the process has it, or another that includes it.
    pub held: bool,
}

struct Wanted {
    capability: Capability,
    name: &'static str,
    purpose: &'static str,
    vital: bool,
    /// It includes this one (`capabilities(7)`).
    included_in: Option<Capability>,
}

const WANTED: [Wanted; 4] = [
    Wanted {
        capability: Capability::CAP_BPF,
        name: "CAP_BPF",
        purpose: "loads programs into the kernel",
        vital: true,
        included_in: Some(Capability::CAP_SYS_ADMIN),
    },
    Wanted {
        capability: Capability::CAP_PERFMON,
        name: "CAP_PERFMON",
        purpose: "attaches them, and lets them read what the kernel knows of files and processes",
        vital: true,
        included_in: Some(Capability::CAP_SYS_ADMIN),
    },
    Wanted {
        capability: Capability::CAP_SYS_PTRACE,
        name: "CAP_SYS_PTRACE",
        purpose: "names the programs and files of other users' processes that ran before",
        vital: false,
        included_in: None,
    },
    Wanted {
        capability: Capability::CAP_DAC_READ_SEARCH,
        name: "CAP_DAC_READ_SEARCH",
        purpose: "reads tracefs and other users' /proc",
        vital: false,
        included_in: Some(Capability::CAP_DAC_OVERRIDE),
    },
];

/// Every capability that is of use here.
pub fn privileges() -> Vec<Privilege> {
    judge(&effective())
}

/// The vital ones that are missing.
pub fn missing() -> Vec<&'static str> {
    privileges().iter().filter(|one| one.vital && !one.held).map(|one| one.name).collect()
}

/// Fails with what is missing if programs can't be loaded.
pub fn require() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "can't load programs into the kernel: this process lacks {}; use sudo, and see `opfs-probe doctor`",
        missing.join(" and ")
    )
}

/// Whether the process is in a user namespace: its capabilities don't reach the kernel's programs.
pub fn in_user_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !maps_everything(&map))
}

fn effective() -> HashSet<Capability> {
    // Unreadable counts as none: whatever needs one then says so.
    caps::read(None, CapSet::Effective).unwrap_or_default().into_iter().collect()
}

fn judge(effective: &HashSet<Capability>) -> Vec<Privilege> {
    let held = |wanted: &Wanted| {
        [Some(wanted.capability), wanted.included_in].iter().flatten().any(|one| effective.contains(one))
    };
    WANTED
        .iter()
        .map(|wanted| Privilege {
            name: wanted.name,
            purpose: wanted.purpose,
            vital: wanted.vital,
            held: held(wanted),
        })
        .collect()
}

/// The initial namespace's map is `0 0 4294967295` (`user_namespaces(7)`).
fn maps_everything(uid_map: &str) -> bool {
    let numbers: Vec<&str> = uid_map.split_whitespace().collect();
    numbers == ["0", "0", "4294967295"]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking(effective: &[Capability]) -> Vec<&'static str> {
        let held = effective.iter().copied().collect();
        judge(&held).iter().filter(|one| !one.held).map(|one| one.name).collect()
    }

    #[test]
    fn capabilities_count_and_larger_ones_include_others() {
        use Capability::*;
        assert_eq!(lacking(&[]), ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"]);
        assert_eq!(lacking(&[CAP_SYS_ADMIN]), ["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"]);
        assert_eq!(lacking(&[CAP_BPF, CAP_SYS_PTRACE, CAP_DAC_OVERRIDE]), ["CAP_PERFMON"]);
        assert_eq!(lacking(&[CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH]), [] as [&str; 0]);
    }

    #[test]
    fn only_the_initial_namespace_maps_everything() {
        assert!(maps_everything("         0          0 4294967295\n"));
        assert!(!maps_everything("         0       1000          1\n"));
        assert!(!maps_everything(""));
    }
}
