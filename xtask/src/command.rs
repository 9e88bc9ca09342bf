//! Running other programs: shown before they start, as root where that is needed.

use std::env;
use std::fs;
use std::io::{IsTerminal, stdin};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// The cargo that runs this, at the workspace's root.
pub fn cargo(workspace: &Workspace) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(&workspace.root);
    command
}

/// Shows the command and runs it; anything but success is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("+ {shown}");
    let status = command.status().with_context(|| format!("`{shown}` did not start"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// The command as a person would type it, its variables included.
pub fn show(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        Some(format!("{}={}", name.to_string_lossy(), quote(&value?.to_string_lossy())))
    });
    let program = command.get_program();
    let program = PathBuf::from(program).file_name().unwrap_or(program).to_owned();
    let words = std::iter::once(program.as_os_str()).chain(command.get_args());
    let words = words.map(|word| quote(&word.to_string_lossy()));
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// How this process can act as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// It is root.
    Already,
    /// Through sudo.
    Sudo,
    /// Not at all.
    No,
}

impl Root {
    /// Looks who we are, and whether sudo would let us.
    pub fn find() -> Self {
        if is_root() {
            Self::Already
        } else if which("sudo").is_some() && (stdin().is_terminal() || sudo_needs_no_password()) {
            Self::Sudo
        } else {
            Self::No
        }
    }

    /// The command to run a program as root.
    pub fn command(self, program: &str) -> Result<Command> {
        match self {
            Self::Already => Ok(Command::new(program)),
            Self::Sudo => {
                let mut command = Command::new("sudo");
                command.arg(program);
                Ok(command)
            }
            Self::No => bail!("{program} needs root: neither root nor a usable sudo; run this as root"),
        }
    }
}

/// Whether this process is root: its own folder in /proc belongs to its effective user.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
}

fn sudo_needs_no_password() -> bool {
    let mut command = Command::new("sudo");
    command.args(["-n", "true"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A program that may lie where an ordinary user's PATH does not lead.
pub fn tool(name: &str) -> Command {
    Command::new(which(name).unwrap_or_else(|| name.into()))
}

/// The executable of this name in PATH, or else among those for administrators.
pub fn which(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder: PathBuf| folder.join(name)).find(|file| {
        fs::metadata(file).is_ok_and(|entry| entry.is_file() && entry.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_typed() {
        let mut command = Command::new("/usr/bin/env");
        command.args(["a b", "it's", "--x=1", ""]).env("NAME", "some value");
        assert_eq!(show(&command), r"NAME='some value' env 'a b' 'it'\''s' --x=1 ''");
    }
}
