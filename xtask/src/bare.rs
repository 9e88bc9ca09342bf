//! Runs a command in a fresh Debian that has nothing but the Rust toolchain: proof that the README's
//! commands install everything else.
//!
//! Mirrors, proxies and certificates are this machine's. Mounts live in a mount namespace of their own,
//! so they end with the command, however it ends.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::command::{self, is_root, which};
use crate::workspace::Workspace;

/// Arguments of `cargo xtask test-bare`.
#[derive(clap::Args)]
pub struct Arguments {
    /// What to run in a clean clone of the last commit.
    #[arg(long, default_value = "cargo xtask test")]
    command: String,
    /// Make the system in this folder, which must not be there yet, and keep it [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// Where the clone is, in the new system.
const CLONE: &str = "/src/opfs-probe";
/// Where this machine's certificates are, in the new system. Not where the package ca-certificates puts
/// its own.
const CERTIFICATES: &str = "/etc/ssl/host.crt";

/// Runs the task.
pub fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    if !is_root() {
        bail!("a new system can't be made: that needs root; run this as root");
    }
    if let Some(tool) = ["debootstrap", "unshare", "git"].into_iter().find(|tool| which(tool).is_none()) {
        bail!("a new system can't be made: {tool} is missing; apt-get install debootstrap util-linux git");
    }
    let root = match &arguments.root {
        Some(root) if root.exists() => bail!("{} is there already; remove it", root.display()),
        Some(root) => root.clone(),
        None => env::temp_dir().join(format!("opfs-probe-bare.{}", std::process::id())),
    };
    let remover = if arguments.root.is_none() { Some(Remover::start(&root)?) } else { None };
    let result = make(&workspace, &root).and_then(|()| enter(&root, &arguments.command));
    if let Some(remover) = remover {
        remover.finish()?;
    }
    result
}

fn make(workspace: &Workspace, root: &Path) -> Result<()> {
    let sources = debian_sources()?;
    let main = sources.first().context("apt names no Debian mirror; run apt-get update")?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", &main.release]).arg(root).arg(&main.uri);
    command::run(debootstrap.stdout(Stdio::null()))?;
    let lines: String = sources.iter().map(Source::line).collect();
    write(root, "etc/apt/sources.list", &lines)?;
    write(root, "etc/apt/apt.conf.d/90host", &apt_transport()?)?;
    for file in ["/etc/resolv.conf", "/etc/hosts"] {
        let text = fs::read_to_string(file).unwrap_or_default();
        write(root, file.trim_start_matches('/'), &text)?;
    }
    let certificates = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let certificates = certificates.unwrap_or_else(|| "/etc/ssl/certs/ca-certificates.crt".into());
    if let Ok(text) = fs::read_to_string(certificates) {
        write(root, CERTIFICATES.trim_start_matches('/'), &text)?;
    }
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet", "--no-hardlinks"]).arg(&workspace.root);
    command::run(clone.arg(root.join(CLONE.trim_start_matches('/'))))
}

/// Mounts what the command needs and runs it, in a mount namespace of their own.
fn enter(root: &Path, wanted: &str) -> Result<()> {
    let home = PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    let folder =
        |name: &str, default: &str| env::var_os(name).map_or_else(|| home.join(default), PathBuf::from);
    let (cargo, rustup) = (folder("CARGO_HOME", ".cargo"), folder("RUSTUP_HOME", ".rustup"));
    let script = r#"set -eu
        root=$1; command=$2; clone=$3; shift 3
        while [ "$1" != -- ]; do
            mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; shift
        done
        shift
        exec chroot "$root" env -i "$@" sh -c 'cd "$1" && eval "$2"' sh "$clone" "$command""#;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(root);
    unshare.args([wanted, CLONE, "/proc", "/sys", "/dev"]).args([&cargo, &rustup]).arg("--");
    unshare.args(variables(&home, &cargo, &rustup));
    eprintln!("+ {wanted}   (in {})", root.display());
    let started = Instant::now();
    let status = unshare.status().context("unshare did not start")?;
    eprintln!("`{wanted}` took {:.0} s on a bare system", started.elapsed().as_secs_f64());
    if !status.success() {
        bail!("`{wanted}` failed on a bare system: {status}");
    }
    Ok(())
}

/// The environment of a plain log-in, with this machine's ways to the network.
fn variables(home: &Path, cargo: &Path, rustup: &Path) -> Vec<OsString> {
    let pair = |name: &str, value: OsString| {
        let mut pair = OsString::from(format!("{name}="));
        pair.push(value);
        pair
    };
    let mut path = cargo.join("bin").into_os_string();
    path.push(":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let mut variables = vec![
        pair("HOME", home.into()),
        pair("PATH", path),
        pair("CARGO_HOME", cargo.into()),
        pair("RUSTUP_HOME", rustup.into()),
        pair("LANG", "C.UTF-8".into()),
        pair("SSL_CERT_FILE", CERTIFICATES.into()),
        pair("CARGO_HTTP_CAINFO", CERTIFICATES.into()),
    ];
    variables.extend(env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str()?;
        is_network_setting(name).then(|| pair(name, value))
    }));
    variables
}

fn is_network_setting(name: &str) -> bool {
    const PREFIXES: [&str; 4] = ["CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_", "RUSTUP_DIST_"];
    name.to_ascii_lowercase().ends_with("_proxy")
        || name == "RUSTUP_AUTO_INSTALL"
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// One archive that apt here reads.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    uri: String,
    release: String,
    component: String,
}

impl Source {
    fn line(&self) -> String {
        format!("deb {} {} {}\n", self.uri, self.release, self.component)
    }
}

/// Debian's own archives among those apt knows, the main one first.
fn debian_sources() -> Result<Vec<Source>> {
    let format = "$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)";
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", format, "Created-By: Packages"])
        .output()
        .context("apt-get did not start; this works on Debian only")?;
    Ok(parse_sources(&String::from_utf8_lossy(&output.stdout)))
}

fn parse_sources(printed: &str) -> Vec<Source> {
    let mut sources: Vec<Source> = printed
        .lines()
        .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["Debian", uri, release, component] => Some(Source {
                uri: uri.to_owned(),
                release: release.to_owned(),
                component: component.to_owned(),
            }),
            _ => None,
        })
        .collect();
    // `bookworm` is the archive itself, `bookworm-updates` and the like are beside it.
    sources.sort_by_key(|source| (source.release.contains('-'), source.component != "main"));
    sources
}

/// How apt reaches its mirrors from here: proxies, retries, certificates.
fn apt_transport() -> Result<String> {
    let output = Command::new("apt-config").arg("dump").output().context("apt-config did not start")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let wanted = |line: &&str| line.starts_with("Acquire::http") || line.starts_with("Acquire::Retries");
    Ok(printed.lines().filter(wanted).fold(String::new(), |text, line| text + line + "\n"))
}

fn write(root: &Path, file: &str, text: &str) -> Result<()> {
    let path = root.join(file);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&path, text).with_context(|| format!("{} can't be written", path.display()))
}

/// Removes the temporary system once this process has ended, however it ends: a child waits for its
/// pipe to close, deaf to Ctrl-C.
struct Remover(Child);

impl Remover {
    fn start(root: &Path) -> Result<Self> {
        let script = r#"trap "" INT TERM HUP; cat >/dev/null; rm -rf --one-file-system "$1""#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(root).stdin(Stdio::piped());
        Ok(Self(command.spawn().context("sh did not start")?))
    }

    fn finish(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        self.0.wait().context("the temporary system was not removed")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_archive_comes_first() {
        let printed = "Debian http://a/security/ bookworm-security main\n\
                       Node http://node/ nodistro main\n\
                       Debian http://a/debian/ bookworm main\n";
        let sources = parse_sources(printed);
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].line(), "deb http://a/debian/ bookworm main\n");
    }

    #[test]
    fn only_ways_to_the_network_are_passed_on() {
        assert!(is_network_setting("https_proxy") && is_network_setting("CARGO_REGISTRIES_X_INDEX"));
        assert!(!is_network_setting("CARGO_MANIFEST_DIR") && !is_network_setting("RUSTUP_TOOLCHAIN"));
    }
}
