//! Browsers by the names of their executables, and where one is running.

use std::fs;

use super::role::base_name;
use super::tree::{self, Snapshot};

/// Executables of browsers: what people call each, and its files' names.
const BROWSERS: &[(&str, &[&str])] = &[
    ("chromium", &["chromium", "chromium-browser", "chrome-headless-shell", "headless_shell"]),
    ("chrome", &["chrome", "google-chrome", "google-chrome-stable"]),
    ("firefox", &["firefox", "firefox-esr", "firefox-bin"]),
    ("edge", &["msedge", "microsoft-edge"]),
    ("brave", &["brave", "brave-browser"]),
    ("opera", &["opera"]),
    ("vivaldi", &["vivaldi", "vivaldi-bin"]),
    ("librewolf", &["librewolf", "librewolf-bin"]),
];

/// Programs that browsers start beside their own executable.
const HELPERS: &[&str] = &[
    "chrome_crashpad_handler",
    "chrome-sandbox",
    "chrome-management-service",
    "crashhelper",
    "crashreporter",
    "pingsender",
    "glxtest",
    "vaapitest",
];

/// Why no running browser was found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrowserError {
    /// No process of that name.
    #[error("no running browser is called {0:?}")]
    NotRunning(String),
    /// More than one; the caller must choose by process id.
    #[error("{} browsers are called {name:?}: {}", .roots.len(), list(.roots))]
    Several {
        /// The name asked for.
        name: String,
        /// Each one's first process and its command line, as far as it helps to tell them apart.
        roots: Vec<(u32, String)>,
    },
}

fn list(roots: &[(u32, String)]) -> String {
    roots.iter().map(|(pid, line)| format!("pid {pid} ({line})")).collect::<Vec<_>>().join(", ")
}

/// Whether an executable's file name is a browser's.
pub fn is_browser(program: &[u8]) -> bool {
    BROWSERS.iter().any(|(_, programs)| programs.iter().any(|known| known.as_bytes() == program))
}

/// Whether an executable's file name is that of a program which comes with a browser.
pub fn is_helper(program: &[u8]) -> bool {
    HELPERS.iter().any(|known| known.as_bytes() == program)
}

/// The first process of the running browser called `name`: what people call it, the file name of its
/// executable, or its path.
pub fn find(name: &str) -> Result<u32, BrowserError> {
    let snapshot = Snapshot::read();
    let mut roots: Vec<u32> = snapshot
        .processes()
        .filter(|process| tree::exe(process.pid).is_some_and(|exe| is_called(&exe, name)))
        .map(|process| snapshot.browser_root(process.pid))
        .collect();
    roots.sort_unstable();
    roots.dedup();
    match *roots.as_slice() {
        [] => Err(BrowserError::NotRunning(name.to_owned())),
        [root] => Ok(root),
        _ => {
            let roots = roots.into_iter().map(|pid| (pid, command_line(pid))).collect();
            Err(BrowserError::Several { name: name.to_owned(), roots })
        }
    }
}

fn is_called(exe: &[u8], name: &str) -> bool {
    if name.contains('/') {
        return exe == name.as_bytes();
    }
    let program = base_name(exe);
    let programs = BROWSERS.iter().find(|(called, _)| *called == name).map(|(_, programs)| *programs);
    program == name.as_bytes()
        || programs.is_some_and(|known| known.iter().any(|known| known.as_bytes() == program))
}

/// The start of a process's command line, printable.
fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).replace(|c: char| c.is_control(), " ");
    text.trim_end().chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;
    use crate::processes::tests::wait_for_arguments;

    /// A copy of `sleep` under another name, so that no real browser is mistaken for the test's.
    fn start(program: &std::path::Path) -> Child {
        let child = Command::new(program).arg0("some\tname").arg("60").spawn().unwrap();
        wait_for_arguments(child.id());
        child
    }

    #[test]
    fn a_browser_is_found_by_name_or_path_unless_there_are_two() {
        let directory = tempfile::tempdir().unwrap();
        let name = format!("probe-test-browser-{}", std::process::id());
        let program = directory.path().canonicalize().unwrap().join(&name);
        fs::copy("/bin/sleep", &program).unwrap();
        assert_eq!(find(&name), Err(BrowserError::NotRunning(name.clone())));

        let mut first = start(&program);
        assert_eq!(find(&name), Ok(first.id()));
        assert_eq!(find(program.to_str().unwrap()), Ok(first.id()));

        let mut second = start(&program);
        let error = find(&name).unwrap_err();
        for child in [&mut first, &mut second] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let text = error.to_string();
        assert!(text.contains(&format!("pid {} (some name 60)", first.id())), "{text}");
        assert!(text.contains(&format!("pid {}", second.id())), "{text}");
    }

    #[test]
    fn names_that_people_use_cover_the_executables() {
        assert!(is_called(b"/usr/lib/firefox-esr/firefox-esr", "firefox"));
        assert!(is_called(b"/usr/lib/firefox-esr/firefox-esr", "firefox-esr"));
        assert!(is_called(b"/opt/google/chrome/chrome", "chrome"));
        assert!(!is_called(b"/opt/google/chrome/chrome", "chromium"));
        assert!(!is_called(b"/usr/lib/chromium/chrome_crashpad_handler", "chromium"));
        assert!(is_browser(b"chromium") && !is_browser(b"bash") && is_helper(b"crashhelper"));
    }
}
