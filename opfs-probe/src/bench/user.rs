//! As whom a browser runs. A browser is meant for ordinary users: as root its sandbox is off, which
//! also changes which process issues a sync.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User, getegid, geteuid};

/// An id that systemd's table of user ids leaves unused, so that nobody owns files by it, and no
/// reserved blocks of a file system are its own (`nobody` often has those).
const UNPRIVILEGED_ID: u32 = 0x7000_0001;
/// The same where a user namespace maps only the first 65536 ids.
const UNPRIVILEGED_ID_IN_NAMESPACE: u32 = 65_533;

/// Whom a browser runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Login name, where the system has one.
    pub name: Option<String>,
    /// It is someone else than we are, so that a command must change to it.
    pub switch: bool,
}

impl BrowserUser {
    /// Whoever it should be: ourselves unless we are root; then the user who called `sudo`, else a
    /// user without any rights.
    pub fn choose() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let ids = choose_ids(
            (geteuid().as_raw(), getegid().as_raw()),
            number("SUDO_UID").zip(number("SUDO_GID")),
            &map,
        );
        Self::from_ids(ids)
    }

    fn from_ids((uid, gid): (u32, u32)) -> Self {
        let name = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
        Self { uid, gid, name, switch: uid != geteuid().as_raw() }
    }

    /// Chromium refuses to start its sandbox as root.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether this user may make user namespaces, on which Chromium's sandbox is built. Not in a
    /// chroot, nor where the system forbids it; its sandbox then needs the setuid program beside it.
    pub fn may_make_namespaces(&self) -> bool {
        let mut command = Command::new("unshare");
        command.args(["--user", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if self.switch {
            command.uid(self.uid).gid(self.gid);
        }
        command.status().is_ok_and(|status| status.success())
    }

    /// The user's own home, where they have one.
    pub fn home(&self) -> Option<OsString> {
        User::from_uid(Uid::from_raw(self.uid)).ok().flatten().map(|user| user.dir.into_os_string())
    }

    /// The user in words.
    pub fn describe(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("uid {}", self.uid))
    }
}

fn choose_ids(own: (u32, u32), sudo: Option<(u32, u32)>, uid_map: &str) -> (u32, u32) {
    if own.0 != 0 {
        return own;
    }
    match sudo {
        Some((uid, gid)) if uid != 0 => (uid, gid),
        _ => [UNPRIVILEGED_ID, UNPRIVILEGED_ID_IN_NAMESPACE]
            .into_iter()
            .find(|id| is_mapped(*id, uid_map))
            .map_or(own, |id| (id, id)),
    }
}

/// Whether a user id exists in a namespace with this `/proc/self/uid_map` (`user_namespaces(7)`).
fn is_mapped(id: u32, uid_map: &str) -> bool {
    uid_map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().ok());
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Some(first)), Some(Some(_)), Some(Some(count))) => {
                (first..first.saturating_add(count)).contains(&u64::from(id))
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "         0          0 4294967295\n";

    #[test]
    fn root_steps_down_and_others_stay_who_they_are() {
        assert_eq!(choose_ids((1000, 100), Some((1001, 1001)), WHOLE), (1000, 100));
        assert_eq!(choose_ids((0, 0), Some((1001, 101)), WHOLE), (1001, 101));
        assert_eq!(choose_ids((0, 0), Some((0, 0)), WHOLE), (UNPRIVILEGED_ID, UNPRIVILEGED_ID));
        assert_eq!(choose_ids((0, 0), None, WHOLE), (UNPRIVILEGED_ID, UNPRIVILEGED_ID));
    }

    #[test]
    fn only_ids_that_the_namespace_knows_are_chosen() {
        assert_eq!(choose_ids((0, 0), None, "0 100000 65536").0, UNPRIVILEGED_ID_IN_NAMESPACE);
        assert_eq!(choose_ids((0, 0), None, "0 1000 1"), (0, 0));
        assert_eq!(choose_ids((0, 0), None, "junk\n\n1 2"), (0, 0));
    }
}
