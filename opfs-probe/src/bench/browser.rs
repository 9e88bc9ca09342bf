//! Which browser: by a name that people use or by a path, what it is, and what it can't do.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::user::BrowserUser;
use super::wrapper::{self, Packaging, Resolved};

/// Which browser another one descends from; that decides its command line and its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Chromium, Chrome, Edge, Brave, Vivaldi, Opera.
    Chromium,
    /// Firefox and its descendants.
    Firefox,
}

/// A browser that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Browser {
    /// Its name without the maker: "Chromium", "Chrome", "Firefox".
    pub name: String,
    /// Its version in full.
    pub version: String,
    /// The program that gets started.
    pub executable: PathBuf,
    /// Its family.
    pub family: Family,
    /// How it is packaged.
    pub packaging: Packaging,
}

/// Why there is no such browser.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// Nothing of that name is installed.
    #[error("no browser {wanted:?}: {found}")]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// What there is instead, in words.
        found: String,
    },
    /// The path leads nowhere, or to something that is no program.
    #[error("no browser at {}: {why}; {found}", path.display())]
    NoProgram {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What there is instead, in words.
        found: String,
    },
    /// It doesn't start, even to say its version.
    #[error("{} --version failed as {user}: {why}; make sure that this user can run it", path.display())]
    NoVersion {
        /// The program.
        path: PathBuf,
        /// Who tried to run it.
        user: String,
        /// Why not.
        why: String,
    },
    /// It starts, but is neither like Chromium nor like Firefox.
    #[error("{} says it is {said:?}: only browsers like Chromium or Firefox can be driven", path.display())]
    UnknownFamily {
        /// The program.
        path: PathBuf,
        /// What it said of itself.
        said: String,
    },
}

/// A browser as people call it, the commands that start it, and where it is if none does.
struct Known {
    names: &'static [&'static str],
    commands: &'static [&'static str],
    places: &'static [&'static str],
}

const KNOWN: [Known; 7] = [
    Known {
        names: &["chromium", "chromium-browser"],
        commands: &["chromium", "chromium-browser", "org.chromium.Chromium"],
        places: &["/usr/lib/chromium/chromium", "/usr/lib64/chromium-browser/chromium-browser"],
    },
    Known {
        names: &["firefox", "firefox-esr"],
        commands: &["firefox", "firefox-esr", "org.mozilla.firefox"],
        places: &["/usr/lib/firefox-esr/firefox-esr", "/usr/lib/firefox/firefox", "/opt/firefox/firefox"],
    },
    Known {
        names: &["chrome", "google-chrome"],
        commands: &["google-chrome", "google-chrome-stable", "chrome", "com.google.Chrome"],
        places: &["/opt/google/chrome/chrome"],
    },
    Known {
        names: &["brave", "brave-browser"],
        commands: &["brave-browser", "brave-browser-stable", "brave", "com.brave.Browser"],
        places: &["/opt/brave.com/brave/brave"],
    },
    Known {
        names: &["edge", "microsoft-edge"],
        commands: &["microsoft-edge", "microsoft-edge-stable", "com.microsoft.Edge"],
        places: &["/opt/microsoft/msedge/msedge"],
    },
    Known {
        names: &["vivaldi"],
        commands: &["vivaldi", "vivaldi-stable", "com.vivaldi.Vivaldi"],
        places: &["/opt/vivaldi/vivaldi-bin"],
    },
    Known {
        names: &["librewolf"],
        commands: &["librewolf", "io.gitlab.librewolf-community"],
        places: &["/usr/share/librewolf/librewolf"],
    },
];

/// Directories that are not on every `PATH` (root's, under sudo) but hold browsers.
const MORE_DIRECTORIES: [&str; 5] =
    ["/usr/local/bin", "/usr/bin", "/snap/bin", "/var/lib/flatpak/exports/bin", "/var/lib/snapd/snap/bin"];

/// A cold start from a slow disk takes seconds.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);

impl Browser {
    /// Name and major version, as reports head their columns: "Firefox 153".
    pub fn label(&self) -> String {
        let major = self.version.split('.').next().unwrap_or_default();
        format!("{} {major}", self.name)
    }

    /// The label as part of a file's name: "firefox-153".
    pub fn slug(&self) -> String {
        let safe = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        self.label().chars().map(safe).collect()
    }

    /// What this browser's packaging keeps it from, in words.
    pub fn limits(&self) -> Vec<String> {
        match &self.packaging {
            Packaging::Native => Vec::new(),
            Packaging::Snap(name) => vec![
                format!(
                    "{} is confined by snap: it writes only below ~/snap/{name}/common, so its profile goes there, \
                     and it starts only for a user with a home directory",
                    self.name
                ),
                format!(
                    "strace can't watch {}: snap starts it with rights of its own, which tracing takes away",
                    self.name
                ),
            ],
            Packaging::Flatpak(app) => vec![
                format!(
                    "{} is confined by flatpak: its profile's directory is opened to {app} for this run",
                    self.name
                ),
                format!(
                    "flatpak may start {} through a service of its own, outside the process tree that is watched; \
                     counts are then missing",
                    self.name
                ),
            ],
        }
    }
}

/// Finds a browser by a name such as "chromium" or by a path, and asks it for its version as `user`.
pub fn find(wanted: &str, user: &BrowserUser) -> Result<Browser, BrowserError> {
    let search = search_path();
    let command = if wanted.contains('/') {
        existing(Path::new(wanted), &search)?
    } else {
        by_name(wanted, &search).ok_or_else(|| BrowserError::Unknown {
            wanted: wanted.to_owned(),
            found: found_in_words(&search),
        })?
    };
    identify(&wrapper::resolve(&command, &search), user)
}

/// Names of the browsers that are installed, with the commands that start them.
pub fn installed() -> Vec<(&'static str, PathBuf)> {
    installed_in(&search_path())
}

fn installed_in(search: &[PathBuf]) -> Vec<(&'static str, PathBuf)> {
    KNOWN.iter().filter_map(|known| Some((known.names[0], locate(known, search)?))).collect()
}

fn by_name(wanted: &str, search: &[PathBuf]) -> Option<PathBuf> {
    let name = wanted.to_ascii_lowercase();
    let known = KNOWN.iter().find(|known| known.names.contains(&name.as_str()));
    // A name that is a command, firefox-esr say, means that command before its relatives.
    wrapper::find_in(wanted, search).or_else(|| locate(known?, search))
}

fn locate(known: &Known, search: &[PathBuf]) -> Option<PathBuf> {
    known
        .commands
        .iter()
        .find_map(|command| wrapper::find_in(command, search))
        .or_else(|| known.places.iter().map(PathBuf::from).find(|path| wrapper::is_executable(path)))
}

fn existing(path: &Path, search: &[PathBuf]) -> Result<PathBuf, BrowserError> {
    let why = match std::fs::metadata(path) {
        Err(error) => error.to_string(),
        Ok(meta) if meta.is_dir() => "it is a directory".to_owned(),
        Ok(_) if !wrapper::is_executable(path) => "it is not executable".to_owned(),
        // A relative path would mean something else from the profile, where the browser starts.
        Ok(_) => {
            return std::path::absolute(path).map_err(|error| no_program(path, error.to_string(), search));
        }
    };
    Err(no_program(path, why, search))
}

fn no_program(path: &Path, why: String, search: &[PathBuf]) -> BrowserError {
    BrowserError::NoProgram { path: path.to_owned(), why, found: found_in_words(search) }
}

fn found_in_words(search: &[PathBuf]) -> String {
    let found = installed_in(search);
    if found.is_empty() {
        return "none is installed that opfs-probe knows; install chromium or firefox, or give a path"
            .to_owned();
    }
    let mut text = "installed are ".to_owned();
    for (index, (name, path)) in found.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}{name} ({})", path.display());
    }
    text + "; choose one, or give a path"
}

fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut search: Vec<PathBuf> = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    for directory in MORE_DIRECTORIES.map(PathBuf::from) {
        if !search.contains(&directory) {
            search.push(directory);
        }
    }
    search
}

fn identify(resolved: &Resolved, user: &BrowserUser) -> Result<Browser, BrowserError> {
    let Resolved { executable, packaging } = resolved;
    let said = ask_version(executable, user).map_err(|why| BrowserError::NoVersion {
        path: executable.clone(),
        user: user.describe(),
        why,
    })?;
    let unknown = || BrowserError::UnknownFamily { path: executable.clone(), said: said.clone() };
    let (name, version) = parse_version(&said).ok_or_else(unknown)?;
    let family = family_by_name(&name).or_else(|| family_by_files(executable)).ok_or_else(unknown)?;
    Ok(Browser { name, version, executable: executable.clone(), family, packaging: packaging.clone() })
}

/// The first line that `--version` prints.
fn ask_version(executable: &Path, user: &BrowserUser) -> Result<String, String> {
    // Into files: a pipe could be held open by a process that outlives the answer.
    let unnamed = || tempfile::tempfile().map_err(|error| format!("no temporary file: {error}"));
    let (mut out, mut err) = (unnamed()?, unnamed()?);
    let stream = |file: &File| file.try_clone().map_err(|error| error.to_string());
    let mut command = Command::new(executable);
    command.arg("--version").stdin(Stdio::null()).stdout(stream(&out)?).stderr(stream(&err)?);
    command.process_group(0).current_dir("/");
    if user.switch {
        let home = user.home().unwrap_or_else(|| OsString::from("/nonexistent"));
        command.uid(user.uid).gid(user.gid).env("HOME", home);
    }
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let deadline = Instant::now() + VERSION_TIMEOUT;
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            None => {
                // Only our child, not yet waited for: its id can't be another's.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} s", VERSION_TIMEOUT.as_secs()));
            }
        }
    };
    let said = read_start(&mut out);
    match said.lines().map(str::trim).find(|line| line.chars().any(|c| c.is_ascii_digit())) {
        Some(line) => Ok(line.to_owned()),
        None if status.success() => Ok(said.trim().to_owned()),
        None => {
            let err = read_start(&mut err);
            let last = err.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
            Err(format!("{status}, {}", last.trim()))
        }
    }
}

fn read_start(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // Unreadable counts as silent: the caller then says so.
    let _ = file.rewind().and_then(|()| file.take(64 * 1024).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Splits "Mozilla Firefox 153.8.0esr" into "Firefox" and "153.8.0esr".
fn parse_version(said: &str) -> Option<(String, String)> {
    const MAKERS: [&str; 4] = ["Mozilla", "Google", "Microsoft", "The"];
    let words: Vec<&str> = said.split_whitespace().collect();
    let at =
        words.iter().position(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))?;
    let name: Vec<&str> = words[..at].iter().copied().skip_while(|word| MAKERS.contains(word)).collect();
    let name = if name.is_empty() { words[..at].join(" ") } else { name.join(" ") };
    (!name.is_empty()).then(|| (name, words[at].to_owned()))
}

fn family_by_name(name: &str) -> Option<Family> {
    const CHROMIUM: [&str; 6] = ["chrom", "brave", "edge", "vivaldi", "opera", "thorium"];
    const FIREFOX: [&str; 6] = ["firefox", "nightly", "librewolf", "waterfox", "floorp", "zen"];
    let name = name.to_ascii_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if is(&FIREFOX) {
        return Some(Family::Firefox);
    }
    is(&CHROMIUM).then_some(Family::Chromium)
}

/// For a browser under a name of its own: the engine's files lie beside the program.
fn family_by_files(executable: &Path) -> Option<Family> {
    let directory = executable.parent()?;
    if directory.join("libxul.so").exists() {
        return Some(Family::Firefox);
    }
    let engine = ["v8_context_snapshot.bin", "chrome_100_percent.pak"];
    engine.iter().any(|file| directory.join(file).exists()).then_some(Family::Chromium)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn program(dir: &Path, name: &str, script: &str) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn versions_as_browsers_say_them() {
        let split = |said| parse_version(said).map(|(name, version)| format!("{name}|{version}"));
        assert_eq!(
            split("Chromium 156.0.8078.114 built on Debian").as_deref(),
            Some("Chromium|156.0.8078.114")
        );
        assert_eq!(split("Mozilla Firefox 153.8.0esr").as_deref(), Some("Firefox|153.8.0esr"));
        assert_eq!(split("Google Chrome 152.0.1.2 ").as_deref(), Some("Chrome|152.0.1.2"));
        assert_eq!(split("Brave Browser 142.1.84.139").as_deref(), Some("Brave Browser|142.1.84.139"));
        assert_eq!(split("GNU bash, version five"), None);
        assert_eq!(split("1.2.3"), None);
        assert_eq!(split(""), None);
    }

    #[test]
    fn families() {
        assert_eq!(family_by_name("Brave Browser"), Some(Family::Chromium));
        assert_eq!(family_by_name("Firefox"), Some(Family::Firefox));
        assert_eq!(family_by_name("mutool"), None);
    }

    #[test]
    fn what_is_no_browser_is_refused_with_what_there_is_instead() {
        let user = BrowserUser::choose();
        let dir = tempfile::tempdir().unwrap();
        let missing = find("/nonexistent/browser", &user).unwrap_err().to_string();
        assert!(missing.contains("No such file") && missing.contains("give a path"), "{missing}");
        let unknown = find("netscape", &user).unwrap_err().to_string();
        assert!(unknown.starts_with("no browser \"netscape\""), "{unknown}");
        let directory = find(&format!("{}/", dir.path().display()), &user).unwrap_err().to_string();
        assert!(directory.contains("a directory"), "{directory}");

        let mute = program(dir.path(), "mute", "#!/bin/sh\necho 'cannot open display' >&2\nexit 3\n");
        let mute = find(mute.to_str().unwrap(), &user).unwrap_err().to_string();
        assert!(mute.contains("exit status: 3") && mute.contains("cannot open display"), "{mute}");
        let other = program(dir.path(), "other", "#!/bin/sh\necho Links 2.3\n");
        assert!(matches!(find(other.to_str().unwrap(), &user), Err(BrowserError::UnknownFamily { .. })));
    }

    #[test]
    fn a_rebranded_browser_is_known_by_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let own = program(dir.path(), "own", "#!/bin/sh\necho Own 1.2\n");
        fs::write(dir.path().join("libxul.so"), "").unwrap();
        let browser = find(own.to_str().unwrap(), &BrowserUser::choose()).unwrap();
        assert_eq!((browser.family, browser.label().as_str()), (Family::Firefox, "Own 1"));
        assert_eq!(browser.slug(), "own-1");
    }
}
