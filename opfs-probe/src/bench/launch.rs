//! The command line that starts a browser for a measurement: nothing of its user's, nothing from the
//! network, its sandbox as it is.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::browser::{Browser, Family};
use super::profile::Profile;
use super::user::BrowserUser;
use super::wrapper::Packaging;
use crate::strace::command::Strace;

/// How to start it.
#[derive(Debug)]
pub struct Launch<'a> {
    /// What.
    pub browser: &'a Browser,
    /// As whom.
    pub user: &'a BrowserUser,
    /// In which profile.
    pub profile: &'a Profile,
    /// On which page.
    pub url: &'a str,
    /// With a window on the screen.
    pub headed: bool,
    /// Under strace, writing there.
    pub strace: Option<(&'a Strace, &'a Path)>,
}

/// Keeps Chromium from doing anything that it isn't asked for.
const CHROMIUM_QUIET: [&str; 13] = [
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--metrics-recording-only",
    "--disable-breakpad",
    "--password-store=basic",
    // A headed window in the background would be slowed down.
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// What a browser may know of its surroundings; the rest of the environment would make one run
/// differ from the next.
const ENVIRONMENT: [&str; 4] = ["PATH", "LANG", "LC_ALL", "TZ"];
/// What it takes to open a window.
const HEADED_ENVIRONMENT: [&str; 5] =
    ["DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

impl Launch<'_> {
    /// The command, its output going to `log`. It leads a process group of its own, so that a Ctrl-C
    /// on our terminal doesn't end it before we do.
    pub fn command(&self, log: &File) -> io::Result<Command> {
        let mut words = self.words();
        // strace must stay root: a browser's sandboxed processes can be read by nobody else. So the
        // change of user happens below it.
        let traced_switch = self.strace.is_some() && self.user.switch;
        if traced_switch {
            let switch = [
                "setpriv",
                "--reuid",
                &self.user.uid.to_string(),
                "--regid",
                &self.user.gid.to_string(),
                "--clear-groups",
                "--",
            ]
            .map(OsString::from);
            words.splice(0..0, switch);
        }
        if let Some((strace, output)) = self.strace {
            let strace = if self.user.may_make_namespaces() {
                strace.clone()
            } else {
                strace.clone().letting_gain_privileges()
            };
            words.splice(0..0, strace.over_command(output));
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.profile.home()).process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
        if self.user.switch && !traced_switch {
            // The standard library also drops the supplementary groups then.
            command.uid(self.user.uid).gid(self.user.gid);
        }
        command.env_clear().envs(self.environment());
        Ok(command)
    }

    fn words(&self) -> Vec<OsString> {
        let mut words = match &self.browser.packaging {
            Packaging::Flatpak(app) => vec![
                OsString::from("flatpak"),
                "run".into(),
                joined("--filesystem=", self.profile.root()),
                app.into(),
            ],
            Packaging::Native | Packaging::Snap(_) => vec![self.browser.executable.clone().into_os_string()],
        };
        match self.browser.family {
            Family::Chromium => words.extend(self.chromium_words()),
            Family::Firefox => words.extend(self.firefox_words()),
        }
        words.push(self.url.into());
        words
    }

    fn chromium_words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![joined("--user-data-dir=", &self.profile.profile())];
        words.extend(CHROMIUM_QUIET.iter().map(OsString::from));
        if !self.headed {
            words.extend(["--headless", "--disable-gpu"].map(OsString::from));
        }
        if self.user.is_root() {
            words.push("--no-sandbox".into());
        }
        words
    }

    fn firefox_words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            vec!["--no-remote".into(), "--profile".into(), self.profile.profile().into()];
        if !self.headed {
            words.push("--headless".into());
        }
        words
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let headed = if self.headed { &HEADED_ENVIRONMENT[..] } else { &[] };
        let mut environment: Vec<(OsString, OsString)> = ENVIRONMENT
            .iter()
            .chain(headed)
            .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)))
            .collect();
        let mut set = |name: &str, value: PathBuf| environment.push((name.into(), value.into()));
        // Snap looks for its own directories in the user's home.
        let snap_home =
            matches!(self.browser.packaging, Packaging::Snap(_)).then(|| self.user.home()).flatten();
        set("HOME", snap_home.map_or_else(|| self.profile.home(), PathBuf::from));
        set("TMPDIR", self.profile.temporary());
        // A crash is ours to report, not to be asked about in a window.
        set("MOZ_CRASHREPORTER_DISABLE", "1".into());
        environment
    }
}

fn joined(prefix: impl AsRef<OsStr>, path: &Path) -> OsString {
    let mut word = prefix.as_ref().to_owned();
    word.push(path);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(browser: &Browser, user: &BrowserUser, headed: bool) -> String {
        let dir = tempfile::tempdir().unwrap();
        let profile = Profile::create(browser, &BrowserUser::choose(), None).unwrap();
        let launch =
            Launch { browser, user, profile: &profile, url: "http://127.0.0.1:1/", headed, strace: None };
        let log = File::create(dir.path().join("log")).unwrap();
        let command = launch.command(&log).unwrap();
        let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        words.join(" ").replace(profile.root().to_str().unwrap(), "ROOT")
    }

    fn browser(family: Family) -> Browser {
        Browser {
            name: "Own".into(),
            version: "1.0".into(),
            executable: "/opt/own".into(),
            family,
            packaging: Packaging::Native,
        }
    }

    #[test]
    fn chromium_gives_up_its_sandbox_as_root_only() {
        let user = BrowserUser { uid: 1000, gid: 1000, name: None, switch: false };
        let root = BrowserUser { uid: 0, ..user.clone() };
        let words = words_of(&browser(Family::Chromium), &user, false);
        assert!(
            words.starts_with("--user-data-dir=ROOT/profile ")
                && words.ends_with("--headless --disable-gpu http://127.0.0.1:1/"),
            "{words}"
        );
        assert!(!words.contains("--no-sandbox"));
        assert!(words_of(&browser(Family::Chromium), &root, false).contains("--no-sandbox"));
    }

    #[test]
    fn firefox_is_headless_unless_shown() {
        let user = BrowserUser { uid: 1000, gid: 1000, name: None, switch: false };
        let firefox = browser(Family::Firefox);
        assert_eq!(
            words_of(&firefox, &user, false),
            "--no-remote --profile ROOT/profile --headless http://127.0.0.1:1/"
        );
        assert_eq!(words_of(&firefox, &user, true), "--no-remote --profile ROOT/profile http://127.0.0.1:1/");
    }
}
