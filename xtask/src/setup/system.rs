//! Which distribution this is.

use std::fs;

use crate::command;

/// What matters about the distribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// `ID` and `ID_LIKE` of os-release(5).
    ids: Vec<String>,
    /// Whether packages are installed by apt.
    pub has_apt: bool,
}

impl System {
    /// Reads /etc/os-release.
    pub fn find() -> Self {
        let release = fs::read_to_string("/etc/os-release")
            .or_else(|_| fs::read_to_string("/usr/lib/os-release"))
            .unwrap_or_default();
        Self::new(&release, command::which("apt-get").is_some())
    }

    /// The same from the file's text.
    pub fn new(release: &str, has_apt: bool) -> Self {
        let value = |line: &str| {
            let value = line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE="))?;
            Some(value.trim_matches(['"', '\'']).to_owned())
        };
        let values: Vec<String> = release.lines().filter_map(value).collect();
        let ids = values.iter().flat_map(|value| value.split_whitespace()).map(str::to_owned).collect();
        Self { ids, has_apt }
    }

    /// Whether it is this distribution or a derivative.
    pub fn is(&self, id: &str) -> bool {
        self.ids.iter().any(|known| known == id)
    }

    /// Whether the packages of Chromium and Firefox install snaps.
    pub fn browsers_are_snaps(&self) -> bool {
        self.is("ubuntu")
    }

    /// Whether rustc-web is packaged: Debian builds its browsers with it.
    pub fn packages_bpf_core(&self) -> bool {
        self.is("debian") && !self.is("ubuntu")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivatives_are_recognised() {
        let debian = System::new("PRETTY_NAME=\"Debian\"\nID=debian\n", true);
        assert!(debian.packages_bpf_core() && !debian.browsers_are_snaps());
        let mint = System::new("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", true);
        assert!(mint.browsers_are_snaps() && !mint.packages_bpf_core());
        assert!(!System::new("", false).is("debian"));
    }
}
