//! From the command that people type to the program that runs: distributions put shell scripts,
//! snap and flatpak in between.
//!
//! A script between us and the browser is not harmless: it adds processes and options of its own,
//! and its child may be all that a signal reaches.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// How a browser is packaged, which decides what it may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packaging {
    /// An ordinary program.
    Native,
    /// Confined by snap, under this name.
    Snap(String),
    /// Confined by flatpak, as this application.
    Flatpak(String),
}

/// What a command comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The program to start.
    pub executable: PathBuf,
    /// How it is packaged.
    pub packaging: Packaging,
}

/// Scripts that start scripts that start scripts: more than this is a loop.
const MAX_DEPTH: u32 = 5;
/// A start script is short; a larger file is something else.
const MAX_SCRIPT_BYTES: u64 = 256 * 1024;
/// What the program beside a start script may be called.
const SIBLINGS: [&str; 9] = [
    "chrome",
    "chromium",
    "brave",
    "msedge",
    "vivaldi-bin",
    "opera",
    "firefox-bin",
    "librewolf-bin",
    "firefox",
];

/// Follows links and scripts from `command` to the program itself. Where a script can't be seen
/// through, the script is what gets started.
pub fn resolve(command: &Path, search: &[PathBuf]) -> Resolved {
    resolve_from(command, search, MAX_DEPTH)
}

fn resolve_from(command: &Path, search: &[PathBuf], depth: u32) -> Resolved {
    if let Some(packaging) = packaging_of_path(command) {
        return Resolved { executable: command.to_owned(), packaging };
    }
    let executable = fs::canonicalize(command).unwrap_or_else(|_| command.to_owned());
    if let Some(packaging) = packaging_of_path(&executable) {
        return Resolved { executable: command.to_owned(), packaging };
    }
    let native = |executable| Resolved { executable, packaging: Packaging::Native };
    let Some(script) = read_script(&executable) else {
        return native(executable);
    };
    if let Some(packaging) = packaging_of_script(&script) {
        return Resolved { executable, packaging };
    }
    if depth > 0 {
        for target in exec_targets(&script) {
            if let Some(path) = locate(&target, search).filter(|path| !same_file(path, &executable)) {
                return resolve_from(&path, search, depth - 1);
            }
        }
    }
    sibling(&executable).map_or_else(|| native(executable), native)
}

/// Whether `path` is a file that somebody may execute.
pub fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The first executable of that name in the directories.
pub fn find_in(name: impl AsRef<OsStr>, search: &[PathBuf]) -> Option<PathBuf> {
    search.iter().map(|dir| dir.join(name.as_ref())).find(|path| is_executable(path))
}

fn packaging_of_path(path: &Path) -> Option<Packaging> {
    let words: Vec<&str> = path.iter().filter_map(OsStr::to_str).collect();
    match words.as_slice() {
        ["/", "snap", "bin", name, ..]
        | ["/", "snap", name, ..]
        | ["/", "var", "lib", "snapd", "snap", name, ..] => Some(Packaging::Snap((*name).to_owned())),
        ["/", "var", "lib", "flatpak", .., name] | [.., "flatpak", "exports", "bin", name] => {
            Some(Packaging::Flatpak((*name).to_owned()))
        }
        _ => None,
    }
}

fn packaging_of_script(script: &str) -> Option<Packaging> {
    for line in script.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches(['"', '\''])).collect();
        for (index, word) in words.iter().enumerate() {
            if let Some(name) = word.strip_prefix("/snap/bin/") {
                return Some(Packaging::Snap(name.to_owned()));
            }
            let rest = &words[index + 1..];
            if rest.first() != Some(&"run") {
                continue;
            }
            // An option of `run` that takes its value apart would be mistaken for the name; both
            // tools' own scripts write `--option=value`.
            let name = rest[1..].iter().find(|word| !word.starts_with('-') && !word.starts_with('$'));
            let program = Path::new(word).file_name().and_then(OsStr::to_str);
            match (program, name) {
                (Some("snap"), Some(name)) => return Some(Packaging::Snap((*name).to_owned())),
                (Some("flatpak"), Some(name)) => return Some(Packaging::Flatpak((*name).to_owned())),
                _ => {}
            }
        }
    }
    None
}

fn read_script(path: &Path) -> Option<String> {
    let file = fs::File::open(path).ok()?;
    let mut bytes = Vec::new();
    let mut magic = [0; 2];
    let mut file = file.take(MAX_SCRIPT_BYTES);
    file.read_exact(&mut magic).ok()?;
    if &magic != b"#!" {
        return None;
    }
    file.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The words after `exec`, with the script's own constants put in; the last `exec` first, because
/// the earlier ones are for special cases.
fn exec_targets(script: &str) -> Vec<String> {
    let mut variables = HashMap::new();
    let mut targets = Vec::new();
    for line in script.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some((name, value)) = line.split_once('=')
            && !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && let Some(value) = expand(value.trim_matches(['"', '\'']), &variables)
        {
            variables.insert(name.to_owned(), value);
        }
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            if word != "exec" {
                continue;
            }
            if let Some(target) = words.next()
                && let Some(target) = expand(target.trim_matches(['"', '\'']), &variables)
                && !target.starts_with('-')
                && !target.starts_with(['<', '>', '&'])
                && !target.is_empty()
            {
                targets.push(target);
            }
        }
    }
    targets.reverse();
    targets
}

/// `$NAME` and `${NAME}` by what is known; none where something isn't, or a command is run.
fn expand(text: &str, variables: &HashMap<String, String>) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['$', '`']) {
        out.push_str(&rest[..at]);
        rest = rest[at..].strip_prefix('$')?;
        let (name, after) = if let Some(braced) = rest.strip_prefix('{') {
            braced.split_once('}')?
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            rest.split_at(end)
        };
        out.push_str(variables.get(name)?);
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

fn locate(target: &str, search: &[PathBuf]) -> Option<PathBuf> {
    if target.contains('/') {
        let path = PathBuf::from(target);
        return (path.is_absolute() && is_executable(&path)).then_some(path);
    }
    find_in(target, search)
}

fn same_file(path: &Path, canonical: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|path| path == canonical)
}

/// A browser's program in the script's own directory; in a directory of commands, a neighbour's name
/// says nothing.
fn sibling(script: &Path) -> Option<PathBuf> {
    let directory = script.parent()?;
    if directory.file_name().is_some_and(|name| name == "bin") {
        return None;
    }
    SIBLINGS
        .iter()
        .map(|name| directory.join(name))
        .find(|path| path != script && is_executable(path) && read_script(path).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(dir: &Path, name: &str, content: &str) -> PathBuf {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::canonicalize(path).unwrap()
    }

    #[test]
    fn a_script_with_variables_leads_to_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let program = put(dir.path(), "lib/chromium/chromium", "\x7fELF");
        let script = format!(
            "#!/bin/sh\nAPPNAME=chromium\nLIBDIR={}/lib/$APPNAME\nif debug; then\n  exec gdb $1\nelse\n    exec $LIBDIR/$APPNAME $FLAGS \"$@\"\nfi\n",
            dir.path().display()
        );
        let script = put(dir.path(), "bin/chromium", &script);
        assert_eq!(resolve(&script, &[]), Resolved { executable: program, packaging: Packaging::Native });
    }

    #[test]
    fn a_script_may_start_a_command_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let program = put(dir.path(), "bin/firefox-esr", "\x7fELF");
        let script = put(dir.path(), "bin/firefox", "#!/bin/sh\nexec firefox-esr \"$@\"\n");
        assert_eq!(resolve(&script, &[dir.path().join("bin")]).executable, program);
    }

    #[test]
    fn a_script_that_computes_its_place_has_the_program_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let program = put(dir.path(), "opt/chrome", "\x7fELF");
        let script = put(
            dir.path(),
            "opt/google-chrome",
            "#!/bin/bash\nHERE=\"`dirname $0`\"\nexec -a \"$0\" \"$HERE/chrome\" \"$@\"\n",
        );
        assert_eq!(resolve(&script, &[]).executable, program);
    }

    #[test]
    fn a_script_that_starts_itself_is_started_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let script = put(dir.path(), "bin/loop", "#!/bin/sh\nexec loop\n");
        assert_eq!(resolve(&script, &[dir.path().join("bin")]).executable, script);
    }

    #[test]
    fn snap_and_flatpak_are_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let snap =
            put(dir.path(), "bin/firefox", "#!/bin/sh\nif true; then\nexec /snap/bin/firefox \"$@\"\nfi\n");
        assert_eq!(resolve(&snap, &[]).packaging, Packaging::Snap("firefox".into()));
        let flatpak = put(
            dir.path(),
            "bin/org.chromium.Chromium",
            "#!/bin/sh\nexec /usr/bin/flatpak run --branch=stable --arch=x86_64 org.chromium.Chromium \"$@\"\n",
        );
        assert_eq!(resolve(&flatpak, &[]).packaging, Packaging::Flatpak("org.chromium.Chromium".into()));
        assert_eq!(
            packaging_of_path(Path::new("/snap/bin/chromium")),
            Some(Packaging::Snap("chromium".into()))
        );
        assert_eq!(
            packaging_of_path(Path::new("/var/lib/flatpak/exports/bin/org.mozilla.firefox")),
            Some(Packaging::Flatpak("org.mozilla.firefox".into()))
        );
    }

    proptest::proptest! {
        #[test]
        fn no_script_breaks_the_reader(script in "(\\PC|\n|exec |\\$|\\{|=){0,200}") {
            exec_targets(&script);
            packaging_of_script(&script);
        }
    }
}
