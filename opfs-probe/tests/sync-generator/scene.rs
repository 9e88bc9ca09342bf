//! What a case works in: its own directory, the board, and the names that files had when they were synced.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::board::Board;
use crate::line::Place;
use crate::process::Program;
use crate::sys::{self, c_path};

/// How a case ended.
pub enum Verdict {
    Done,
    /// It couldn't run here, and why.
    Skipped(String),
}

/// A file, or none, under one of its names and in one state.
#[derive(Clone, Debug, Default)]
pub struct PlaceTruth {
    /// Tells files of the case apart: the places of one file share it
    pub file: Option<u32>,
    pub path: Option<Vec<u8>>,
    /// Names of the same file that a report may rightly give instead
    pub other_paths: Vec<PathBuf>,
    pub deleted: bool,
    /// The report may give this path, or none
    pub path_uncertain: bool,
    pub answered_by_seccomp: bool,
}

/// What a case works in.
pub struct Scene {
    pub dir: PathBuf,
    pub board: Board,
    pub places: Vec<PlaceTruth>,
    pub notes: Vec<String>,
    /// Why the opens of this case can't all be known
    pub opens_unknown: Option<String>,
    pub own_mount_namespace: bool,
    files: u32,
}

impl Scene {
    pub fn new(dir: PathBuf, board: Board) -> Self {
        Self {
            dir,
            board,
            places: Vec::new(),
            notes: Vec::new(),
            opens_unknown: None,
            own_mount_namespace: false,
            files: 0,
        }
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    pub fn place(&mut self, truth: PlaceTruth) -> Place {
        self.places.push(truth);
        Place(self.places.len() as u32 - 1)
    }

    fn new_file(&mut self) -> u32 {
        self.files += 1;
        self.files
    }

    /// A new file under its path.
    pub fn file(&mut self, path: &Path) -> Place {
        let file = Some(self.new_file());
        self.place(PlaceTruth {
            file,
            path: Some(path.as_os_str().as_bytes().to_owned()),
            ..PlaceTruth::default()
        })
    }

    /// The same file with something changed.
    pub fn variant(&mut self, place: Place, change: impl FnOnce(&mut PlaceTruth)) -> Place {
        let mut truth = self.places[place.0 as usize].clone();
        change(&mut truth);
        self.place(truth)
    }

    /// The same file under another name.
    pub fn renamed(&mut self, place: Place, path: &Path) -> Place {
        self.variant(place, |truth| truth.path = Some(path.as_os_str().as_bytes().to_owned()))
    }

    /// The same file, its name gone.
    pub fn deleted(&mut self, place: Place) -> Place {
        self.variant(place, |truth| truth.deleted = true)
    }

    /// No file at all: a bad descriptor, `sync`.
    pub fn nowhere(&mut self) -> Place {
        self.place(PlaceTruth::default())
    }

    /// What /proc/self/fd shows for a descriptor: for what has no name of our choosing.
    pub fn as_shown(&mut self, fd: &OwnedFd) -> Result<Place> {
        let (path, deleted) = sys::shown_path(fd.as_raw_fd()).context("reading /proc/self/fd")?;
        let place = self.file(&path);
        let known = self.places.iter().find(|known| known.path == self.places[place.0 as usize].path);
        let file = known.and_then(|known| known.file);
        // Both ends of a pipe are one file.
        self.places[place.0 as usize].file = file;
        self.places[place.0 as usize].deleted = deleted;
        Ok(place)
    }

    /// Where a name of this case lies.
    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.dir.join(Path::new(name.as_ref()))
    }

    /// A new file of this case, with a block of data that isn't on the disk yet.
    pub fn create(&mut self, name: impl AsRef<OsStr>) -> Result<(Place, OwnedFd)> {
        let path = self.path(name);
        let fd = create(self.board, &path)?;
        Ok((self.file(&path), fd))
    }

    /// A directory of this case.
    pub fn make_dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(path)
    }

    /// This program again, to do what `actions` says (see [`run_hidden`]).
    pub fn itself(&mut self, place: Place, actions: &[String]) -> Result<Program> {
        self.opens_unknown = Some("a program that is exec'ed opens its libraries".to_owned());
        let own = std::env::current_exe().context("finding the own executable")?;
        let mut arguments = vec![HIDDEN.to_owned(), self.board.fd().to_string(), place.0.to_string()];
        arguments.extend_from_slice(actions);
        Ok(Program::new(&own, &arguments))
    }
}

/// Opens a new file and writes a block.
pub fn create(board: Board, path: &Path) -> Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
    let fd = board.open_at(libc::AT_FDCWD, &c_path(path), flags);
    let fd = fd.with_context(|| format!("creating {}", path.display()))?;
    sys::write_all(&fd, &[b'x'; 4096]).with_context(|| format!("writing {}", path.display()))?;
    Ok(fd)
}

/// Opens a file that exists.
pub fn open(board: Board, path: &Path, flags: i32) -> Result<OwnedFd> {
    let fd = board.open_at(libc::AT_FDCWD, &c_path(path), flags);
    fd.with_context(|| format!("opening {}", path.display()))
}

/// The hidden mode in which this program runs itself: `HIDDEN BOARD-FD PLACE (path FILE|fd NUMBER) COUNT`.
pub const HIDDEN: &str = "--as-exec-child";

/// Syncs as often as it is told, on a file it opens or a descriptor it inherited.
pub fn run_hidden(arguments: &[String]) -> Result<()> {
    let [board, place, how, what, count] = arguments else {
        anyhow::bail!("the hidden mode takes five arguments");
    };
    let board = Board::inherited(board.parse()?)?;
    let place = Place(place.parse()?);
    let opened;
    let fd: RawFd = if how == "path" {
        opened = open(board, Path::new(what), libc::O_RDWR)?;
        opened.as_raw_fd()
    } else {
        what.parse()?
    };
    for _ in 0..count.parse::<u32>()? {
        board.fsync(place, fd)?;
    }
    Ok(())
}
