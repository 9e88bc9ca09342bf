//! What part a process plays in its session, by its executable and arguments.

use super::browsers;

/// The part of a process in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A browser's first process.
    Main,
    /// Runs web content: Chromium's renderers, Firefox's tabs and extensions.
    Content,
    /// Draws.
    Gpu,
    /// Speaks to the network.
    Network,
    /// Chromium's storage service.
    Storage,
    /// Another service of a browser.
    Utility,
    /// Zygotes, fork servers, crash handlers.
    Helper,
    /// The process that a session was made for.
    Command,
    /// A descendant of it.
    Child,
    /// A kernel thread.
    Kernel,
    /// Whatever else runs on the system.
    Other,
}

impl Role {
    /// The role's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Content => "content",
            Self::Gpu => "gpu",
            Self::Network => "network",
            Self::Storage => "storage",
            Self::Utility => "utility",
            Self::Helper => "helper",
            Self::Command => "command",
            Self::Child => "child",
            Self::Kernel => "kernel",
            Self::Other => "other",
        }
    }
}

/// Where a process stands in its session; its role if it is no part of a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The session was made for it.
    Root,
    /// It belongs to the session of another.
    Member,
    /// It belongs to no session but the whole system's.
    System,
}

/// The role of a user process.
pub fn role(exe: Option<&[u8]>, args: &[Vec<u8>], comm: &[u8], standing: Standing) -> Role {
    let program = exe.or(args.first().map(Vec::as_slice)).map(base_name).unwrap_or_default();
    let words = words(args);
    if let Some(role) = chromium(&words).or_else(|| firefox(&words, comm)) {
        return role;
    }
    if browsers::is_helper(program) {
        return Role::Helper;
    }
    if browsers::is_browser(program) {
        return Role::Main;
    }
    match standing {
        Standing::Root => Role::Command,
        Standing::Member => Role::Child,
        Standing::System => Role::Other,
    }
}

/// The last component of a path.
pub(crate) fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Arguments, where a child of Chromium wrote all of its own into the first one, with spaces between.
fn words(args: &[Vec<u8>]) -> Vec<&[u8]> {
    match args {
        [title] => title.split(|byte| *byte == b' ').collect(),
        args => args.iter().map(Vec::as_slice).collect(),
    }
}

/// Chromium's children have `--type=…` as their first switch, and a service's name as the second.
fn chromium(words: &[&[u8]]) -> Option<Role> {
    let mut switches = words.iter().skip(1).filter(|word| word.starts_with(b"--"));
    let kind = switches.next()?.strip_prefix(b"--type=")?;
    match kind {
        b"renderer" => Some(Role::Content),
        b"gpu-process" => Some(Role::Gpu),
        b"utility" => {
            let service =
                switches.find_map(|word| word.strip_prefix(b"--utility-sub-type=")).unwrap_or_default();
            Some(match service.split(|byte| *byte == b'.').next() {
                Some(b"network") => Role::Network,
                Some(b"storage") => Role::Storage,
                _ => Role::Utility,
            })
        }
        b"zygote" | b"broker" | b"crashpad-handler" | b"sandbox-ipc" => Some(Role::Helper),
        _ => None,
    }
}

/// Firefox's children have `-contentproc` as their first argument and their kind as the last, where
/// it may be cut off: then other arguments and the name of the thread must do.
fn firefox(words: &[&[u8]], comm: &[u8]) -> Option<Role> {
    if *words.get(1)? != b"-contentproc" {
        return None;
    }
    let by_kind = match *words.last()? {
        b"tab" => Some(Role::Content),
        b"socket" => Some(Role::Network),
        b"gpu" => Some(Role::Gpu),
        b"rdd" | b"utility" | b"vr" | b"gmplugin" => Some(Role::Utility),
        b"forkserver" => Some(Role::Helper),
        _ => None,
    };
    by_kind.or_else(|| {
        let has = |argument: &[u8]| words.contains(&argument);
        Some(match comm {
            _ if has(b"-isForBrowser") => Role::Content,
            _ if has(b"-sandboxingKind") => Role::Utility,
            b"Socket Process" => Role::Network,
            b"GPU Process" => Role::Gpu,
            b"RDD Process" | b"Utility Process" => Role::Utility,
            _ => Role::Helper,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(exe: &str, line: &str, comm: &str, standing: Standing) -> Role {
        let args: Vec<Vec<u8>> = line.split('|').map(|arg| arg.as_bytes().to_vec()).collect();
        role(Some(exe.as_bytes()), &args, comm.as_bytes(), standing)
    }

    #[test]
    fn chromium_tells_its_children_by_type() {
        let exe = "/usr/lib/chromium/chromium";
        for (line, expected) in [
            ("/usr/lib/chromium/chromium|--headless|--user-data-dir=/tmp/p|about:blank", Role::Main),
            ("/usr/lib/chromium/chromium --type=zygote --no-zygote-sandbox --headless", Role::Helper),
            ("/usr/lib/chromium/chromium --type=gpu-process --gpu-recent-crash-count=0", Role::Gpu),
            (
                "/usr/lib/chromium/chromium --type=utility --utility-sub-type=network.mojom.NetworkService --lang=en-US",
                Role::Network,
            ),
            (
                "/usr/lib/chromium/chromium --type=utility --utility-sub-type=storage.mojom.StorageService --lang=en-US",
                Role::Storage,
            ),
            (
                "/usr/lib/chromium/chromium|--type=utility|--utility-sub-type=audio.mojom.AudioService",
                Role::Utility,
            ),
            ("/usr/lib/chromium/chromium --type=renderer --top-chrome-webui", Role::Content),
        ] {
            assert_eq!(of(exe, line, "chromium", Standing::Member), expected, "{line}");
        }
        let exe = "/usr/lib/chromium/chrome_crashpad_handler";
        assert_eq!(of(exe, "x|--monitor-self", "chrome_crashpad", Standing::Member), Role::Helper);
    }

    #[test]
    fn firefox_tells_its_children_by_their_last_argument() {
        let exe = "/usr/lib/firefox-esr/firefox-esr";
        for (line, comm, expected) in [
            ("firefox-esr|--headless|--profile|/tmp/p|about:blank", "firefox-esr", Role::Main),
            (
                "firefox-esr|-contentproc|-parentBuildID|1|-appDir|/b|1|socket",
                "Socket Process",
                Role::Network,
            ),
            ("firefox-esr|-contentproc|-ipcHandle|0|-signalPipe|1|2|forkserver", "forkserver", Role::Helper),
            ("firefox-esr|-contentproc|-isForBrowser|-appDir|/b|6|tab", "Isolated Web Co", Role::Content),
            ("firefox-esr|-contentproc|-parentBuildID|1|4|rdd", "RDD Process", Role::Utility),
            ("firefox-esr|-contentproc|-sandboxingKind|0|8|utility", "Utility Process", Role::Utility),
            (
                "firefox-esr -contentproc -isForBrowser -prefsHandle 0:27189 3 tab",
                "WebExtensions",
                Role::Content,
            ),
            ("firefox-esr|-contentproc|-isForBrowser|-greomni|/usr/lib/fire", "IndexedDB #2", Role::Content),
            ("firefox-esr|-contentproc|-parentBuildID|1|-appD", "Socket Process", Role::Network),
        ] {
            assert_eq!(of(exe, line, comm, Standing::Member), expected, "{line}");
        }
        let exe = "/usr/lib/firefox-esr/crashhelper";
        assert_eq!(of(exe, "crashhelper|15669", "crashhelper", Standing::Member), Role::Helper);
    }

    #[test]
    fn everything_else_goes_by_its_standing() {
        for (standing, expected) in [
            (Standing::Root, Role::Command),
            (Standing::Member, Role::Child),
            (Standing::System, Role::Other),
        ] {
            assert_eq!(of("/bin/dd", "dd|conv=fsync|--type=renderer.png", "dd", standing), expected);
            assert_eq!(role(None, &[], b"x", standing), expected);
        }
        assert_eq!(of("/usr/bin/ls", "ls|--type=dir", "ls", Standing::Root), Role::Command);
    }
}
