//! A fresh profile for one run, on a disk that syncs cost something on, gone afterwards.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};
use tempfile::TempDir;

use super::browser::{Browser, Family};
use super::user::BrowserUser;
use super::wrapper::Packaging;

/// `RAMFS_MAGIC` of `linux/magic.h`, which nix doesn't name.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// What Firefox is told, so that it does nothing by itself while it is measured.
const USER_JS: &[(&str, &str)] = &[
    ("app.normandy.enabled", "false"),
    ("app.update.enabled", "false"),
    ("app.update.service.enabled", "false"),
    ("browser.aboutwelcome.enabled", "false"),
    ("browser.cache.check_doc_frequency", "1"),
    ("browser.newtabpage.enabled", "false"),
    ("browser.region.network.url", "\"\""),
    ("browser.region.update.enabled", "false"),
    ("browser.safebrowsing.downloads.enabled", "false"),
    ("browser.safebrowsing.malware.enabled", "false"),
    ("browser.safebrowsing.phishing.enabled", "false"),
    ("browser.search.update", "false"),
    ("browser.shell.checkDefaultBrowser", "false"),
    ("browser.startup.homepage_override.mstone", "\"ignore\""),
    ("browser.tabs.crashReporting.sendReport", "false"),
    ("datareporting.healthreport.uploadEnabled", "false"),
    ("datareporting.policy.dataSubmissionEnabled", "false"),
    // The page ends its run by closing the window.
    ("dom.allow_scripts_to_close_windows", "true"),
    ("extensions.getAddons.cache.enabled", "false"),
    ("extensions.update.enabled", "false"),
    ("network.captive-portal-service.enabled", "false"),
    ("network.connectivity-service.enabled", "false"),
    // The benchmark's address is a number; every other name is somebody's background service.
    ("network.dns.disabled", "true"),
    ("services.settings.server", "\"data:,#remote-settings-dummy/v1\""),
    ("toolkit.telemetry.reportingpolicy.firstRun", "false"),
];

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The directory for profiles is missing, or we can't write there.
    #[error("can't make a profile in {}: {source}; choose another --profiles-dir", dir.display())]
    NotWritable {
        /// The directory.
        dir: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// We can, but the browser's user can't.
    #[error(
        "{user} can't use {}: {source}; choose a --profiles-dir that this user can reach (all directories above need \
         the x permission)",
        dir.display()
    )]
    NotReachable {
        /// The directory.
        dir: PathBuf,
        /// The browser's user.
        user: String,
        /// Why not.
        source: io::Error,
    },
    /// Snap's browsers write in their user's home only, and this user has none.
    #[error(
        "{name} is a snap, and {user} has no home directory that snap could use; run opfs-probe through sudo from an ordinary account"
    )]
    NoHome {
        /// The browser.
        name: String,
        /// The browser's user.
        user: String,
    },
}

/// A profile's directories. Dropping it removes them, unless they are kept.
#[derive(Debug)]
pub struct Profile {
    root: PathBuf,
    holder: Option<TempDir>,
    warning: Option<String>,
}

impl Profile {
    /// Makes a profile in `dir`, or where [`default_dir`] says, owned by the browser's user.
    pub fn create(browser: &Browser, user: &BrowserUser, dir: Option<&Path>) -> Result<Self, ProfileError> {
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => default_dir(browser, user)?,
        };
        let not_writable = |source| ProfileError::NotWritable { dir: dir.clone(), source };
        // Canonical, because the kernel names files so.
        let place = fs::canonicalize(&dir).map_err(not_writable)?;
        let prefix = format!("opfs-probe-{}-", browser.slug());
        let holder = tempfile::Builder::new().prefix(&prefix).tempdir_in(&place).map_err(not_writable)?;
        let profile =
            Self { root: holder.path().to_owned(), holder: Some(holder), warning: memory_warning(&place) };
        profile.fill(browser, user).map_err(not_writable)?;
        probe_access(&profile.root, user).map_err(|source| ProfileError::NotReachable {
            dir: place,
            user: user.describe(),
            source,
        })?;
        Ok(profile)
    }

    fn fill(&self, browser: &Browser, user: &BrowserUser) -> io::Result<()> {
        for dir in [self.profile(), self.home(), self.temporary()] {
            fs::create_dir(&dir)?;
            if user.switch {
                chown(&dir, Some(user.uid), Some(user.gid))?;
            }
        }
        if browser.family == Family::Firefox {
            let path = self.profile().join("user.js");
            fs::write(&path, user_js())?;
            if user.switch {
                chown(&path, Some(user.uid), Some(user.gid))?;
            }
        }
        if user.switch {
            chown(&self.root, Some(user.uid), Some(user.gid))?;
        }
        Ok(())
    }

    /// The directory that holds everything; reports name files relative to it ("profile/Default/…").
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The browser's profile.
    pub fn profile(&self) -> PathBuf {
        self.root.join("profile")
    }

    /// The browser's `HOME`, so that it finds nothing of its user's, and leaves nothing behind.
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// The browser's `TMPDIR`.
    pub fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// Why times measured on this profile mean little, if they do.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Leaves the profile in place.
    pub fn keep(mut self) -> PathBuf {
        if let Some(holder) = self.holder.take() {
            let _path = holder.keep();
        }
        std::mem::take(&mut self.root)
    }

    /// Removes the profile, and says so if it can't. All of the browser's processes must have gone.
    pub fn remove(mut self) -> io::Result<()> {
        self.try_remove()
    }

    /// A last write of a dying process can put a file into a directory that was just emptied.
    fn try_remove(&mut self) -> io::Result<()> {
        const TRIES: u32 = 5;
        let Some(mut holder) = self.holder.take() else { return Ok(()) };
        holder.disable_cleanup(true);
        let mut result = fs::remove_dir_all(&self.root);
        for _ in 1..TRIES {
            match &result {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                _ => break,
            }
            std::thread::sleep(Duration::from_millis(100));
            result = fs::remove_dir_all(&self.root);
        }
        result
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        if let Err(error) = self.try_remove() {
            tracing::warn!("the profile {} is left behind: {error}; remove it by hand", self.root.display());
        }
    }
}

/// Where profiles go unless the user says otherwise: a temporary directory on a disk if there is one.
pub fn default_dir(browser: &Browser, user: &BrowserUser) -> Result<PathBuf, ProfileError> {
    if let Packaging::Snap(name) = &browser.packaging {
        let home = user.home().map(PathBuf::from).filter(|home| home.is_dir());
        let home =
            home.ok_or_else(|| ProfileError::NoHome { name: browser.name.clone(), user: user.describe() })?;
        return Ok(home.join("snap").join(name).join("common"));
    }
    let first = std::env::temp_dir();
    let places = [first.clone(), PathBuf::from("/var/tmp")];
    Ok(places.into_iter().find(|dir| dir.is_dir() && memory_warning(dir).is_none()).unwrap_or(first))
}

/// A loud warning if a directory is in memory, where a flush costs nothing.
fn memory_warning(dir: &Path) -> Option<String> {
    let kind = match statfs(dir).ok()?.filesystem_type() {
        TMPFS_MAGIC => "tmpfs",
        RAMFS_MAGIC => "ramfs",
        _ => return None,
    };
    Some(format!(
        "the profiles are on {kind} ({}): syncs cost nothing in memory, so the times say nothing about a disk; pass \
         --profiles-dir with a directory on the disk you mean",
        dir.display()
    ))
}

/// Tries as the browser's user what the browser will do. Permission bits alone would not tell: there
/// are access lists, read-only mounts and security modules.
fn probe_access(dir: &Path, user: &BrowserUser) -> io::Result<()> {
    let mut command = Command::new("/bin/sh");
    // The standard library changes the directory after the user, so that a failure is this user's.
    command.args(["-c", ": > tmp/.probe && rm -f tmp/.probe"]).current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    if user.switch {
        command.uid(user.uid).gid(user.gid);
    }
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.trim().rsplit(": ").next().unwrap_or_default();
    Err(io::Error::other(if why.is_empty() { output.status.to_string() } else { why.to_owned() }))
}

fn user_js() -> String {
    let lines: Vec<String> =
        USER_JS.iter().map(|(name, value)| format!("user_pref(\"{name}\", {value});\n")).collect();
    lines.concat()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn firefox() -> Browser {
        Browser {
            name: "Firefox".into(),
            version: "153.8.0esr".into(),
            executable: "/usr/bin/firefox".into(),
            family: Family::Firefox,
            packaging: Packaging::Native,
        }
    }

    #[test]
    fn a_profile_belongs_to_its_user_and_goes() {
        let user = BrowserUser::choose();
        let profile = Profile::create(&firefox(), &user, None).unwrap();
        let root = profile.root().to_owned();
        let user_js = profile.profile().join("user.js");
        assert_eq!(fs::metadata(&user_js).unwrap().uid(), user.uid);
        assert!(
            fs::read_to_string(&user_js).unwrap().contains("user_pref(\"network.dns.disabled\", true);\n")
        );
        drop(profile);
        assert!(!root.exists());
    }

    #[test]
    fn a_kept_profile_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let kept = Profile::create(&firefox(), &BrowserUser::choose(), Some(dir.path())).unwrap().keep();
        assert!(kept.join("profile/user.js").exists());
    }

    #[test]
    fn a_place_that_cannot_hold_a_profile_is_an_error() {
        let user = BrowserUser::choose();
        let missing =
            Profile::create(&firefox(), &user, Some(Path::new("/nonexistent"))).unwrap_err().to_string();
        assert!(missing.contains("--profiles-dir"), "{missing}");
        if user.switch {
            let hidden = tempfile::tempdir().unwrap();
            let inner = hidden.path().join("inner");
            fs::create_dir(&inner).unwrap();
            fs::set_permissions(hidden.path(), fs::Permissions::from_mode(0o700)).unwrap();
            let error = Profile::create(&firefox(), &user, Some(&inner)).unwrap_err().to_string();
            assert!(error.contains("Permission denied"), "{error}");
            assert_eq!(fs::read_dir(&inner).unwrap().count(), 0, "nothing is left behind");
        }
    }

    #[test]
    fn memory_is_warned_of() {
        let shm = Path::new("/dev/shm");
        if statfs(shm).is_ok_and(|fs| fs.filesystem_type() == TMPFS_MAGIC) {
            assert!(memory_warning(shm).unwrap().contains("tmpfs"));
        } else {
            assert_eq!(memory_warning(Path::new("/proc")), None);
        }
    }
}
