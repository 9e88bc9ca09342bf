//! The page's files, in the binary.

/// A file that is served.
#[derive(Clone, Copy, Debug)]
pub struct PageFile {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! page_files {
    ($($name:literal)*) => {
        /// Every file of the benchmark page and its examples.
        const FILES: &[PageFile] =
            &[$(PageFile { name: $name, text: include_str!(concat!("../bench/page/", $name)) }),*];
    };
}

page_files! {
    "client.js"
    "derived.js"
    "example.html"
    "example.js"
    "form.js"
    "format.js"
    "index.html"
    "main.js"
    "markdown.js"
    "plan.js"
    "problems.js"
    "progress.js"
    "results.js"
    "statistics.js"
    "style.css"
    "worker.js"
    "workloads.js"
}

impl PageFile {
    /// The file with that name.
    pub fn find(name: &str) -> Option<Self> {
        FILES.iter().find(|file| file.name == name).copied()
    }

    /// Its media type, by its name's ending.
    pub fn content_type(&self) -> &'static str {
        match self.name.rsplit_once('.') {
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "js")) => "text/javascript; charset=utf-8",
            _ => "application/octet-stream",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_type_and_every_reference_a_file() {
        for file in FILES {
            assert_ne!(file.content_type(), "application/octet-stream", "{}", file.name);
            for start in ["\"./", "=\"/bench/"] {
                for part in file.text.split(start).skip(1) {
                    let name = part.split('"').next().unwrap();
                    assert!(PageFile::find(name).is_some(), "{} refers to {name}: not embedded", file.name);
                }
            }
        }
    }
}
